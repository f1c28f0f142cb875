//! Code that the stand-in SDKs share: their C boundary, their configuration, their threads, and forks.

pub mod c_abi;
pub mod config;
mod dmabuf;

pub use dma_process::{ExchangeLimit, ForkMark, LimitedSocket, check_file_size, with_signals_blocked};
pub use dmabuf::dmabuf_range;
