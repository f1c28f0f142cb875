//! Asynchronous reads and writes of files in registered memory.
//!
//! A [`FileQueue`] reads files directly into an engine's buffers, and writes files from them. The caller can
//! do other work at the same time, such as the DMA of the previous block. The queue uses io_uring, with which
//! it [registers](FileQueue::with_pools) the memory of pools once. If the system forbids io_uring, as
//! sandboxes and containers often do, or is older than Linux 5.6, threads read and write instead. Both
//! methods give the same results.
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
//! [`DeviceFiles`] reads files into memory that the CPU may not reach, such as a GPU's, and writes them from
//! there.
//!
//! - **Ownership.** The buffer moves into the operation, which returns it when it ends, like operations of
//!   engines. If the [`FileTransfer`] is dropped, the operation continues, and the buffer is freed when the
//!   operation ends.
//! - **Complete operations.** A read ends when the buffer is full or the file ends, a write when all bytes
//!   are written, and both after an error. The queue continues short reads and writes of the system.
//! - **Back-pressure.** A queue with [`depth`](FileQueueOptions::depth) operations in flight returns the
//!   buffer with `QueueFull`.
//! - **Threads.** A thread of the queue submits and completes the operations, so that they do not depend on
//!   the thread that called [`read_at`](FileQueue::read_at). Wakers, and destructors of buffers whose
//!   transfer was dropped, run on a thread of the queue. They may panic: the panic is logged. They must not
//!   wait for other operations of the queue.
//! - **Forked processes** cannot use a queue that was made before the fork.

mod backend;
mod device;
mod device_transfer;
mod error;
mod file;
mod job;
mod operand;
mod options;
mod pieces;
mod queue;
mod ring;
mod transfer;
mod workers;

pub use device::DeviceFiles;
pub use device_transfer::DeviceTransfer;
pub use error::FileError;
pub use file::{DmaFile, OpenFile};
pub use operand::{FileDestination, FileSource};
pub use options::{FileQueueOptions, Method};
pub use pieces::FilePiece;
pub use queue::FileQueue;
pub use transfer::{FileTransfer, Finished};
