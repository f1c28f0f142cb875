//! Opens CPU engines by name.

use std::sync::Arc;

use dma_core::{Backend, Discovered, DmaEngine, EngineName, Finding, OptionInfo, Result};

use crate::{CpuEngine, CpuOptions, NAME};

/// The backend `cpu`.
pub static BACKEND: CpuBackend = CpuBackend;

/// Opens CPU engines by name: see [`BACKEND`].
#[derive(Debug)]
pub struct CpuBackend;

impl Backend for CpuBackend {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "the CPU's fastest copies, on all its threads"
    }

    fn device(&self) -> Option<&'static str> {
        None
    }

    fn is_hardware(&self) -> bool {
        false
    }

    fn options(&self) -> &'static [OptionInfo] {
        CpuOptions::INFO
    }

    fn open(&self, name: &EngineName) -> Result<Arc<dyn DmaEngine>> {
        Ok(Arc::new(CpuEngine::open(&CpuOptions::from_name(name)?)?))
    }

    fn discover(&self) -> Vec<Discovered> {
        vec![Discovered::opened(EngineName::of(self), CpuEngine::open(&CpuOptions::new()))]
    }

    fn doctor(&self) -> Vec<Finding> {
        crate::doctor::findings()
    }
}
