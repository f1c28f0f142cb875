//! DSA work queues, by name.

use std::sync::Arc;

use dma_core::StaticBackend;

use crate::{DsaEngine, DsaOptions};

/// The backend `dsa`.
pub static BACKEND: StaticBackend = StaticBackend {
    name_format: DsaOptions::NAME_FORMAT,
    about: "Intel DSA, through the kernel's work queues",
    is_hardware: true,
    open: |name| Ok(Arc::new(DsaEngine::open(&DsaOptions::from_name(name)?)?)),
    discover: || crate::discover(&DsaOptions::new()),
    doctor: || crate::doctor::findings(&DsaOptions::new()),
};
