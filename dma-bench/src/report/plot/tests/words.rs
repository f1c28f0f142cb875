//! Names from a file, however odd or long.

use crate::report::plot::legend::wrapped;
use crate::report::plot::{Axis, Height, LIGHT, Plot, Series};

#[test]
fn names_from_a_file_leave_the_picture_whole() {
    let axis = || Axis { label: "<x>".to_owned(), format: crate::units::digits, base: 2.0 };
    let odd = "<a>&\"'\x1b\u{1}\n]]>";
    let plot = Plot {
        id: "a".to_owned(),
        title: format!("title {odd}"),
        note: format!("note {odd}"),
        models: vec![format!("model {odd}"), "another".to_owned()],
        x: axis(),
        y: axis(),
        series: vec![Series {
            name: odd.to_owned(),
            points: [1.0, 2.0].map(|x| (x, Height::flat(x))).to_vec(),
            reference: false,
        }],
        marks: vec![(1.5, odd.to_owned(), 0)],
        left_out: vec![odd.to_owned()],
    };
    let svg = plot.svg(&LIGHT).unwrap();
    assert!(!svg.contains("<a>") && !svg.contains("]]>"), "{svg}");
    assert!(svg.chars().all(|c| c == '\n' || !c.is_control()), "{svg}");
    assert!(svg.contains("and 1 not drawn") && svg.contains("Not drawn: &lt;a&gt;"));
    let (amps, entities) = (
        svg.matches('&').count(),
        svg.matches("&amp;").count()
            + ["&lt;", "&gt;", "&quot;", "&apos;", "&#39;"]
                .iter()
                .map(|e| svg.matches(e).count())
                .sum::<usize>(),
    );
    assert_eq!(amps, entities, "{svg}");
}

#[test]
fn long_names_are_cut_where_they_may_be() {
    assert_eq!(wrapped("sim:profile=bluefield3 q32 by 16", 28), ["sim:profile=bluefield3 q32 ", "by 16"]);
    assert_eq!(wrapped("short", 28), ["short"]);
    assert_eq!(wrapped("cpu q32 on 2 queues, 64 KiB", 24), ["cpu q32 on 2 queues, ", "64 KiB"]);
    assert_eq!(wrapped("cpu q32 on 2 queues, 64 KiB, more", 26), ["cpu q32 on 2 queues, ", "64 KiB, more"]);
}
