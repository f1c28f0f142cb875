//! [`DocaOptions`]: the device, and its settings.

use std::path::PathBuf;

use dma_core::{PciAddress, Result};
use doca_sys::Library;

use crate::error::NAME;

dma_core::options! {
    /// The device to open, and its settings.
    ///
    /// An engine name, such as `doca:03:00.0,depth=64`, consists of the backend, the device, and options that
    /// [`INFO`](Self::INFO) lists. `lib` names a directory whose code is loaded and run: use
    /// `dma::parse_untrusted` for untrusted input.
    #[derive(Clone, Debug)]
    pub struct DocaOptions {
        /// The device's PCI address. `None` (the default): the first device that has DMA.
        pub address: Option<PciAddress>, with_address(Some(PciAddress));
        /// The name of the device's network interface (`p0`) or InfiniBand device (`mlx5_0`): selects one of
        /// several devices with the same address. Default: any.
        pub interface: Option<String>, with_interface(Some(impl Into<String>)),
            "interface": text("NAME"), "the device's network interface or InfiniBand device, such as p0",
            default "any";
        /// The directory of the SDK's libraries, or its installation prefix. `None` (the default):
        /// `DMA_DOCA_LIB_DIR` if it is set, otherwise the vendor's prefix, then the system's directories.
        pub lib_dir: Option<PathBuf>, with_lib_dir(Some(impl Into<PathBuf>)),
            "lib": path("FOLDER"), "the folder of the SDK's libraries, or its installation prefix",
            default "DMA_DOCA_LIB_DIR, then the SDK's prefix, then the system's folders", needs trust;
        /// The depth of queues that are opened without a depth, in descriptors; at least 1. `None` (the
        /// default): 256, or the device's maximum if it is less than 256.
        pub depth: Option<usize>, with_depth(Some(usize)),
            "depth": number(1..=usize::MAX),
            "the depth of queues that are opened without a depth, in descriptors", default "256";
        /// The fabric over which peers reach exported memory. Default [`Fabric::Pci`].
        pub export: Fabric, with_export(Fabric),
            "export": choice("pci" => Fabric::Pci, "rdma" => Fabric::Rdma),
            "the fabric over which peers reach exported memory", default "pci", needs trust;
        /// The least severe level of the SDK's log lines that become `tracing` events. Default
        /// [`SdkLog::Warning`].
        pub log: SdkLog, with_log(SdkLog),
            "log": choice("off" => SdkLog::Off, "error" => SdkLog::Error, "warning" => SdkLog::Warning,
                "info" => SdkLog::Info, "debug" => SdkLog::Debug),
            "the level from which the SDK's log lines become events", default "warning";
        /// The SDK's calls, instead of loading libraries. Default: libraries are loaded.
        pub(crate) library: Option<Library>, with_library(Some(impl Into<Library>));
    }
    names NAME, device address = str::parse,
        "a PCI address, such as 03:00.0; without one, the first device that has DMA";
}

/// The fabric over which peers reach exported memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fabric {
    /// PCI: between the host and the DPU of one card. DMA can only copy memory of these exports.
    #[default]
    Pci,
    /// RDMA: the descriptor is for programs that use DOCA RDMA; DMA refuses it.
    Rdma,
}

/// The least severe level of the SDK's log lines that become `tracing` events of the target `doca`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum SdkLog {
    /// No lines.
    Off,
    /// Critical lines and errors.
    Error,
    /// Also warnings.
    #[default]
    Warning,
    /// Also information.
    Info,
    /// Also debug lines, that is, all lines except traces.
    Debug,
}

impl DocaOptions {
    /// Returns the SDK's calls: those of `with_library`, or those of a library that is loaded here.
    pub(crate) fn load(&self) -> Result<Library> {
        if let Some(library) = &self.library {
            return Ok(library.clone());
        }
        #[cfg(feature = "linked")]
        if self.lib_dir.is_none() {
            return Ok(Library::linked());
        }
        let loaded = match &self.lib_dir {
            Some(dir) => Library::open_in(dir),
            None => Library::open(),
        };
        loaded.map_err(crate::error::load)
    }
}

#[cfg(test)]
mod tests {
    use dma_core::ErrorKind;

    use super::*;

    #[test]
    fn names_set_every_option() {
        let options = |name: &str| DocaOptions::from_name(&name.parse().unwrap());
        let all = options("doca:03:00.0,interface=p0,lib=/x,depth=64,export=rdma,log=off").unwrap();
        assert_eq!(all.address, Some("0000:03:00.0".parse().unwrap()));
        assert_eq!(all.interface.as_deref(), Some("p0"));
        assert_eq!(all.lib_dir, Some(PathBuf::from("/x")));
        assert_eq!((all.depth, all.export, all.log), (Some(64), Fabric::Rdma, SdkLog::Off));
        assert_eq!(options("doca:depth=1").unwrap().address, None);
        for (name, kind, says) in [
            ("doca:depth=0", ErrorKind::OutOfRange, "from 1 to"),
            ("doca:export=usb", ErrorKind::InvalidArgument, "pci, rdma"),
            ("doca:log=loud", ErrorKind::InvalidArgument, "warning"),
            ("doca:deep=1", ErrorKind::InvalidArgument, "depth"),
            ("doca:3:0.0", ErrorKind::InvalidArgument, "DDDD:BB:DD.F"),
        ] {
            let e = options(name).unwrap_err();
            assert_eq!(e.kind(), kind, "{e}");
            assert!(e.to_string().contains(says), "{e}");
        }
    }
}
