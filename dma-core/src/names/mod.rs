//! Names: backends, the names with which programs open engines, and the values in such names.

mod backend;
mod closest;
pub(crate) mod engine_name;
mod name_format;
mod option_table;
mod option_value;
mod pci;
mod size;

pub use backend::{Backend, Discovered, Finding, StaticBackend, Verdict};
pub use closest::closest_name;
pub use engine_name::EngineName;
pub use name_format::{NameFormat, OptionInfo};
pub use option_value::OptionValue;
pub use pci::PciAddress;
pub use size::parse_size;
