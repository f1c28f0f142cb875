//! What the examples with arguments have in common: which engine, and how they end.

use std::fmt::Display;
use std::process::ExitCode;
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

/// What is copied by: an engine, and whether that is a device or a model of one.
pub(crate) fn by(engine: &dyn DmaEngine) -> String {
    let info = engine.info();
    let model = if info.model.is_some() { ", a model" } else { "" };
    format!("{} ({}{model})", info.backend, info.device)
}

/// The end of a program: an error goes to standard error, after the program's name.
pub(crate) fn exit(result: Result<(), impl Display>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{}: {e}", env!("CARGO_BIN_NAME"));
            ExitCode::FAILURE
        }
    }
}
