//! Files as asynchronous sources and sinks of registered memory.
//!
//! A [`FileQueue`] reads files straight into buffers of an engine and writes them from there. The system
//! reads and writes while the caller does other work, such as DMA of the last block. It uses io_uring, with
//! the memory of pools [registered](FileQueue::with_pools) once. Threads read and write
//! instead where the system forbids io_uring, as sandboxes and containers often do.
//!
//! ```
//! use dma_core::{BufferPool, PoolOptions};
//! use dma_files::{DmaFile, FileQueue, FileQueueOptions};
//! # fn demo(engine: &dyn dma_core::DmaEngine, path: &std::path::Path) -> dma_core::Result<()> {
//!
//! let pool = BufferPool::new(engine, &PoolOptions::new().with_class(1 << 20, 8))?;
//! let files = FileQueue::with_pools(&FileQueueOptions::new(), &[&pool])?;
//! let file = DmaFile::open(path)?;
//! let (buffer, read) = files.read_at(&file, 0, pool.try_get(1 << 20)?)?.wait()?;
//! println!("{read} bytes of {} are in registered memory", buffer.len());
//! # Ok(()) }
//! ```
//!
//! - **Ownership.** The buffer moves into the operation and comes back with its end, as in operations of
//!   engines. An operation whose [`FileTransfer`] is dropped goes on, and its buffer is kept until its end.
//! - **Whole operations.** A read ends when the buffer is full or at the end of the file, a write when all
//!   bytes are written or with an error. Short reads and writes of the system are continued.
//! - **Back-pressure.** A queue with [`depth`](FileQueueOptions::depth) operations in flight returns the
//!   buffer with `QueueFull`.
//! - **Forked processes** cannot use a queue that was made before the fork.

mod error;
mod file;
mod job;
mod operand;
mod options;
mod queue;
mod ring;
mod transfer;
mod workers;

pub use error::FileError;
pub use file::{DmaFile, OpenFile};
pub use operand::{FileDestination, FileSource};
pub use options::{FileQueueOptions, Method};
pub use queue::FileQueue;
pub use transfer::{FileTransfer, Finished};
