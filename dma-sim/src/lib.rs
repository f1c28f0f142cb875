//! A software DMA device.

pub mod remote;
