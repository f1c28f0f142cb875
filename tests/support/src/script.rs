//! Random programs for an engine. An oracle computes the expected content when an operation is submitted.

use std::time::Duration;

use dma_core::{BufferMut, DmaEngine, DmaEngineExt, ErrorKind, Queue, QueueOptions, Transfer};
use proptest::prelude::*;
use proptest::sample::Index;

const CANARY: u8 = 0xa5;
const GUARD: usize = 24;

/// A step of a program.
#[derive(Clone, Debug)]
pub enum Step {
    /// Copies from pieces of these lengths to a destination that is split at the given places.
    Copy {
        /// Lengths of the source's pieces.
        from: Vec<usize>,
        /// Places at which the destination is split.
        cuts: Vec<Index>,
        /// Selects the content.
        seed: u8,
    },
    /// Fills pieces. Each has a length, and a distance from a multiple of 64.
    Fill {
        /// Lengths and distances.
        to: Vec<(usize, usize)>,
        /// The bytes that are repeated.
        pattern: [u8; 8],
    },
    /// Adds a fence.
    Fence,
    /// Flushes the queue.
    Flush,
    /// Polls the queue.
    Poll,
    /// Waits for one of the transfers in flight.
    Wait(Index),
    /// Drops one of the transfers in flight.
    Drop(Index),
    /// Makes the device fail after this number of descriptors.
    Fail(usize),
}

/// Generates programs. If `failures` is set, the programs also contain failures of the device.
pub fn programs(failures: bool) -> impl Strategy<Value = Vec<Step>> {
    let len = || prop_oneof![4 => 1..200_usize, 2 => 1..9_000_usize, 1 => 1..90_000_usize];
    let fill = (len(), 0..70_usize);
    let pattern = prop_oneof![any::<[u8; 8]>(), any::<u8>().prop_map(|byte| [byte; 8])];
    let step = prop_oneof![
        6 => (prop::collection::vec(len(), 1..4), prop::collection::vec(any::<Index>(), 0..3), any::<u8>())
            .prop_map(|(from, cuts, seed)| Step::Copy { from, cuts, seed }),
        4 => (prop::collection::vec(fill, 1..3), pattern).prop_map(|(to, pattern)| Step::Fill { to, pattern }),
        1 => Just(Step::Fence),
        2 => Just(Step::Flush),
        2 => Just(Step::Poll),
        5 => any::<Index>().prop_map(Step::Wait),
        1 => any::<Index>().prop_map(Step::Drop),
        u32::from(failures) => (0..12_usize).prop_map(Step::Fail),
    ];
    prop::collection::vec(step, 1..60)
}

enum Flight {
    Copy(Transfer<(Vec<BufferMut>, Vec<BufferMut>)>, Vec<u8>),
    Fill(Transfer<Vec<BufferMut>>, Vec<u8>),
}

/// The buffers of a program, with guard bytes around them.
struct Memory<'a> {
    engine: &'a dyn DmaEngine,
    guards: Vec<BufferMut>,
}

impl Memory<'_> {
    fn allocate(&mut self, len: usize, offset: usize) -> BufferMut {
        let mut before = self.engine.allocate(offset + GUARD + len + GUARD).expect("memory");
        before.fill(CANARY);
        let mut buffer = before.split_off(offset + GUARD);
        let after = buffer.split_off(len);
        self.guards.extend([before, after]);
        buffer
    }

    fn check(&self) {
        assert!(
            self.guards.iter().all(|guard| guard.iter().all(|b| *b == CANARY)),
            "bytes outside of a buffer changed"
        );
    }
}

fn bytes_of(buffers: &[BufferMut]) -> Vec<u8> {
    buffers.iter().flat_map(|buffer| buffer.iter().copied()).collect()
}

/// Checks the error of an operation: the device may fail (`sound` is false), and the error is one of a
/// failing device.
fn failed(error: &dma_core::Error, sound: bool) {
    assert!(!sound, "no operation fails on a device without faults: {error}");
    // `OutOfResources`: the device accepted no descriptor although it had room.
    let kinds = [ErrorKind::Aborted, ErrorKind::DeviceFault, ErrorKind::OutOfResources];
    assert!(kinds.contains(&error.kind()), "{error}");
}

