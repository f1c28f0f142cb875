//! CUDA devices, by name.

use std::sync::Arc;

use dma_core::{Backend, Discovered, DmaEngine, EngineName, Finding, OptionInfo, Result};

use crate::{CudaEngine, CudaOptions};

/// The backend `cuda`.
pub static BACKEND: CudaBackend = CudaBackend;

/// Opens CUDA devices by name: see [`BACKEND`].
#[derive(Debug)]
pub struct CudaBackend;

impl Backend for CudaBackend {
    fn name(&self) -> &'static str {
        crate::error::BACKEND
    }

    fn about(&self) -> &'static str {
        "copy engines of NVIDIA GPUs, through the driver's libcuda.so.1, which is loaded at run time"
    }

    fn device(&self) -> Option<&'static str> {
        Some("a number or a PCI address, such as 0 or 0000:17:00.0; without one, the first")
    }

    fn is_hardware(&self) -> bool {
        true
    }

    fn options(&self) -> &'static [OptionInfo] {
        CudaOptions::INFO
    }

    fn open(&self, name: &EngineName) -> Result<Arc<dyn DmaEngine>> {
        Ok(Arc::new(CudaEngine::open(&CudaOptions::from_name(name)?)?))
    }

    fn discover(&self) -> Vec<Discovered> {
        crate::discover(&CudaOptions::new())
    }

    fn doctor(&self) -> Vec<Finding> {
        crate::doctor::findings()
    }
}
