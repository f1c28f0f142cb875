//! Declarations of SPDK's env and I/OAT calls.

#[rustfmt::skip]
pub mod bindings;
#[rustfmt::skip]
mod table;

pub use table::{Env, Ioat, Log};