impl Flight {
    fn land(self, sound: bool) {
        let (expected, got) = match self {
            Self::Copy(transfer, expected) => match transfer.wait() {
                Ok((src, dst)) => {
                    assert_eq!(bytes_of(&src), expected, "the source is unchanged");
                    (expected, bytes_of(&dst))
                }
                Err(e) => return failed(e.error(), sound),
            },
            Self::Fill(transfer, expected) => match transfer.wait() {
                Ok(dst) => (expected, bytes_of(&dst)),
                Err(e) => return failed(e.error(), sound),
            },
        };
        assert!(got == expected, "{} bytes arrive", expected.len());
    }
}

/// Runs a program. `fail` makes the device fail after the given number of descriptors. If `sound` is set, no
/// operation may fail.
pub fn run(engine: &dyn DmaEngine, depth: usize, sound: bool, program: &[Step], mut fail: impl FnMut(usize)) {
    let queue: Queue = engine.open_queue(&QueueOptions::new().with_depth(depth)).expect("a queue");
    let mut memory = Memory { engine, guards: Vec::new() };
    let mut flights: Vec<Flight> = Vec::new();
    let mut submitted = 0;
    for step in program {
        match step {
            Step::Copy { from, cuts, seed } => {
                let mut src: Vec<_> = from.iter().map(|len| memory.allocate(*len, 3)).collect();
                for (i, byte) in src.iter_mut().flat_map(|b| b.iter_mut()).enumerate() {
                    *byte = (i as u8).wrapping_mul(31).wrapping_add(*seed) ^ (i >> 8) as u8;
                }
                let expected = bytes_of(&src);
                let mut at: Vec<_> = cuts.iter().map(|cut| cut.index(expected.len() + 1)).collect();
                at.extend([0, expected.len()]);
                at.sort_unstable();
                let dst: Vec<_> = at.windows(2).map(|w| memory.allocate(w[1] - w[0], 8)).collect();
                match queue.copy(src, dst) {
                    Ok(transfer) => flights.push(Flight::Copy(transfer, expected)),
                    Err(e) => {
                        assert_eq!(e.kind(), ErrorKind::QueueFull, "{e}");
                        continue;
                    }
                }
                submitted += 1;
            }
            Step::Fill { to, pattern } => {
                let dst: Vec<_> = to.iter().map(|(len, offset)| memory.allocate(*len, *offset)).collect();
                let len = to.iter().map(|(len, _)| len).sum();
                let expected = pattern.iter().copied().cycle().take(len).collect();
                match queue.fill(dst, *pattern) {
                    Ok(transfer) => flights.push(Flight::Fill(transfer, expected)),
                    Err(e) => {
                        assert_eq!(e.kind(), ErrorKind::QueueFull, "{e}");
                        continue;
                    }
                }
                submitted += 1;
            }
            Step::Fence => queue.fence(),
            Step::Flush => queue.flush(),
            Step::Poll => {
                queue.poll();
            }
            Step::Wait(index) if !flights.is_empty() => {
                let at = index.index(flights.len());
                flights.swap_remove(at).land(sound);
            }
            Step::Drop(index) if !flights.is_empty() => {
                let at = index.index(flights.len());
                drop(flights.swap_remove(at));
            }
            Step::Wait(_) | Step::Drop(_) => {}
            Step::Fail(after) => fail(*after),
        }
        memory.check();
        let counters = queue.counters();
        assert_eq!(counters.submitted, submitted);
        let ended = counters.completed + counters.failed + counters.aborted + counters.abandoned;
        assert_eq!(ended + counters.in_flight, submitted, "every operation is in one counter");
    }
    for flight in flights {
        flight.land(sound);
    }
    let counters = queue.close(Duration::from_secs(60));
    assert_eq!((counters.in_flight, counters.abandoned), (0, 0));
    assert_eq!(counters.completed + counters.failed + counters.aborted, submitted);
    if sound {
        assert_eq!((counters.completed, counters.resets), (submitted, 0));
    }
    memory.check();
}
