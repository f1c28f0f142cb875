//! What the examples with arguments have in common: which engine.

use std::sync::Arc;

use dma::prelude::*;

/// Which engine.
#[derive(Debug, clap::Args)]
pub(crate) struct Device {
    /// A BlueField's DMA device, by PCI address, such as 03:00.0: the same as --engine doca:ADDRESS
    #[arg(short, long, value_name = "ADDRESS", conflicts_with = "engine")]
    pci: Option<dma::PciAddress>,
    /// Any engine by name: auto, cpu, sim:profile=bluefield3, doca:03:00.0
    #[arg(short, long, value_name = "NAME", default_value = "auto")]
    engine: String,
}

impl Device {
    /// Opens it.
    pub(crate) fn open(&self) -> dma::Result<Arc<dyn DmaEngine>> {
        match self.pci {
            Some(address) => dma::open(&format!("doca:{address}")),
            None => dma::open(&self.engine),
        }
    }
}
