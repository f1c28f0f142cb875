//! The CPU as a DMA device: an engine for every machine.

mod backend;
mod clock;
mod copy_tuner;
mod doctor;
mod engine;
mod event;
mod execute;
mod helpers;
mod inline;
mod job_queue;
mod kernel;
mod long_copy;
mod memory;
mod options;
mod pool;
mod queue;
mod region;
mod ring;
mod spare;
mod sync;
mod tokens;

pub use backend::BACKEND;
pub use copy_tuner::CopyTuner;
pub use engine::CpuEngine;
pub use kernel::Kernel;
pub use options::CpuOptions;

/// The engine's name, in errors and in export descriptors.
const NAME: &str = "cpu";
