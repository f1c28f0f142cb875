//! The contract: the traits that an engine implements, and the types that these traits use. This module
//! imports nothing from the rest of the crate.

mod addresses;
mod available;
mod counters;
mod descriptor;
mod device_memory;
mod engine;
pub(crate) mod error;
mod export;
mod file_limit;
mod forward;
mod host_memory;
mod info;
mod options;
mod output_file;
pub(crate) mod setters;

pub use available::available_memory;
pub(crate) use available::check_available;
pub use counters::Counters;
pub use descriptor::Descriptor;
pub use device_memory::DeviceMemory;
pub use engine::*;
pub use error::*;
pub use export::ExportDescriptor;
pub use file_limit::check_file_size;
pub use forward::ForwardEngine;
pub(crate) use host_memory::HUGE_PAGE;
pub use host_memory::{HostMemory, MemoryRequest, Place};
pub use info::*;
pub use options::*;
pub use output_file::OutputFile;
