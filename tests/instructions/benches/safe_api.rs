//! Counts the instructions of the calls that users write, for operations of 64 B through the safe API. The
//! engines are the CPU engine, which executes such operations within the call, and wrappers around it, which
//! count and time each of them, record them, or pass one in 100 copies through the queue to verify it.
//!
//! `cargo bench -p instructions --bench safe_api` runs this program under `valgrind --tool=callgrind`, with
//! two numbers of rounds for each call, and prints the instructions of one additional operation, including
//! the measuring loop. It exits with 1 if a count exceeds its figure by more than 3 %. Other programs on the
//! machine do not change the counts. With `--test`, it only runs each call a few times, without valgrind.
//!
//! The figures hold on x86-64 for one compiler ([`COMPILER`]) and one C library ([`C_LIBRARY`]), whose
//! `memcpy` moves the bytes. They are the same on every processor with AVX2, because valgrind then
//! emulates the same processor features. On other systems, counts are printed but not compared.

use std::process::{Command, ExitCode};

use dma::Result;
use dma::prelude::*;

/// Number of operations in a round. Calls with several operations in flight have this number in flight.
const ROUND: usize = 32;
const SIZE: usize = 64;
/// The compiler for which the figures in [`CALLS`] hold.
const COMPILER: &str = "rustc 1.95.0";
/// The C library for which the figures hold.
const C_LIBRARY: &str = "glibc 2.36";
/// Relative difference up to which a count is considered equal to its figure.
const TOLERANCE: f64 = 0.03;

struct Call {
    name: &'static str,
    engine: &'static str,
    /// Executes `ROUND` operations in each round.
    run: fn(&dyn DmaEngine, u64) -> Result<()>,
    /// Expected number of instructions of one operation.
    figure: f64,
}

/// Wrappers around the CPU engine.
const VERIFY: &str = "verify+cpu:sample=100";
const RECORD: &str = "record+cpu:file=/dev/null";

const CALLS: [Call; 25] = [
    Call { name: "queue.copy(src, dst)?.wait()?", engine: "cpu", run: copy, figure: 56.0 },
    Call { name: "queue.submit(batch)?.wait()?, 32 copies", engine: "cpu", run: batch, figure: 26.6 },
    Call { name: "queue.copy, 32 in flight, extend", engine: "cpu", run: in_flight, figure: 130.2 },
    Call { name: "queue.copy, 32 in flight, push", engine: "cpu", run: pushed, figure: 147.2 },
    Call { name: "shared.copy(src, dst)?.wait()?", engine: "cpu", run: shared, figure: 73.0 },
    Call { name: "queue.crc32c(src, 0)?.wait()?", engine: "cpu", run: crc32c, figure: 131.0 },
    Call { name: "queue.copy_crc32c(src, dst, 0)?.wait()?", engine: "cpu", run: copy_crc32c, figure: 175.0 },
    Call { name: "queue.compare(a, b)?.wait()?", engine: "cpu", run: compare, figure: 107.0 },
    Call { name: "queue.fill(dst, pattern)?.wait()?", engine: "cpu", run: fill, figure: 56.0 },
    Call { name: "queue.copy_to_both(src, dst, also)?.wait()?", engine: "cpu", run: both, figure: 148.0 },
    Call { name: "queue.copy_now(&src, &mut dst), function", engine: "cpu", run: copy_now, figure: 72.0 },
    Call { name: "shared.copy_now(&src, &mut dst), function", engine: "cpu", run: shared_now, figure: 78.0 },
    Call { name: "queue.crc32c_now(&src, 0), function", engine: "cpu", run: crc32c_now, figure: 142.0 },
    Call { name: "queue.compare_now(&a, &b), function", engine: "cpu", run: compare_now, figure: 108.0 },
    Call { name: "queue.fill_now(&mut dst, pattern), function", engine: "cpu", run: fill_now, figure: 62.0 },
    Call { name: "pool.try_get(len)?, dropped", engine: "cpu", run: pooled, figure: 102.0 },
    Call { name: "engine.allocate(len)?, dropped", engine: "cpu", run: allocated, figure: 494.2 },
    Call {
        name: "engine.allocate_for_overwrite(len)?, dropped",
        engine: "cpu",
        run: overwritten,
        figure: 477.2,
    },
    Call { name: "queue.copy(src, dst)?.wait()?", engine: "meter+cpu", run: copy, figure: 168.0 },
    Call { name: "queue.submit(batch)?.wait()?, 32 copies", engine: "meter+cpu", run: batch, figure: 56.3 },
    Call { name: "queue.copy, 32 in flight, extend", engine: "meter+cpu", run: in_flight, figure: 243.3 },
    Call { name: "shared.copy(src, dst)?.wait()?", engine: "meter+cpu", run: shared, figure: 184.9 },
    Call { name: "queue.copy(src, dst)?.wait()?", engine: VERIFY, run: copy, figure: 164.8 },
    Call { name: "shared.copy(src, dst)?.wait()?", engine: VERIFY, run: shared, figure: 328.5 },
    Call { name: "queue.copy(src, dst)?.wait()?", engine: RECORD, run: copy, figure: 1201.0 },
];

