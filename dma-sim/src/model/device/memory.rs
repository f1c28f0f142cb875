//! Registers and accesses memory of tasks.
#![expect(unsafe_code, reason = "registering memory is a promise of the caller's")]

use std::fmt::Write as _;
use std::sync::Arc;

use super::Device;
use crate::model::region::{PeerAccess, RegionError, RegionKey, RegionSpec, Rights};

impl Device {
    /// Registers memory for tasks.
    ///
    /// # Errors
    ///
    /// Returns an error if the range ends behind the last address.
    ///
    /// # Safety
    ///
    /// From now until [`unregister`](Self::unregister) returns `Ok` or the device is dropped, the memory is
    /// valid for reads, and for writes if the rights include any, from the thread that drives the device. A
    /// peer's memory need be valid only while leave is [held](PeerAccess::acquire), and
    /// [far](crate::model::FarMemory) memory has no address. While a task in flight names bytes of it, no
    /// Rust reference to them is used, except shared ones to bytes that are only read.
    pub unsafe fn register(&mut self, spec: RegionSpec) -> Result<RegionKey, RegionError> {
        let (len, rights, remote) = (spec.len, spec.rights, spec.is_remote());
        // SAFETY: the caller promises this method what the table's asks for.
        let key = unsafe { self.memory.register(spec) }?;
        self.registered(key, len, rights, remote);
        Ok(key)
    }

    fn registered(&mut self, key: RegionKey, len: u64, rights: Rights, remote: bool) {
        let line =
            |line: &mut String| write!(line, "register key={key} len={len} rights={rights} remote={remote}");
        self.trace.record(self.now, None, line);
    }

    /// Allocates `len` zeroed bytes and registers them. The device owns them and frees them when they are
    /// unregistered. Their addresses, from [`range`](Self::range), are virtual and the same in every run.
    /// With a `peer` they count as that peer's memory.
    ///
    /// # Errors
    ///
    /// There is not enough memory.
    pub fn allocate(
        &mut self,
        len: u64,
        rights: Rights,
        peer: Option<Arc<dyn PeerAccess>>,
    ) -> Result<RegionKey, RegionError> {
        let remote = peer.is_some();
        let key = self.memory.allocate(len, rights, peer)?;
        self.registered(key, len, rights, remote);
        Ok(key)
    }

    /// Unregisters a region.
    ///
    /// # Errors
    ///
    /// Returns an error if the region does not exist, or tasks in flight name it. A task names its regions
    /// until it ends, even if it is polled later; one with a lost completion until its channel is taken down.
    pub fn unregister(&mut self, key: RegionKey) -> Result<(), RegionError> {
        let rings = self.rings.iter().flatten().flatten();
        self.memory.unregister(key, rings.map(|ring| ring.names(key)).sum())?;
        self.trace.record(self.now, None, |line| write!(line, "unregister key={key}"));
        Ok(())
    }

    /// Returns a region's first address and length in bytes, if it exists.
    #[must_use]
    pub fn range(&self, key: RegionKey) -> Option<(u64, u64)> {
        self.memory.range(key)
    }

    /// Copies bytes from `addr` on out of a region that the device [allocated](Self::allocate).
    ///
    /// # Errors
    ///
    /// Returns an error if the region does not exist, is not the device's own, or does not contain all of the
    /// bytes.
    pub fn read(&self, key: RegionKey, addr: u64, out: &mut [u8]) -> Result<(), RegionError> {
        self.memory.peek(key, addr, out)
    }

    /// Copies bytes into a region that the device [allocated](Self::allocate), from `addr` on.
    ///
    /// # Errors
    ///
    /// See [`read`](Self::read).
    pub fn write(&mut self, key: RegionKey, addr: u64, bytes: &[u8]) -> Result<(), RegionError> {
        self.memory.poke(key, addr, bytes)
    }
}
