//! Curves can be told apart.

use plotters::style::RGBColor;

use super::plot;
use crate::report::plot::palette::Dot;
use crate::report::plot::{CURVES, DARK, LIGHT, REFERENCES};

#[test]
fn curves_of_a_plot_look_different() {
    for theme in [LIGHT, DARK] {
        let plot = plot(CURVES, REFERENCES);
        let styles: Vec<_> = (0..plot.series.len()).map(|i| plot.style(i)).collect();
        for (i, a) in styles.iter().enumerate() {
            for b in &styles[..i] {
                assert_ne!(theme.color(a.role), theme.color(b.role), "{}: {a:?}, {b:?}", theme.name);
                let references = a.dash.is_some() && b.dash.is_some();
                assert!(!references || (a.dash != b.dash && a.dot != b.dot), "{a:?}, {b:?}");
            }
            assert_eq!(a.dash.is_some(), plot.series[i].reference);
        }
        // Each dot is drawn, of the curve's points and in the legend.
        let svg = plot.svg(&theme).unwrap();
        let (dots, references) = (plot.series[0].points.len() + 1, styles.iter().take(REFERENCES));
        for style in references {
            let RGBColor(red, green, blue) = theme.color(style.role);
            let fill = format!("fill=\"#{red:02X}{green:02X}{blue:02X}\"");
            let shape = match style.dot {
                Dot::Circle => "<circle ",
                Dot::Square => "<rect ",
                Dot::Triangle => "<polygon ",
            };
            let of = |line: &&str| {
                line.starts_with(shape) && line.contains(&fill) && line.contains("opacity=\"1\"")
            };
            assert_eq!(svg.lines().filter(of).count(), dots, "{}: {shape} {fill}", theme.name);
        }
    }
}
