//! Declarations of SPDK's env and I/OAT calls, and a loader for the libraries that have them.
//!
//! [`Library::open`] finds and loads `libspdk_env_dpdk` and `libspdk_ioat`; the build needs no SPDK. There
//! are two features. `linked` links SPDK's static libraries, its default build, at build time; `pkg-config`
//! lists them. `bindgen` makes the declarations from the headers of the installed SPDK instead of this
//! crate's headers. Without an installed SPDK, both features warn and have no effect.
//!
//! The [tables](Env) are plain structs of function pointers, so that a test can replace them:
//! [`Library::from_tables`].

#[cfg(not(spdk_headers))]
pub mod bindings;
#[cfg(spdk_headers)]
#[allow(
    missing_docs,
    missing_debug_implementations,
    non_camel_case_types,
    non_upper_case_globals,
    non_snake_case,
    unsafe_code,
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::use_self,
    reason = "written by a program, with the names of C"
)]
pub mod bindings {
    //! The declarations of the installed SPDK's headers.
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}
#[rustfmt::skip]
mod call_bindings;
mod env_opts;
mod library;
mod release;
mod table;

pub use dma_vendor::{LoadError, Vendor};
pub use env_opts::EnvOpts;
pub use library::{LIB_DIR_VARIABLE, Library, SPDK, StandIn, Tables};
pub use release::Release;
pub use table::{Env, Ioat, Log};
