//! BlueField devices, by name.

use std::sync::Arc;

use dma_core::{Backend, Discovered, DmaEngine, EngineName, Finding, OptionInfo, Result};

use crate::{DocaEngine, DocaOptions};

/// The backend `doca`.
pub static BACKEND: DocaBackend = DocaBackend;

/// Opens BlueField devices by name: see [`BACKEND`].
#[derive(Debug)]
pub struct DocaBackend;

impl Backend for DocaBackend {
    fn name(&self) -> &'static str {
        crate::error::BACKEND
    }

    fn about(&self) -> &'static str {
        "NVIDIA BlueField, through its SDK, which is loaded at run time"
    }

    fn device(&self) -> Option<&'static str> {
        Some("a PCI address, such as 03:00.0; without one, the first device that has DMA")
    }

    fn is_hardware(&self) -> bool {
        true
    }

    fn options(&self) -> &'static [OptionInfo] {
        DocaOptions::INFO
    }

    fn open(&self, name: &EngineName) -> Result<Arc<dyn DmaEngine>> {
        Ok(Arc::new(DocaEngine::open(&DocaOptions::from_name(name)?)?))
    }

    fn discover(&self) -> Vec<Discovered> {
        let devices = crate::discover().unwrap_or_default();
        if devices.is_empty() {
            // The error of opening names what is missing.
            return vec![Discovered::opened(EngineName::of(self), DocaEngine::open(&DocaOptions::new()))];
        }
        let discovered = devices.into_iter().map(|device| {
            let name = device.engine_name();
            let info = match device.problem {
                Some(problem) => Err(problem),
                None => self.open(&name).map(|engine| engine.info().clone()),
            };
            Discovered::new(name, info)
        });
        discovered.collect()
    }

    fn doctor(&self) -> Vec<Finding> {
        crate::doctor::findings()
    }
}
