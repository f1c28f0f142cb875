//! Counts the instructions of users' calls for 64 bytes: on the CPU engine, and within a wrapper, which must see
//! every operation.
//!
//! `cargo bench --bench instructions` runs itself under `valgrind --tool=callgrind` with two numbers of rounds
//! for each call, and prints the instructions of one more operation, with those of the loop and of the bytes.
//! Counts do not depend on what else the machine does, but on the compiler and the C library. On x86-64 it exits
//! with 1 if a count is more than 3 % above the one in [`CALLS`]: make the call short again, or write the new
//! count there with the reason in the commit. With `--test`, every call runs once and nothing is counted.

#[path = "../engines/dma-cpu/benches/callgrind/mod.rs"]
mod callgrind;

use std::hint::black_box;

use dma::{Batch, BufferMut, DmaEngine, DmaEngineExt, QueueOptions, SharedQueueOptions};

const BATCH: usize = 32;
const SIZE: usize = 64;

/// Runs `BATCH` operations in each of `rounds` rounds.
type Call = fn(&dyn DmaEngine, u64);

/// Engine, name, function, and instructions of one operation on x86-64 (rustc 1.9x, glibc 2.36).
const CALLS: [(&str, &str, Call, f64); 14] = [
    ("cpu", "Queue::copy().wait()", one, 86.0),
    ("cpu", "Queue::submit(Batch)", batches, 55.5),
    ("cpu", "Queue::copy, 32 in flight", many, 152.8),
    ("cpu", "SharedQueue::copy().wait()", shared_one, 82.8),
    ("cpu", "SharedQueue::copy, 32 in flight", shared, 161.6),
    ("cpu", "Queue::crc32c().wait()", crc, 201.0),
    ("cpu", "Queue::copy_crc32c().wait()", copy_crc, 253.0),
    ("cpu", "Queue::compare().wait()", compare, 202.0),
    ("cpu", "Queue::fill().wait()", fill, 110.0),
    ("cpu", "Queue::copy_to_both().wait()", both, 161.0),
    ("meter+cpu", "Queue::copy().wait()", one, 9999.0),
    ("meter+cpu", "Queue::submit(Batch)", batches, 9999.0),
    ("meter+cpu", "Queue::copy, 32 in flight", many, 9999.0),
    ("meter+cpu", "SharedQueue::copy, 32 in flight", shared, 9999.0),
];
/// The highest ratio to the instructions above.
const MAX_RATIO: f64 = 1.03;

fn options() -> QueueOptions {
    QueueOptions::new().with_depth(256)
}

fn buffers<const N: usize>(engine: &dyn DmaEngine) -> Vec<[BufferMut; N]> {
    let mut sides = [(); N].map(|()| engine.allocate(BATCH * SIZE).expect("memory"));
    (0..BATCH).map(|_| sides.each_mut().map(|side| side.split_to(SIZE))).collect()
}

fn pairs(engine: &dyn DmaEngine) -> Vec<(BufferMut, BufferMut)> {
    buffers::<2>(engine).into_iter().map(Into::into).collect()
}

fn one(engine: &dyn DmaEngine, rounds: u64) {
    let queue = engine.open_queue(&options()).expect("a queue");
    let (mut src, mut dst) = pairs(engine).swap_remove(0);
    for _ in 0..rounds * BATCH as u64 {
        (src, dst) = queue.copy(src, dst).expect("accepted").wait().expect("done");
    }
}

fn batches(engine: &dyn DmaEngine, rounds: u64) {
    let queue = engine.open_queue(&options()).expect("a queue");
    let mut batch = pairs(engine).into_iter().collect::<Batch<_, _>>();
    for _ in 0..rounds {
        batch = queue.submit(batch).expect("accepted").wait().expect("done");
    }
}

fn many(engine: &dyn DmaEngine, rounds: u64) {
    let queue = engine.open_queue(&options()).expect("a queue");
    let mut pairs = pairs(engine);
    let mut flying = Vec::with_capacity(BATCH);
    for _ in 0..rounds {
        flying.extend(pairs.drain(..).map(|(src, dst)| queue.copy(src, dst).expect("accepted")));
        pairs.extend(flying.drain(..).map(|transfer| transfer.wait().expect("done")));
    }
}

