//! The contract that DMA engines implement, and the safe API on it.
//!
//! | layer | what | for whom |
//! |---|---|---|
//! | [`DmaEngine`], [`RawRegion`], [`RawQueue`] | the contract: object safe, nothing defaulted | who writes a backend |
//! | [`DmaEngineExt`], [`Queue`], [`SharedQueue`], [`BufferMut`], [`Buffer`], [`Window`] | the safe API, the same on every engine | who copies |
//! | `conformance` (feature) | what every engine must do, as plain functions | both |
//!
//! Design choices:
//!
//! - **Ownership moves with the bytes.** A buffer moves into an operation and comes back with its completion. Between the two nobody holds a
//!   reference to its bytes, whatever is dropped or forgotten. If a device never answers, the memory is leaked rather than reused.
//! - **Unique, shared, or by copy.** [`BufferMut`] is the only view of its bytes; [`Buffer`] is one of many, read-only; [`Window`] is
//!   memory that a peer may write, reached by copy alone. An operation's source and destination must not overlap.
//! - **Back-pressure is a value.** A full queue hands the operands back. Waiting has a deadline; polling never blocks.
//! - **What a completion says is not an error of polling.** It is the [`Outcome`] of that operation: done, failed, or aborted by a reset.
//! - **Dispatch per batch.** One virtual call submits many descriptors, one takes many completions.
//! - **The device's limits are the library's concern.** Longer copies and lists are cut up; a fill or fence that the device does not have is
//!   made from copies and waiting.
//! - **Nothing is allocated per copy** once a queue is warm, except to keep the operands of a transfer that is dropped early.
//!
//! The engine crates (`dma-sim` and the hardware backends) implement the contract; the `dma` crate opens them by name.
//!
//! # What the compiler refuses
//!
//! This compiles: shared memory is read while a device reads it too, and what was in flight is the caller's again after the wait.
//!
//! ```
//! use dma_core::{Buffer, BufferMut, Queue, Result, SharedQueue, Window};
//!
//! fn copy(queue: &Queue, src: Buffer, dst: BufferMut, window: Window) -> Result<()> {
//!     let keep = src.clone();
//!     let transfer = queue.copy(src, dst)?;
//!     let first = keep[0];
//!     let (_, mut dst) = transfer.wait()?;
//!     dst[0] = first;
//!     let (_, window) = queue.copy(dst, window)?.wait()?;
//!     window.write_at(0, b"by copy")
//! }
//!
//! fn elsewhere(queue: SharedQueue, src: Buffer, dst: BufferMut) {
//!     std::thread::spawn(move || queue.copy(src, dst).map(|transfer| transfer.wait().is_ok()).is_ok());
//! }
//! ```
//!
//! Reading what the device may be writing, and writing what it may be reading, do not:
//!
//! ```compile_fail,E0382
//! # use dma_core::{Buffer, BufferMut, Queue, Result};
//! fn copy(queue: &Queue, src: Buffer, dst: BufferMut) -> Result<u8> {
//!     let transfer = queue.copy(src, dst)?;
//!     let first = dst[0];
//!     transfer.wait()?;
//!     Ok(first)
//! }
//! ```
//! ```compile_fail,E0382
//! # use dma_core::{BufferMut, Queue, Result};
//! fn copy(queue: &Queue, mut src: BufferMut, dst: BufferMut) -> Result<()> {
//!     let transfer = queue.copy(src, dst)?;
//!     src.fill(0);
//!     transfer.wait()?;
//!     Ok(())
//! }
//! ```
//!
//! nor keeping a slice of it from before:
//!
//! ```compile_fail,E0505
//! # use dma_core::{Buffer, BufferMut, Queue, Result};
//! fn copy(queue: &Queue, src: Buffer, mut dst: BufferMut) -> Result<()> {
//!     let bytes: &mut [u8] = &mut dst;
//!     let transfer = queue.copy(src, dst)?;
//!     bytes[0] = 1;
//!     transfer.wait()?;
//!     Ok(())
//! }
//! ```
//!
//! nor lending an operand instead of giving it:
//!
//! ```compile_fail,E0277
//! # use dma_core::{Buffer, BufferMut, Queue};
//! fn copy(queue: &Queue, src: &Buffer, dst: &mut BufferMut) {
//!     let _ = queue.copy(src, dst);
//! }
//! ```
//!
//! nor writing memory that is shared, by the CPU or by a device:
//!
//! ```compile_fail,E0594
//! # use dma_core::BufferMut;
//! fn freeze(buffer: BufferMut) {
//!     let frozen = buffer.freeze();
//!     frozen[0] = 1;
//! }
//! ```
//! ```compile_fail,E0277
//! # use dma_core::{Buffer, Queue};
//! fn copy(queue: &Queue, src: Buffer, dst: Buffer) {
//!     let _ = queue.copy(src, dst);
//! }
//! ```
//!
//! nor a reference to memory that a peer may write:
//!
//! ```compile_fail,E0608
//! # use dma_core::Window;
//! fn peek(window: &Window) -> &[u8] {
//!     &window[..]
//! }
//! ```
//!
//! nor using one thread's queue on another:
//!
//! ```compile_fail,E0277
//! # use dma_core::Queue;
//! fn elsewhere(queue: Queue) {
//!     std::thread::spawn(move || queue.poll());
//! }
//! ```

mod buffer;
#[cfg(any(feature = "conformance", test))]
pub mod conformance;
mod counters;
mod engine;
mod error;
mod export;
mod ext;
mod operand;
mod pci;
mod queue;
mod raw;
mod region;
mod shared;
mod window;

pub use buffer::{Buffer, BufferMut};
pub use counters::Counters;
pub use engine::*;
pub use error::*;
pub use export::ExportDescriptor;
pub use ext::DmaEngineExt;
pub use operand::{Destination, Source};
pub use pci::PciAddress;
pub use queue::{Batch, Driver, OpError, OpFailure, Queue, SubmitResult, Transfer};
pub use raw::*;
pub use region::Region;
pub use shared::{SharedQueue, SharedQueueOptions, SharedReady, SharedResult, SharedTransfer};
pub use window::{Export, Window};
