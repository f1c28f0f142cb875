//! A software DMA device.
