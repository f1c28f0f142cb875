//! Verdicts in words. Tables, Markdown, JSON and HTML pages show this text.

use super::{Class, Point};
use crate::units::bytes;

/// A range of sizes of one class. Both ends were measured. Undecided sizes within the range do not
/// interrupt it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Range {
    pub class: Class,
    pub from: u64,
    pub to: u64,
    /// Single sizes within the range that have another class.
    pub except: Vec<(Class, u64)>,
}

/// Joins neighbouring points of one class to ranges. `points` must be sorted by size. A single size between
/// two ranges of one class becomes an exception of the joined range.
pub(crate) fn ranges(points: &[Point]) -> Vec<Range> {
    let mut runs: Vec<Range> = Vec::new();
    for p in points.iter().filter(|p| p.class != Class::NotDecided) {
        match runs.last_mut() {
            Some(last) if last.class == p.class => last.to = p.size,
            _ => runs.push(Range { class: p.class, from: p.size, to: p.size, except: Vec::new() }),
        }
    }
    let mut at = 1;
    while at + 1 < runs.len() {
        let (before, single, after) = (&runs[at - 1], &runs[at], &runs[at + 1]);
        let joins = before.class == after.class && single.from == single.to && single.except.is_empty();
        // Alternating ranges of single sizes are not joined.
        if joins && before.from != before.to && after.from != after.to {
            let (single, after) = (runs.remove(at), runs.remove(at));
            let joined = &mut runs[at - 1];
            joined.except.push((single.class, single.from));
            joined.except.extend(after.except);
            joined.to = after.to;
        } else {
            at += 1;
        }
    }
    runs
}

/// Returns the verdict on points that are sorted by size. `too_few` explains intervals that are missing
/// because of too few samples, with the remedy.
pub(crate) fn text(points: &[Point], too_few: &str) -> String {
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return "nothing was compared".to_owned();
    };
    let open: Vec<_> = points.iter().map(|p| (p.size, p.class == Class::NotDecided)).collect();
    let open = not_decided(&open);
    let parts: Vec<String> = ranges(points).iter().map(|s| segment(s, first.size, last.size)).collect();
    match (parts.is_empty(), open.is_empty()) {
        (true, _) => format!("not decided: {}", reason(points, too_few)),
        (false, true) => parts.join(", "),
        (false, false) => format!("{} (not decided: {})", parts.join(", "), open),
    }
}

pub(crate) fn class(class: Class) -> &'static str {
    match class {
        Class::Faster => "faster",
        Class::AsFast => "as fast",
        Class::Slower => "slower",
        Class::NotDecided => "not decided",
    }
}

/// Returns a range of sizes in words. Sizes from `first` to `last` were measured.
pub(crate) fn range(from: u64, to: u64, first: u64, last: u64) -> String {
    match (from == first, to == last) {
        (true, true) if from == to => format!("at {}", bytes(from)),
        (true, true) => format!("at all sizes, {} to {}", bytes(from), bytes(to)),
        (true, false) => format!("up to {}", bytes(to)),
        (false, true) => format!("from {}", bytes(from)),
        (false, false) if from == to => format!("at {}", bytes(from)),
        (false, false) => format!("from {} to {}", bytes(from), bytes(to)),
    }
}

fn segment(s: &Range, first: u64, last: u64) -> String {
    let mut text = format!("{} {}", class(s.class), range(s.from, s.to, first, last));
    for (other, size) in &s.except {
        text += &format!(" but {} at {}", class(*other), bytes(*size));
    }
    text
}

fn reason<'a>(points: &[Point], too_few: &'a str) -> &'a str {
    if points.iter().all(|p| p.low.is_none()) { too_few } else { VARIED }
}

/// The reason for too wide intervals.
pub(crate) const VARIED: &str = "the figures varied too much";

/// Returns the ranges of undecided sizes in words. `sizes` contains every measured size.
pub(crate) fn not_decided(sizes: &[(u64, bool)]) -> String {
    let runs = sizes.chunk_by(|a, b| a.1 == b.1).filter(|run| run[0].1);
    let words = |run: &[(u64, bool)]| match run {
        [one] => bytes(one.0),
        _ => format!("{} to {}", bytes(run[0].0), bytes(run[run.len() - 1].0)),
    };
    runs.map(words).collect::<Vec<_>>().join(", ")
}
