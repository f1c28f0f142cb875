//! [`DocaOptions`]: the device, and its settings.

use std::path::PathBuf;

use dma_core::{EngineName, OptionInfo, PciAddress, Result};
use doca_sys::Library;

use crate::error::BACKEND;

const LOGS: [(&str, SdkLog); 5] = [
    ("off", SdkLog::Off),
    ("error", SdkLog::Error),
    ("warning", SdkLog::Warning),
    ("info", SdkLog::Info),
    ("debug", SdkLog::Debug),
];

/// The device to open, and its settings.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct DocaOptions {
    /// The device's PCI address. `None`: the first device that has DMA.
    pub address: Option<PciAddress>,
    /// The name of the device's network interface (`p0`) or InfiniBand device (`mlx5_0`): selects one of
    /// several devices with the same address.
    pub interface: Option<String>,
    /// The directory of the SDK's libraries, or its installation prefix. `None`: `DMA_DOCA_LIB_DIR` if it is
    /// set, otherwise the vendor's prefix, then the system's directories.
    pub lib_dir: Option<PathBuf>,
    /// The depth of queues that are opened without a depth, in descriptors. `None`: 256, or the device's
    /// maximum if it is less than 256.
    pub queue_depth: Option<usize>,
    /// The fabric over which peers reach exported memory. Default [`Fabric::Pci`].
    pub export: Fabric,
    /// The least severe level of the SDK's log lines that become `tracing` events. Default
    /// [`SdkLog::Warning`].
    pub log: SdkLog,
    /// The SDK's calls, instead of loading libraries.
    pub(crate) library: Option<Library>,
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
    /// The options that engine names can have.
    pub const INFO: &'static [OptionInfo] = &[
        OptionInfo::new(
            "interface",
            "NAME",
            "any",
            "the device's network interface or InfiniBand device, such as p0",
        ),
        OptionInfo::new(
            "lib",
            "FOLDER",
            "DMA_DOCA_LIB_DIR, then the SDK's prefix, then the system's folders",
            "the folder of the SDK's libraries, or its installation prefix",
        )
        .needing_trust(),
        OptionInfo::new(
            "depth",
            "N",
            "256",
            "the depth of queues that are opened without a depth, in descriptors",
        ),
        OptionInfo::new("export", "pci|rdma", "pci", "the fabric over which peers reach exported memory")
            .needing_trust(),
        OptionInfo::new(
            "log",
            "off|error|warning|info|debug",
            "warning",
            "the level from which the SDK's log lines become events",
        ),
    ];

    /// Returns the defaults, with which the first device that has DMA is opened.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    dma_core::setters! {
        with_address(address: Some(PciAddress));
        with_interface(interface: Some(impl Into<String>));
        with_lib_dir(lib_dir: Some(impl Into<PathBuf>));
        with_library(library: Some(impl Into<Library>));
        with_queue_depth(queue_depth: Some(usize));
        with_export(export: Fabric);
        with_log(log: SdkLog);
    }

    /// Reads the device and the options of an engine name, such as `doca:03:00.0,depth=64`. See
    /// [`INFO`](Self::INFO).
    ///
    /// `lib` names a directory whose code is loaded and run: use `dma::parse_untrusted` for untrusted input.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for an unknown device format, option or value, `OutOfRange` for a depth of 0. Each
    /// error lists the valid values.
    pub fn from_name(name: &EngineName) -> Result<Self> {
        let mut options = Self::new();
        options.address = name.device_as().map_err(|e| e.with_backend(BACKEND))?;
        name.read_options(&crate::BACKEND, |key, value| {
            match key {
                "interface" => options.interface = Some(value.text()?.to_owned()),
                "lib" => options.lib_dir = Some(value.path()?),
                "depth" => options.queue_depth = Some(value.number(1..=usize::MAX)?),
                "export" => options.export = value.choice(&[("pci", Fabric::Pci), ("rdma", Fabric::Rdma)])?,
                "log" => options.log = value.choice(&LOGS)?,
                _ => return Err(value.not_read()),
            }
            Ok(())
        })?;
        Ok(options)
    }

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
        assert_eq!((all.queue_depth, all.export, all.log), (Some(64), Fabric::Rdma, SdkLog::Off));
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
