//! Code that the programs `copy-file` and `dma-copy` share. `dma-bench`, which is published without this
//! crate, has a link to `hold.rs`.

pub mod command;
pub mod disk;
pub mod hold;
