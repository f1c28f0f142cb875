//! Code shared by the examples that have arguments: options for engine and files, exit status.

use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use dma::prelude::*;

/// The options that choose an engine.
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
    /// Opens the engine.
    pub(crate) fn open(&self) -> dma::Result<Arc<dyn DmaEngine>> {
        match self.pci {
            Some(address) => dma::open(&format!("doca:{address}")),
            None => dma::open(&self.engine),
        }
    }
}

/// The two files that the host writes and the DPU reads.
#[derive(Debug, clap::Args)]
pub(crate) struct Files {
    /// The file with the export descriptor [default: dma-export.bin in the directory for temporary files]
    #[arg(long, value_name = "FILE", default_value_os_t = std::env::temp_dir().join("dma-export.bin"), hide_default_value = true)]
    pub(crate) export: PathBuf,
    /// The file with the buffer's address and length [default: dma-buffer.txt in the directory for temporary
    /// files]
    #[arg(long, value_name = "FILE", default_value_os_t = std::env::temp_dir().join("dma-buffer.txt"), hide_default_value = true)]
    pub(crate) buffer: PathBuf,
}

/// Returns the engine's name and device, and "a model" if the device is simulated.
pub(crate) fn by(engine: &dyn DmaEngine) -> String {
    let info = engine.info();
    let model = if info.model.is_some() { ", a model" } else { "" };
    format!("{} ({}{model})", info.backend, info.device)
}

/// Prints an error after the program's name. Returns the exit status.
pub(crate) fn exit(result: Result<(), impl Display>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{}: {e}", env!("CARGO_BIN_NAME"));
            ExitCode::FAILURE
        }
    }
}
