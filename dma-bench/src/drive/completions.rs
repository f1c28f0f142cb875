//! What a poll reported, looked at all at once: for short operations, this is most of what measuring costs.

use std::ops::Range;

use dma::{Completion, Outcome};

/// Whether these are the completions of all places, and all succeeded.
#[inline]
pub(super) fn all_ended(completions: &[Completion]) -> bool {
    let done = |c: &Completion| c.outcome == Outcome::Done;
    // What is not where it would be in the order of submission.
    let odd = |odd: u64, (c, at): (&Completion, u64)| odd | (c.token ^ at);
    // Four at a time, which takes a third of the time.
    let fours = completions.chunks_exact(4);
    let rest = fours.remainder();
    let first = (completions.len() - rest.len()) as u64;
    let mut out_of_order = rest.iter().zip(first..).fold(0, odd);
    for (four, at) in fours.zip((0_u64..).step_by(4)) {
        if !four.iter().all(done) {
            return false;
        }
        out_of_order = four.iter().zip(at..).fold(out_of_order, odd);
    }
    rest.iter().all(done) && (out_of_order == 0 || each_once(completions))
}

/// Whether every place has one completion.
fn each_once(completions: &[Completion]) -> bool {
    let places = completions.len() as u64;
    let seen = completions.iter().try_fold(0_u64, |seen, c| (c.token < places).then(|| seen | 1 << c.token));
    // No more than one word has bits: a poll takes no more.
    places <= u64::from(u64::BITS) && seen.is_some_and(|seen| u64::from(seen.count_ones()) == places)
}

/// The places of operations that all succeeded, if they are consecutive and ascend.
#[inline]
pub(super) fn row(completions: &[Completion], places: u32) -> Option<Range<u32>> {
    let first = completions.first()?.token;
    let end = first.checked_add(completions.len() as u64).filter(|&end| end <= u64::from(places))?;
    let row = completions.iter().zip(first..end).all(|(c, at)| c.outcome == Outcome::Done && c.token == at);
    row.then_some(first as u32..end as u32)
}
