//! Intel I/OAT (CBDMA, the copy engine of Xeon processors) as an engine of the `dma` crate, through the
//! installed SPDK.
//!
//! SPDK is loaded when the first engine is opened, and is not needed to build. If SPDK or a device is
//! missing, [`IoatEngine::open`] and [`discover`] return errors with the remedy. The README describes the
//! set-up of a machine.
//!
//! Properties of I/OAT and SPDK that users see:
//!
//! - **One environment per process.** SPDK's environment, which is DPDK's, is set up with the first engine's
//!   [`IoatOptions`], and all later engines share it. Options that contradict it are refused.
//! - **One channel per queue.** Every PCI function is one channel, and has one queue at a time. The first
//!   engine attaches every channel that the process may use. When all channels are taken, the error names the
//!   owners.
//! - **Memory.** Regions are allocated from the environment, or registered: whole pages of 2 MiB, each once.
//! - **Copy and fill.** The hardware has no scatter-gather lists, fences or event descriptors. The safe API
//!   emulates lists and fences, and polls for completions.
//! - **Halts.** After an error, a channel stops, and SPDK does not report which descriptor failed. All
//!   descriptors in flight are reported as aborted; if only one was in flight, it is reported as failed. The
//!   channel is detached and attached again. The next descriptors run one at a time, so that a retry
//!   identifies the faulty one.
//! - **Log.** SPDK's log becomes `tracing` events of the target `spdk`, if this crate set up the environment,
//!   and a subscriber existed at that time. Otherwise SPDK prints its log. DPDK's own output goes to standard
//!   error.
//! - **Draining.** A channel cannot cancel descriptors. When a queue is closed, descriptors in flight
//!   complete. A channel that hangs is reset. If the reset does not stop the channel, it is leaked.

mod backend;
mod channels;
mod device;
mod doctor;
mod engine;
mod env;
mod error;
mod ffi;
mod fill;
mod log;
mod options;
mod queue;
mod recovery;
mod region;

pub use backend::BACKEND;
pub use dma_core::PciAddress;
pub use engine::{IoatEngine, discover};
pub use options::{EnvSetup, HugePages, IoatOptions};
pub use spdk_sys;
