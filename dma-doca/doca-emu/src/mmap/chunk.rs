//! Chunks of the maps of DOCA 1.5 to 2.2: each is a map of its own.
#![expect(unsafe_code, reason = "registers memory of the program")]

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use dma_sim::model::Rights;

use super::export::Way;
use super::registered::Place;
use super::{Mmap, Registered, Setup};
use crate::c_abi::{INVALID, Outcome};
use crate::dev::Dev;

impl Mmap {
    /// A started map. Without devices it is one for buffers only.
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
        if devs.is_empty() {
            map.hold()?;
        } else {
            map.start()?;
        }
        Ok(map)
    }

    /// Starts a map that no device has.
    fn hold(&self) -> Outcome {
        let mut setup = self.setup();
        let range = setup.range.as_ref().ok_or(INVALID)?;
        let registered = Registered {
            addr: range.addr,
            len: range.len,
            rights: Rights::LOCAL_READ | Rights::LOCAL_WRITE,
            keys: Vec::new(),
            locked: 0,
            is_local: true,
            at: Place::Here(range.addr),
            lent: AtomicU32::new(0),
            live: AtomicBool::new(true),
            bufs: Some(Arc::clone(&self.bufs)),
        };
        setup.registered = Some(Arc::new(registered));
        Ok(())
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
