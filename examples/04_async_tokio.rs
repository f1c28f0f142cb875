//! Awaits transfers, first on one thread that the device's file descriptor wakes, then on many threads.
//!
//! `cargo run --example 04_async_tokio`

use dma::prelude::*;
use tokio::io::unix::AsyncFd;

const COPIES: usize = 100;
const LEN: usize = 256 << 10;

fn main() -> dma::Result<()> {
    one_thread()?;
    many_threads()
}

/// A `Queue` belongs to its thread, so it needs a current-thread runtime. The driver polls the device when
/// its file descriptor is readable. Without a driver, each awaited transfer polls the device.
fn one_thread() -> dma::Result<()> {
    let engine = dma::open("cpu:threads=1,inline=0")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let queue = engine.open_queue(&QueueOptions::new())?;
        #[expect(unsafe_code, reason = "tokio requires a promise that the file descriptor does not change")]
        // SAFETY: the driver owns its file descriptor, and returns the same one as long as the driver lives.
        let driver = unsafe { AsyncFd::register(queue.driver()?) }.map_err(std::io::Error::from)?;
        let driving = tokio::task::spawn_local(async move {
            // `run` returns an error after the queue is closed.
            while driver.get_ref().run().is_ok() {
                driver.readable().await?.clear_ready();
            }
            Ok::<(), std::io::Error>(())
        });
        for i in 0..COPIES {
            let mut src = engine.allocate(LEN)?;
            src.fill(i as u8);
            let (src, dst) = queue.copy(src, engine.allocate(LEN)?)?.await?;
            assert_eq!(src[..], dst[..]);
        }
        println!(
            "one thread: {} copies awaited, {} polls",
            queue.counters().completed,
            queue.counters().polls
        );
        driving.abort();
        Ok(())
    })
}

/// Each task can have a clone of a `SharedQueue`, and its transfers are `Send`. These tasks fill the queue,
/// so they wait for free slots.
fn many_threads() -> dma::Result<()> {
    let engine = dma::open("auto")?;
    let options = SharedQueueOptions::new().with_queue(QueueOptions::new().with_depth(4));
    let queue = engine.open_shared_queue(&options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    runtime.block_on(async {
        let tasks: Vec<_> = (0..COPIES)
            .map(|i| {
                let (engine, queue) = (engine.clone(), queue.clone());
                tokio::spawn(async move {
                    let mut src = engine.allocate(LEN)?;
                    src.fill(i as u8);
                    let dst = engine.allocate(LEN)?;
                    let (src, dst) = queue.copy_when_ready(src, dst).await?;
                    assert_eq!(src[..], dst[..]);
                    Ok::<(), dma::Error>(())
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("a task does not panic")?;
        }
        Ok::<(), dma::Error>(())
    })?;
    let counters = queue.close(std::time::Duration::from_secs(5));
    println!("many threads: {} copies awaited, {} doorbells", counters.completed, counters.doorbells);
    assert_eq!(counters.completed as usize, COPIES);
    Ok(())
}
