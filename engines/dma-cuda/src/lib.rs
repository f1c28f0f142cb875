//! Copy engines of NVIDIA GPUs as an engine of the `dma` crate, through the driver's `libcuda.so.1`.
//!
//! The library is loaded when the first engine is opened: a build does not need it, and a run does not need
//! the CUDA toolkit. If the library or a device is missing, [`CudaEngine::open`] and [`discover`] return
//! errors with the remedy. The README describes the set-up of a machine.
//!
//! The main properties (the README has more):
//!
//! - **Two places.** The engine allocates pinned host memory and device memory
//!   ([`Place::Device`](dma_core::Place::Device)), which the CPU cannot reach. Copies work in all four
//!   directions, and to memory of other devices that is
//!   [registered](dma_core::DmaEngineExt::register_device).
//! - **Asynchronous and safe.** Operands move into an operation and are returned with its completion.
//!   Pageable memory has to be registered, because copies of it would block.
//! - **Many small copies.** They are submitted by one call for many copies, or by a kernel that reads a table
//!   of them. The engine learns which way is faster ([`Pieces`]).
//! - **A queue is a stream.** Fences order its transfers; a [`CudaStream`] orders them with other work on the
//!   device.
//! - **Errors.** A failure that the device reports, even of a kernel of the program, ends the context for the
//!   whole process: queues return [`DeviceLost`](dma_core::ErrorKind::DeviceLost), and memory in flight is
//!   leaked.
//! - **Forks.** A child of a process that has used CUDA cannot use CUDA: it gets `DeviceLost`.
//!
//! A program that changes or frees a source while the device may still read it does not compile:
//!
//! ```compile_fail,E0382
//! # use dma_core::{DmaEngineExt, QueueOptions};
//! # fn demo(engine: &dma_cuda::CudaEngine) -> dma_core::Result<()> {
//! let queue = engine.open_queue(&QueueOptions::new())?;
//! let mut source = engine.allocate(1 << 20)?;
//! let transfer = queue.copy(source, engine.allocate_device(1 << 20)?)?;
//! source.fill(0);
//! transfer.wait()?;
//! # Ok(()) }
//! ```
//!
//! ```compile_fail,E0382
//! # use dma_core::{DmaEngineExt, QueueOptions};
//! # fn demo(engine: &dma_cuda::CudaEngine) -> dma_core::Result<()> {
//! let queue = engine.open_queue(&QueueOptions::new())?;
//! let source = engine.allocate(1 << 20)?;
//! let transfer = queue.copy(source, engine.allocate_device(1 << 20)?)?;
//! drop(source);
//! transfer.wait()?;
//! # Ok(()) }
//! ```

mod backend;
mod calls;
mod device;
mod doctor;
mod driver;
mod engine;
mod error;
mod event;
mod fill;
mod library;
mod options;
mod pending;
mod pieces;
mod queue;
mod region;
mod stream;
mod timings;
mod tokens;

pub use backend::BACKEND;
pub use driver::{CUmemcpyAttributes, Driver};
pub use engine::{CudaEngine, discover, discover_with};
pub use options::{CudaDevice, CudaOptions, Pieces};
pub use stream::CudaStream;
