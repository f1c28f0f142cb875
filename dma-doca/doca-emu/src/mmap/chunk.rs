//! Chunks of the maps of DOCA 1.5 to 2.2: each is a map of its own.
#![expect(unsafe_code, reason = "registers memory of the program")]

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::export::Way;
use super::{Mmap, Setup};
use crate::c_abi::{INVALID, Outcome};
use crate::dev::Dev;

impl Mmap {
    /// A started map.
    ///
    /// # Safety
    ///
    /// The program keeps the `len` bytes at `addr` until the map is [released](Self::release).
    pub(crate) unsafe fn chunk(
        addr: *mut c_void,
        len: usize,
        devs: &[Arc<Dev>],
        access: u32,
    ) -> Outcome<Self> {
        let map = Self::new(Setup::new());
        {
            let mut setup = map.setup();
            setup.access = access;
            // SAFETY: the caller's promise.
            unsafe { setup.set_range(addr, len, None) }?;
            devs.iter().try_for_each(|dev| setup.add_dev(Arc::clone(dev)))?;
        }
        map.start()?;
        Ok(map)
    }

    /// The map of a descriptor.
    pub(crate) fn imported(bytes: &[u8], dev: Arc<Dev>) -> Outcome<Self> {
        Self::import(bytes, dev, 0)
    }

    /// The number of buffers in it.
    pub(crate) fn buffers(&self) -> u32 {
        self.bufs.load(Ordering::Acquire)
    }

    /// Unregisters the memory, and revokes exports.
    ///
    /// # Errors
    ///
    /// `NOT_PERMITTED` while there are buffers.
    pub(crate) fn release(&self) -> Outcome {
        self.require_unused()?;
        let mut setup = self.setup();
        if setup.registered.is_some() { setup.stop() } else { Ok(()) }
    }

    /// Calls `give` with the descriptor for the card's other side, or for a network.
    pub(crate) fn exported(&self, dev: &Dev, pci: bool, give: impl FnOnce(&[u8]) -> Outcome) -> Outcome {
        let mut setup = self.setup();
        give(setup.export(dev, if pci { Way::Pci } else { Way::Rdma })?)
    }

    /// The first address and the length.
    pub(crate) fn memory(&self) -> Outcome<(usize, usize)> {
        let setup = self.setup();
        setup.range.as_ref().map(|range| (range.addr, range.len)).ok_or(INVALID)
    }
}
