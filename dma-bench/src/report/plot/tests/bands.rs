//! Bands are drawn where they are known.

use super::plot;
use crate::report::plot::{Height, LIGHT, Plot};

/// The bands of a curve with such points, of which some have one: the polygons, each with its corners, and the bars.
fn bands(known: &[bool]) -> (Vec<usize>, usize) {
    let mut plot = plot(1, 0);
    let point = |(known, x): (&bool, u16)| {
        (f64::from(x) * 64.0, Height { middle: 1000.0, band: known.then_some([900.0, 2000.0]) })
    };
    plot.series[0].points = known.iter().zip(1..).map(point).collect();
    let svg = plot.svg(&LIGHT).unwrap();
    let polygons = svg.split("<polygon ").skip(1).map(|p| p.split("points=\"").nth(1).unwrap());
    let corners = polygons.map(|p| p.split('"').next().unwrap().split_whitespace().count()).collect();
    let bars = svg.lines().filter(|l| l.starts_with("<rect ") && l.contains("opacity=\"0.15\"")).count();
    assert_eq!(
        svg.lines().filter(|l| l.starts_with("<circle ")).count(),
        known.len() + 1,
        "points and legend"
    );
    (corners, bars)
}

#[test]
fn a_band_is_interrupted_where_it_is_not_known() {
    assert_eq!(bands(&[true, true, true, true]), (vec![8], 0));
    assert_eq!(bands(&[true, true, false, false]), (vec![4], 0));
    assert_eq!(bands(&[true, true, false, true, true, true]), (vec![4, 6], 0));
    assert_eq!(bands(&[false, true, false, true, true]), (vec![4], 1));
    assert_eq!(bands(&[false, false]), (vec![], 0));
}

#[test]
fn what_is_not_known_takes_no_room_on_the_axis() {
    let top = |plot: &Plot| {
        plot.y.ticks(plot.series.iter().flat_map(|s| s.points.iter().flat_map(|p| p.1.all()))).to
    };
    let mut plot = plot(1, 0);
    plot.series[0].points = vec![(64.0, Height { middle: 10.0, band: None }), (128.0, Height::flat(10.0))];
    let without = top(&plot);
    plot.series[0].points[0].1.band = Some([10.0, 1e6]);
    assert!(top(&plot) > without + 4.0);
}
