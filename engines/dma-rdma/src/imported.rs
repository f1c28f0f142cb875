//! [`Imported`]: memory of another host as a region.
#![expect(unsafe_code, reason = "implements `RawRegion`")]

use std::sync::Arc;

use dma_core::{
    Access, DeviceAddr, Error, ErrorKind, ExportDescriptor, RawExport, RawRegion, RegionInfo, RegionKey,
    Result,
};
use dma_process::count;

use crate::engine_state::EngineState;
use crate::error::{NAME, error};
use crate::import::{ANSWER, Import, ask};
use crate::wire::{BLOB, ForeignBlob, VERSION, decode_blob};

/// Imported memory.
#[derive(Debug)]
pub(crate) struct Imported {
    inner: Arc<EngineState>,
    import: Arc<Import>,
    info: RegionInfo,
}

impl Imported {
    pub(crate) fn new(inner: &Arc<EngineState>, descriptor: &ExportDescriptor) -> Result<Self> {
        if descriptor.backend() != NAME {
            let message = format!("a descriptor of the backend {:?}", descriptor.backend());
            return Err(error(ErrorKind::Unsupported, message)
                .with_hint(format!("this engine imports descriptors of the backend {NAME:?}")));
        }
        let native = descriptor.native();
        let (service, secret) = decode_blob(native).map_err(|foreign| not_ours(foreign, native.len()))?;
        let (_, grant, _) = ask(service, &secret, None, ANSWER)?;
        let (len, rights) = (descriptor.len(), descriptor.rights());
        if (grant.len, grant.rights) != (len, rights) {
            let message = format!(
                "the descriptor states {} to {rights}, but the exporter grants {} to {}",
                count(len, "byte", "bytes"),
                grant.len,
                grant.rights
            );
            return Err(error(ErrorKind::Malformed, message)
                .with_hint("give the importer the bytes of the export descriptor without changes"));
        }
        let import = inner.add(len, |id, addr| Import::new(id, addr, grant, service, secret))?;
        let key = RegionKey((u64::from(import.id) << 32) as usize);
        let size = usize::try_from(len).map_err(|_| ErrorKind::OutOfRange)?;
        let info = RegionInfo::remote(inner.id, key, DeviceAddr(import.addr), size, rights);
        Ok(Self { inner: Arc::clone(inner), import, info })
    }
}

// SAFETY: the description never changes, and the CPU does not reach the memory. `EngineState::add` ensures
// that its addresses do not exceed the address space.
unsafe impl RawRegion for Imported {
    fn info(&self) -> &RegionInfo {
        &self.info
    }

    unsafe fn export(&self, _: usize, _: usize, _: Access) -> Result<Box<dyn RawExport>> {
        Err(error(ErrorKind::Unsupported, "imported memory cannot be exported")
            .with_hint("pass on the descriptor that it was imported with"))
    }
}

impl Drop for Imported {
    fn drop(&mut self) {
        self.import.set_dropped();
        self.inner.remove(self.import.id);
    }
}

/// Returns the error of a descriptor that is not this backend's.
fn not_ours(foreign: ForeignBlob, len: usize) -> Error {
    let malformed = |what: String| {
        error(ErrorKind::Malformed, what)
            .with_hint("give the importer the bytes of the export descriptor without changes")
    };
    match foreign {
        ForeignBlob::Length => {
            malformed(format!("{}, where an RDMA export has {BLOB}", count(len, "byte", "bytes")))
        }
        ForeignBlob::Address(service) => malformed(format!("{service} is not the address of a service")),
        ForeignBlob::Version(version) => {
            let message = format!("an RDMA export of version {version}, and this library reads {VERSION}");
            error(ErrorKind::VersionMismatch, message)
                .with_hint("use the same release of this library on both sides")
        }
    }
}
