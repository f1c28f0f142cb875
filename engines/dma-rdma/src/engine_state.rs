//! [`EngineState`]: the part of an engine that its regions, exports and queues share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use dma_core::{EngineId, ErrorKind, Result};
use dma_process::lock;

use crate::device::Device;
use crate::error::error;
use crate::import::Import;
use crate::service::Service;

/// The first address of imported memory. Memory of this process has lower addresses.
const FIRST: u64 = 1 << 63;

/// The part of an engine that its regions, exports and queues share.
#[derive(Debug)]
pub(crate) struct EngineState {
    pub(crate) id: EngineId,
    imports: Mutex<Imports>,
    /// The service, which the first export starts.
    service: Mutex<Option<Arc<Service>>>,
    pub(crate) device: Arc<Device>,
}

/// Imported memory, by its number, which is not 0.
#[derive(Debug)]
struct Imports {
    by_id: HashMap<u32, Arc<Import>>,
    last: u32,
    next_addr: u64,
}

impl EngineState {
    pub(crate) fn new(device: Arc<Device>) -> Self {
        let imports = Imports { by_id: HashMap::new(), last: 0, next_addr: FIRST };
        Self { id: EngineId::unique(), imports: Mutex::new(imports), service: Mutex::new(None), device }
    }

    /// Returns the engine's service. Starts it if it is not running.
    pub(crate) fn service(&self) -> Result<Arc<Service>> {
        let mut service = lock(&self.service);
        if let Some(service) = &*service {
            return Ok(Arc::clone(service));
        }
        let started = Arc::new(Service::start(&self.device)?);
        *service = Some(Arc::clone(&started));
        Ok(started)
    }

    /// Adds imported memory of `len` bytes, which `make` makes from its number and its address. The
    /// exporter's address is not used, because memory of this process may have the same address.
    pub(crate) fn add(&self, len: u64, make: impl FnOnce(u32, u64) -> Import) -> Result<Arc<Import>> {
        let mut imports = lock(&self.imports);
        let addr = imports.next_addr;
        let next = addr.checked_add(len).and_then(|end| end.checked_next_multiple_of(1 << 20));
        let last = imports.last.checked_add(1);
        let (Some(next), Some(id)) = (next, last) else {
            return Err(error(ErrorKind::OutOfResources, "no addresses are left for imported memory")
                .with_hint("open the engine again"));
        };
        (imports.next_addr, imports.last) = (next, id);
        let import = Arc::new(make(id, addr));
        imports.by_id.insert(id, Arc::clone(&import));
        Ok(import)
    }

    pub(crate) fn remove(&self, id: u32) {
        lock(&self.imports).by_id.remove(&id);
    }

    /// Returns imported memory by its number.
    pub(crate) fn import(&self, id: u32) -> Result<Arc<Import>> {
        let found = lock(&self.imports).by_id.get(&id).map(Arc::clone);
        found.ok_or_else(|| error(ErrorKind::NotFound, "the imported memory was dropped"))
    }
}
