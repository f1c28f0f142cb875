//! The entry of BlueField devices in the registry of backends.

use std::sync::Arc;

use dma_core::{Discovered, EngineName, StaticBackend};

use crate::{DocaEngine, DocaOptions};

/// The backend `doca`.
pub static BACKEND: StaticBackend = StaticBackend {
    name_format: DocaOptions::NAME_FORMAT,
    about: "NVIDIA BlueField, through its SDK, which is loaded at run time",
    is_hardware: true,
    open: |name| Ok(Arc::new(DocaEngine::open(&DocaOptions::from_name(name)?)?)),
    discover,
    doctor: crate::doctor::findings,
};

fn discover() -> Vec<Discovered> {
    let devices = crate::discover().unwrap_or_default();
    if devices.is_empty() {
        // If the SDK is missing, opening an engine returns the error.
        return vec![Discovered::opened(
            EngineName::of(DocaOptions::NAME_FORMAT),
            DocaEngine::open(&DocaOptions::new()),
        )];
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
