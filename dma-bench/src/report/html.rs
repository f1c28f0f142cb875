//! The page.

use std::fmt::Write as _;

use super::plot::{DARK, LIGHT, Plot};
use super::{NO_PLOT, curves, escape};
use crate::derive::{HERE, missed};
use crate::output::{against, crossover_at, crossover_depth, depth, latencies, speed, what};
use crate::plan::Op;
use crate::results::{Crossover, Measured, Results, Status};
use crate::stats::Figures;
use crate::units::{bytes, command_line, digits, gigabytes, nanos};

/// One HTML page with everything in it: nothing is loaded, nothing is run.
///
/// # Errors
///
/// The plotting library fails.
pub fn page(results: &Results) -> Result<String, String> {
    let plots = curves::plots(results);
    let (models, measured): (Vec<_>, Vec<_>) = plots.iter().partition(|p| p.id.starts_with("model-"));
    let mut body = String::new();
    header(&mut body, results);
    cards(&mut body, results);
    if results.with_figures(false).next().is_some() {
        body += "<h2 id=\"measured\">Measured</h2>\n";
        figures(&mut body, &measured)?;
        table(&mut body, results, false);
    }
    if results.engines.iter().any(|e| e.model.is_some()) {
        body += "<h2 id=\"models\">Models</h2>\n<div class=\"note\"><b>Not measured.</b> These devices are simulated. Each is a model of what stands beside it, with the source of its figures: ";
        let sources: Vec<_> = results
            .engines
            .iter()
            .filter_map(|e| Some(format!("<code>{}</code>: {}", escape(&e.name), escape(e.model.as_ref()?))))
            .collect();
        let _ = writeln!(
            body,
            "{}. The memcpy beside them was measured on this machine.</div>",
            sources.join("; ")
        );
        if results.with_figures(true).next().is_some() {
            figures(&mut body, &models)?;
        }
        table(&mut body, results, true);
    }
    crossovers(&mut body, &results.crossovers);
    knees(&mut body, results);
    published(&mut body, results);
    troubles(&mut body, results);
    details(&mut body, results);
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>dma-bench: {}</title>\n<style>\n{}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n",
        escape(&results.campaign.name),
        include_str!("style.css"),
    ))
}

fn header(body: &mut String, results: &Results) {
    let m = &results.machine;
    let virt = if m.virtual_machine { ", a virtual machine" } else { "" };
    let _ = write!(
        body,
        "<h1>DMA engines against memcpy</h1>\n<p class=\"dim\">{} with {} CPUs{virt} &middot; {} &middot; Linux {} &middot; {} &middot; {}</p>\n<pre>{}</pre>\n",
        escape(&m.cpu),
        m.cpus,
        escape(&m.os),
        escape(&m.kernel),
        escape(&m.libc),
        escape(&results.created),
        escape(&command_line(&results.command)),
    );
    for busy in results.busy() {
        let _ = writeln!(body, "<div class=\"note\"><b>Busy.</b> {}</div>", escape(&busy));
    }
    if let Some(cached) = results.cached() {
        let _ = writeln!(body, "<div class=\"note\"><b>In the cache.</b> {}</div>", escape(&cached));
    }
    if let Some(rate) = results.at_rate() {
        let _ = writeln!(body, "<div class=\"note\"><b>At a rate.</b> {}</div>", escape(&rate));
    }
    if let Some(missed) = missed(results) {
        let _ = writeln!(body, "<div class=\"note\"><b>Too slow.</b> {}</div>", escape(&missed));
    }
    if let Some(stopped) = results.stopped() {
        let _ = writeln!(body, "<div class=\"note\"><b>Interrupted.</b> {}</div>", escape(&stopped));
    }
    // Where these lead there is something: a page may have models alone, or nothing.
    let measured = results.with_figures(false).next().is_some();
    let models = results.engines.iter().any(|e| e.model.is_some());
    let figures = measured || results.with_figures(true).next().is_some();
    body.push_str("<nav>");
    for (there, to, name) in [
        (measured, "measured", "Measured"),
        (models, "models", "Models"),
        (figures, "figures", "Figures"),
        (true, "how", "How"),
    ] {
        if there {
            let _ = write!(body, "<a href=\"#{to}\">{name}</a>");
        }
    }
    body.push_str("</nav>\n");
}

