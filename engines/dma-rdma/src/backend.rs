//! RDMA devices, by name.

use std::sync::Arc;

use dma_core::{Backend, Discovered, DmaEngine, EngineName, Finding, OptionInfo, Result};

use crate::{RdmaEngine, RdmaOptions};

/// The backend `rdma`.
pub static BACKEND: RdmaBackend = RdmaBackend;

/// Opens RDMA devices by name: see [`BACKEND`].
#[derive(Debug)]
pub struct RdmaBackend;

impl Backend for RdmaBackend {
    fn name(&self) -> &'static str {
        crate::error::BACKEND
    }

    fn about(&self) -> &'static str {
        "RDMA NICs, through libibverbs, which is loaded at run time"
    }

    fn device(&self) -> Option<&'static str> {
        Some("an RDMA device, such as mlx5_0; without one, the first with an active port")
    }

    fn is_hardware(&self) -> bool {
        true
    }

    fn options(&self) -> &'static [OptionInfo] {
        RdmaOptions::INFO
    }

    fn open(&self, name: &EngineName) -> Result<Arc<dyn DmaEngine>> {
        Ok(Arc::new(RdmaEngine::open(&RdmaOptions::from_name(name)?)?))
    }

    fn discover(&self) -> Vec<Discovered> {
        crate::discover(&RdmaOptions::new())
    }

    fn doctor(&self) -> Vec<Finding> {
        crate::doctor::findings()
    }
}
