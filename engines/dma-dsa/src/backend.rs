//! DSA work queues, by name.

use std::sync::Arc;

use dma_core::{Backend, Discovered, DmaEngine, EngineName, Finding, OptionInfo, Result};

use crate::{DsaEngine, DsaOptions};

/// The backend `dsa`.
pub static BACKEND: DsaBackend = DsaBackend;

/// Opens DSA work queues by name: see [`BACKEND`].
#[derive(Debug)]
pub struct DsaBackend;

impl Backend for DsaBackend {
    fn name(&self) -> &'static str {
        crate::error::BACKEND
    }

    fn about(&self) -> &'static str {
        "Intel DSA, through the kernel's work queues"
    }

    fn device(&self) -> Option<&'static str> {
        Some("a work queue, such as wq0.0; without one, the first that can be used")
    }

    fn is_hardware(&self) -> bool {
        true
    }

    fn options(&self) -> &'static [OptionInfo] {
        DsaOptions::INFO
    }

    fn open(&self, name: &EngineName) -> Result<Arc<dyn DmaEngine>> {
        Ok(Arc::new(DsaEngine::open(&DsaOptions::from_name(name)?)?))
    }

    fn discover(&self) -> Vec<Discovered> {
        crate::discover(&DsaOptions::new())
    }

    fn doctor(&self) -> Vec<Finding> {
        crate::doctor::findings(&DsaOptions::new())
    }
}
