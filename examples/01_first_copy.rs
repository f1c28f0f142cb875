//! The first copy: allocate, copy, wait.
//!
//! `cargo run --example 01_first_copy`

use dma::prelude::*;

fn main() -> dma::Result<()> {
    // The best engine of this machine. Any other name works the same: see 02_choose_engine.
    let engine = dma::open("auto")?;
    // A queue is one thread's path to the device.
    let queue = engine.open_queue(&QueueOptions::new())?;

    // Memory that the device can reach; a slice like any other while no device uses it.
    let mut src = engine.allocate(1 << 20)?;
    src.fill(42);
    let dst = engine.allocate(1 << 20)?;

    // Both move into the operation, so nothing can touch them until it is over, and come back with its end.
    let transfer = queue.copy(src, dst)?;
    let (src, mut dst) = transfer.wait()?;
    assert_eq!(src[..], dst[..]);

    // A part of a buffer is a buffer: split without a copy, fill with 8 bytes over and over, put together again.
    let tail = dst.split_off(512 << 10);
    let tail = queue.fill(tail, *b"pattern!")?.wait()?;
    dst.unsplit(tail).expect("it was cut off there");
    assert_eq!(&dst[512 << 10..][..16], b"pattern!pattern!");

    // Frozen, it is shared and read-only, and becomes `bytes::Bytes` without a copy.
    let bytes = bytes::Bytes::from(dst.freeze());
    assert_eq!(bytes[0], 42);

    let counters = queue.counters();
    println!(
        "{} copied and filled {} bytes in {} operations",
        engine.info().backend,
        counters.bytes,
        counters.completed
    );
    Ok(())
}
