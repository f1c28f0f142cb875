//! Labels of marks keep off each other.

use plotters::prelude::IntoFont;

use super::plot;
use crate::report::plot::labels::{BESIDE, LABEL, Label};
use crate::report::plot::pen::{FONT, SIZE};
use crate::report::plot::{CURVES, LIGHT, REFERENCES};

/// The boxes of the texts of a picture that begin where they are placed: left, top, right, bottom.
fn boxes(svg: &str) -> Vec<(String, [i32; 4])> {
    let mut boxes = Vec::new();
    for element in svg.split("<text ").skip(1).filter(|e| e.contains("text-anchor=\"start\"")) {
        let number = |name: &str| {
            let value = element.split(&format!(" {name}=\"")).nth(1).or(element.strip_prefix("x=\""));
            value.and_then(|v| v.split('"').next()).and_then(|v| v.parse::<f64>().ok()).unwrap()
        };
        let words = element.split_once(">\n").and_then(|e| e.1.split_once("\n</text>")).unwrap().0;
        // The library writes sizes as it takes them, over 1.24.
        let size = (number("font-size") * 1.24).round();
        let (width, height) = (FONT, size).into_font().box_size(words).unwrap();
        let (x, y) = (number("x") as i32, number("y") as i32);
        boxes.push((words.to_owned(), [x, y, x + width as i32, y + height as i32]));
    }
    boxes
}

#[test]
fn labels_of_marks_do_not_overlap() {
    // Spread out, near each other, in one place, and at the right edge.
    let places: [(&[f64], usize); 6] = [
        (&[100.0, 1000.0, 10_000.0], 0),
        (&[126.0, 148.0, 195.0, 231.0, 310.0, 357.0, 1207.0, 9893.0], 0),
        (&[300.0; 8], 2),
        (&[65_000.0, 65_100.0, 65_200.0, 65_300.0], 0),
        (&[100.0, 150.0, 151.0, 152.0, 153.0, 154.0, 155.0, 60_000.0], 1),
        (&[], 0),
    ];
    for (at, hidden) in places {
        let mut plot = plot(CURVES, REFERENCES);
        plot.marks =
            at.iter().enumerate().map(|(i, x)| (*x, format!("{}.0 KiB", 100 + i), REFERENCES + i)).collect();
        let svg = plot.svg(&LIGHT).unwrap();
        assert_eq!(svg, plot.svg(&LIGHT).unwrap());
        let boxes = boxes(&svg);
        let shown = boxes.iter().filter(|b| b.0.ends_with(" KiB")).count();
        assert_eq!(shown, at.len() - hidden, "{at:?}");
        assert_eq!(svg.contains(&format!("labels left out: {hidden}")), hidden > 0);
        for (i, (a, p)) in boxes.iter().enumerate() {
            assert!(p[0] >= 0 && p[1] >= 0 && p[2] <= SIZE.0 as i32 && p[3] <= SIZE.1 as i32, "{a} {p:?}");
            for (b, q) in &boxes[..i] {
                let apart = p[2] <= q[0] || q[2] <= p[0] || p[3] <= q[1] || q[3] <= p[1];
                assert!(apart, "{a} at {p:?} and {b} at {q:?}, of {at:?}");
            }
        }
        // No line goes through the label of another.
        let xs = plot.x.ticks([64.0, 65_536.0].into_iter());
        let labels = plot.labels(&xs);
        for label in &labels {
            let Some((from, row)) = label.place else { continue };
            let words = &plot.marks[label.mark].1;
            let to = from + (FONT, LABEL).into_font().box_size(words).unwrap().0 as i32;
            let through = |other: &&Label| {
                other.place.is_some_and(|p| p.1 >= row && (from..to).contains(&(p.0 - BESIDE)))
            };
            assert!(!labels.iter().any(|other| through(&other)), "{label:?} of {labels:?}");
        }
    }
}
