//! [`NoBytes`]: memory of 0 bytes. All operations accept it, so callers need no special case.
#![expect(unsafe_code, reason = "implements `RawRegion`")]

use std::ptr::NonNull;
use std::time::Duration;

use super::region::{Region, Registered};
use crate::{Access, DeviceAddr, EngineId, RawExport, RawRegion, RegionInfo, RegionKey, Result};

/// A region of 0 bytes. The engine does not know this region. Operations of 0 bytes complete without the
/// device, so the region is in no descriptor.
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
    Region::new(Box::new(NoBytes(info)), memory, info.access, backend)
}

// SAFETY: `info` never changes, and no other region has the key. Every address is valid for 0 bytes.
unsafe impl RawRegion for NoBytes {
    fn info(&self) -> &RegionInfo {
        &self.0
    }

    unsafe fn export(&self, _: usize, _: usize, _: Access) -> Result<Box<dyn RawExport>> {
        Ok(Box::new(NothingGranted))
    }
}

/// An export of 0 bytes. A peer imports it without calling an engine, so revoking has no effect.
#[derive(Debug)]
pub(super) struct NothingGranted;

#[expect(unsafe_code, reason = "implements an unsafe trait")]
// SAFETY: no peer accesses 0 bytes.
unsafe impl RawExport for NothingGranted {
    fn native(&self) -> &[u8] {
        &[]
    }

    fn revoke(&mut self, _: Duration) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_reports_more_rights_than_requested_does_not_get_them() {
        let info = RegionInfo {
            engine: EngineId::unique(),
            key: RegionKey::unique(),
            addr: DeviceAddr(64),
            len: 0,
            access: Access::all(),
            cpu: None,
        };
        let region = Region::new(Box::new(NoBytes(info)), None, Access::READ, "test");
        assert_eq!(region.access(), Access::READ);
    }
}