/// The answer in a few numbers: for each measured engine the best ratio and where it begins to pay.
fn cards(body: &mut String, results: &Results) {
    body.push_str("<div class=\"cards\">\n");
    let best = |list: &mut dyn Iterator<Item = &Measured>| {
        list.filter(|m| m.cell.op == Op::Copy && m.ratio.is_some())
            .max_by(|a, b| {
                a.ratio
                    .as_ref()
                    .map(|r| r.median)
                    .unwrap_or(0.0)
                    .total_cmp(&b.ratio.as_ref().map(|r| r.median).unwrap_or(0.0))
            })
            .cloned()
    };
    for engine in results.engines.iter().filter(|e| e.error.is_none() && e.model.is_none()) {
        let mut cells =
            results.cells.iter().filter(|m| m.cell.engine == engine.name && !m.cell.is_baseline());
        if let Some(m) = best(&mut cells)
            && let (Some(ratio), Some(speed)) = (&m.ratio, &m.bytes_per_second)
        {
            let _ = writeln!(
                body,
                "<div class=\"card\"><span>{} at its best</span><b>{} &times; memcpy</b><span>{} GB/s; {} {}, {} in flight</span></div>",
                escape(&engine.name),
                digits(ratio.median),
                gigabytes(speed.median),
                bytes(m.cell.size),
                m.cell.footprint,
                m.cell.depth,
            );
        }
    }
    for c in results.crossovers.iter().filter(|c| !c.model && c.against == HERE).take(4) {
        let _ = writeln!(
            body,
            "<div class=\"card\"><span>{}, {}, {} in flight: faster than {}</span><b>{}</b><span>{}</span></div>",
            escape(&c.engine),
            c.footprint,
            c.depth,
            escape(against(c).trim_end_matches(" here")),
            crossover_at(c),
            if c.bytes.is_some() && !c.always { "and longer" } else { "of the sizes measured" },
        );
    }
    body.push_str("</div>\n");
}

fn figures(body: &mut String, plots: &[&Plot]) -> Result<(), String> {
    if plots.is_empty() {
        let _ = writeln!(body, "<p class=\"dim\">There is {NO_PLOT}.</p>");
    }
    for plot in plots {
        let _ = writeln!(
            body,
            "<figure id=\"{}\"><div class=\"light\">{}</div><div class=\"dark\">{}</div>{}</figure>",
            escape(&plot.id),
            plot.svg(&LIGHT)?,
            plot.svg(&DARK)?,
            left_out(plot),
        );
    }
    Ok(())
}

/// What a plot has no room for.
fn left_out(plot: &Plot) -> String {
    if plot.left_out.is_empty() {
        return String::new();
    }
    let names = escape(&plot.left_out.join("; "));
    format!(
        "<figcaption class=\"dim\">Not drawn, for want of room: {names}. The table has their figures.</figcaption>"
    )
}

fn spread(figures: Option<&Figures>, scale: f64) -> String {
    let of = |v: f64| digits(v * scale);
    figures.map_or("-".to_owned(), |f| {
        format!("{} <small>{}&ndash;{}</small>", of(f.median), of(f.min), of(f.max))
    })
}