/// Allocates `ROUND` sources and destinations.
fn pairs(engine: &dyn DmaEngine) -> Result<Vec<(BufferMut, BufferMut)>> {
    let (mut src, mut dst) = (engine.allocate(ROUND * SIZE)?, engine.allocate(ROUND * SIZE)?);
    Ok((0..ROUND).map(|_| (src.split_to(SIZE), dst.split_to(SIZE))).collect())
}

fn operations(rounds: u64) -> std::ops::Range<u64> {
    0..rounds * ROUND as u64
}

fn copy(engine: &dyn DmaEngine, rounds: u64) -> Result<()> {
    let queue = engine.open_queue(&QueueOptions::new())?;
    let (mut src, mut dst) = (engine.allocate(SIZE)?, engine.allocate(SIZE)?);
    for _ in operations(rounds) {
        (src, dst) = queue.copy(src, dst)?.wait()?;
    }
    Ok(())
}

fn batch(engine: &dyn DmaEngine, rounds: u64) -> Result<()> {
    let queue = engine.open_queue(&QueueOptions::new())?;
    let mut batch: Batch<_, _> = pairs(engine)?.into_iter().collect();
    for _ in 0..rounds {
        batch = queue.submit(batch)?.wait()?;
    }
    Ok(())
}

fn in_flight(engine: &dyn DmaEngine, rounds: u64) -> Result<()> {
    let queue = engine.open_queue(&QueueOptions::new())?;
    let mut pairs = pairs(engine)?;
    let mut transfers = Vec::with_capacity(ROUND);
    for _ in 0..rounds {
        transfers.extend(pairs.drain(..).map(|(src, dst)| queue.copy(src, dst).expect("accepted")));
        pairs.extend(transfers.drain(..).map(|transfer| transfer.wait().expect("done")));
    }
    Ok(())
}

fn pushed(engine: &dyn DmaEngine, rounds: u64) -> Result<()> {
    let queue = engine.open_queue(&QueueOptions::new())?;
    let mut pairs = pairs(engine)?;
    let mut transfers = Vec::with_capacity(ROUND);
    for _ in 0..rounds {
        for (src, dst) in pairs.drain(..) {
            transfers.push(queue.copy(src, dst)?);
        }
        for transfer in transfers.drain(..) {
            pairs.push(transfer.wait()?);
        }
    }
    Ok(())
}

fn pooled(engine: &dyn DmaEngine, rounds: u64) -> Result<()> {
    let pool = BufferPool::new(engine, &PoolOptions::new().with_class(SIZE, ROUND))?;
    for _ in operations(rounds) {
        drop(std::hint::black_box(pool.try_get(SIZE)?));
    }
    Ok(())
}

fn allocated(engine: &dyn DmaEngine, rounds: u64) -> Result<()> {
    for _ in operations(rounds) {
        drop(std::hint::black_box(engine.allocate(SIZE)?));
    }
    Ok(())
}

