//! `report`: self-contained HTML pages of results and comparisons, and files of plots.

mod axis;
mod draw;
mod page;
mod plots;
mod tables;
#[cfg(test)]
mod tests;
mod theme;

use std::path::Path;

use self::draw::Plot;
pub(crate) use self::page::{compared, merged, page};
use crate::files::{refused, write_file};
use crate::results::Results;

/// Message for results that have no plot.
const NO_PLOT: &str = "nothing to plot: a plot needs at least two sizes, two numbers of queues or of segments, three depths, or \
    three numbers of operations for each doorbell";

/// Writes an SVG and a PNG of every plot into `folder`, for light and for dark slides.
pub(crate) fn files(results: &Results, folder: &Path) -> Result<(), String> {
    let questions = [false, true].into_iter().flat_map(|models| plots::questions(results, models));
    let plots: Vec<Plot> = questions.flat_map(|q| q.plots).collect();
    if plots.is_empty() {
        return Err(NO_PLOT.to_owned());
    }
    std::fs::create_dir_all(folder).map_err(|e| refused(folder, &e))?;
    for plot in plots {
        for theme in [theme::LIGHT, theme::DARK] {
            let name =
                if theme.name == "light" { plot.id.clone() } else { format!("{}-{}", plot.id, theme.name) };
            let write = |kind: &str, bytes: &[u8]| write_file(&folder.join(format!("{name}.{kind}")), bytes);
            write("svg", plot.svg(&theme)?.as_bytes())?;
            write("png", &plot.png(&theme)?)?;
        }
    }
    Ok(())
}
