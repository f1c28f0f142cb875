//! Loads vendors' C libraries at run time.
//!
//! A [`Vendor`] says where its libraries are. It finds them, checks their files and those of all libraries
//! that they need, and loads them ([`Loaded`]), or says why not ([`LoadError`]). [`calls!`] makes tables of
//! function pointers, to be filled from there.

mod calls;
mod elf;
mod error;
mod loaded;
mod scope;
mod vendor;

pub use calls::function;
pub use error::LoadError;
pub use loaded::Loaded;
pub use scope::Undeclared;
pub use vendor::{Vendor, soname_in_name, version_in_name};
