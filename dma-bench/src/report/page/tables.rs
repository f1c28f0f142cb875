//! The tables of the page: figures, crossovers, knees, and models against what is published.

use std::fmt::Write as _;

use crate::output::{against, crossover_at, crossover_depth, depth, latencies, speed, what};
use crate::report::escape;
use crate::results::{Crossover, Results};
use crate::stats::Figures;
use crate::units::{bytes, digits, gigabytes, nanos};

fn spread(figures: Option<&Figures>, scale: f64) -> String {
    let of = |v: f64| digits(v * scale);
    figures.map_or("-".to_owned(), |f| {
        format!("{} <small>{}&ndash;{}</small>", of(f.median), of(f.min), of(f.max))
    })
}

pub(super) fn table(body: &mut String, results: &Results, models: bool) {
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

pub(super) fn tag(model: bool) -> &'static str {
    if model { " <span class=\"tag\">model</span>" } else { "" }
}

pub(super) fn crossovers(body: &mut String, all: &[Crossover]) {
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

pub(super) fn knees(body: &mut String, results: &Results) {
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

pub(super) fn published(body: &mut String, results: &Results) {
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
