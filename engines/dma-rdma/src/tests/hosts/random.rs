//! Tests random copies between two hosts, with an oracle.

use std::ops::Range;

use dma_core::{Access, DmaEngineExt, MemoryRequest, Transfer, Window};

use super::{Control, Random, bytes_of, open, pattern, queue};

const OPERATIONS: usize = 10_000;
const LEN: usize = 128 << 10;
/// Operations between two comparisons of all bytes.
const COMPARED: usize = 1_000;

/// A window, and its expected bytes once all copies have ended.
struct Memory {
    window: Window,
    expected: Vec<u8>,
    /// Ranges of copies that may be in flight; true if the copy writes the range.
    used: Vec<(Range<usize>, bool)>,
}

impl Memory {
    fn is_free(&self, range: &Range<usize>, writes: bool) -> bool {
        let meets = |(used, written): &(Range<usize>, bool)| {
            used.start < range.end && range.start < used.end && (writes || *written)
        };
        !self.used.iter().any(meets)
    }
}

/// Memory 0 is local, and memories 1 and 2 are the exporter's. Copies that access the same bytes wait for
/// each other.
#[test]
#[ignore = "needs a second host: see the top of the file"]
fn importer_1_random_copies_agree_with_an_oracle() {
    let (engine, mut control) = (open(), Control::open());
    let mut random = Random(0x5eed_0026);
    let mut memories: Vec<Memory> = (0..3_u8)
        .map(|n| {
            let expected = pattern(LEN, n);
            let window = if n == 0 {
                let window = engine.allocate_window(&MemoryRequest::new(LEN)).expect("memory");
                window.write_at(0, &expected).expect("within");
                window
            } else {
                let descriptor = control.export(LEN, Access::all());
                control.tell(&format!("fill {} {n}", n - 1));
                engine.import(&descriptor).expect("an import")
            };
            Memory { window, expected, used: Vec::new() }
        })
        .collect();
    let queue = queue(&engine);
    let mut flights: Vec<Transfer<(Window, Window)>> = Vec::new();
    let (mut of_kind, mut done, mut remote) = ([0_usize; 4], 0, 1);
    while done < OPERATIONS {
        if random.below(16) == 0 {
            remote = 3 - remote;
        }
        let (from, to) = match random.below(100) {
            0 => (remote, 3 - remote),
            1 => (0, 0),
            n if n % 2 == 0 => (0, remote),
            _ => (remote, 0),
        };
        let longest = [64, 64, 512, 4096, 20_000][random.below(5) as usize];
        let len = 1 + random.below(longest) as usize;
        let mut place = || random.below((LEN - len) as u64) as usize;
        let (at, onto) = (place(), place());
        let (src, dst) = (at..at + len, onto..onto + len);
        if from == to && src.start < dst.end && dst.start < src.end {
            continue;
        }
        of_kind[usize::from(from != 0) + 2 * usize::from(to != 0)] += 1;
        done += 1;
        if flights.len() == 48 || !memories[from].is_free(&src, false) || !memories[to].is_free(&dst, true) {
            end(&mut flights, &mut memories);
        }
        let bytes = memories[from].expected[src.clone()].to_vec();
        memories[to].expected[dst.clone()].copy_from_slice(&bytes);
        let (source, target) =
            (memories[from].window.slice(src.clone()), memories[to].window.slice(dst.clone()));
        memories[from].used.push((src, false));
        memories[to].used.push((dst, true));
        flights.push(queue.copy(source, target).expect("there is room"));
        if random.below(4) == 0 {
            queue.flush();
        }
        if done % COMPARED == 0 {
            end(&mut flights, &mut memories);
            assert!(
                bytes_of(&memories[0].window) == memories[0].expected,
                "after {done} copies: wrong bytes on this side"
            );
            for (n, memory) in memories.iter().enumerate().skip(1) {
                let there = control.tell(&format!("bytes {}", n - 1));
                assert!(there == memory.expected, "after {done} copies: wrong bytes in export {n}");
            }
        }
    }
    let [local, reads, writes, between] = of_kind;
    println!(
        "random copies: {OPERATIONS} right ({writes} to the other host, {reads} from it, {between} between its exports, {local} local)"
    );
}

/// Waits for all copies.
fn end(flights: &mut Vec<Transfer<(Window, Window)>>, memories: &mut [Memory]) {
    for flight in flights.drain(..) {
        flight.wait().expect("a copy");
    }
    memories.iter_mut().for_each(|memory| memory.used.clear());
}
