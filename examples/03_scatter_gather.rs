//! Gathers several buffers into one in one operation, and scatters one buffer into several in
//! another operation. The library splits the operations if the device does not support lists.
//!
//! `cargo run --example 03_scatter_gather`

use dma::prelude::*;

fn main() -> dma::Result<()> {
    // The model of BlueField-3 supports lists, and the model of I/OAT does not. The code is the same.
    for name in ["cpu", "sim:profile=bluefield3", "sim:profile=ioat"] {
        let engine = dma::open(name)?;
        let queue = engine.open_queue(&QueueOptions::new())?;

        // Gather: a header, a shared payload and a trailer become one message.
        let mut header = engine.allocate(4)?;
        header.copy_from_slice(b"LEN:");
        let mut payload = engine.allocate(11)?;
        payload.copy_from_slice(b"eleven byte");
        let payload = payload.freeze();
        let mut trailer = engine.allocate(1)?;
        trailer.copy_from_slice(b"\n");
        let message = engine.allocate(16)?;
        let (_, message) = queue.copy((header, payload.clone(), trailer), message)?.wait()?;
        assert_eq!(&message[..], b"LEN:eleven byte\n");

        // Scatter: the message is copied into four buffers of four bytes.
        let pieces: Vec<_> = (0..4).map(|_| engine.allocate(4)).collect::<Result<_, _>>()?;
        let (message, pieces) = queue.copy(message, pieces)?.wait()?;
        assert!(message.chunks(4).eq(pieces.iter().map(|piece| &piece[..])));

        let counters = queue.counters();
        println!(
            "{name}: lists of up to {} segments; {} operations needed {} descriptors",
            engine.info().limits.max_segments,
            counters.completed,
            counters.descriptors
        );
    }
    Ok(())
}
