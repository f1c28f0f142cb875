//! The page: what is on it in which order, its head, and its plots.

mod details;
mod tables;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use details::{details, troubles};
use tables::{crossovers, knees, published, table};

use super::plot::{Plot, styles};
use super::{NO_PLOT, curves, escape};
use crate::derive::{HERE, missed};
use crate::output::{against, crossover_at};
use crate::plan::Op;
use crate::results::{Measured, Results};
use crate::units::{bytes, command_line, digits, gigabytes};

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
         <title>dma-bench: {}</title>\n<style>\n{}{}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n",
        escape(&results.campaign.name),
        include_str!("style.css"),
        styles(),
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
            "<figure id=\"{}\"><div class=\"plot\">{}</div>{}</figure>",
            escape(&plot.id),
            plot.inline()?,
            left_out(plot),
        );
    }
    Ok(())
}

/// What a plot has no room for: its names, folded away if they are many.
fn left_out(plot: &Plot) -> String {
    const MANY: usize = 12;
    let names = escape(&plot.left_out.join("; "));
    match plot.left_out.len() {
        0 => String::new(),
        n if n > MANY => format!(
            "<figcaption class=\"dim\"><details><summary>{n} curves are not drawn, for want of room. The table has their figures.</summary>{names}</details></figcaption>"
        ),
        _ => format!(
            "<figcaption class=\"dim\">Not drawn, for want of room: {names}. The table has their figures.</figcaption>"
        ),
    }
}
