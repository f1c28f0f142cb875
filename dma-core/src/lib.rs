//! The contract that DMA engines implement, and the safe API on it.
//!
//! | layer | contents | users |
//! |---|---|---|
//! | [`DmaEngine`], [`RawRegion`], [`RawQueue`], [`Operation`] | the contract, object safe | backends |
//! | [`DmaEngineExt`], [`Queue`], [`SharedQueue`], [`BufferMut`], [`Window`] | the safe API | programs |
//! | `conformance` (feature) | tests that every engine must pass, as plain functions | both |
//!
//! Design choices:
//!
//! - **Ownership moves with the bytes.** A buffer moves into an operation and comes back with its completion.
//!   During the operation no reference to its bytes exists, even if handles are dropped or forgotten. If a
//!   device never completes the operation, the memory is leaked rather than reused.
//! - **Unique, shared, or by copy.** [`BufferMut`] is the only view of its bytes; [`Buffer`] is one of many,
//!   read-only; [`Window`] is memory that a peer may write, and that is accessed only by copies. An
//!   operation's source and destination must not overlap.
//! - **Back-pressure is a value.** A full queue returns the operands. Waiting has a deadline; polling never
//!   blocks.
//! - **Outcomes are not errors of polling.** The [`Outcome`] of an operation is done, failed, or aborted by a
//!   reset.
//! - **Dispatch per batch.** One virtual call submits many descriptors, and one returns many completions.
//! - **The library handles the device's limits.** Long copies and lists are split. Operations that the device
//!   lacks are made from copies or by the CPU, and missing fences by waiting.
//! - **Nothing is allocated per copy** once a queue is warm, except to keep the operands of a transfer that
//!   is dropped early.
//!
//! The engine crates (`dma-sim` and the hardware backends) implement the contract; the `dma` crate opens them
//! by name.
//!
#![doc = include_str!("../docs/compile_time_checks.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "serde")]
#[doc(hidden)]
pub mod configuration;
#[cfg(any(feature = "conformance", test))]
pub mod conformance;
mod contract;
#[cfg(any(feature = "arrow", feature = "compio", feature = "tokio-uring", feature = "vm-memory"))]
mod ecosystem;
mod ext;
mod memory;
mod names;
mod planner;
mod queue;
mod shared;

pub use contract::*;
pub use ext::DmaEngineExt;
pub use memory::{
    Buffer, BufferMut, BufferPool, BufferWriter, Destination, Export, NumaNodes, PageMemory, PoolClass,
    PoolGet, PoolOptions, PoolReport, Region, RegistrationCache, RegistrationCacheCounters,
    RegistrationCacheOptions, Source, Window, WindowPool, check_headroom, parse_cores, pools, racy_copy,
    spawn_thread,
};
pub use names::{
    Backend, Discovered, EngineName, Finding, OptionInfo, OptionValue, PciAddress, StaticBackend, Verdict,
    closest_name, parse_size,
};
pub use planner::{Answer, Batch, OpError, OpFailure, Rows};
pub use queue::{Driver, Queue, SubmitResult, Transfer};
pub use shared::{SharedQueue, SharedQueueOptions, SharedReady, SharedResult, SharedTransfer};
