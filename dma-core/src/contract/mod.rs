//! The contract: the traits that an engine implements, and the types that these traits use. This module
//! imports nothing from the rest of the crate.

mod addresses;
mod counters;
mod descriptor;
mod device_memory;
mod engine;
pub(crate) mod error;
#[cfg(test)]
mod error_tests;
mod export;
mod forward;
mod host_memory;
mod idle_memory;
mod info;
mod operation;
mod options;
mod place;
pub(crate) mod setters;

pub use counters::Counters;
pub use descriptor::Descriptor;
pub use device_memory::DeviceMemory;
pub use engine::*;
pub use error::*;
pub use export::ExportDescriptor;
pub use forward::ForwardEngine;
pub(crate) use host_memory::HUGE_PAGE;
pub use host_memory::{HostMemory, MemoryRequest};
pub use idle_memory::{IdleMemory, IdleMemoryReport};
pub(crate) use idle_memory::{IdleRegion, IdleStore, release_all};
pub use info::*;
pub use operation::*;
pub use options::*;
pub use place::Place;
