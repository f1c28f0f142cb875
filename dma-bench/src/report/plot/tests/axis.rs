//! Ticks can be read.

use crate::report::plot::Axis;

#[test]
fn axes_have_readable_ticks() {
    let axis = |base| Axis { label: String::new(), format: crate::units::digits, base };
    let ticks = axis(2.0).ticks([64.0, 4_194_304.0].into_iter());
    assert!(ticks.at.len() >= 5 && ticks.at.len() <= 11, "{:?}", ticks.at);
    assert!(ticks.from < 6.0 && ticks.to > 22.0);
    let ticks = axis(10.0).ticks([3.0, 9.0].into_iter());
    let values: Vec<f64> = ticks.at.iter().map(|t| axis(10.0).value(*t).round()).collect();
    assert_eq!(values, [3.0, 5.0, 7.0, 10.0]);
    assert_eq!(axis(10.0).ticks(std::iter::empty()).at.len(), 4);
}

#[test]
fn axes_have_three_ticks_and_more() {
    let axis = |base| Axis { label: String::new(), format: crate::units::digits, base };
    let ticks = |base, from, to| {
        let (axis, ticks) = (axis(base), axis(base).ticks([from, to].into_iter()));
        assert!(ticks.at.iter().all(|t| (ticks.from..=ticks.to).contains(t)), "{ticks:?}");
        ticks.at.iter().map(|t| (axis.value(*t) * 1e6).round() / 1e6).collect::<Vec<_>>()
    };
    assert_eq!(ticks(10.0, 0.3, 1.2), [0.3, 0.5, 0.7, 1.0]);
    assert_eq!(ticks(10.0, 0.5, 2.0), [0.5, 1.0, 2.0]);
    assert_eq!(ticks(2.0, 4096.0, 8192.0), [4096.0, 6144.0, 8192.0]);
    // From one value to a hundred times as much, all of them at the shortest.
    for step in 0..300 {
        let from = 0.1 * 10_f64.powf(f64::from(step) / 60.0);
        for times in [1.0, 1.01, 1.1, 1.3, 1.7, 2.0, 3.0, 5.0, 8.0, 12.0, 30.0, 100.0] {
            for (base, from) in [(10.0, from), (2.0, (from * 1600.0).round())] {
                let ticks = ticks(base, from, from * times);
                assert!((3..=13).contains(&ticks.len()), "{base}: {ticks:?} from {from}, {times} times");
                let labels: std::collections::HashSet<_> =
                    ticks.iter().map(|t| crate::units::digits(*t)).collect();
                assert!(base == 2.0 || labels.len() == ticks.len(), "{ticks:?}: {labels:?}");
            }
        }
    }
}
