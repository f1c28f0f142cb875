//! NVIDIA BlueField DOCA DMA as an engine.
//!
//! [`DocaEngine::open`] opens a device; the result is a [`dma_core::DmaEngine`]. [`discover`] lists the
//! devices, with the reason for each unusable one. The build does not need the SDK, which is loaded at run
//! time. If it is missing, the error names the remedy.
//!
//! The crate's README describes the set-up, the features of each DOCA version, and running without a card.
//!
//! # Device errors
//!
//! A failed task stops its context, and the SDK then fails all other tasks of the context. The queue recovers
//! while it is polled. It reports the failed task as [`Outcome::Failed`](dma_core::Outcome::Failed) with the
//! native code. All others are reported as [`Outcome::Aborted`](dma_core::Outcome::Aborted), and may be
//! submitted again. Then the queue frees its tasks, starts the context again, and increments
//! `QueueStats::resets`. Until then, `submit` accepts no descriptors. If the context does not become idle
//! within five seconds, the queue is lost: it returns `DeviceLost`, and the memory that its device may still
//! write is leaked.
//!
//! # Memory of other devices
//!
//! A GPU's memory is registered by its dma-buf (`doca_mmap_set_dmabuf_memrange`), and need not be mapped for
//! the CPU. See [`Window::dmabuf`](dma_core::Window::dmabuf) and
//! [`register_device`](dma_core::DmaEngineExt::register_device). This was only tested on the stand-in SDK,
//! with a file in memory instead of a dma-buf, and never on a card.
//!
//! # Features
//!
//! - `linked`: links the SDK's libraries at build time, instead of loading them at run time.

mod backend;
mod buffers;
pub mod comch;
mod device;
mod doctor;
mod engine;
mod engine_state;
mod error;
mod ffi;
mod log;
mod memory;
mod mmap;
mod options;
mod queue;
mod region;

pub use backend::BACKEND;
pub use device::{DeviceCapabilities, DeviceInfo, FunctionKind, Representor, discover, discover_with};
pub use doca_sys::{DOCA, LIB_DIR_VARIABLE, Library, LoadError, Vendor};
pub use engine::DocaEngine;
pub use options::{DocaOptions, Fabric, SdkLog};
pub use region::{join_native, split_native};
