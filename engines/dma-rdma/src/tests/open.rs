//! Engines on the stand-in's device.

use dma_core::Result;
use rdma_emu::Nic;

use crate::{RdmaEngine, RdmaOptions};

/// Opens engines on a device.
pub(crate) trait Open {
    fn open_with(&self, options: &RdmaOptions) -> Result<RdmaEngine>;

    fn open(&self) -> RdmaEngine {
        self.open_with(&RdmaOptions::new()).unwrap()
    }
}

impl Open for Nic {
    fn open_with(&self, options: &RdmaOptions) -> Result<RdmaEngine> {
        RdmaEngine::with(&self.verbs(), options)
    }
}
