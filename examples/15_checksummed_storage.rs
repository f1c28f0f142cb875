//! Operations with results. A store computes a checksum while it writes a block, verifies the written
//! bytes, and replaces replicas that have changed since then.
//!
//! `cargo run --example 15_checksummed_storage`
//!
//! The code is the same on every engine. A device with these operations, such as an Intel DSA, executes
//! them itself. On other engines, the library makes them from copies and CPU work.

use dma::prelude::*;
use dma::{Capabilities, Error, Queue};

const BLOCK: usize = 64 << 10;

/// A block with three replicas.
struct Stored {
    replicas: Vec<Buffer>,
    /// CRC-32C of the block. A real store keeps the checksum apart from the bytes.
    crc: u32,
}

/// Writes a block. Returns an error if a replica differs from the block.
fn write(engine: &dyn DmaEngine, queue: &Queue, block: &Buffer) -> dma::Result<Stored> {
    let place = || engine.allocate(block.len());
    // The first operation copies and computes the checksum in one pass. Both only read the block, so both are
    // in flight at the same time.
    let with_crc = queue.copy_crc32c(block.clone(), place()?, 0)?;
    let to_both = queue.copy_to_both(block.clone(), place()?, place()?)?;
    let ((_, first), crc) = with_crc.wait()?;
    let (_, second, third) = to_both.wait()?;
    let replicas = [first, second, third].map(BufferMut::freeze).to_vec();
    for replica in &replicas {
        let (_, differs) = queue.compare(block.clone(), replica.clone())?.wait()?;
        if let Some(at) = differs {
            return Err(Error::new(ErrorKind::DeviceFault, format!("byte {at} of a replica is wrong")));
        }
    }
    Ok(Stored { replicas, crc })
}

/// Replaces replicas whose checksum is wrong. Returns the index of each replaced replica, and the offset of
/// the first byte that differed.
fn scrub(engine: &dyn DmaEngine, queue: &Queue, stored: &mut Stored) -> dma::Result<Vec<(usize, usize)>> {
    // All checksum operations are in flight at the same time.
    let sums = stored.replicas.iter().map(|replica| queue.crc32c(replica.clone(), 0));
    let sums = sums.collect::<Result<Vec<_>, _>>()?;
    let (mut right, mut wrong) = (None, Vec::new());
    for (number, sum) in sums.into_iter().enumerate() {
        let (replica, crc) = sum.wait()?;
        if crc == stored.crc { right = Some(replica) } else { wrong.push(number) }
    }
    let right = right.ok_or_else(|| Error::new(ErrorKind::DeviceFault, "every replica has changed"))?;
    let mut replaced = Vec::new();
    for number in wrong {
        let replica = &mut stored.replicas[number];
        let (_, differs) = queue.compare(right.clone(), replica.clone())?.wait()?;
        let (_, fresh) = queue.copy(right.clone(), engine.allocate(right.len())?)?.wait()?;
        *replica = fresh.freeze();
        replaced.extend(differs.map(|at| (number, at)));
    }
    Ok(replaced)
}

fn main() -> dma::Result<()> {
    for name in ["cpu", "sim:profile=bluefield3", "sim:profile=dsa"] {
        let engine = dma::open(name)?;
        let queue = engine.open_queue(&QueueOptions::new())?;
        let mut block = engine.allocate(BLOCK)?;
        block.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 7 % 251) as u8);
        let mut stored = write(&*engine, &queue, &block.freeze())?;

        // Simulates corruption: a bit of the second replica changes.
        let mut second =
            stored.replicas.remove(1).try_into_mut().expect("this is the only view of the replica");
        second[40_000] ^= 4;
        stored.replicas.insert(1, second.freeze());

        let replaced = scrub(&*engine, &queue, &mut stored)?;
        assert_eq!(replaced, [(1, 40_000)]);
        assert_eq!(scrub(&*engine, &queue, &mut stored)?, [], "all replicas are correct again");

        let device = engine.info().capabilities.contains(Capabilities::COPY_CRC32C);
        println!(
            "{name}: CRC-32C {:08x}, computed by the {}; replaced replica {}, which differed at byte {}",
            stored.crc,
            if device { "engine" } else { "library" },
            replaced[0].0,
            replaced[0].1
        );
    }
    Ok(())
}
