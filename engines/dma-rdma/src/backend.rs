//! RDMA devices, by name.

use std::sync::Arc;

use dma_core::StaticBackend;

use crate::{RdmaEngine, RdmaOptions};

/// The backend `rdma`.
pub static BACKEND: StaticBackend = StaticBackend {
    name: crate::error::BACKEND,
    about: "RDMA NICs, through libibverbs, which is loaded at run time",
    device: Some("an RDMA device, such as mlx5_0; without one, the first with an active port"),
    is_hardware: true,
    options: RdmaOptions::INFO,
    open: |name| Ok(Arc::new(RdmaEngine::open(&RdmaOptions::from_name(name)?)?)),
    discover: || crate::discover(&RdmaOptions::new()),
    doctor: crate::doctor::findings,
};
