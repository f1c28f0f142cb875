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

mod buffer;
#[cfg(any(feature = "conformance", test))]
pub mod conformance;
mod counters;
mod engine;
mod error;
mod export;
mod ext;
mod operand;
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
pub use queue::{Batch, Driver, OpError, OpFailure, Queue, SubmitResult, Transfer};
pub use raw::*;
pub use region::Region;
pub use shared::{SharedQueue, SharedQueueOptions, SharedResult, SharedTransfer};
pub use window::{Export, Window};
