//! Which curves are drawn where there are more than can be told apart.

use crate::report::plot::{CURVES, Plot, REFERENCES};

/// What tells curves of a plot apart, but for what is chosen from.
pub(super) type Family = (String, u32);

/// A curve that could be drawn: those of one family differ in what goes from the least to the greatest.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) name: String,
    pub(super) family: Family,
    /// Where it lies within its family.
    pub(super) at: u64,
}

/// Of so many, in their order, those at both ends and between them, as evenly as it goes.
pub(super) fn spread_out(len: usize, most: usize) -> Vec<usize> {
    match most {
        _ if len <= most => (0..len).collect(),
        0 => Vec::new(),
        1 => vec![len - 1],
        _ => (0..most).map(|i| (i * (len - 1) + (most - 1) / 2) / (most - 1)).collect(),
    }
}

/// The names of those that are drawn: all if they are few enough; otherwise of every family as many as there is room for, the least, the greatest
/// and what lies between.
pub(super) fn chosen(candidates: &[Candidate], most: usize) -> Vec<String> {
    let mut families: Vec<(&Family, Vec<&Candidate>)> = Vec::new();
    for candidate in candidates {
        match families.iter_mut().find(|f| *f.0 == candidate.family) {
            Some((_, of)) if of.iter().any(|c| c.name == candidate.name) => {}
            Some((_, of)) => of.push(candidate),
            None => families.push((&candidate.family, vec![candidate])),
        }
    }
    for (_, of) in &mut families {
        of.sort_by_key(|c| c.at);
    }
    // One more for each in turn, for as long as there is room.
    let mut share = vec![0; families.len()];
    let mut room = most;
    while room > 0 {
        let before = room;
        for (share, (_, of)) in share.iter_mut().zip(&families) {
            if room > 0 && *share < of.len() {
                (*share, room) = (*share + 1, room - 1);
            }
        }
        if room == before {
            break;
        }
    }
    let of = |(share, (_, of)): (usize, &(&Family, Vec<&Candidate>))| -> Vec<String> {
        spread_out(of.len(), share).into_iter().map(|i| of[i].name.clone()).collect()
    };
    share.into_iter().zip(&families).flat_map(of).collect()
}

/// Leaves out of a plot what cannot be told apart for number, and says so.
pub(super) fn thin(plot: &mut Plot, candidates: &[Candidate], baselines: &[Candidate]) {
    let drawn = |c: &&Candidate| plot.series.iter().any(|s| s.name == c.name);
    let of = |all: &[Candidate], most| chosen(&all.iter().filter(drawn).cloned().collect::<Vec<_>>(), most);
    let mut keep = of(candidates, CURVES);
    keep.extend(of(baselines, REFERENCES));
    let (kept, left): (Vec<_>, Vec<_>) = plot.series.drain(..).partition(|s| keep.contains(&s.name));
    plot.series = kept;
    plot.left_out = left.into_iter().map(|s| s.name).collect();
}
