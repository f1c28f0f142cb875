//! The contract that DMA engines implement, and the safe API on top of the contract.
//!
//! | layer | contents | users |
//! |---|---|---|
//! | [`DmaEngine`], [`RawRegion`], [`RawQueue`], [`Operation`] | the contract, object safe | backends |
//! | [`DmaEngineExt`], [`Queue`], [`SharedQueue`], [`BufferMut`], [`Window`] | the safe API | programs |
//!
//! Design choices:
//!
//! - **An operation owns its buffers.** A buffer moves into an operation, and the completion returns it.
//!   During the operation, no reference to the buffer's bytes exists, even if handles are dropped or
//!   forgotten. If a device never completes the operation, the memory is leaked and never reused.
//! - **Three types of memory.** A [`BufferMut`] is the only view of its bytes. A [`Buffer`] is one of many
//!   read-only views. A [`Window`] is memory that a peer may write, so it is accessed only by copies. An
//!   operation's source and destination must not overlap.
//! - **Back-pressure is a return value.** A full queue returns the operands. A wait has a deadline, and
//!   polling never blocks.
//! - **A failed operation is not a failed poll.** A poll reports the [`Outcome`] of each operation: done,
//!   failed, or aborted by a reset.
//! - **Few virtual calls.** One virtual call submits many descriptors, and one virtual call returns many
//!   completions.
//! - **The library handles the device's limits.** The safe API splits long copies and lists. If the device
//!   lacks an operation, the safe API emulates it by copies or by the CPU. It emulates missing fences by
//!   waiting.
//! - **Copies do not allocate.** After the first operations, a queue allocates only to keep the operands of a
//!   transfer that is dropped early.
//!
//! The engine crates (`dma-sim` and the hardware backends) implement the contract. The `dma` crate opens
//! engines by name. The crate `dma-conformance` contains the tests that every engine must pass.
//!
#![doc = include_str!("../docs/compile_time_checks.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "serde")]
#[doc(hidden)]
pub mod configuration;
mod contract;
mod deferred_log;
#[cfg(any(
    feature = "compio",
    all(feature = "tokio-uring", not(target_env = "musl")),
    feature = "vm-memory"
))]
mod ecosystem;
mod ext;
mod guarded;
mod memory;
mod names;
mod planner;
mod queue;
mod shared;
mod slow_path;

#[cfg(any(test, feature = "reference"))]
#[doc(hidden)]
pub mod reference;

pub use contract::*;
pub use deferred_log::with_deferred_log;
#[doc(hidden)]
pub use deferred_log::{defers_log, log_event};
#[cfg(feature = "compio")]
pub use ecosystem::CompioBufMut;
pub use ext::DmaEngineExt;
pub use guarded::guarded;
pub use memory::{
    Buffer, BufferMut, BufferPool, BufferWriter, Destination, Export, NumaNodes, PageMemory, PoolClass,
    PoolGet, PoolOptions, PoolReport, Region, RegistrationCache, RegistrationCacheCounters,
    RegistrationCacheOptions, Source, Window, WindowPool, parse_cores, pools, racy_copy,
};
pub use names::{
    Backend, Discovered, EngineName, Finding, NameFormat, OptionInfo, OptionValue, PciAddress, StaticBackend,
    Verdict, closest_name, parse_size,
};
pub use planner::{Answer, Batch, OpError, OpFailure, RetryPolicy, Rows};
pub use queue::{Driver, Queue, SubmitResult, Transfer};
pub use shared::{SharedQueue, SharedQueueOptions, SharedReady, SharedResult, SharedTransfer};
