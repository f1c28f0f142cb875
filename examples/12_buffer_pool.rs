//! Takes buffers from a pool. Each buffer is registered once, and returns to the pool when its last view
//! is dropped.
//!
//! `cargo run --example 12_buffer_pool`

use dma::prelude::*;

const MESSAGES: usize = 1000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> dma::Result<()> {
    let engine = dma::open("auto")?;
    let queue = engine.open_shared_queue(&SharedQueueOptions::new())?;
    let pool = BufferPool::new(&engine, &PoolOptions::new().with_class(64 << 10, 8))?;

    // The consumer drops the messages on another thread.
    let (messages, received) = std::sync::mpsc::channel::<bytes::Bytes>();
    let consumer = std::thread::spawn(move || received.iter().map(|bytes| bytes[0] as usize).sum::<usize>());

    for i in 0..MESSAGES {
        // Waits while all buffers are in use, so the pool limits the memory of all messages.
        let mut src = pool.get(1500).await?;
        src.fill((i % 2) as u8);
        // A task holds one buffer while it awaits another one, so the pool must have more buffers than
        // there are tasks.
        let dst = pool.get(1500).await?;
        let (_, dst) = queue.copy(src, dst)?.await?;
        messages.send(dst.freeze().into()).expect("the consumer listens");
    }
    drop(messages);
    assert_eq!(consumer.join().expect("no panic"), MESSAGES / 2);

    let class = pool.classes().next().expect("one size");
    println!("{MESSAGES} messages went through {} buffers; in use: {}", class.count, class.in_use);
    Ok(())
}
