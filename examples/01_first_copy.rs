//! The first copy: allocate, copy, wait.
//!
//! `cargo run --example 01_first_copy`

use dma::prelude::*;

fn main() -> dma::Result<()> {
    // Opens the best engine of this machine. 02_choose_engine shows other names.
    let engine = dma::open("auto")?;
    // A queue belongs to one thread.
    let queue = engine.open_queue(&QueueOptions::new())?;

    // Memory that the device can reach. It is a slice while no operation uses it.
    let mut src = engine.allocate(1 << 20)?;
    src.fill(42);
    let dst = engine.allocate(1 << 20)?;

    // Both buffers move into the operation, and `wait` returns them. The program cannot access them
    // in the meantime.
    let transfer = queue.copy(src, dst)?;
    let (src, mut dst) = transfer.wait()?;
    assert_eq!(src[..], dst[..]);

    // A buffer splits without a copy. Fill one half with a pattern of 8 bytes, and join them again.
    let tail = dst.split_off(512 << 10);
    let tail = queue.fill(tail, *b"pattern!")?.wait()?;
    dst.unsplit(tail).expect("`tail` was split from this buffer");
    assert_eq!(&dst[512 << 10..][..16], b"pattern!pattern!");

    // A frozen buffer is shared and read-only, and becomes `bytes::Bytes` without a copy.
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
