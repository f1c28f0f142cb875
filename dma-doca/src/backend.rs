//! The entry of BlueField devices in the registry of backends.

use std::sync::Arc;

use dma_core::{Discovered, EngineName, StaticBackend};

use crate::{DocaEngine, DocaOptions};

/// The backend `doca`.
pub static BACKEND: StaticBackend = StaticBackend {
    name: crate::error::BACKEND,
    about: "NVIDIA BlueField, through its SDK, which is loaded at run time",
    device: Some("a PCI address, such as 03:00.0; without one, the first device that has DMA"),
    is_hardware: true,
    options: DocaOptions::INFO,
    open: |name| Ok(Arc::new(DocaEngine::open(&DocaOptions::from_name(name)?)?)),
    discover,
    doctor: crate::doctor::findings,
};

fn discover() -> Vec<Discovered> {
    let devices = crate::discover().unwrap_or_default();
    if devices.is_empty() {
        // If the SDK is missing, opening an engine returns the error.
        return vec![Discovered::opened(EngineName::of(&BACKEND), DocaEngine::open(&DocaOptions::new()))];
    }
    let discovered = devices.into_iter().map(|device| {
        let name = device.engine_name();
        let info = match device.problem {
            Some(problem) => Err(problem),
            None => (BACKEND.open)(&name).map(|engine| engine.info().clone()),
        };
        Discovered::new(name, info)
    });
    discovered.collect()
}
