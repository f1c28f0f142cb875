//! Which engines this machine has.

use dma_core::{DmaEngine, EngineInfo, Error, ErrorKind};
use dma_sim::{CpuEngine, CpuOptions, SimEngine, SimOptions};

/// One engine that could be opened, or the reason why not.
#[derive(Debug)]
#[non_exhaustive]
pub struct Discovered {
    /// What [`open`](crate::open) takes.
    pub name: String,
    /// What the engine says of itself, or why it cannot be used and what to do about it.
    pub info: Result<EngineInfo, Error>,
}

/// Lists every engine with its devices, and for each that cannot be used, exactly why and what to do about it.
///
/// Opens each engine for a moment, which may take some milliseconds. A missing SDK or device is an answer, not an error.
#[must_use]
pub fn discover() -> Vec<Discovered> {
    let info = |engine: dma_core::Result<Box<dyn DmaEngine>>| engine.map(|engine| engine.info().clone());
    vec![
        Discovered {
            name: "cpu".to_owned(),
            info: info(CpuEngine::open(&CpuOptions::default()).map(|e| Box::new(e) as _)),
        },
        Discovered {
            name: "sim".to_owned(),
            info: info(SimEngine::open(&SimOptions::default()).map(|e| Box::new(e) as _)),
        },
        Discovered { name: "doca".to_owned(), info: Err(not_built("doca")) },
        Discovered { name: "ioat".to_owned(), info: Err(not_built("ioat")) },
    ]
}

/// Why a hardware backend that this release does not have cannot be opened.
pub(crate) fn not_built(backend: &'static str) -> Error {
    Error::new(ErrorKind::Unsupported, "this release has no such backend")
        .with_operation("open engine")
        .with_backend(backend)
        .with_hint("use `cpu`, or `sim` with a profile of that device to see how it would behave")
}
