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
//!   Meanwhile nobody holds a reference to its bytes, whatever is dropped or forgotten. If a device never
//!   answers, the memory is leaked rather than reused.
//! - **Unique, shared, or by copy.** [`BufferMut`] is the only view of its bytes; [`Buffer`] is one of many,
//!   read-only; [`Window`] is memory that a peer may write, reached by copy alone. An operation's source and
//!   destination must not overlap.
//! - **Back-pressure is a value.** A full queue hands the operands back. Waiting has a deadline; polling
//!   never blocks.
//! - **Outcomes are not errors of polling.** The [`Outcome`] of an operation is done, failed, or aborted by a
//!   reset.
//! - **Dispatch per batch.** One virtual call submits many descriptors, one takes many completions.
//! - **The library handles the device's limits.** Long copies and lists are cut; missing operations and
//!   fences are made from copies, the CPU and waiting.
//! - **Nothing is allocated per copy** once a queue is warm, except to keep the operands of a transfer that
//!   is dropped early.
//!
//! The engine crates (`dma-sim` and the hardware backends) implement the contract; the `dma` crate opens them
//! by name.
//!
#![doc = include_str!("../docs/compile_time_checks.md")]

mod backend;
mod buffer;
mod buffer_writer;
#[cfg(any(feature = "conformance", test))]
pub mod conformance;
mod contract;
mod copy_bytes;
mod counters;
mod descriptor;
mod device_memory;
mod engine_name;
mod error;
mod export;
mod ext;
mod forward;
mod headroom;
mod info;
mod memory;
mod numa;
mod operand;
mod option_value;
mod options;
mod page_memory;
mod pci;
mod pool;
mod queue;
mod region;
mod registration_cache;
mod setters;
mod shared;
mod size;
pub mod unsynchronized;
mod window;

pub use backend::{Backend, Discovered, Finding, OptionInfo, Verdict};
pub use buffer::{Buffer, BufferMut};
pub use buffer_writer::BufferWriter;
pub use contract::*;
pub use counters::Counters;
pub use descriptor::Descriptor;
pub use device_memory::DeviceMemory;
pub use engine_name::EngineName;
pub use error::*;
pub use export::ExportDescriptor;
pub use ext::DmaEngineExt;
pub use headroom::{check_headroom, spawn_thread};
pub use info::*;
pub use memory::*;
pub use numa::{NumaNodes, parse_cores};
pub use operand::{Destination, Source};
pub use option_value::OptionValue;
pub use options::*;
pub use page_memory::PageMemory;
pub use pci::PciAddress;
pub use pool::{BufferPool, PoolClass, PoolGet, PoolOptions};
pub use queue::{Answer, Batch, Driver, OpError, OpFailure, Queue, SubmitResult, Transfer};
pub use region::Region;
pub use registration_cache::{RegistrationCache, RegistrationCacheCounters, RegistrationCacheOptions};
pub use shared::{SharedQueue, SharedQueueOptions, SharedReady, SharedResult, SharedTransfer};
pub use size::parse_size;
pub use window::{Export, Window};
