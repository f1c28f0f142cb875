//! Engines made of other engines.
//!
//! - [`auto`] gives each copy to the cheaper of two engines: the CPU and a device.
//! - [`verify`] checks the bytes of another engine's copies.

pub mod auto;
pub mod verify;
