//! Engines made of other engines.
//!
//! - [`auto`] sends each copy to the faster of two engines: the CPU and a device.
//! - [`verify`] checks the bytes of another engine's copies.
//! - [`meter`] counts another engine's descriptors, with their latencies and sizes.
//! - [`record`] writes a trace of another engine's operations, and reads it; [`replay`] runs it on an engine.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod auto;
#[cfg(feature = "serde")]
mod configuration;
mod in_flight;
pub mod meter;
mod os_clock;
pub mod record;
pub mod replay;
pub mod verify;
mod wrapper;
