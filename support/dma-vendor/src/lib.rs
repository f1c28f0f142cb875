//! Vendors' C libraries, and facts about this machine on which hardware backends depend.
//!
//! A [`Vendor`] describes the directories of its libraries. It finds the libraries, checks their files and
//! the files of all their dependencies, and loads them ([`Loaded`]), or returns the reason for its
//! failure ([`LoadError`]). [`calls!`] makes tables of function pointers from loaded libraries.
//! [`LibraryReport`] converts the result into findings for `doctor`, and [`host`] checks the
//! machine.

mod calls;
mod doctor;
mod elf;
mod error;
mod file_name;
pub mod host;
mod loaded;
mod scope;
mod search;
mod vendor;

pub use calls::function;
pub use doctor::{LibraryReport, absent_calls};
pub use error::LoadError;
pub use file_name::{soname_in_name, version_in_name};
pub use loaded::Loaded;
pub use vendor::{ImplicitSymbols, Vendor};
