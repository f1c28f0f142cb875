//! A simulated DMA device, for every machine.
//!
//! | module | contents |
//! |---|---|
//! | [`sim`] | [`SimEngine`]: a deterministic device with latency, reordering and faults of real ones |
//! | [`model`] | the device model that it uses: channels, time, memory protection, faults, traces, profiles |
//!
//! The documentation of each module lists the supported and rejected functions, and the differences from real
//! devices.

mod backend;
pub mod model;
pub mod sim;

pub use backend::BACKEND;
pub use sim::{SimEngine, SimOptions};
