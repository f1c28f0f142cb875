//! The legend: to the right of the chart, a line for each curve, and how much is not shown.

use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;

use super::Plot;
use super::palette::Role;
use super::pen::{Drawn, Pen, clean, text};

/// Where names begin in the legend.
const NAMES: i32 = 50;

impl Plot {
    /// Draws it from `top` downwards; `hidden` marks have no label.
    pub(super) fn legend<DB: DrawingBackend>(
        &self,
        area: &DrawingArea<DB, Shift>,
        pen: &Pen<'_>,
        top: i32,
        hidden: usize,
    ) -> Drawn {
        let name = pen.font(13, Role::Ink);
        let mut y = pen.px(top - 4);
        for (i, series) in self.series.iter().enumerate() {
            let style = self.style(i);
            // As long as two of the longest dashes.
            let middle = y + pen.px(7);
            let line = [(pen.px(6), middle), (pen.px(42), middle)];
            let stroke = pen.stroke(style.role, style.width());
            match style.dash {
                Some((dash, gap)) => {
                    area.draw(&DashedPathElement::new(line, pen.px(dash), pen.px(gap), stroke))
                        .map_err(text)?;
                }
                None => area.draw(&PathElement::new(line, stroke)).map_err(text)?,
            }
            pen.dot(area, style, (pen.px(24), middle))?;
            for part in wrapped(&clean(&series.name), 24) {
                area.draw(&Text::new(part, (pen.px(NAMES), y), name.clone())).map_err(text)?;
                y += pen.px(16);
            }
            y += pen.px(6);
        }
        let dim = pen.font(13, Role::Dim);
        if !self.left_out.is_empty() {
            let more = format!("and {} not drawn", self.left_out.len());
            area.draw(&Text::new(more, (pen.px(NAMES), y), dim.clone())).map_err(text)?;
            y += pen.px(18);
        }
        if hidden > 0 {
            let more = format!("labels left out: {hidden}");
            area.draw(&Text::new(more, (pen.px(NAMES), y), dim)).map_err(text)?;
        }
        Ok(())
    }
}

/// A text in lines of at most `width` characters, cut where there is a space or a comma if possible.
pub(super) fn wrapped(name: &str, width: usize) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in name.split_inclusive([' ', ',', ':']) {
        match words.last_mut() {
            // A number stays with its unit.
            Some(number) if UNITS.contains(&word.trim_end_matches([' ', ','])) && counts(number) => {
                number.push_str(word)
            }
            _ => words.push(word.to_owned()),
        }
    }
    let mut lines = vec![String::new()];
    for word in words {
        let last = lines.len() - 1;
        if lines[last].chars().count() + word.trim_end().chars().count() > width && !lines[last].is_empty() {
            lines.push(word);
        } else {
            lines[last].push_str(&word);
        }
    }
    lines.truncate(3);
    lines
}

/// What sizes are counted in.
const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];

fn counts(word: &str) -> bool {
    word.trim_end().parse::<f64>().is_ok()
}
