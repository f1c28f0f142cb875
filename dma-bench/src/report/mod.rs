//! `report`: one self-contained HTML page, and files of its plots.

mod curves;
mod page;
mod plot;

use std::path::Path;

pub use page::page;

use crate::files::remedy;
use crate::results::{Results, write_file};

/// Text for HTML and XML.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c if c.is_control() && c != '\n' => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Said where there is no plot.
const NO_PLOT: &str = "nothing to plot: a plot takes at least two sizes, numbers of queues or of segments, or three depths or numbers of operations for each doorbell";

/// Writes an SVG and a PNG of every plot into `folder`, for light and for dark slides.
///
/// # Errors
///
/// The system refuses, or there is nothing to plot.
pub fn files(results: &Results, folder: &Path) -> Result<(), String> {
    let plots = curves::plots(results);
    if plots.is_empty() {
        return Err(NO_PLOT.to_owned());
    }
    std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}{}", folder.display(), remedy(&e)))?;
    for plot in plots {
        for theme in [plot::LIGHT, plot::DARK] {
            let name =
                if theme.name == "light" { plot.id.clone() } else { format!("{}-{}", plot.id, theme.name) };
            let write = |kind: &str, bytes: &[u8]| {
                write_file(&folder.join(format!("{name}.{kind}")), bytes).map_err(|e| e.to_string())
            };
            write("svg", plot.svg(&theme)?.as_bytes())?;
            write("png", &plot.png(&theme)?)?;
        }
    }
    Ok(())
}
