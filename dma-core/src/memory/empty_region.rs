//! [`NoBytes`]: memory of 0 bytes, which is valid everywhere, so that callers need no special case.
#![expect(unsafe_code, reason = "implements `RawRegion`")]

use std::ptr::NonNull;
use std::time::Duration;

use super::region::{Region, Registered};
use crate::{Access, DeviceAddr, EngineId, RawExport, RawRegion, RegionInfo, RegionKey, Result};

/// A region of 0 bytes. The engine is not involved: no descriptor names the region, because operations of 0
/// bytes complete without the device.
#[derive(Debug)]
struct NoBytes(RegionInfo);

/// Makes a region of 0 bytes at `addr`, which the CPU can reach if `cpu` is set.
pub(super) fn region(
    (engine, backend): (EngineId, &'static str),
    addr: NonNull<u8>,
    access: Access,
    cpu: bool,
    memory: Option<Registered>,
) -> Region {
    let info = RegionInfo {
        engine,
        key: RegionKey::unique(),
        addr: DeviceAddr::of(addr),
        len: 0,
        access,
        cpu: cpu.then_some(addr),
    };
    Region::new(Box::new(NoBytes(info)), memory, backend)
}

// SAFETY: nothing changes, and the key is new. Every address is valid for 0 bytes.
unsafe impl RawRegion for NoBytes {
    fn info(&self) -> &RegionInfo {
        &self.0
    }

    unsafe fn export(&self, _: usize, _: usize, _: Access) -> Result<Box<dyn RawExport>> {
        Ok(Box::new(NothingGranted))
    }
}

/// The export of 0 bytes. A peer imports it without an engine, so revoking it does nothing.
#[derive(Debug)]
pub(super) struct NothingGranted;

impl RawExport for NothingGranted {
    fn native(&self) -> &[u8] {
        &[]
    }

    fn revoke(&mut self, _: Duration) -> Result<()> {
        Ok(())
    }
}
