//! The contract that DMA engines implement.

pub mod engine;
mod error;
mod export;
mod raw;

pub use engine::*;
pub use error::*;
pub use export::ExportDescriptor;
pub use raw::*;
