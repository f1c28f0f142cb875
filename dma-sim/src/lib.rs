//! A software DMA device, for every machine.
//!
//! | module | what |
//! |---|---|
//! | [`cpu`] | [`CpuEngine`]: real copies, as fast as the machine makes them; the default engine |
//! | [`sim`] | [`SimEngine`]: a modelled device, deterministic, as slow, reordered and broken as real ones can be |
//! | [`model`] | the device model behind the simulator: channels, time, memory protection, faults, traces, profiles |
//! | [`mappings`] | what of this process's memory is mapped, for devices that ask |
//! | [`remote`] | memory that processes of one machine export to each other, with rights and revocation |
//!
//! What is supported, what is rejected, and where this differs from real devices stands in the documentation of each module.

#[cfg(feature = "config")]
pub mod config;
pub mod cpu;
pub mod mappings;
pub mod model;
pub mod remote;
pub mod sim;
mod size;

pub use cpu::{CpuEngine, CpuOptions};
pub use sim::{SimEngine, SimOptions};
