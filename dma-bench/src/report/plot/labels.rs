//! The labels of marks, which keep off each other and off each other's lines.

use plotters::coord::ranged1d::Ranged;
use plotters::prelude::*;

use super::Plot;
use super::axis::Ticks;
use super::draw::{LEGEND, MARGINS, Y_LABELS};
use super::pen::{FONT, SIZE, clean};

/// The size of the labels of marks.
pub(super) const LABEL: i32 = 12;
/// From the line of a mark to its label.
pub(super) const BESIDE: i32 = 3;
/// From one row of labels to the next.
pub(super) const ROW: i32 = 14;
/// The least between two labels of a row.
const GAP: i32 = 6;
/// The most rows of labels.
const ROWS: usize = 6;

/// The label of a mark, unscaled, from the left edge of the picture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label {
    /// Which mark's.
    pub(super) mark: usize,
    /// Where the text begins, and its row above the chart; `None` if there is no room.
    pub(super) place: Option<(i32, i32)>,
}

impl Plot {
    /// Where the labels of the marks go: each to the right of a line that goes up from its mark, in the lowest row where neither it nor its line
    /// meets another. Those for which there is no row have no place.
    pub(super) fn labels(&self, xs: &Ticks) -> Vec<Label> {
        let sides = (MARGINS.0 + Y_LABELS, SIZE.0 as i32 - LEGEND - MARGINS.1);
        let font = (FONT, LABEL).into_font();
        let mut labels = Vec::new();
        // How far to the right there is room in each row.
        let mut free = [SIZE.0 as i32; ROWS];
        // From the right, for then what is placed later lies to the left of all before it, and of their lines.
        for (mark, (at, words, _)) in self.marks.iter().enumerate().rev() {
            let x = self.x.place(*at);
            if x < xs.from || x > xs.to {
                continue;
            }
            let pole = xs.map(&x, sides);
            let width = font.box_size(&clean(words)).map_or(LABEL * words.len() as i32, |b| b.0 as i32);
            let (from, to) = (pole + BESIDE, pole + BESIDE + width);
            let row = free.iter().position(|end| to + GAP <= *end);
            if let Some(row) = row {
                free[..=row].fill(pole);
            }
            labels.push(Label { mark, place: row.map(|row| (from, row as i32)) });
        }
        labels
    }
}
