//! Your own code against a device that fails, in plain CI: many seeds, faults by chance, the failing seed printed.
//!
//! `cargo run --example 06_test_your_code_with_faults`

use dma::prelude::*;
use dma::{OpError, Queue};

/// The code under test: copies `bytes` in chunks, all in flight at once, and sees each chunk through.
fn copy_in_chunks(engine: &dyn DmaEngine, queue: &Queue, bytes: &[u8], chunk: usize) -> dma::Result<Vec<u8>> {
    const TRIES: usize = 20;
    let mut transfers = Vec::new();
    for part in bytes.chunks(chunk) {
        let mut src = engine.allocate(part.len())?;
        src.copy_from_slice(part);
        transfers.push(queue.copy(src, engine.allocate(part.len())?));
    }
    let mut out = Vec::with_capacity(bytes.len());
    for transfer in transfers {
        let mut outcome = transfer.and_then(|transfer| transfer.wait());
        for _ in 0..TRIES {
            outcome = match outcome {
                Err(e) if can_be_tried_again(&e) => {
                    let (src, dst) = e.into_operands().expect("it can be tried again");
                    queue.copy(src, dst).and_then(|transfer| transfer.wait())
                }
                other => other,
            };
        }
        out.extend_from_slice(&outcome?.1);
    }
    Ok(out)
}

/// Leave out `DeviceFault` here, and the test below finds a seed within the first few.
fn can_be_tried_again<T>(e: &OpError<T>) -> bool {
    matches!(
        e.kind(),
        ErrorKind::Aborted | ErrorKind::DeviceFault | ErrorKind::OutOfResources | ErrorKind::QueueFull
    )
}

fn main() -> dma::Result<()> {
    let (mut resets, mut failed) = (0, 0);
    for seed in 0..200 {
        // Every device is another one; the same seed is the same device again, to the byte.
        let name =
            format!("sim:profile=bluefield3,seed={seed},faults=reset:p=0.03+fail:p=0.03+refuse:p=0.02");
        let engine = dma::open(&name)?;
        let queue = engine.open_queue(&QueueOptions::new())?;
        let bytes: Vec<u8> = (0..50_000_u32).map(|i| (i * 7 + seed) as u8).collect();
        let copied = copy_in_chunks(&*engine, &queue, &bytes, 1000);
        // The failing seed is all that is needed to see it again.
        assert!(copied.is_ok_and(|copied| copied == bytes), "failed with {name}");
        resets += queue.counters().resets;
        failed += queue.counters().failed + queue.counters().aborted;
    }
    println!("200 devices, {resets} resets, {failed} copies that failed or were aborted: every byte arrived");
    assert!(resets > 0 && failed > 0, "the faults did strike");
    Ok(())
}
