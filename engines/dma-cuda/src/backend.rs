//! CUDA devices, by name.

use std::sync::Arc;

use dma_core::StaticBackend;

use crate::{CudaEngine, CudaOptions};

/// The backend `cuda`.
pub static BACKEND: StaticBackend = StaticBackend {
    name_format: CudaOptions::NAME_FORMAT,
    about: "copy engines of NVIDIA GPUs, through the driver's libcuda.so.1, which is loaded at run time",
    is_hardware: true,
    open: |name| Ok(Arc::new(CudaEngine::open(&CudaOptions::from_name(name)?)?)),
    discover: || crate::discover(&CudaOptions::new()),
    doctor: crate::doctor::findings,
};
