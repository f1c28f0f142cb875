//! Code that the programs `copy-file`, `dma-copy` and `dma-bench` share.

pub mod command;
pub mod disk;
pub mod hold;