fn table(body: &mut String, results: &Results, models: bool) {
    let mut cells: Vec<_> = results.with_figures(models).collect();
    if cells.is_empty() {
        return;
    }
    cells.sort_by_key(|m| {
        let c = &m.cell;
        (c.op, c.direction, c.footprint, c.segments, c.size, c.depth, !c.is_baseline())
    });
    // The first table.
    let first = !models || results.with_figures(false).next().is_none();
    let id = if first { " id=\"figures\"" } else { "" };
    let tag = if models { " <span class=\"tag\">model</span>" } else { "" };
    let _ = write!(
        body,
        "<h3{id}>Figures{tag}</h3>\n<p class=\"dim\">Median of the repetitions, the least and the greatest beside it. CPU time is that of the whole process.</p>\n\
         <div class=\"wide\"><table><thead><tr><th>what</th><th class=\"n\">size</th><th>engine</th><th class=\"n\">depth</th><th class=\"n\">GB/s</th>\
         <th class=\"n\">ops/s</th><th class=\"n\">&times; memcpy</th><th class=\"n\">p50</th><th class=\"n\">p90</th><th class=\"n\">p99</th><th class=\"n\">p99.9</th><th class=\"n\">max</th>\
         <th class=\"n\">CPU/op</th><th class=\"n\">CPU s/GB</th><th class=\"n\">bells/op</th><th class=\"n\">polls/op</th></tr></thead><tbody>\n"
    );
    for m in cells {
        let c = &m.cell;
        let [p50, p90, p99, p999, max] = latencies(m);
        let plain = |v: Option<f64>| v.map_or("-".to_owned(), digits);
        let ratio = if c.is_baseline() { "-".to_owned() } else { spread(m.ratio.as_ref(), 1.0) };
        let figures = [
            depth(c),
            spread(m.bytes_per_second.as_ref(), 1e-9),
            speed(&results.campaign, m),
            ratio,
            p50,
            p90,
            p99,
            p999,
            max,
            m.cpu_ns_per_op.as_ref().map_or("-".to_owned(), |f| nanos(f.median)),
            plain(m.cpu_s_per_gb.as_ref().map(|f| f.median)),
            plain(m.doorbells_per_op),
            plain(m.polls_per_op),
        ];
        let _ = write!(
            body,
            "<tr{}><td>{}</td><td class=\"n\">{}</td><td>{}{tag}</td>",
            if c.is_baseline() { " class=\"base\"" } else { "" },
            what(c),
            bytes(c.size),
            escape(&c.engine),
        );
        for figure in figures {
            let _ = write!(body, "<td class=\"n\">{figure}</td>");
        }
        body.push_str("</tr>\n");
    }
    body.push_str("</tbody></table></div>\n");
}

fn tag(model: bool) -> &'static str {
    if model { " <span class=\"tag\">model</span>" } else { "" }
}

fn crossovers(body: &mut String, all: &[Crossover]) {
    if all.is_empty() {
        return;
    }
    body.push_str("<h2>Faster than memcpy from</h2>\n<div class=\"wide\"><table><thead><tr><th>engine</th><th>depth</th><th>memory</th><th class=\"n\">from</th><th>against</th></tr></thead><tbody>\n");
    for c in all {
        let _ = writeln!(
            body,
            "<tr><td>{}{}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"source\">{}</td></tr>",
            escape(&c.engine),
            tag(c.model),
            crossover_depth(c),
            c.footprint,
            crossover_at(c),
            escape(&against(c)),
        );
    }
    body.push_str("</tbody></table></div>\n");
}

fn knees(body: &mut String, results: &Results) {
    if results.knees.is_empty() {
        return;
    }
    body.push_str("<h2>Smallest depth with 95 % of the best throughput</h2>\n<div class=\"wide\"><table><thead><tr><th>engine</th><th class=\"n\">size</th><th>memory</th><th>way</th><th class=\"n\">queues</th><th class=\"n\">depth</th><th class=\"n\">GB/s there</th><th class=\"n\">best</th></tr></thead><tbody>\n");
    for k in &results.knees {
        let _ = writeln!(
            body,
            "<tr><td>{}{}</td><td class=\"n\">{}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            escape(&k.engine),
            tag(k.model),
            bytes(k.size),
            k.footprint,
            k.direction,
            k.queues,
            k.depth,
            gigabytes(k.bytes_per_second),
            gigabytes(k.best),
        );
    }
    body.push_str("</tbody></table></div>\n");
}

fn published(body: &mut String, results: &Results) {
    if results.published.is_empty() {
        return;
    }
    let missed = results.published.iter().filter(|p| !p.holds).count();
    let _ = write!(
        body,
        "<h2>Models against published figures</h2>\n<p class=\"dim\">{} figures, {missed} beyond what the profile allows itself.</p>\n<div class=\"wide\"><table><thead><tr><th>profile</th><th>load</th><th>way</th><th class=\"n\">size</th><th>figure</th><th class=\"n\">published</th><th class=\"n\">simulated</th><th class=\"n\">off</th><th class=\"n\">allowed</th><th>source</th></tr></thead><tbody>\n",
        results.published.len()
    );
    for p in &results.published {
        let _ = writeln!(
            body,
            "<tr{}><td>{}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{:+.1} %</td><td class=\"n\">{:.0} %</td><td class=\"source\">{}</td></tr>",
            if p.holds { "" } else { " class=\"bad\"" },
            escape(&p.profile),
            escape(&p.load),
            escape(&p.direction),
            bytes(p.size),
            escape(&p.quantity),
            digits(p.published),
            digits(p.simulated),
            (p.simulated / p.published - 1.0) * 100.0,
            p.tolerance * 100.0,
            escape(&p.source),
        );
    }
    body.push_str("</tbody></table></div>\n");
}

