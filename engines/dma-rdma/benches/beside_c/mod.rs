//! Instructions per copy through `Box<dyn RawQueue>`, beside those of a C program that does the same.
#![expect(unsafe_code, reason = "submits to a raw queue")]

use std::process::Command;

use dma_core::{Completion, Descriptor, Outcome, RawQueue, RegionInfo, Segment};

use super::callgrind;

pub(crate) const BATCH: usize = 32;
pub(crate) const LEN: usize = 64;

/// Copies `BATCH` parts of one region to another in each round: the loop of the C programs.
/// With `EACH`, checks the outcome of each copy, as C does where a completion has a status.
pub(crate) fn copy<const EACH: bool>(
    mut queue: Box<dyn RawQueue>,
    from: RegionInfo,
    to: RegionInfo,
    rounds: u64,
) {
    // Not `RegionInfo::segment`, which checks what the C programs do not.
    let part = |region: RegionInfo, i: usize| Segment {
        key: region.key,
        addr: region.addr.offset(i * LEN),
        len: LEN,
    };
    let mut batch: [_; BATCH] = std::array::from_fn(|_| Descriptor::copy(0, part(from, 0), part(to, 0)));
    let mut completions = [Completion::done(0); BATCH];
    for round in 0..rounds {
        for (i, descriptor) in batch.iter_mut().enumerate() {
            *descriptor = Descriptor::copy(round * BATCH as u64 + i as u64, part(from, i), part(to, i));
        }
        let mut taken = 0;
        while taken < BATCH {
            // SAFETY: parts of the engine's memory, which outlives the copies and which this loop alone uses.
            taken += unsafe { queue.submit(&batch[taken..]) }.expect("it takes them");
        }
        queue.flush();
        let mut done = 0;
        while done < BATCH {
            done += queue.poll(&mut completions[done..]);
        }
        let is_done = |completion: &Completion| completion.outcome == Outcome::Done;
        assert!(if EACH { completions.iter().all(is_done) } else { is_done(&completions[BATCH - 1]) });
    }
}

/// Prints the instructions of a copy of the C program and of this one, each by its command for a number of
/// rounds. Returns their ratio. `bound` is the maximum of this ratio, and is printed beside it.
pub(crate) fn compare(
    name: &str,
    bound: f64,
    rounds: [u64; 2],
    c: impl Fn(u64) -> Command,
    ours: impl Fn(u64) -> Command,
) -> f64 {
    let [theirs, ours] = [callgrind::per_copy(rounds, BATCH, c), callgrind::per_copy(rounds, BATCH, ours)];
    let ratio = ours / theirs;
    println!(
        "{name}: instructions per copy of {LEN} bytes, batch {BATCH}: C {theirs:.1}, Box<dyn RawQueue> {ours:.1}, ratio {ratio:.3} (at most {bound:.2})"
    );
    ratio
}

/// Runs a command that has to succeed.
pub(crate) fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(status.success(), "{command:?}: {status}");
}
