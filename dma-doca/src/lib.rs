//! NVIDIA BlueField DOCA DMA as an engine.
//!
//! [`DocaEngine::open`] opens a device; the result is a [`dma_core::DmaEngine`]. [`discover`] lists the
//! devices, with the reason for each unusable one. The SDK is loaded at run time: nothing of it is needed to
//! build, and its absence is an error that names the remedy.
//!
//! The crate's README describes the set-up, the features of each DOCA version, and running without a card.
//!
//! # Device errors
//!
//! A failed task stops its context, and the SDK then fails all other tasks of the context. The queue recovers
//! while it is polled: the failed one is reported as [`Outcome::Failed`](dma_core::Outcome::Failed) with the
//! native code, the others as [`Outcome::Aborted`](dma_core::Outcome::Aborted), which may be submitted again.
//! Then tasks are freed, the context is started again, and `QueueStats::resets` is incremented. Until then
//! `submit` accepts nothing. After five seconds without the context becoming idle, the queue is lost: it
//! returns `DeviceLost`, and the memory that its device may still write is leaked.
//!
//! # Memory of other devices
//!
//! A GPU's memory is registered by its dma-buf (`doca_mmap_set_dmabuf_memrange`), without a mapping of the
//! CPU's: [`Window::dmabuf`](dma_core::Window::dmabuf) and
//! [`register_device`](dma_core::DmaEngineExt::register_device). Only the stand-in SDK has judged this, with
//! a file in memory instead of a dma-buf; no card did.
//!
//! # Features
//!
//! - `linked`: takes the SDK's required calls from the linker instead of loading its libraries.

mod backend;
mod buffers;
pub mod comch;
mod device;
mod doctor;
mod engine;
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
