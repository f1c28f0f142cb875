//! The conformance suite on a device that may not reach memory that its own side exported.
#![expect(unsafe_code, reason = "implements `DmaEngine`, by forwarding")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use dma_core::{
    Access, Capabilities, DeviceMemory, DmaEngine, DmaEngineExt, EngineId, EngineInfo, Error, ErrorKind,
    ExportDescriptor, HostMemory, MemoryRequest, QueueOptions, RawQueue, RawRegion, Result,
};
use dma_doca::DocaEngine;

use crate::report::{Report, Unpassed};

/// Exports memory, imports it on the same device, and copies it. On the host of a BlueField-3, this was
/// reported to fail with `DOCA_ERROR_IO_FAILED`.
///
/// # Errors
///
/// The reason why the copy failed.
pub(crate) fn copies_own_exports(engine: &DocaEngine) -> std::result::Result<(), String> {
    const LEN: usize = 4096;
    let rights = Access::READ | Access::WRITE;
    let copy = || -> std::result::Result<(), Box<dyn std::error::Error>> {
        let window = engine.allocate_window(&MemoryRequest::new(LEN).exportable(rights))?;
        window.write_at(0, &[7; LEN])?;
        let export = window.export(rights)?;
        let remote = engine.import(export.descriptor())?;
        let queue = engine.open_queue(&QueueOptions::new())?;
        let (_, got) = queue.copy(remote, engine.allocate(LEN)?)?.wait()?;
        if got[..] == [7; LEN] { Ok(()) } else { Err("the bytes are wrong".into()) }
    };
    copy().map_err(|e| e.to_string())
}

/// Runs every case of the suite. `own` is true if the device copies memory that its own side exported.
/// Otherwise the cases get a device that does not import.
pub(crate) fn suite(engine: &DocaEngine, own: bool, report: &mut Report) {
    let limited = WithoutImport::new(engine);
    let engine: &dyn DmaEngine = if own { engine } else { &limited };
    for (name, case) in dma_conformance::CASES {
        report.test(&format!("conformance: {name}"), || {
            catch_unwind(AssertUnwindSafe(|| case(engine))).map_err(|why| {
                let text = why.downcast_ref::<String>().map(String::as_str);
                Unpassed::Failed(text.or_else(|| why.downcast_ref().copied()).unwrap_or("a panic").to_owned())
            })
        });
    }
}

/// The engine without the capability to import.
#[derive(Debug)]
struct WithoutImport<'a> {
    engine: &'a DocaEngine,
    info: EngineInfo,
}

impl<'a> WithoutImport<'a> {
    fn new(engine: &'a DocaEngine) -> Self {
        let info = engine.info().clone();
        let fewer = info.capabilities - Capabilities::IMPORT;
        Self { engine, info: info.with_capabilities(fewer) }
    }
}

// SAFETY: each call goes to the inner engine, which keeps the contract. Imports, whose capability is removed,
// return an error.
unsafe impl DmaEngine for WithoutImport<'_> {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn id(&self) -> EngineId {
        self.engine.id()
    }

    fn allocate_raw(&self, request: &MemoryRequest) -> Result<Box<dyn RawRegion>> {
        self.engine.allocate_raw(request)
    }

    unsafe fn register_raw(
        &self,
        memory: &HostMemory,
        request: &MemoryRequest,
    ) -> Result<Box<dyn RawRegion>> {
        // SAFETY: both methods have the same requirements, and the caller meets them.
        unsafe { self.engine.register_raw(memory, request) }
    }

    unsafe fn register_device_raw(
        &self,
        memory: &DeviceMemory,
        request: &MemoryRequest,
    ) -> Result<Box<dyn RawRegion>> {
        // SAFETY: both methods have the same requirements, and the caller meets them.
        unsafe { self.engine.register_device_raw(memory, request) }
    }

    fn import_raw(&self, _: &ExportDescriptor) -> Result<Box<dyn RawRegion>> {
        Err(Error::new(ErrorKind::Unsupported, "this device does not reach what its own side exported"))
    }

    fn open_queue_raw(&self, options: &QueueOptions) -> Result<Box<dyn RawQueue>> {
        self.engine.open_queue_raw(options)
    }
}
