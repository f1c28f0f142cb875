//! RDMA devices, by name.

use std::sync::Arc;

use dma_core::StaticBackend;

use crate::{RdmaEngine, RdmaOptions};

/// The backend `rdma`.
pub static BACKEND: StaticBackend = StaticBackend {
    name_format: RdmaOptions::NAME_FORMAT,
    about: "RDMA NICs, through libibverbs, which is loaded at run time",
    is_hardware: true,
    open: |name| Ok(Arc::new(RdmaEngine::open(&RdmaOptions::from_name(name)?)?)),
    discover: || crate::discover(&RdmaOptions::new()),
    doctor: crate::doctor::findings,
};
