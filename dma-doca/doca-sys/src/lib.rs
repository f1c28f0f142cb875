//! The DOCA C interface: its declarations, and its libraries loaded at run time.
//!
//! [`bindings`] has the types, constants and functions of the headers in `include/`, as bindgen writes them.
//! [`Library`] finds the installed libraries and fills the tables of function pointers [`Common`], [`Dma`]
//! and [`Comch`]. Calls that every supported version has are plain fields; all others are options. The build
//! does not need the SDK.
//!
//! DOCA 1.5 to 2.2 has work queues instead of progress engines and tasks. [`workq`] fills the same tables
//! with functions that use work queues.
//!
//! A table is a plain value, so a test can pass its own functions ([`Library::from_tables`]).
//!
//! # Features
//!
//! - `linked`: `Library::linked` has the calls of the libraries that the program was linked with. The
//!   libraries are then needed to build and to start the program.
//! - `bindgen`: makes [`bindings`] from the headers of the installed SDK, instead of those in `include/`.
//!   The headers are searched in `DOCA_INCLUDE_DIR`, then in the directory that pkg-config reports, then in
//!   `/opt/mellanox/doca/include`. Needs libclang. Functions that the installed headers lack are absent from
//!   [`bindings`] and `None` in the tables. The types of these functions come from the headers in `include/`.

#[cfg(not(feature = "bindgen"))]
pub mod bindings;
#[cfg(feature = "bindgen")]
#[allow(
    missing_docs,
    missing_debug_implementations,
    non_camel_case_types,
    non_upper_case_globals,
    unsafe_code,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::use_self,
    rustdoc::broken_intra_doc_links,
    rustdoc::bare_urls,
    rustdoc::invalid_html_tags,
    reason = "written by a program, with the names and comments of C"
)]
pub mod bindings {
    //! The declarations of the installed SDK's headers.
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}
#[rustfmt::skip]
mod call_bindings;
mod library;
mod table;
pub mod workq;

pub use dma_vendor::{LoadError, Vendor};
pub use library::{DOCA, LIB_DIR_VARIABLE, Library, StandIn, Tables};
pub use table::{Comch, Common, Dma};
