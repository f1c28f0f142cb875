//! The configuration, which describes the hardware that the stand-in models.

use dma_sim::model::{FaultPlan, Profile};
pub(crate) use dma_standin::config::Clock;
pub use dma_standin::config::ConfigError;
use dma_standin::config::{ProcessConfig, bytes, faults, one_line, profile, settings, tables};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use crate::c_abi::c::spdk_pci_addr;
use crate::pci_addr;

/// A whole configuration.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) machine: Machine,
    pub(crate) sockets: Vec<SocketConfig>,
}

/// The machine, without its channels.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Machine {
    /// If true, the machine has huge pages.
    pub(crate) hugepages: bool,
    /// Maximum amount of the environment's memory in bytes, unless the program sets it.
    #[serde(deserialize_with = "bytes")]
    pub(crate) memory: u64,
    pub(crate) iova: Iova,
    /// Number of cores.
    pub(crate) cores: u32,
    pub(crate) reattach: Reattach,
}

impl Default for Machine {
    fn default() -> Self {
        Self { hugepages: true, memory: 8 << 30, iova: Iova::Pa, cores: 128, reattach: Reattach::Easy }
    }
}

/// The keys of [`Machine`].
const MACHINE: [&str; 5] = ["hugepages", "memory", "iova", "cores", "reattach"];

/// The kind of addresses that devices use, unless the program sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Iova {
    /// Physical: consecutive pages of 2 MiB are not consecutive for devices.
    Pa,
    /// Virtual: the addresses of the program.
    Va,
}

/// Condition on which a function is offered again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Reattach {
    /// The function was detached or declined.
    Easy,
    /// SPDK's behaviour: `spdk_pci_device_detach` released the function, and two seconds have passed since
    /// a probe first saw it again.
    Spdk,
}

/// The channels of one socket, which share memory bandwidth.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SocketConfig {
    pub(crate) numa: i32,
    #[serde(deserialize_with = "profile")]
    pub(crate) profile: Profile,
    pub(crate) clock: Option<Clock>,
    pub(crate) seed: u64,
    #[serde(deserialize_with = "faults")]
    pub(crate) faults: FaultPlan,
    /// Maximum transfer length of one descriptor, in bytes.
    #[serde(deserialize_with = "bytes")]
    pub(crate) xfercap: u64,
    pub(crate) fill: bool,
    /// Number of descriptors of a ring.
    pub(crate) ring: u32,
    /// The value of the channels' version register: 0x30 for 3.0.
    pub(crate) cbver: u8,
    pub(crate) function: Vec<FunctionConfig>,
}

/// One PCI function.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FunctionConfig {
    #[serde(deserialize_with = "pci")]
    pub(crate) pci: spdk_pci_addr,
    #[serde(default = "skylake")]
    pub(crate) device: u16,
    #[serde(default)]
    pub(crate) driver: KernelDriver,
    /// If true, another process has the function, so no probe gets it.
    #[serde(default)]
    pub(crate) taken: bool,
}

/// The kernel's driver that a function is bound to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) enum KernelDriver {
    #[default]
    #[serde(rename = "vfio-pci")]
    Vfio,
    #[serde(rename = "uio_pci_generic")]
    Uio,
    #[serde(rename = "ioatdma")]
    Kernel,
    #[serde(rename = "none")]
    None,
}

const fn skylake() -> u16 {
    0x2021
}

fn function(func: u8) -> FunctionConfig {
    let pci = spdk_pci_addr { domain: 0, bus: 0, dev: 4, func };
    FunctionConfig { pci, device: skylake(), driver: KernelDriver::Vfio, taken: false }
}

impl Default for SocketConfig {
    fn default() -> Self {
        Self {
            numa: 0,
            profile: Profile::ideal(),
            clock: None,
            seed: 0,
            faults: FaultPlan::none(),
            xfercap: 1 << 20,
            fill: true,
            ring: 1 << 15,
            cbver: 0x34,
            function: (0..8).map(function).collect(),
        }
    }
}

fn pci<'de, D: Deserializer<'de>>(from: D) -> Result<spdk_pci_addr, D::Error> {
    let text = String::deserialize(from)?;
    let bad = || D::Error::custom(format!("`{text}` is not a PCI address; write it as `0000:00:04.0`"));
    pci_addr::parse(&text).ok_or_else(bad)
}

