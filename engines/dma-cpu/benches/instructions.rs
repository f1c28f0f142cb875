//! Counts instructions per cached copy of 64 B, to compare the cost of the safe API with the raw queue.
//!
//! `cargo bench -p dma-cpu --bench instructions` runs itself under `valgrind --tool=callgrind` with two
//! numbers of rounds for each way to copy, and prints the cost of each additional copy and the ratio to the
//! raw queue. A round is 32 copies. Counts do not depend on other load of the machine, but they do not show
//! the time of memory accesses and waits.

#![expect(unsafe_code, reason = "drives the raw queue for comparison")]

use std::ptr::NonNull;

use dma_core::{
    Batch, BufferMut, Completion, Descriptor, DeviceAddr, DmaEngine, DmaEngineExt, QueueOptions, Segment,
    SharedQueueOptions,
};
use dma_cpu::{CpuEngine, CpuOptions};
use test_support::callgrind;

const BATCH: usize = 32;
const SIZE: usize = 64;

/// Makes `BATCH` copies in each of the given number of rounds.
type Way = fn(&CpuEngine, u64);

const WAYS: [(&str, Way); 4] = [
    ("RawQueue::submit", raw),
    ("Queue::submit(Batch)", batches),
    ("Queue::copy, each waited for", transfers),
    ("SharedQueue::copy, each waited for", shared),
];

fn options() -> QueueOptions {
    QueueOptions::new().with_depth(256)
}

/// Makes sources and destinations.
fn pairs(engine: &CpuEngine) -> Vec<(BufferMut, BufferMut)> {
    let mut sides = [(); 2].map(|()| engine.allocate(BATCH * SIZE).expect("memory"));
    (0..BATCH).map(|_| sides.each_mut().map(|side| side.split_to(SIZE)).into()).collect()
}

fn raw(engine: &CpuEngine, rounds: u64) {
    let segment = |buffer: &mut BufferMut| Segment {
        key: buffer.region().as_raw().info().key,
        addr: DeviceAddr::of(NonNull::from(&mut buffer[0])),
        len: SIZE,
    };
    let mut pairs = pairs(engine);
    let segments: Vec<_> = pairs.iter_mut().map(|(src, dst)| (segment(src), segment(dst))).collect();
    let mut queue = engine.open_queue_raw(&options()).expect("a queue");
    let mut completions = [Completion::done(0); BATCH];
    let mut descriptors = Vec::with_capacity(BATCH);
    for _ in 0..rounds {
        descriptors.clear();
        descriptors.extend(segments.iter().zip(0..).map(|((src, dst), i)| Descriptor::copy(i, *src, *dst)));
        // SAFETY: the pairs outlive the queue, and no other code accesses them while it runs.
        assert_eq!(unsafe { queue.submit(&descriptors) }.expect("accepted"), BATCH);
        queue.flush();
        let mut done = 0;
        while done < BATCH {
            done += queue.poll(&mut completions);
        }
    }
}

fn batches(engine: &CpuEngine, rounds: u64) {
    let queue = engine.open_queue(&options()).expect("a queue");
    let mut batch = pairs(engine).into_iter().collect::<Batch<_, _>>();
    for _ in 0..rounds {
        batch = queue.submit(batch).expect("accepted").wait().expect("done");
    }
}

fn transfers(engine: &CpuEngine, rounds: u64) {
    let queue = engine.open_queue(&options()).expect("a queue");
    let mut pairs = pairs(engine);
    let mut flying = Vec::with_capacity(BATCH);
    for _ in 0..rounds {
        flying.extend(pairs.drain(..).map(|(src, dst)| queue.copy(src, dst).expect("accepted")));
        pairs.extend(flying.drain(..).map(|transfer| transfer.wait().expect("done")));
    }
}

fn shared(engine: &CpuEngine, rounds: u64) {
    let queue = engine.open_shared_queue(&SharedQueueOptions::new().with_queue(options())).expect("a queue");
    let mut pairs = pairs(engine);
    let mut flying = Vec::with_capacity(BATCH);
    for _ in 0..rounds {
        flying.extend(pairs.drain(..).map(|(src, dst)| queue.copy(src, dst).expect("accepted")));
        pairs.extend(flying.drain(..).map(|transfer| transfer.wait().expect("done")));
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, mode, way, rounds] = &args[..]
        && mode == "--rounds"
    {
        let engine = CpuEngine::open(&CpuOptions::new().with_threads(0)).expect("the CPU is always there");
        let way: usize = way.parse().expect("the argument is the number of a method");
        return WAYS[way].1(&engine, rounds.parse().expect("a number of rounds"));
    }
    if !callgrind::is_there() {
        return;
    }
    let this = std::env::current_exe().expect("this program's path");
    let mut raw = None;
    for (way, (name, _)) in WAYS.iter().enumerate() {
        let each = callgrind::per_copy([1_000, 3_000], BATCH, |rounds| {
            let mut command = callgrind::command(&this);
            command.args(["--rounds", &way.to_string(), &rounds.to_string()]);
            command
        });
        let ratio = each / *raw.get_or_insert(each);
        println!(
            "{name:<36}{each:>8.1} instructions per copy of {SIZE} bytes, {ratio:>6.2} times the raw queue's"
        );
    }
}
