//! Opens CPU engines by name.

use std::sync::Arc;

use dma_core::{Discovered, EngineName, StaticBackend};

use crate::{CpuEngine, CpuOptions};

/// The backend `cpu`.
pub static BACKEND: StaticBackend = StaticBackend {
    name: crate::NAME,
    about: "the CPU's fastest copies, on all its threads",
    device: None,
    is_hardware: false,
    options: CpuOptions::INFO,
    open: |name| Ok(Arc::new(CpuEngine::open(&CpuOptions::from_name(name)?)?)),
    discover: || vec![Discovered::opened(EngineName::of(&BACKEND), CpuEngine::open(&CpuOptions::new()))],
    doctor: crate::doctor::findings,
};
