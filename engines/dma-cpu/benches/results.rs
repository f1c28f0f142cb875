//! Compares operations that have results with their components, on one core and in the same run.
//!
//! `cargo bench -p dma-cpu --bench results`. For cold memory (512 MiB on each side), the bench compares
//! copies that also compute a CRC-32C with plain copies of the same queue. For hot memory, it compares
//! CRC-32C with the crate `crc32c`, and comparisons with `memcmp`. The bench measures CPU time, runs the
//! contenders in turns, and checks the results.

#![expect(unsafe_code, reason = "drives the raw queue")]

#[expect(dead_code, reason = "is shared with other benches")]
mod support;

use std::hint::black_box;
use std::ptr::NonNull;

use dma_core::{Completion, Descriptor, DeviceAddr, DmaEngine, QueueOptions, RawQueue, RegionKey, Segment};
use dma_cpu::{CpuEngine, CpuOptions};
use support::{Memory, Pairs, compare, size_name};

const SPAN: usize = 512 << 20;
const ROUNDS: usize = 15;

fn main() {
    let (src, dst) = (Memory::new(SPAN, 1), Memory::new(SPAN, 1));
    if std::env::args().any(|arg| arg == "--test") {
        return; // under `cargo test --benches` the program only has to start
    }
    let engine = CpuEngine::open(&CpuOptions::new().with_threads(0)).expect("options in range");
    let mut queue = engine.open_queue_raw(&QueueOptions::new()).expect("a queue");
    println!("cold, one core: GB/s of plain copies and of copies with CRC-32C, and their ratio");
    for len in [64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20] {
        let mut pairs = Pairs::new(src, dst, len, usize::MAX);
        let count = (256 << 20) / len;
        let crc = u64::from(crc32c::crc32c(&vec![1; len]));
        let mut turn = |pairs: &mut Pairs, with_crc| {
            for _ in 0..count {
                let (dst, src) = pairs.next();
                let (src, dst) = (segment(src, len), segment(dst, len));
                if with_crc {
                    assert_eq!(run(&mut *queue, Descriptor::copy_crc32c(0, src, dst, 0)), crc);
                } else {
                    run(&mut *queue, Descriptor::copy(0, src, dst));
                }
            }
        };
        for _ in 0..3 {
            turn(&mut pairs, false); // after this, the tuner has learned
        }
        let results =
            compare(ROUNDS, 2, count * len, |with_crc| pairs.cpu_time(|pairs| turn(pairs, with_crc == 1)));
        let [(plain, _), (with_crc, ratio)] = results[..] else { unreachable!("two contenders") };
        println!("{:>12}{plain:>9.2}{with_crc:>9.2}{ratio:>7.2}x", size_name(len));
    }
    println!("\nhot, one core, 64 KiB: GB/s of the peer and of the queue, and their ratio");
    let len = black_box(64 << 10);
    let mut pairs = Pairs::new(src, dst, len, 1);
    let count = 5000;
    let (b, a) = pairs.next();
    // SAFETY: the range lies in an initialized mapping that is never freed, and no operation writes to it
    // from now on.
    let left = unsafe { std::slice::from_raw_parts(a, len) };
    // SAFETY: the range lies in an initialized mapping that is never freed, and no operation writes to it
    // from now on.
    let right = unsafe { std::slice::from_raw_parts(b.cast_const(), len) };
    let crc = crc32c::crc32c(left);
    let mut of = |name: &str, peer: &dyn Fn(), descriptor: Descriptor<'static>, result: u64| {
        let results = compare(ROUNDS, 2, count * len, |contender| {
            pairs.cpu_time(|_| {
                for _ in 0..count {
                    if contender == 0 {
                        peer();
                    } else {
                        assert_eq!(run(&mut *queue, descriptor), result);
                    }
                }
            })
        });
        let [(peer, _), (queue, ratio)] = results[..] else { unreachable!("two contenders") };
        println!("{name:>12}{peer:>9.2}{queue:>9.2}{ratio:>7.2}x");
    };
    of(
        "CRC-32C",
        &|| assert_eq!(crc32c::crc32c(black_box(left)), crc),
        Descriptor::crc32c(0, segment(a, len), 0),
        crc.into(),
    );
    of(
        "compare",
        &|| assert!(black_box(left) == black_box(right)),
        Descriptor::compare(0, segment(a, len), segment(b, len)),
        Completion::EQUAL,
    );
}

/// The key that [`CpuEngine`] gives all memory of this process.
const LOCAL: RegionKey = RegionKey(1);

fn segment(addr: *const u8, len: usize) -> Segment {
    Segment { key: LOCAL, addr: DeviceAddr::of(NonNull::new(addr.cast_mut()).expect("mapped")), len }
}

/// Executes the operation and returns its result.
fn run(queue: &mut dyn RawQueue, descriptor: Descriptor<'_>) -> u64 {
    // SAFETY: the ranges lie in mappings that are never freed, and no other code accesses them during the
    // operations.
    assert_eq!(unsafe { queue.submit(&[descriptor]) }.expect("accepted"), 1);
    queue.flush();
    let mut completions = [Completion::done(0)];
    while queue.poll(&mut completions) == 0 {}
    completions[0].result
}
