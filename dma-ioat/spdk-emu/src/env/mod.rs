//! The environment: setting up, memory, cores, time, PCI.

pub(crate) mod cores;
pub(crate) mod init;
pub(crate) mod map;
mod mem_map;
pub(crate) mod memory;
mod mempool;
mod memzone;
pub(crate) mod pci;
mod ring;
pub(crate) mod time;
mod translation;

/// Which addresses programs have.
pub(crate) mod translation_limits {
    /// The first that a device is given: nothing is at 0.
    pub(crate) const FIRST: u64 = 4096;
    /// The end.
    pub(crate) const MEMORY: u64 = 1 << super::translation::ADDRESS_BITS;
}
