//! [`Plot`]: curves on logarithmic axes. This file says what a plot is; the others draw it.

mod axis;
mod draw;
mod inline;
mod labels;
mod legend;
mod palette;
mod pen;
mod pictures;
#[cfg(test)]
mod tests;

pub(super) use axis::Axis;
pub(super) use inline::styles;
pub(super) use palette::{CURVES, DARK, LIGHT, REFERENCES};

use palette::Style;

/// What is drawn.
#[derive(Clone, Debug)]
pub(super) struct Plot {
    /// A name for files and anchors.
    pub(super) id: String,
    /// The title.
    pub(super) title: String,
    /// What the bands are, or whose figures these are.
    pub(super) note: String,
    /// What the models are made from, of a plot of models.
    pub(super) models: Vec<String>,
    /// What goes to the right.
    pub(super) x: Axis,
    /// What goes up.
    pub(super) y: Axis,
    /// The curves.
    pub(super) series: Vec<Series>,
    /// Places on the x axis that are marked: where, with what text, and in which curve's colour.
    pub(super) marks: Vec<(f64, String, usize)>,
    /// The names of curves that there was no room for.
    pub(super) left_out: Vec<String>,
}

/// A curve.
#[derive(Clone, Debug)]
pub(super) struct Series {
    /// Its name.
    pub(super) name: String,
    /// Its points by x.
    pub(super) points: Vec<(f64, Height)>,
    /// It is what others are compared with.
    pub(super) reference: bool,
}

/// How high a point is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Height {
    /// Where the line goes through.
    pub(super) middle: f64,
    /// From where to where the band reaches; none if that is not known.
    pub(super) band: Option<[f64; 2]>,
}

impl Height {
    /// A point whose band has no height.
    pub(super) fn flat(middle: f64) -> Self {
        Self { middle, band: Some([middle; 2]) }
    }

    /// All that has to be within the chart.
    fn all(self) -> impl Iterator<Item = f64> {
        std::iter::once(self.middle).chain(self.band.into_iter().flatten())
    }
}

impl Plot {
    /// How a curve is drawn: as none before it is.
    fn style(&self, series: usize) -> Style {
        let reference = self.series.get(series).is_some_and(|s| s.reference);
        let before = self.series.iter().take(series).filter(|s| s.reference == reference).count();
        Style::of(before, reference)
    }

    /// The whole plot in words, for those who cannot see it.
    fn words(&self) -> String {
        let left_out = match self.left_out.join(", ") {
            names if names.is_empty() => names,
            names => format!(" Not drawn: {names}."),
        };
        let models = self.model_lines().join(" ");
        let models = if models.is_empty() { models } else { format!(" {models}.") };
        format!("{}. {}{models}{left_out}", self.title, self.note)
    }

    /// What the models are made from, in lines that fit.
    fn model_lines(&self) -> Vec<String> {
        const WIDTH: usize = 150;
        let mut lines: Vec<String> = Vec::new();
        for (at, model) in self.models.iter().enumerate() {
            let begun = if at == 0 { "Models of: " } else { "" };
            let text = format!("{begun}{model}{}", if at + 1 < self.models.len() { ";" } else { "" });
            match lines.last_mut() {
                Some(last) if last.chars().count() + 1 + text.chars().count() <= WIDTH => {
                    last.push(' ');
                    last.push_str(&text);
                }
                _ => lines.push(text),
            }
        }
        lines
    }
}
