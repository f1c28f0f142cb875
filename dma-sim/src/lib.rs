//! A software DMA device.

pub mod cpu;
pub mod remote;

pub use cpu::{CpuEngine, CpuOptions};
