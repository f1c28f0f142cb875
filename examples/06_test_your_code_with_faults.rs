//! Tests your code against a simulated device with random faults, for many seeds. Prints the failing seed.
//!
//! `cargo run --example 06_test_your_code_with_faults`

use dma::prelude::*;
use dma::{Queue, Retry, RetryPolicy};

/// The code under test. It copies `bytes` in chunks, all in flight at once, and retries failed chunks.
fn copy_in_chunks(engine: &dyn DmaEngine, queue: &Queue, bytes: &[u8], chunk: usize) -> dma::Result<Vec<u8>> {
    let mut transfers = Vec::new();
    for part in bytes.chunks(chunk) {
        let mut src = engine.allocate(part.len())?;
        src.copy_from_slice(part);
        transfers.push(queue.copy(src, engine.allocate(part.len())?));
    }
    // A fault may be permanent, so the default of retries after faults is 3. Some of these devices need more.
    let policy = RetryPolicy::new().with_max_attempts(20).with_max_faults(5);
    let mut out = Vec::with_capacity(bytes.len());
    for transfer in transfers {
        let (_, dst) = match transfer.and_then(|transfer| transfer.wait()) {
            Ok(pair) => pair,
            Err(e) if e.retry() == Retry::Never => return Err(e.into()),
            Err(e) => match e.into_parts() {
                (_, Some(pair)) => queue.retry(&policy, pair, |(src, dst)| queue.copy(src, dst))?,
                // The device may still access the buffers.
                (error, None) => return Err(error),
            },
        };
        out.extend_from_slice(&dst);
    }
    Ok(out)
}

fn main() -> dma::Result<()> {
    let (mut resets, mut failed) = (0, 0);
    for seed in 0..200 {
        // The same seed produces exactly the same faults.
        let name =
            format!("sim:profile=bluefield3,seed={seed},faults=reset:p=0.03+fail:p=0.03+refuse:p=0.02");
        let engine = dma::open(&name)?;
        let queue = engine.open_queue(&QueueOptions::new())?;
        let bytes: Vec<u8> = (0..50_000_u32).map(|i| (i * 7 + seed) as u8).collect();
        let copied = copy_in_chunks(&*engine, &queue, &bytes, 1000);
        // The engine's name contains the seed, which reproduces the failure.
        let copied = copied.unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(copied == bytes, "wrong bytes with {name}");
        resets += queue.counters().resets;
        failed += queue.counters().failed + queue.counters().aborted;
    }
    println!("200 devices, {resets} resets, {failed} copies that failed or were aborted: every byte arrived");
    assert!(resets > 0 && failed > 0, "faults occurred in these runs");
    Ok(())
}