impl Config {
    /// Parses the text of a configuration.
    ///
    /// Keys of sockets at the top level are defaults of all sockets.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut top: toml::Table = text.parse().map_err(|error: toml::de::Error| one_line(&error))?;
        let machine: Machine = settings(&mut top, &MACHINE)?;
        if machine.cores == 0 || machine.cores > 128 {
            return Err(format!("cores is {}; give 1 to 128", machine.cores));
        }
        let sockets = tables(top, "socket", &MACHINE, SocketConfig::check)?;
        let config = Self { machine, sockets };
        config.check()?;
        Ok(config)
    }

    /// Checks that the addresses of functions are distinct.
    fn check(&self) -> Result<(), String> {
        let mut seen = std::collections::BTreeSet::new();
        let functions = self.sockets.iter().flat_map(|socket| &socket.function);
        let mut addresses = functions.map(|function| pci_addr::format(&function.pci));
        match addresses.find(|address| !seen.insert(address.clone())) {
            Some(twice) => Err(format!("two functions have pci = `{twice}`; give each its own")),
            None => Ok(()),
        }
    }

    /// Returns the configuration of [`use_config`], or that of the environment variables if it was not
    /// called.
    pub(crate) fn in_use() -> Result<Self, ConfigError> {
        IN_USE.read(Self::parse)
    }
}

impl SocketConfig {
    /// Checks that the values are within their ranges.
    fn check(self) -> Result<Self, String> {
        let Self { xfercap, ring, cbver, .. } = self;
        if !xfercap.is_power_of_two() || !(1 << 12..=1 << 32).contains(&xfercap) {
            return Err(format!("xfercap is {xfercap}; give a power of two from 4K to 4G"));
        }
        if !ring.is_power_of_two() || !(2..=1 << 15).contains(&ring) {
            return Err(format!("ring is {ring}; give a power of two from 2 to 32768"));
        }
        if !(0x30..=0x3f).contains(&cbver) {
            return Err(format!("cbver is {cbver:#x}; give a version 3, from 0x30 to 0x3f"));
        }
        Ok(self)
    }
}

static IN_USE: ProcessConfig = ProcessConfig::new("SPDK_EMU_CONFIG", "SPDK_EMU");

/// Sets the configuration of this process, which `spdk_env_init` uses instead of the environment variables.
/// Only the first call has an effect.
///
/// # Errors
///
/// The text is not a valid configuration.
pub fn use_config(text: &str) -> Result<(), ConfigError> {
    IN_USE.set(text, Config::parse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_eight_channels() {
        let config = Config::parse("").unwrap();
        assert_eq!(config.sockets.len(), 1);
        let addresses: Vec<_> =
            config.sockets[0].function.iter().map(|function| pci_addr::format(&function.pci)).collect();
        assert_eq!(addresses.len(), 8);
        assert_eq!((&*addresses[0], &*addresses[7]), ("0000:00:04.0", "0000:00:04.7"));
    }

    #[test]
    fn top_level_keys_are_for_all_sockets() {
        let text = "profile = 'ioat'\nxfercap = '64K'\n[[socket]]\n[[socket]]\nnuma = 1\nxfercap = '4K'\n\
                    [[socket.function]]\npci = '80:04.0'\ndriver = 'ioatdma'\n";
        let config = Config::parse(text).unwrap();
        assert_eq!(config.sockets[0].xfercap, 64 << 10);
        assert_eq!(config.sockets[1].xfercap, 4 << 10);
        assert_eq!(config.sockets[1].profile.name, "ioat");
        assert_eq!(config.sockets[1].function[0].driver, KernelDriver::Kernel);
    }

    #[test]
    fn mistakes_are_named_with_the_remedy() {
        for (text, problem) in [
            ("profil = 'ioat'", "unknown field `profil`"),
            ("hugepage = false", "or, at the top level, `hugepages`"),
            ("profile = 'ioatt'", "ioatt"),
            ("xfercap = 5000", "socket 1: xfercap is 5000; give a power of two from 4K to 4G"),
            ("ring = 100", "ring is 100; give a power of two from 2 to 32768"),
            ("cbver = 0x20", "cbver is 0x20"),
            ("cores = 0", "cores is 0; give 1 to 128"),
            ("memory = 'much'", "bytes, such as 65536, \"64K\", \"2M\""),
            ("faults = 'fial@5'", "no fault `fial`"),
            ("[[socket.function]]\npci = 'nowhere'", "`nowhere` is not a PCI address"),
            ("[[socket]]\n[[socket]]", "two functions have pci = `0000:00:04.0`"),
            ("[", "TOML parse error"),
        ] {
            let error = Config::parse(text).unwrap_err();
            assert!(error.contains(problem), "{text}: {error}");
            assert!(!error.contains('\n'));
        }
    }
}