fn overwritten(engine: &dyn DmaEngine, rounds: u64) -> Result<()> {
    for _ in operations(rounds) {
        drop(std::hint::black_box(engine.allocate_for_overwrite(SIZE)?));
    }
    Ok(())
}

fn shared(engine: &dyn DmaEngine, rounds: u64) -> Result<()> {
    let queue = engine.open_shared_queue(&SharedQueueOptions::new())?;
    let (mut src, mut dst) = (engine.allocate(SIZE)?, engine.allocate(SIZE)?);
    for _ in operations(rounds) {
        (src, dst) = queue.copy(src, dst)?.wait()?;
    }
    Ok(())
}

fn crc32c(engine: &dyn DmaEngine, rounds: u64) -> Result<()> {
    let queue = engine.open_queue(&QueueOptions::new())?;
    let (mut src, mut crc) = (engine.allocate(SIZE)?, 0);
    for _ in operations(rounds) {
        (src, crc) = queue.crc32c(src, crc)?.wait()?;
    }
    std::hint::black_box(crc);
    Ok(())
}

fn copy_crc32c(engine: &dyn DmaEngine, rounds: u64) -> Result<()> {
    let queue = engine.open_queue(&QueueOptions::new())?;
    let (mut operands, mut crc) = ((engine.allocate(SIZE)?, engine.allocate(SIZE)?), 0);
    for _ in operations(rounds) {
        let (src, dst) = operands;
        (operands, crc) = queue.copy_crc32c(src, dst, crc)?.wait()?;
    }
    std::hint::black_box(crc);
    Ok(())
}

fn compare(engine: &dyn DmaEngine, rounds: u64) -> Result<()> {
    let queue = engine.open_queue(&QueueOptions::new())?;
    let (mut operands, mut difference) = ((engine.allocate(SIZE)?, engine.allocate(SIZE)?), None);
    for _ in operations(rounds) {
        let (a, b) = operands;
        (operands, difference) = queue.compare(a, b)?.wait()?;
    }
    assert_eq!(difference, None, "memory is allocated as zeros");
    Ok(())
}

fn fill(engine: &dyn DmaEngine, rounds: u64) -> Result<()> {
    let queue = engine.open_queue(&QueueOptions::new())?;
    let mut dst = engine.allocate(SIZE)?;
    for _ in operations(rounds) {
        dst = queue.fill(dst, [7; 8])?.wait()?;
    }
    assert!(rounds == 0 || dst[..] == [7; SIZE]);
    Ok(())
}

fn both(engine: &dyn DmaEngine, rounds: u64) -> Result<()> {
    let queue = engine.open_queue(&QueueOptions::new())?;
    let (mut src, mut dst, mut also) =
        (engine.allocate(SIZE)?, engine.allocate(SIZE)?, engine.allocate(SIZE)?);
    for _ in operations(rounds) {
        (src, dst, also) = queue.copy_to_both(src, dst, also)?.wait()?;
    }
    Ok(())
}

/// Calls `call` with a pair that it gets by reference, as a function that the compiler does not inline.
fn through_a_function(
    engine: &dyn DmaEngine,
    rounds: u64,
    call: fn(&Queue, &mut (BufferMut, BufferMut)) -> bool,
) -> Result<()> {
    let queue = engine.open_queue(&QueueOptions::new())?;
    let (call, mut pair) = (std::hint::black_box(call), (engine.allocate(SIZE)?, engine.allocate(SIZE)?));
    for _ in operations(rounds) {
        assert!(call(&queue, &mut pair));
    }
    Ok(())
}

fn copy_now(engine: &dyn DmaEngine, rounds: u64) -> Result<()> {
    through_a_function(engine, rounds, |queue, (src, dst)| queue.copy_now(src, dst))
}

fn crc32c_now(engine: &dyn DmaEngine, rounds: u64) -> Result<()> {
    through_a_function(engine, rounds, |queue, (src, _)| queue.crc32c_now(src, 0).is_some())
}

fn compare_now(engine: &dyn DmaEngine, rounds: u64) -> Result<()> {
    through_a_function(engine, rounds, |queue, (a, b)| queue.compare_now(a, b) == Some(None))
}

