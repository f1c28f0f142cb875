//! Tests of plots.

mod axis;
mod bands;
mod inline;
mod labels;
mod styles;
mod words;

use super::{Axis, Height, Plot, Series};

/// So many curves and references that rise, one above the other.
fn plot(curves: usize, references: usize) -> Plot {
    let axis = |base| Axis { label: "axis".to_owned(), format: crate::units::digits, base };
    let series = |reference: bool| {
        move |i: usize| {
            let name = format!("{} {i}", if reference { "reference" } else { "curve" });
            let points = [64.0, 4096.0, 65_536.0].map(|x: f64| (x, Height::flat(x.sqrt() * (i + 1) as f64)));
            Series { name, points: points.to_vec(), reference }
        }
    };
    Plot {
        id: "a".to_owned(),
        title: "title".to_owned(),
        note: "note".to_owned(),
        models: Vec::new(),
        x: axis(2.0),
        y: axis(10.0),
        series: (0..references).map(series(true)).chain((0..curves).map(series(false))).collect(),
        marks: Vec::new(),
        left_out: Vec::new(),
    }
}
