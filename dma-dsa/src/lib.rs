//! Intel DSA (Data Streaming Accelerator, in Xeon processors since Sapphire Rapids) as an engine of the `dma`
//! crate, on the kernel's interface alone: no vendor library.
//!
//! A work queue of type `user` is a file in `/dev/dsa`, and a directory in `/sys/bus/dsa/devices` that
//! describes it. Without driver, queue or rights, [`DsaEngine::open`] and [`discover`] return errors with the
//! `accel-config` line that mends it. The README describes the set-up of a machine.
//!
//! Properties of DSA that users see:
//!
//! - **Memory.** The device shares the address space of the process. Registration pins nothing and costs
//!   nothing.
//! - **Submission.** A dedicated work queue takes MOVDIR64B, and the engine counts its free entries. A shared
//!   one takes ENQCMD, which may be refused: the descriptors then wait for the next poll. If the kernel
//!   refuses to map the queue (first generation without CAP_SYS_RAWIO), descriptors go through `write()`.
//! - **Batches.** Descriptors gather in a list until the doorbell. A list goes out as one batch descriptor,
//!   and is reported when all of it has ended. The device's `max_batch_size` bounds it.
//! - **Page faults.** With `block_on_fault` the device waits for the page. Otherwise the engine maps the page
//!   within `poll`, which may read from disk, and submits the remainder. Each descriptor is reported once.
//! - **Fences.** A device fence orders one batch only, and drops what follows a page fault, which the queue
//!   submits again. Across doorbells the queue holds back what is behind a fence.
//! - **One address space.** After a fork, queues belong to the parent; the child gets
//!   [`DeviceLost`](dma_core::ErrorKind::DeviceLost) and opens its own.
//! - **A queue that is disabled.** The descriptors in flight are reported as aborted, and later ones answer
//!   `DeviceLost` until the queue is enabled. Then all queues of the engine use it again.

mod backend;
mod device;
mod doctor;
mod engine;
mod error;
#[cfg(test)]
mod fake;
mod hardware;
mod opened;
mod options;
mod portal;
mod queue;
mod region;
#[cfg(test)]
mod tests;

pub use backend::{BACKEND, DsaBackend};
pub use engine::{DsaEngine, discover};
pub use options::DsaOptions;
