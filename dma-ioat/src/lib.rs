//! Intel I/OAT (CBDMA, the copy engine of Xeon processors) as an engine of the `dma` crate, through the SPDK that is installed.
//!
//! SPDK is loaded when the first engine is opened: nothing of it is needed to build. Without it, or without a device, [`IoatEngine::open`] and [`discover`] say
//! what is missing and what to do. The README says how to set a machine up.
//!
//! How I/OAT and SPDK show through:
//!
//! - **One environment per process.** SPDK's environment (DPDK's) is set up with the first engine's [`IoatOptions`], and shared by all that follow. Options that contradict it are refused.
//! - **One channel per queue.** Every PCI function is one channel, and has one queue at a time. All of them that the process may have are attached at first; when all are taken, the error says by whom.
//! - **Memory.** Regions are allocated from the environment, or registered: whole pages of 2 MiB, once.
//! - **Copy and fill.** No lists, no fences, no event descriptor: the safe API supplies the first two, and polls.
//! - **Halts.** At an error a channel stops and tells nobody which descriptor it was. All in flight are reported as aborted, or, if there was one, as
//!   failed; the channel is detached and attached again, and the next descriptors go one by one, so that the culprit is found if it is tried again.
//! - **Log.** What SPDK logs becomes `tracing` events of the target `spdk`, if somebody listened when the environment was set up, here; else SPDK prints it. What
//!   DPDK prints by itself goes to standard error.
//! - **Draining.** A channel cannot be made to forget. What is in flight when a queue is closed completes; a channel that never answers is leaked.

mod device;
mod engine;
mod env;
mod error;
mod ffi;
mod fill;
mod log;
mod options;
mod pool;
mod queue;
mod recovery;
mod region;

pub use dma_core::PciAddress;
pub use engine::{Discovered, IoatEngine, discover};
pub(crate) use error::BACKEND;
pub use options::{EnvSetup, HugePages, IoatOptions};
pub use spdk_sys;