fn fill_now(engine: &dyn DmaEngine, rounds: u64) -> Result<()> {
    through_a_function(engine, rounds, |queue, (_, dst)| queue.fill_now(dst, [7; 8]))
}

fn shared_now(engine: &dyn DmaEngine, rounds: u64) -> Result<()> {
    let queue = engine.open_shared_queue(&SharedQueueOptions::new())?;
    let call: fn(&SharedQueue, &mut (BufferMut, BufferMut)) -> bool =
        std::hint::black_box(|queue, (src, dst)| queue.copy_now(src, dst));
    let mut pair = (engine.allocate(SIZE)?, engine.allocate(SIZE)?);
    for _ in operations(rounds) {
        assert!(call(&queue, &mut pair));
    }
    Ok(())
}

/// Returns the reason why the figures do not hold on this machine, or `None` if they hold.
fn unjudged() -> Option<String> {
    #[cfg(target_arch = "x86_64")]
    let is_known = std::arch::is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    let is_known = false;
    if !is_known {
        return Some("the figures hold only on x86-64 processors with AVX2".into());
    }
    let of = |program: &str, argument: &str| {
        let output = Command::new(program).arg(argument).output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string());
        text.unwrap_or_else(|e| format!("unknown ({program}: {e})"))
    };
    let (compiler, library) = (of("rustc", "--version"), of("getconf", "GNU_LIBC_VERSION"));
    // A space must follow the version number, so that 1.95.0 does not match 1.95.01.
    let is_same = compiler.starts_with(&format!("{COMPILER} ")) && library == C_LIBRARY;
    (!is_same)
        .then(|| format!("the figures hold for {COMPILER} and {C_LIBRARY}, not for {compiler} and {library}"))
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let run = |call: &Call, rounds| {
        let engine = dma::open(call.engine).expect("the CPU is always present");
        (call.run)(&*engine, rounds).unwrap_or_else(|e| panic!("{} on {}: {e}", call.name, call.engine));
    };
    if let [_, mode, call, rounds] = &args[..]
        && mode == "--rounds"
    {
        let call: usize = call.parse().expect("the number of a call");
        run(&CALLS[call], rounds.parse().expect("a number of rounds"));
        return ExitCode::SUCCESS;
    }
    if args.iter().any(|arg| arg == "--test") {
        CALLS.iter().for_each(|call| run(call, 3));
        return ExitCode::SUCCESS;
    }
    if !callgrind::is_there() {
        return ExitCode::SUCCESS;
    }
    let unjudged = unjudged();
    let this = std::env::current_exe().expect("this program's path");
    let mut changes = Vec::new();
    println!("{:<46}{:<54}{:>8}{:>8}", "instructions per operation of 64 B", "engine", "count", "figure");
    for (number, Call { name, engine, figure, .. }) in CALLS.iter().enumerate() {
        let count = callgrind::per_copy([1_000, 3_000], ROUND, |rounds| {
            let mut command = callgrind::command(&this);
            command.args(["--rounds", &number.to_string(), &rounds.to_string()]);
            command
        });
        println!("{name:<46}{engine:<54}{count:>8.1}{figure:>8.1}");
        let change = count / figure - 1.0;
        if change.abs() > TOLERANCE {
            changes.push((
                change,
                format!("{name} on {engine}: {count:.1} instructions, recorded figure {figure:.1}"),
            ));
        }
    }
    if let Some(reason) = unjudged {
        println!("skipped: comparing instruction counts with their figures, because {reason}");
        return ExitCode::SUCCESS;
    }
    let mut code = ExitCode::SUCCESS;
    for (change, what) in changes {
        if change < 0.0 {
            println!(
                "{what}: {:.1} % fewer. Lower the figure, so that a later increase is detected.",
                -100.0 * change
            );
        } else {
            eprintln!(
                "{what}: {:.1} % more. Mend the code, or raise the figure in tests/instructions/benches/safe_api.rs if the \
                 instructions are worth it.",
                100.0 * change
            );
            code = ExitCode::FAILURE;
        }
    }
    code
}
