//! Tests your code against a simulated device with random faults, for many seeds. Prints the failing seed.
//!
//! `cargo run --example 06_test_your_code_with_faults`

use dma::prelude::*;
use dma::{Queue, Retry};

/// The code under test. It copies `bytes` in chunks, all in flight at once, and retries failed chunks.
fn copy_in_chunks(engine: &dyn DmaEngine, queue: &Queue, bytes: &[u8], chunk: usize) -> dma::Result<Vec<u8>> {
    let mut transfers = Vec::new();
    for part in bytes.chunks(chunk) {
        let mut src = engine.allocate(part.len())?;
        src.copy_from_slice(part);
        transfers.push(queue.copy(src, engine.allocate(part.len())?));
    }
    let mut out = Vec::with_capacity(bytes.len());
    for transfer in transfers {
        let mut outcome = transfer.and_then(|transfer| transfer.wait());
        let (mut tries, mut faults) = (0, 0);
        while let Err(e) = outcome {
            if !can_be_tried_again(e.error(), &mut tries, &mut faults) {
                return Err(e.into());
            }
            outcome = match e.into_parts() {
                (_, Some((src, dst))) => queue.copy(src, dst).and_then(|transfer| transfer.wait()),
                // The device may still access the buffers.
                (error, None) => return Err(error),
            };
        }
        out.extend_from_slice(&outcome?.1);
    }
    Ok(out)
}

/// Follows the advice of [`dma::Error::retry`] up to a limit. A fault of this copy (`FewTimes`) may be
/// permanent, so only a few attempts are allowed after such faults, and more after resets and temporary
/// errors. If this function returned false for `FewTimes`, the test below would fail within the first seeds.
fn can_be_tried_again(error: &dma::Error, tries: &mut u32, faults: &mut u32) -> bool {
    const TRIES: u32 = 20;
    const FAULTS: u32 = 5;
    match error.retry() {
        Retry::Never => false,
        Retry::FewTimes => {
            *faults += 1;
            *faults <= FAULTS
        }
        // If other programs used the device, this code would have to sleep after `Later`.
        _ => {
            *tries += 1;
            *tries <= TRIES
        }
    }
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
        assert!(copied.is_ok_and(|copied| copied == bytes), "failed with {name}");
        resets += queue.counters().resets;
        failed += queue.counters().failed + queue.counters().aborted;
    }
    println!("200 devices, {resets} resets, {failed} copies that failed or were aborted: every byte arrived");
    assert!(resets > 0 && failed > 0, "faults occurred in these runs");
    Ok(())
}
