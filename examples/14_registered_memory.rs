//! Copies memory that the program has already allocated, either registered in place or as plain bytes.
//!
//! `cargo run --example 14_registered_memory`

use std::sync::Arc;

use bytes::Bytes;
use dma::prelude::*;
use dma::{RegistrationCache, RegistrationCacheOptions};

fn main() -> dma::Result<()> {
    for name in ["cpu", "sim:profile=bluefield3"] {
        let engine: Arc<dyn DmaEngine> = dma::open(name)?;
        let queue = engine.open_queue(&QueueOptions::new())?;

        // Shared read-only memory is a source that the engine reads in place. Other code may read it
        // at the same time.
        let message = Bytes::from(vec![7; 64 << 10]);
        let src = engine.register_read_only(message.clone())?;
        assert_eq!(src.as_ptr(), message.as_ptr());
        let (src, dst) = queue.copy(src, engine.allocate(message.len())?)?.wait()?;
        assert_eq!(dst[..], message[..]);
        // `into_owner` of the last view returns the owner and ends the registration.
        let owner: Bytes = src.into_owner().expect("this is the last view, and the owner is `Bytes`");
        assert_eq!(owner.as_ptr(), message.as_ptr());

        // The program's own vector as a destination. For engines that require an alignment,
        // `HostMemory::aligned` allocates suitable memory.
        let dst = engine.register(HostMemory::from_owner(vec![0; owner.len()]))?;
        let src = engine.register_read_only(owner)?;
        let (_, dst) = queue.copy(src, dst)?.wait()?;
        let arrived: Vec<u8> = dst.into_owner().expect("this is the last view, and the owner is the vector");
        assert_eq!(arrived, message);

        // The cache keeps the registration of memory that is used repeatedly.
        let options = RegistrationCacheOptions::new().with_entries(16).with_bytes(64 << 20);
        let cache = RegistrationCache::new(Arc::clone(&engine), &options);
        let table: Arc<[u8]> = vec![9; 4096].into();
        let mut dst = engine.allocate(table.len())?;
        for _ in 0..10 {
            (_, dst) = queue.copy(cache.get(&table)?, dst)?.wait()?;
        }
        assert_eq!(dst[..], table[..]);

        // Copies borrowed slices. The call blocks, and on a device the bytes go through registered buffers.
        let pool = BufferPool::new(&engine, &PoolOptions::new().with_class(64 << 10, 8))?;
        let mut copied = vec![0; arrived.len()];
        queue.copy_bytes(&pool, &arrived, &mut copied)?;
        assert_eq!(copied, arrived);

        let counters = cache.counters();
        println!(
            "{name}: {} bytes copied in place; {} registration served {} copies",
            message.len(),
            counters.misses,
            counters.misses + counters.hits
        );
    }
    Ok(())
}
