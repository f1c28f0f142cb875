//! Intel DSA (Data Streaming Accelerator, in Xeon processors since Sapphire Rapids) as an engine of the `dma`
//! crate. The engine uses only the kernel's interface, and no vendor library.
//!
//! A work queue of type `user` is a file in `/dev/dsa`, and a directory in `/sys/bus/dsa/devices` that
//! describes it. Without driver, queue or rights, [`DsaEngine::open`] and [`discover`] return errors with the
//! `accel-config` command that solves the problem. The README describes the set-up of a machine.
//!
//! The main properties (the README has more):
//!
//! - **Memory.** The device shares the address space of the process, so registration does not pin memory.
//! - **Batches.** Descriptors are collected in a list until the doorbell, and are reported when the whole
//!   list has ended.
//! - **Page faults.** Without `block_on_fault` the engine maps the page within `poll`, which may read from
//!   disk, and submits the remainder. Each descriptor is reported once.
//! - **One address space.** After a fork, queues belong to the parent. The child gets
//!   [`Unsupported`](dma_core::ErrorKind::Unsupported), and has to open its own engine.
//! - **A queue that is disabled.** The descriptors in flight are reported as aborted, and later submissions
//!   fail with `DeviceLost` until the queue is enabled. Then all queues of the engine use it again.

mod backend;
mod device;
mod doctor;
mod engine;
mod error;
mod opened;
mod options;
mod portal;
mod queue;
mod region;
#[cfg(test)]
mod tests;

pub use backend::BACKEND;
pub use engine::{DsaEngine, discover};
pub use options::DsaOptions;
