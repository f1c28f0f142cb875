//! I/OAT channels, by name.

use std::sync::Arc;

use dma_core::{Backend, Discovered, DmaEngine, EngineName, Finding, OptionInfo, Result};

use crate::{IoatEngine, IoatOptions};

/// The backend `ioat`.
pub static BACKEND: IoatBackend = IoatBackend;

/// Opens I/OAT channels by name: see [`BACKEND`].
#[derive(Debug)]
pub struct IoatBackend;

impl Backend for IoatBackend {
    fn name(&self) -> &'static str {
        crate::error::BACKEND
    }

    fn about(&self) -> &'static str {
        "Intel I/OAT, through SPDK, which is loaded at run time"
    }

    fn device(&self) -> Option<&'static str> {
        Some("a PCI address, such as 00:04.0; without one, all channels, and each queue takes a free one")
    }

    fn is_hardware(&self) -> bool {
        true
    }

    fn options(&self) -> &'static [OptionInfo] {
        IoatOptions::INFO
    }

    fn open(&self, name: &EngineName) -> Result<Arc<dyn DmaEngine>> {
        Ok(Arc::new(IoatEngine::open(&IoatOptions::from_name(name)?)?))
    }

    /// Sets SPDK's environment up for the process, with the default options, if the system shows I/OAT
    /// functions.
    fn discover(&self) -> Vec<Discovered> {
        crate::discover(&IoatOptions::new())
    }

    fn doctor(&self) -> Vec<Finding> {
        crate::doctor::findings()
    }
}
