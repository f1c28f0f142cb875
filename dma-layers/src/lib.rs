//! Engines made of other engines.
//!
//! [`auto`] gives each copy to the cheaper of two engines: the CPU and a device.

pub mod auto;
