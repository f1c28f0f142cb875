//! Code that the programs `copy-file` and `dma-copy` share.

pub mod command;
pub mod disk;
