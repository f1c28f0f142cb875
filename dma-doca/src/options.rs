//! [`DocaOptions`]: which device to open, and how.

use std::path::PathBuf;

use dma_core::{Error, ErrorKind, Result};
use doca_sys::Library;

use crate::error::error;

/// Which device to open, and how.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct DocaOptions {
    /// The device's PCI address, as [`PciAddress`](dma_core::PciAddress) reads it, except that `BB:DD.F` is of any domain, and refused if it
    /// is that of several devices. `None`: the first device that has DMA.
    pub address: Option<String>,
    /// The name of the device's network interface (`p0`) or InfiniBand device (`mlx5_0`): tells apart devices that share an address.
    pub interface: Option<String>,
    /// The directory of the SDK's libraries, or its installation prefix. `None`: `DMA_DOCA_LIB_DIR` if set, else the vendor's
    /// prefix, else the system's directories.
    pub lib_dir: Option<PathBuf>,
    /// The depth of queues opened without one, in descriptors. `None`: 256, or the device's most if that is less.
    pub queue_depth: Option<usize>,
    /// Over what exported memory is reached. Default [`Fabric::Pci`].
    pub export: Fabric,
    /// Which of the SDK's log lines become `tracing` events. Default [`SdkLog::Warning`].
    pub log: SdkLog,
    /// The SDK's calls, if not to be loaded.
    pub(crate) library: Option<Library>,
}

/// Over what a peer reaches exported memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fabric {
    /// PCI: the host and the DPU of one card. The only descriptor that DMA copies.
    #[default]
    Pci,
    /// RDMA: the descriptor is for programs that use DOCA RDMA; DMA refuses it.
    Rdma,
}

/// From which level on the SDK's log lines become `tracing` events of the target `doca`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum SdkLog {
    /// None.
    Off,
    /// Errors, and what is critical.
    Error,
    /// Warnings too.
    #[default]
    Warning,
    /// Information too.
    Info,
    /// All but traces.
    Debug,
}

impl DocaOptions {
    /// The keys that [`set`](Self::set) knows.
    pub const KEYS: [&'static str; 6] = ["address", "interface", "lib", "depth", "export", "log"];

    /// The defaults: the first device that has DMA.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the PCI address, `DDDD:BB:DD.F` or `BB:DD.F`.
    #[must_use]
    pub fn with_address(mut self, address: impl Into<String>) -> Self {
        self.address = Some(address.into());
        self
    }

    /// Sets the name of the network interface or InfiniBand device.
    #[must_use]
    pub fn with_interface(mut self, name: impl Into<String>) -> Self {
        self.interface = Some(name.into());
        self
    }

    /// Sets the directory of the SDK's libraries, or its installation prefix.
    #[must_use]
    pub fn with_lib_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.lib_dir = Some(dir.into());
        self
    }

    /// Sets the SDK's calls: nothing is loaded.
    #[must_use]
    pub fn with_library(mut self, library: Library) -> Self {
        self.library = Some(library);
        self
    }

    /// Sets the depth of queues opened without one, in descriptors.
    #[must_use]
    pub const fn with_queue_depth(mut self, depth: usize) -> Self {
        self.queue_depth = Some(depth);
        self
    }

    /// Sets over what exported memory is reached.
    #[must_use]
    pub const fn with_export(mut self, fabric: Fabric) -> Self {
        self.export = fabric;
        self
    }

    /// Sets which of the SDK's log lines become `tracing` events.
    #[must_use]
    pub const fn with_log(mut self, log: SdkLog) -> Self {
        self.log = log;
        self
    }

    /// Sets an option by its name, as in the engine name `doca:03:00.0,depth=64`: `address`, `interface`, `lib` (a directory), `depth` (a number),
    /// `export` (`pci` or `rdma`), `log` (`off`, `error`, `warning`, `info` or `debug`).
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for another key, or a value that does not fit; it names both and says what would fit.
    pub fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let bad = |what: &str| -> Error {
            error(ErrorKind::InvalidArgument, format!("option {key}={value}"))
                .with_hint(format!("{key} is {what}"))
        };
        match key {
            "address" | "interface" | "lib" if value.is_empty() => {
                return Err(bad(match key {
                    "address" => "a PCI address, such as 03:00.0",
                    "interface" => "the name of a network interface or InfiniBand device, such as p0",
                    _ => "the directory of the SDK's libraries, or its installation prefix",
                }));
            }
            "address" => self.address = Some(value.to_owned()),
            "interface" => self.interface = Some(value.to_owned()),
            "lib" => self.lib_dir = Some(value.into()),
            "depth" => match value.parse() {
                Ok(depth) if depth > 0 => self.queue_depth = Some(depth),
                _ => return Err(bad("a number of descriptors, at least 1")),
            },
            "export" => {
                self.export = match value {
                    "pci" => Fabric::Pci,
                    "rdma" => Fabric::Rdma,
                    _ => return Err(bad("pci or rdma")),
                }
            }
            "log" => {
                self.log = match value {
                    "off" => SdkLog::Off,
                    "error" => SdkLog::Error,
                    "warning" => SdkLog::Warning,
                    "info" => SdkLog::Info,
                    "debug" => SdkLog::Debug,
                    _ => return Err(bad("off, error, warning, info or debug")),
                }
            }
            _ => {
                return Err(error(ErrorKind::InvalidArgument, format!("there is no option `{key}`"))
                    .with_hint(format!("there are: {}", Self::KEYS.join(", "))));
            }
        }
        Ok(())
    }

    /// The SDK's calls: those given, or loaded.
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
    use super::*;

    #[test]
    fn options_are_set_by_name_and_refused_with_the_choices() {
        let mut options = DocaOptions::new();
        for (key, value) in [
            ("address", "03:00.0"),
            ("interface", "p0"),
            ("lib", "/x"),
            ("depth", "64"),
            ("export", "rdma"),
            ("log", "off"),
        ] {
            assert!(DocaOptions::KEYS.contains(&key));
            options.set(key, value).unwrap();
        }
        assert_eq!(options.address.as_deref(), Some("03:00.0"));
        assert_eq!(options.interface.as_deref(), Some("p0"));
        assert_eq!(options.lib_dir, Some(PathBuf::from("/x")));
        assert_eq!((options.queue_depth, options.export, options.log), (Some(64), Fabric::Rdma, SdkLog::Off));
        for (key, value, says) in [
            ("depth", "0", "at least 1"),
            ("export", "usb", "pci or rdma"),
            ("log", "loud", "warning"),
            ("deep", "1", "depth"),
        ] {
            let e = options.set(key, value).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::InvalidArgument);
            assert!(e.to_string().contains(says), "{e}");
        }
    }
}
