//! DSA work queues, by name.

use std::sync::Arc;

use dma_core::StaticBackend;

use crate::{DsaEngine, DsaOptions};

/// The backend `dsa`.
pub static BACKEND: StaticBackend = StaticBackend {
    name: crate::error::BACKEND,
    about: "Intel DSA, through the kernel's work queues",
    device: Some("a work queue, such as wq0.0; without one, the first that can be used"),
    is_hardware: true,
    options: DsaOptions::INFO,
    open: |name| Ok(Arc::new(DsaEngine::open(&DsaOptions::from_name(name)?)?)),
    discover: || crate::discover(&DsaOptions::new()),
    doctor: || crate::doctor::findings(&DsaOptions::new()),
};
