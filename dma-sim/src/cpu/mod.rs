//! Copies done by the CPU itself: how bytes are moved, and which way is chosen when.

mod chooser;
mod kernel;

pub use chooser::{Chooser, Hint};
pub use kernel::Kernel;
