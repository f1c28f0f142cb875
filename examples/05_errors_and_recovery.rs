//! Handles errors: bad requests, a full queue, a device reset, a device that hangs.
//!
//! `cargo run --example 05_errors_and_recovery`

use std::time::Duration;

use dma::Retry;
use dma::prelude::*;

fn main() -> dma::Result<()> {
    bad_requests()?;
    full_queue()?;
    reset()?;
    dead_device()
}

/// A bad request is refused before it reaches the device, and the error returns the operands.
fn bad_requests() -> dma::Result<()> {
    let engine = dma::open("cpu")?;
    let queue = engine.open_queue(&QueueOptions::new())?;
    let refused = queue.copy(engine.allocate(10)?, engine.allocate(11)?).expect_err("the lengths differ");
    println!("refused: {refused}");
    assert_eq!(refused.kind(), ErrorKind::LengthMismatch);
    let (src, dst) = refused.into_operands().expect("a refusal gives the operands back");
    assert_eq!((src.len(), dst.len()), (10, 11));
    Ok(())
}

/// A full queue returns an error with the operands. Nothing blocks.
fn full_queue() -> dma::Result<()> {
    let engine = dma::open("sim:profile=bluefield3")?;
    let queue = engine.open_queue(&QueueOptions::new().with_depth(4))?;
    let mut waiting = std::collections::VecDeque::new();
    let mut full = 0;
    for i in 0..20_u8 {
        let (mut src, mut dst) = (engine.allocate(4096)?, engine.allocate(4096)?);
        src.fill(i);
        loop {
            match queue.copy(src, dst) {
                Ok(transfer) => break waiting.push_back((i, transfer)),
                Err(e) if e.kind() == ErrorKind::QueueFull => {
                    full += 1;
                    (src, dst) = e.into_operands().expect("a refusal gives the operands back");
                    // Waiting for the oldest transfer frees a slot.
                    let (i, oldest) = waiting.pop_front().expect("a full queue has operations");
                    assert_eq!(oldest.wait()?.1[0], i);
                }
                Err(e) => return Err(e.into()),
            }
        }
    }
    for (i, transfer) in waiting {
        assert_eq!(transfer.wait()?.1[0], i);
    }
    println!("20 copies through a queue of 4, which was full {full} times");
    Ok(())
}

/// The fifth copy resets the device. The backend restarts it. Copies in flight end as `Aborted` and may be
/// submitted again.
fn reset() -> dma::Result<()> {
    let engine = dma::open("sim:profile=bluefield3,seed=1,faults=reset@5")?;
    let queue = engine.open_queue(&QueueOptions::new())?;
    let transfers: Vec<_> = (0..10_u8)
        .map(|i| {
            let mut src = engine.allocate(4096)?;
            src.fill(i);
            Ok(queue.copy(src, engine.allocate(4096)?)?)
        })
        .collect::<dma::Result<_>>()?;
    queue.flush();
    let (mut done, mut again) = (0, 0);
    for (i, transfer) in transfers.into_iter().enumerate() {
        let (_, dst) = match transfer.wait() {
            Ok(operands) => operands,
            Err(e) => {
                println!("copy {}: {e} (retry: {:?})", i + 1, e.error().retry());
                // The advice is `FewTimes` for the copy that failed, because it may fail again, and `Now`
                // for the aborted copies.
                assert!(matches!(e.error().retry(), Retry::Now | Retry::FewTimes));
                again += 1;
                let (src, dst) = e.into_operands().expect("the device no longer uses the operands");
                queue.copy(src, dst)?.wait()?
            }
        };
        assert_eq!(usize::from(dst[4095]), i);
        done += 1;
    }
    println!("{done} copies done, {again} of them after {} reset", queue.counters().resets);
    Ok(())
}

/// The device hangs. Waiting has a deadline, closing takes bounded time, and the memory is never reused.
fn dead_device() -> dma::Result<()> {
    let engine = dma::open("sim:faults=stick@1")?;
    let queue = engine.open_queue(&QueueOptions::new().with_stall_timeout(Duration::from_millis(50)))?;
    let mut transfer = queue.copy(engine.allocate(64)?, engine.allocate(64)?)?;
    let late = transfer.wait_for(Duration::from_millis(20)).expect_err("it never answers");
    println!("after 20 ms: {late}");
    let given_up = transfer.wait().expect_err("it never answers");
    println!("the wait gave up: {given_up}");
    assert!(given_up.into_operands().is_none(), "the device may still write to the operands");
    let counters = queue.close(Duration::from_millis(50));
    println!("closed: {} aborted, {} abandoned", counters.aborted, counters.abandoned);
    assert_eq!(counters.aborted + counters.abandoned, 1);
    Ok(())
}
