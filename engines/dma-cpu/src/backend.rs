//! Opens CPU engines by name.

use std::sync::Arc;

use dma_core::{Discovered, EngineName, StaticBackend};

use crate::{CpuEngine, CpuOptions};

/// The backend `cpu`.
pub static BACKEND: StaticBackend = StaticBackend {
    name_format: CpuOptions::NAME_FORMAT,
    about: "the CPU's fastest copies, on all its threads",
    is_hardware: false,
    open: |name| Ok(Arc::new(CpuEngine::open(&CpuOptions::from_name(name)?)?)),
    discover: || {
        vec![Discovered::opened(EngineName::of(CpuOptions::NAME_FORMAT), CpuEngine::open(&CpuOptions::new()))]
    },
    doctor: crate::doctor::findings,
};