fn troubles(body: &mut String, results: &Results) {
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

fn details(body: &mut String, results: &Results) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Cell;
    use crate::results::tests::sample;

    #[test]
    fn the_page_is_whole_small_and_loads_nothing() {
        let page = page(&sample()).unwrap();
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
        assert!(page.len() < 2 << 20, "{} bytes", page.len());
        for outside in ["<script", "src=", "href=\"http", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(page.matches("<svg").count() >= 8, "every plot, light and dark");
        assert!(page.contains("Not measured.</b>") && page.contains("dsa (a public &lt;source&gt;)"));
    }

    #[test]
    fn what_a_file_says_is_never_markup() {
        let mut results = sample();
        for m in &mut results.cells {
            if m.cell.engine == "cpu" {
                m.cell.engine = "<img onerror=alert(1)>&\"'".to_owned();
            }
        }
        results.engines[1].name = "<img onerror=alert(1)>&\"'".to_owned();
        results.machine.cpu = "</title><script>".to_owned();
        results.command.push("</pre><script>".to_owned());
        let page = page(&results).unwrap();
        assert!(!page.contains("<img") && !page.contains("<script"), "escaped");
        assert!(page.contains("&lt;img"));
    }

    /// Every link leads somewhere.
    fn links_lead(page: &str) {
        for link in page.split("href=\"#").skip(1) {
            let to = link.split('"').next().unwrap();
            assert_eq!(page.matches(&format!("id=\"{to}\"")).count(), 1, "#{to}");
        }
    }

    #[test]
    fn links_lead_somewhere() {
        links_lead(&page(&sample()).unwrap());
        let mut models = sample();
        models.cells.retain(|m| m.model);
        models.engines.retain(|e| e.model.is_some());
        let text = page(&models).unwrap();
        links_lead(&text);
        assert!(!text.contains("#measured") && text.contains("#models\">") && text.contains("#figures\">"));
        models.cells.clear();
        links_lead(&page(&models).unwrap());
        // A table without a plot is measured as well.
        let mut one = sample();
        one.cells.retain(|m| m.cell.size == 64 && !m.model);
        let text = page(&one).unwrap();
        links_lead(&text);
        assert!(text.contains("#measured"));
    }

    #[test]
    fn a_page_without_a_plot_says_why() {
        let said = |results: &Results| page(results).unwrap().matches(NO_PLOT).count();
        assert_eq!(said(&sample()), 0);
        let mut one = sample();
        one.cells.retain(|m| m.cell.size == 64);
        let text = page(&one).unwrap();
        assert!(!text.contains("<figure"));
        assert_eq!(said(&one), 2, "measured and models");
        let heading = text.split("<h2 id=\"measured\">Measured</h2>").nth(1).unwrap();
        assert!(heading.trim_start().starts_with("<p class=\"dim\">There is nothing to plot"), "not empty");
        one.cells.retain(|m| !m.model);
        assert_eq!(said(&one), 1, "models without figures have nothing to plot anyway");
    }

    #[test]
    fn rows_can_be_told_apart() {
        let mut results = sample();
        let like = results.cells[5].clone();
        results.cells = vec![like.clone(), like.clone(), like.clone(), like];
        results.cells[1].cell.queues = 2;
        results.cells[2].cell = Cell { op: Op::Sg, segments: 2, ..results.cells[0].cell.clone() };
        results.cells[3].cell = Cell { op: Op::Sg, segments: 8, ..results.cells[0].cell.clone() };
        results.crossovers[0].queues = 3;
        let page = page(&results).unwrap();
        for cell in [
            "<td>sg cold 2</td>",
            "<td>sg cold 8</td>",
            "<td class=\"n\">1 on 2</td>",
            "<td>1 by 1 on 3</td>",
        ] {
            assert_eq!(page.matches(cell).count(), 1, "{cell}");
        }
        for head in ["p50", "p90", "p99", "p99.9", "max"] {
            assert_eq!(page.matches(&format!("<th class=\"n\">{head}</th>")).count(), 1, "{head}");
        }
    }

    #[test]
    fn a_rate_that_is_missed_is_marked() {
        let mut results = sample();
        results.campaign.rate = Some(1e9);
        let page = page(&results).unwrap();
        assert!(page.contains(" % of the rate</td>") && page.contains("The rate was missed in 8 of 8 cells"));
    }
}
