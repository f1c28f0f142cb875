//! The environment: memory, cores, time.

pub(crate) mod cores;
pub(crate) mod map;
mod mem_map;
pub(crate) mod memory;
mod mempool;
mod memzone;
mod ring;
pub(crate) mod time;
pub(crate) mod translation;
