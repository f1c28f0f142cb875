//! The end of the page: what was not measured, and how the rest was.

use std::fmt::Write as _;

use super::tables::tag;
use crate::report::escape;
use crate::results::{Results, Status};
use crate::units::{digits, nanos};

pub(super) fn troubles(body: &mut String, results: &Results) {
    let mut lines: Vec<String> = results
        .engines
        .iter()
        .filter_map(|e| Some(format!("<li><b>{}</b>: {}</li>", escape(&e.name), escape(e.error.as_ref()?))))
        .collect();
    for m in results.troubled() {
        let class = if m.status == Status::Wrong { " class=\"bad\"" } else { "" };
        let message = m.message.as_deref().unwrap_or_default();
        lines.push(format!("<li{class}><b>{}</b>: {}</li>", escape(&m.cell.to_string()), escape(message)));
    }
    if !lines.is_empty() {
        let _ = writeln!(body, "<h2>Not measured, or not to the end</h2>\n<ul>\n{}\n</ul>", lines.join("\n"));
    }
}

pub(super) fn details(body: &mut String, results: &Results) {
    let m = &results.machine;
    let c = &results.campaign;
    let left_out: u64 = results.cells.iter().filter(|m| !m.cell.is_baseline()).map(|m| m.left_out).sum();
    let verified: u64 = results.cells.iter().map(|m| m.verified).sum();
    let mut fewer =
        c.limit.map_or(String::new(), |most| format!(", of which none began after {} s", digits(most)));
    if c.precision > 0.0 {
        let known = digits(c.precision * 100.0);
        let _ = write!(
            fewer,
            ", and cells whose ratio is known to within {known} % (twice that below 4 KiB) were in a sixth of what was left"
        );
    }
    let _ = write!(
        body,
        "<h2 id=\"how\">How it was measured</h2>\n<p>Each repetition of an engine lies between two of memcpy (the C library's, on one core), and its ratio is to these, so that what the machine did else hits both. \
         Up to {} repetitions of about {} each, in up to {} passes over all cells{fewer}; {left_out} are left out because they were disturbed: threads waited for a CPU, the core's other hardware thread was busy, or the second core was elsewhere than usual. The bytes of {verified} operations \
         were compared with what they should be. dma-bench {}, {} s in all.</p>\n",
        c.repetitions,
        nanos(c.seconds * 1e9),
        crate::runner::passes(c),
        escape(&results.tool),
        digits(results.seconds),
    );
    let rows = [
        ("instructions", m.flags.join(" ")),
        ("caches", m.caches.join(", ")),
        ("memory", format!("{} MiB", m.memory >> 20)),
        ("governor", m.governor.clone().unwrap_or_else(|| "not known".to_owned())),
        ("huge pages", m.huge_pages.clone().unwrap_or_else(|| "not known".to_owned())),
        ("load before", m.load.map_or("not known".to_owned(), digits)),
    ];
    body.push_str("<div class=\"wide\"><table><tbody>\n");
    for (name, value) in rows {
        let _ = writeln!(body, "<tr><td>{name}</td><td class=\"source\">{}</td></tr>", escape(&value));
    }
    for e in results.engines.iter().filter(|e| e.error.is_none()) {
        let _ = writeln!(
            body,
            "<tr><td>{}{}</td><td class=\"source\">{}, version {}, {} clock</td></tr>",
            escape(&e.name),
            tag(e.model.is_some()),
            escape(&e.device),
            escape(&e.version),
            escape(&e.clock),
        );
    }
    let toml = toml::to_string(c).unwrap_or_default();
    let _ = writeln!(
        body,
        "</tbody></table></div>\n<details><summary>The campaign, to be run again with <code>dma-bench run --campaign FILE</code></summary><pre>{}</pre></details>",
        escape(&toml)
    );
}
