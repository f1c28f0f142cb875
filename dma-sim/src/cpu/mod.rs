//! The CPU as a DMA device: the engine that runs anywhere, and how it moves bytes.

mod chooser;
mod engine;
mod event;
mod kernel;
mod lane;
mod memory;
mod options;
mod pool;
mod queue;
mod region;
mod ring;
mod set;
mod spare;
mod sync;
mod tokens;
mod transfer;

pub use chooser::Chooser;
pub use engine::CpuEngine;
pub use kernel::Kernel;
pub use options::CpuOptions;

/// The engine's name, in errors and in export descriptors.
const BACKEND: &str = "cpu";
