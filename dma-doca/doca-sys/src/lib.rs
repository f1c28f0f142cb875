//! Declarations of the DOCA C interface.

#[rustfmt::skip]
pub mod bindings;
#[rustfmt::skip]
mod table;

pub use table::{Comch, Common, Dma};
