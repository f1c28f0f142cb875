//! A software DMA device.

pub mod cpu;
pub mod model;
pub mod remote;
pub mod sim;
