//! Instructions per copy of 64 bytes on the CPU engine, by the functions of dma.h and by the safe API: in a
//! prepared batch, and with a token for each copy.
//!
//! `cargo bench -p instructions --bench dma_h` runs each program under `valgrind --tool=callgrind` with two
//! numbers of rounds, and prints the cost of one additional copy, and the ratio to the safe API. If a ratio
//! is more than 3 % above the recorded one, the bench exits with 1, unless it runs with `--test`.
//! `ci/valgrind.sh` runs it.
//!
//! These copies are executed within the call, by [`Queue::copy_at_once`] and [`Queue::submit_at_once`]. The
//! additional instructions above the safe API are:
//!
//! - Batches: a submission and its poll take some 500 instructions more than in the safe API, for any number
//!   of copies. The instructions check pointers, look up queue and batch by their handles, and store the
//!   completion. The safe API needs one call less, because its transfer is the completion.
//! - Copies: for each copy, two handles and two ranges are checked, and the completion is stored until it is
//!   received. The safe API moves the operands into a transfer and back.
#![expect(unsafe_code, reason = "calls the functions of dma.h")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "a program as C writes it")]

use std::mem::zeroed;

use dma::prelude::*;
use dma_c::header::{dma_completion, dma_copy, dma_queue_options};

const BATCH: usize = 32;
const SIZE: usize = 64;
/// The programs, each with its recorded ratio. For a program of dma.h, this is the ratio of its instructions
/// to the instructions of the program above it, which uses the safe API.
const PROGRAMS: [(&str, f64); 4] =
    [("batch", 1.0), ("batch in C", 1.45), ("copies", 1.0), ("copies in C", 1.38)];
/// Maximum increase of a ratio.
const MAX_RISE: f64 = 1.03;

fn in_rust(batch: bool, rounds: u64) {
    let engine = dma::open("cpu:threads=0").expect("the CPU is always there");
    let queue = engine.open_queue(&QueueOptions::new().with_depth(BATCH)).expect("a queue");
    let memory = || engine.allocate_window(&MemoryRequest::new(BATCH * SIZE)).expect("memory");
    let (src, dst) = (memory(), memory());
    let piece = |window: &Window, at: usize| window.slice(at * SIZE..(at + 1) * SIZE);
    let pairs = (0..BATCH).map(|at| (piece(&src, at), piece(&dst, at)));
    let mut pairs: Vec<_> = pairs.collect();
    if batch {
        let mut batch: Option<Batch<_, _>> = Some(pairs.into_iter().collect());
        for _ in 0..rounds {
            batch = batch.take().map(|batch| queue.submit(batch).expect("accepted").wait().expect("done"));
        }
        return;
    }
    let mut transfers = Vec::with_capacity(BATCH);
    for _ in 0..rounds {
        transfers.extend(pairs.drain(..).map(|(src, dst)| queue.copy(src, dst).expect("accepted")));
        pairs.extend(transfers.drain(..).map(|transfer| transfer.wait().expect("done")));
    }
}

fn in_c(batch: bool, rounds: u64) {
    // SAFETY: zero bytes are valid values of the header's types. All pointers lead to local values of the
    // declared types and numbers, to constant strings, or are NULL where the header allows it.
    unsafe {
        let mut options: dma_queue_options = zeroed();
        (options.size, options.depth) = (size_of_val(&options), BATCH);
        let (mut engine, mut queue, mut src, mut dst) = (zeroed(), zeroed(), zeroed(), zeroed());
        assert_eq!(dma_c::dma_open_abi(0, c"cpu:threads=0".as_ptr(), 0, &raw mut engine), 0);
        assert_eq!(dma_c::dma_queue_open(engine, &raw const options, &raw mut queue), 0);
        for region in [&mut src, &mut dst] {
            assert_eq!(dma_c::dma_region_allocate(engine, BATCH * SIZE, std::ptr::null(), region), 0);
        }
        let mut copies: [dma_copy; BATCH] = zeroed();
        for (at, copy) in copies.iter_mut().enumerate() {
            (copy.src.region, copy.dst.region, copy.token) = (src, dst, at as u64);
            for range in [&mut copy.src, &mut copy.dst] {
                (range.offset, range.len) = (at * SIZE, SIZE);
            }
        }
        let mut prepared = zeroed();
        assert_eq!(dma_c::dma_batch_create(copies.as_ptr(), BATCH, &raw mut prepared), 0);
        let mut completions: [dma_completion; BATCH] = zeroed();
        for _ in 0..rounds {
            let mut left = BATCH;
            if batch {
                assert_eq!(dma_c::dma_queue_submit(queue, prepared, 7), 0);
                left = 1;
            } else {
                assert_eq!(dma_c::dma_queue_copy(queue, copies.as_ptr(), BATCH, std::ptr::null_mut()), 0);
                assert_eq!(dma_c::dma_queue_flush(queue), 0);
            }
            while left > 0 {
                let mut count = 0;
                let places = completions.as_mut_ptr();
                assert_eq!(dma_c::dma_queue_poll(queue, places, BATCH, &raw mut count), 0);
                assert!(completions[..count].iter().all(|completion| completion.status == 0));
                left -= count;
            }
        }
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, mode, name, rounds] = &args[..]
        && mode == "--copies"
    {
        let rounds = rounds.parse().expect("a number of rounds");
        let copies = if name.ends_with(" in C") { in_c } else { in_rust };
        return copies(name.starts_with("batch"), rounds);
    }
    if !callgrind::is_there() {
        return;
    }
    let this = std::env::current_exe().expect("this program's path");
    let mut by_rust = 0.0;
    let mut above = false;
    for (name, recorded) in PROGRAMS {
        let each = callgrind::per_copy([1_000, 3_000], BATCH, |rounds| {
            let mut command = callgrind::command(&this);
            command.args(["--copies", name, &rounds.to_string()]);
            command
        });
        by_rust = if recorded == 1.0 { each } else { by_rust };
        let ratio = each / by_rust;
        above |= ratio > recorded * MAX_RISE;
        println!("{name}: {each:.1} instructions per copy of {SIZE} bytes, ratio {ratio:.3}");
    }
    // In a test run, the ratio is not checked, because it depends on the compiler.
    if above && !args.iter().any(|arg| arg == "--test") {
        eprintln!("a ratio is more than 3 % above the recorded one: {PROGRAMS:?}");
        std::process::exit(1);
    }
}
