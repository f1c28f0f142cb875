//! NVIDIA BlueField DOCA DMA as an engine.
//!
//! [`DocaEngine::open`] opens a device; from there on it is a [`dma_core::DmaEngine`] as any other. [`discover`] lists the devices, with the
//! reason for each that cannot be used. The SDK is loaded at run time: nothing of it is needed to build, and its absence is an error
//! that says what to do.
//!
//! The crate's README has the set-up, what each version of DOCA offers, and how to run without a card.
//!
//! # What becomes of an error of the device
//!
//! A failed task takes its context down, and the SDK then fails every other task of it. The queue recovers while it is polled: the one that failed is
//! reported as [`Outcome::Failed`](dma_core::Outcome::Failed) with the native code, the others as
//! [`Outcome::Aborted`](dma_core::Outcome::Aborted), which may be submitted again; tasks are freed, the context is started again, and
//! `RawStats::resets` counts one. Until then `submit` takes nothing. A context that does not come to rest within five seconds is given up: the queue
//! answers `DeviceLost`, and what its device may still write to is leaked.
//!
//! # Features
//!
//! - `linked`: takes the SDK's required calls from the linker instead of loading its libraries.

mod buffers;
pub mod comch;
mod device;
mod engine;
mod error;
mod ffi;
mod log;
mod memory;
mod mmap;
mod options;
mod queue;
mod region;

pub use device::{DeviceCapabilities, DeviceInfo, FunctionKind, Representor, discover, discover_with};
pub use doca_sys::{LIB_DIR_VARIABLE, Library, LoadError};
pub use engine::DocaEngine;
pub use options::{DocaOptions, Fabric, SdkLog};
