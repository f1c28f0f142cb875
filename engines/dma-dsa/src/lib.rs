//! Intel DSA (Data Streaming Accelerator, in Xeon processors since Sapphire Rapids) as an engine of the `dma`
//! crate, on the kernel's interface alone: no vendor library.
//!
//! A work queue of type `user` is a file in `/dev/dsa`, and a directory in `/sys/bus/dsa/devices` that
//! describes it. Without driver, queue or rights, [`DsaEngine::open`] and [`discover`] return errors with the
//! `accel-config` line that mends it. The README describes the set-up of a machine.
//!
//! Properties of DSA that users see; the README has more of them:
//!
//! - **Memory.** The device shares the address space of the process: registration pins nothing.
//! - **Batches.** Descriptors are collected in a list until the doorbell, and are reported when all of it has
//!   ended.
//! - **Page faults.** Without `block_on_fault` the engine maps the page within `poll`, which may read from
//!   disk, and submits the remainder. Each descriptor is reported once.
//! - **One address space.** After a fork, queues belong to the parent; the child gets
//!   [`DeviceLost`](dma_core::ErrorKind::DeviceLost) and opens its own.
//! - **A queue that is disabled.** The descriptors in flight are reported as aborted, and later ones answer
//!   `DeviceLost` until the queue is enabled. Then all queues of the engine use it again.

mod backend;
mod device;
mod doctor;
mod engine;
mod error;
mod hardware;
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