fn shared(engine: &dyn DmaEngine, rounds: u64) {
    let queue = engine.open_shared_queue(&SharedQueueOptions::new().with_queue(options())).expect("a queue");
    let mut pairs = pairs(engine);
    let mut flying = Vec::with_capacity(BATCH);
    for _ in 0..rounds {
        flying.extend(pairs.drain(..).map(|(src, dst)| queue.copy(src, dst).expect("accepted")));
        pairs.extend(flying.drain(..).map(|transfer| transfer.wait().expect("done")));
    }
}

fn shared_one(engine: &dyn DmaEngine, rounds: u64) {
    let queue = engine.open_shared_queue(&SharedQueueOptions::new().with_queue(options())).expect("a queue");
    let (mut src, mut dst) = pairs(engine).swap_remove(0);
    for _ in 0..rounds * BATCH as u64 {
        (src, dst) = queue.copy(src, dst).expect("accepted").wait().expect("done");
    }
}

fn crc(engine: &dyn DmaEngine, rounds: u64) {
    let queue = engine.open_queue(&options()).expect("a queue");
    let [mut src] = buffers(engine).swap_remove(0);
    let mut crc = 0;
    for _ in 0..rounds * BATCH as u64 {
        (src, crc) = queue.crc32c(src, crc).expect("accepted").wait().expect("done");
    }
    black_box(crc);
}

fn copy_crc(engine: &dyn DmaEngine, rounds: u64) {
    let queue = engine.open_queue(&options()).expect("a queue");
    let (mut pair, mut crc) = (pairs(engine).swap_remove(0), 0);
    for _ in 0..rounds * BATCH as u64 {
        (pair, crc) = queue.copy_crc32c(pair.0, pair.1, crc).expect("accepted").wait().expect("done");
    }
    black_box(crc);
}

fn compare(engine: &dyn DmaEngine, rounds: u64) {
    let queue = engine.open_queue(&options()).expect("a queue");
    let mut pair = pairs(engine).swap_remove(0);
    for _ in 0..rounds * BATCH as u64 {
        let difference;
        (pair, difference) = queue.compare(pair.0, pair.1).expect("accepted").wait().expect("done");
        assert_eq!(difference, None);
    }
}

fn fill(engine: &dyn DmaEngine, rounds: u64) {
    let queue = engine.open_queue(&options()).expect("a queue");
    let [mut dst] = buffers(engine).swap_remove(0);
    for _ in 0..rounds * BATCH as u64 {
        dst = queue.fill(dst, [7; 8]).expect("accepted").wait().expect("done");
    }
}

fn both(engine: &dyn DmaEngine, rounds: u64) {
    let queue = engine.open_queue(&options()).expect("a queue");
    let [mut src, mut dst, mut also] = buffers(engine).swap_remove(0);
    for _ in 0..rounds * BATCH as u64 {
        (src, dst, also) = queue.copy_to_both(src, dst, also).expect("accepted").wait().expect("done");
    }
}

fn main() -> std::process::ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let run = |call: usize, rounds: u64| {
        let (engine, _, run, _) = CALLS[call];
        run(&dma::open(engine).expect("it opens"), rounds);
    };
    match &args[..] {
        [_, mode, call, rounds] if mode == "--rounds" => {
            run(call.parse().expect("the number of a call"), rounds.parse().expect("a number of rounds"));
            return std::process::ExitCode::SUCCESS;
        }
        _ if args.iter().any(|arg| arg == "--test") => {
            (0..CALLS.len()).for_each(|call| run(call, 1));
            return std::process::ExitCode::SUCCESS;
        }
        _ => {}
    }
    if !callgrind::is_there() {
        return std::process::ExitCode::SUCCESS;
    }
    let this = std::env::current_exe().expect("this program's path");
    let mut above = false;
    for (call, (engine, name, _, held)) in CALLS.iter().enumerate() {
        let each = callgrind::per_copy([100, 300], BATCH, |rounds| {
            let mut command = callgrind::command(&this);
            command.args(["--rounds", &call.to_string(), &rounds.to_string()]);
            command
        });
        let rises = cfg!(target_arch = "x86_64") && each > held * MAX_RATIO;
        above |= rises;
        let mark = if rises { "  ABOVE" } else { "" };
        println!("{:<44}{each:>8.1}{held:>8.1}{mark}", format!("{engine}: {name}"));
    }
    if above {
        eprintln!("a count is more than {MAX_RATIO} times the one in benches/instructions.rs, in the last column");
        return std::process::ExitCode::FAILURE;
    }
    std::process::ExitCode::SUCCESS
}
