//! Random copies and fills between all places on the stand-in, with faults, checked against an oracle in
//! ordinary memory: 100,000 operations in each run, or ten million by
//! `cargo test --release -p dma-cuda --test random -- --ignored`.

mod support;

use dma_core::{DmaEngineExt, ErrorKind, MemoryRequest, Place, Queue, QueueOptions, Transfer, Window};
use dma_cuda::{CudaEngine, Pieces};

/// GPUs with refusals, with copies that take longer, with a delay in each copy, and with refused launches.
const FAULTY: &str = "memory = '64M'
[[gpu]]
faults = 'refuse:p=0.001'
[[gpu]]
faults = 'refuse@every=97+slow:p=0.05:for=20us'
seed = 5
[[gpu]]
delay = '2us'
faults = 'refuse:p=0.002'
[[gpu]]
faults = 'refuse:p=0.01'
";

/// Number of regions in each place.
const REGIONS: usize = 4;
const LEN: usize = 32 << 10;
const IN_FLIGHT: usize = 64;

/// SplitMix64.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) % end as u64) as usize
    }
}

enum Flight {
    Copy(Transfer<(Window, Window)>),
    Fill(Transfer<Window>),
}

/// An operation in flight: the range that it writes, and the expected bytes.
struct Expected {
    flight: Flight,
    region: usize,
    offset: usize,
    bytes: Vec<u8>,
    /// Region and offset of the source.
    source: Option<(usize, usize)>,
}

struct Run<'a> {
    queue: &'a Queue,
    windows: Vec<Window>,
    oracle: Vec<Vec<u8>>,
    flights: Vec<Expected>,
    refused: u64,
}

impl Run<'_> {
    /// Returns true if an operation in flight writes bytes of this range or, with `reads`, reads bytes of it.
    fn is_busy(&self, (region, offset): (usize, usize), len: usize, reads: bool) -> bool {
        self.flights.iter().any(|flight| {
            let hits = |place: (usize, usize)| {
                place.0 == region && place.1 < offset + len && offset < place.1 + flight.bytes.len()
            };
            hits((flight.region, flight.offset)) || (reads && flight.source.is_some_and(hits))
        })
    }

    /// Waits for all operations in flight, and applies their writes to the oracle. The destination of a
    /// failed operation is undefined, so it is filled.
    fn settle(&mut self) {
        for Expected { flight, region, offset, bytes, .. } in std::mem::take(&mut self.flights) {
            let outcome = match flight {
                Flight::Copy(transfer) => transfer.wait().map(|_| ()).map_err(|e| e.error().kind()),
                Flight::Fill(transfer) => transfer.wait().map(|_| ()).map_err(|e| e.error().kind()),
            };
            match outcome {
                Ok(()) => self.oracle[region][offset..offset + bytes.len()].copy_from_slice(&bytes),
                Err(kind) => {
                    assert_eq!(
                        kind,
                        ErrorKind::OutOfMemory,
                        "the queue has room, so only the driver can refuse"
                    );
                    self.refused += 1;
                    self.renew(region, offset, bytes.len());
                }
            }
        }
    }

    /// Fills a range with zeros, so that its bytes are known again. One try suffices, because these faults do
    /// not refuse fills.
    fn renew(&mut self, region: usize, offset: usize, len: usize) {
        let range = self.windows[region].slice(offset..offset + len);
        self.queue.fill(range, [0; 8]).expect("room").wait().expect("a fill");
        self.oracle[region][offset..offset + len].fill(0);
    }

    fn check(&mut self, engine: &CudaEngine) {
        self.settle();
        for (window, expected) in self.windows.iter().zip(&self.oracle) {
            let bytes = loop {
                let host = engine.allocate(LEN).expect("memory");
                if let Ok((_, host)) = self.queue.copy(window.clone(), host).expect("room").wait() {
                    break host;
                }
            };
            assert!(bytes[..] == expected[..], "a window differs from the oracle");
        }
    }
}

/// Runs `operations` random operations on a GPU. Returns the number that the driver refused.
fn run(ordinal: u32, seed: u64, operations: usize) -> u64 {
    // The last GPU copies by the kernel alone.
    let pieces = if ordinal == 3 { Pieces::Kernel } else { Pieces::Auto };
    let options = support::options(ordinal).with_pieces(pieces);
    let engine = support::open_with(&support::driver(FAULTY), &options).expect("it opens");
    let queue = engine.open_queue(&QueueOptions::new().with_depth(2 * IN_FLIGHT)).expect("a queue");
    let mut chance = Chance(seed);
    let places = Place::ALL.into_iter().cycle().take(2 * REGIONS);
    let windows: Vec<_> = places
        .map(|place| engine.allocate_window(&MemoryRequest::new(LEN).with_place(place)).expect("memory"))
        .collect();
    let oracle = vec![vec![0; LEN]; windows.len()];
    let mut run = Run { queue: &queue, windows, oracle, flights: Vec::new(), refused: 0 };
    for number in 0..operations {
        if run.flights.len() == IN_FLIGHT || chance.below(40) == 0 {
            run.settle();
        }
        let (from, to) = (chance.below(run.windows.len()), chance.below(run.windows.len()));
        let longest = [64, 700, 5000][chance.below(3)];
        let len = 1 + chance.below(longest);
        let (at, offset) = (chance.below(LEN - len), chance.below(LEN - len));
        let overlaps = from == to && at < offset + len && offset < at + len;
        // While an operation is in flight, no other operation may write its source or access its destination.
        if overlaps || run.is_busy((from, at), len, false) || run.is_busy((to, offset), len, true) {
            run.settle();
        }
        let target = run.windows[to].slice(offset..offset + len);
        let (flight, bytes, source) = if overlaps || chance.below(5) == 0 {
            let pattern: [u8; 8] = match chance.below(3) {
                0 => [chance.below(256) as u8; 8],
                _ => std::array::from_fn(|_| chance.below(256) as u8),
            };
            let bytes = pattern.iter().copied().cycle().take(len).collect();
            (Flight::Fill(queue.fill(target, pattern).expect("room")), bytes, None)
        } else {
            let source = run.windows[from].slice(at..at + len);
            let bytes = run.oracle[from][at..at + len].to_vec();
            (Flight::Copy(queue.copy(source, target).expect("room")), bytes, Some((from, at)))
        };
        run.flights.push(Expected { flight, region: to, offset, bytes, source });
        match chance.below(20) {
            0 => queue.flush(),
            1 => queue.fence(),
            2 => _ = queue.poll(),
            _ => {}
        }
        if number % 5000 == 4999 {
            run.check(&engine);
        }
    }
    run.check(&engine);
    let refused = run.refused;
    drop(run);
    let counters = queue.close(std::time::Duration::from_secs(60));
    assert_eq!((counters.in_flight, counters.abandoned), (0, 0), "{counters:?}");
    refused
}

#[test]
fn random_operations_with_faults_keep_all_bytes() {
    for (ordinal, operations) in [(0, 60_000), (1, 20_000), (2, 10_000), (3, 10_000)] {
        let refused = run(ordinal, 1, operations);
        println!("GPU {ordinal}: {operations} operations, {refused} refused");
        assert!(refused > 0, "the fault plan refuses some operations");
    }
}

#[test]
#[ignore = "takes minutes: cargo test --release -p dma-cuda --test random -- --ignored --nocapture"]
fn ten_million_operations_with_faults_keep_all_bytes() {
    for seed in 0..20 {
        let refused = run(0, 100 + seed, 500_000);
        println!("seed {seed}: 500000 operations, {refused} refused");
    }
}
