//! A plot within a page is the picture that stands alone, in the colours of the page.

use std::collections::BTreeSet;

use super::plot;
use crate::report::plot::inline::{TEXT, class};
use crate::report::plot::palette::Role;
use crate::report::plot::{CURVES, DARK, LIGHT, Plot, REFERENCES, styles};

/// A plot with something of every role.
fn full() -> Plot {
    let mut plot = plot(CURVES, REFERENCES);
    plot.marks =
        vec![(1000.0, "1 <KiB>".to_owned(), REFERENCES), (9000.0, "9 KiB".to_owned(), REFERENCES + 1)];
    plot.models = vec!["a model".to_owned()];
    plot.left_out = vec!["another".to_owned()];
    plot
}

/// What is between `from` and the next `to`, each time.
fn between<'a>(text: &'a str, from: &'a str, to: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(from).skip(1).map(move |rest| rest.split(to).next().unwrap_or_default())
}

type Line = Vec<(i32, i32)>;

/// The lines of a picture that stands alone, in pairs of numbers.
fn lines_alone(svg: &str) -> Vec<Line> {
    let mut lines: Vec<Line> = between(svg, "<polyline ", "/>")
        .map(|e| {
            let points = between(e, "points=\"", "\"").next().unwrap();
            let pair =
                |p: &str| p.split_once(',').map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap())).unwrap();
            points.split_whitespace().map(pair).collect()
        })
        .collect();
    lines.extend(between(svg, "<line ", "/>").map(|e| {
        let of = |name| between(e, name, "\"").next().unwrap().parse().unwrap();
        vec![(of("x1=\""), of("y1=\"")), (of("x2=\""), of("y2=\""))]
    }));
    lines.sort();
    lines
}

/// The lines of a plot within a page.
fn lines_inline(svg: &str) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for path in between(svg, " d=\"", "\"") {
        let (mut x, mut y) = (0, 0);
        for (at, command) in path.char_indices().filter(|(_, c)| c.is_ascii_alphabetic()) {
            let rest = path[at + 1..].split(|c: char| c.is_ascii_alphabetic()).next().unwrap();
            let spaced = rest.replace('-', " -");
            let numbers: Vec<i32> = spaced.split_whitespace().map(|n| n.parse().unwrap()).collect();
            match (command, numbers.as_slice()) {
                ('m' | 'l', [right, down]) => (x, y) = (x + right, y + down),
                ('h', [right]) => x += right,
                ('v', [down]) => y += down,
                other => panic!("{other:?} in {path}"),
            }
            if command == 'm' {
                lines.push(Vec::new());
            }
            lines.last_mut().unwrap().push((x, y));
        }
    }
    lines.sort();
    lines
}

#[test]
fn it_shows_what_the_picture_that_stands_alone_shows() {
    let (alone, inline) = (full().svg(&LIGHT).unwrap(), full().inline().unwrap());
    assert_eq!(lines_inline(&inline), lines_alone(&alone));
    for shape in ["<circle ", "<polygon ", "<text "] {
        assert_eq!(inline.matches(shape).count(), alone.matches(shape).count(), "{shape}");
    }
    // But the paper.
    assert_eq!(inline.matches("<rect ").count() + 1, alone.matches("<rect ").count());
    let points = |svg: &str| -> BTreeSet<String> {
        let polygons = between(svg, "<polygon ", "/>");
        polygons.flat_map(|p| between(p, "points=\"", "\"")).map(|p| p.trim().to_owned()).collect()
    };
    assert_eq!(points(&inline), points(&alone));
    let words = |svg: &str| -> BTreeSet<String> {
        between(svg, "<text ", "</text>").map(|t| t.split_once('>').unwrap().1.trim().to_owned()).collect()
    };
    assert_eq!(words(&inline), words(&alone));
    let name = |svg: &str| between(svg, "aria-label=\"", "\"").next().unwrap().to_owned();
    assert_eq!(name(&inline), name(&alone));
    assert!(
        inline.contains("role=\"img\"") && name(&inline).contains("Models of: a model. Not drawn: another.")
    );
    assert!(inline.len() * 3 < alone.len(), "{} of {}", inline.len(), alone.len());
}

#[test]
fn it_has_no_colour_but_those_of_roles() {
    let inline = full().inline().unwrap();
    for fixed in ["#", "rgb(", "fill=\"", "stroke=\"", "style="] {
        assert!(!inline.contains(fixed), "{fixed}");
    }
    let used: BTreeSet<&str> = between(&inline, "<g class=\"", "\"").collect();
    let all: BTreeSet<String> = Role::ALL.iter().map(|r| class(*r)).collect();
    assert_eq!(all.len(), Role::ALL.len());
    let missing: Vec<_> = all.iter().filter(|c| !used.contains(c.as_str())).collect();
    assert_eq!(missing, ["paper"], "the page is the paper");
    assert!(used.iter().all(|c| all.contains(*c)), "{used:?}");
    // A colour that is no role's is an error.
    for theme in [LIGHT, DARK] {
        let error = full().inline_with(&|role| theme.color(role)).unwrap_err();
        assert!(error.contains("no role"), "{error}");
    }
}

#[test]
fn roles_are_told_apart_where_they_look_the_same() {
    assert_eq!(LIGHT.color(Role::Ink), LIGHT.color(Role::Reference(0)), "the case that this is about");
    let inline = full().inline().unwrap();
    let groups: Vec<_> =
        between(&inline, "<g class=\"", "</g>").filter(|g| g.contains("opacity=\"0.15\"")).collect();
    for (at, group) in groups.iter().enumerate() {
        let role = if at < REFERENCES { Role::Reference(at) } else { Role::Curve(at - REFERENCES) };
        assert!(group.starts_with(&format!("{}\"", class(role))), "band {at}: {group}");
    }
    assert_eq!(groups.len(), CURVES + REFERENCES);
}

#[test]
fn the_page_has_every_role_in_both_themes() {
    let styles = styles();
    let (light, dark) = styles.split_once("prefers-color-scheme: dark").unwrap();
    for role in Role::ALL {
        let name = class(role);
        for (theme, of) in [(light, LIGHT), (dark, DARK)] {
            let color = of.color(role);
            let is = format!(" --plot-{name}: #{:02x}{:02x}{:02x};", color.0, color.1, color.2);
            assert_eq!(theme.matches(&is).count(), 1, "{is}");
        }
        assert_eq!(dark.matches(&format!(".plot .{name} {{ color: var(--plot-{name}); }}")).count(), 1);
    }
    let css = include_str!("../../page/style.css");
    assert!(css.contains(&format!("font: {TEXT}px sans-serif")), "what has no size of its own");
}
