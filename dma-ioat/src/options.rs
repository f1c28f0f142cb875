//! [`IoatOptions`]: which channel, and how SPDK's environment is to be.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

use dma_core::{Error, ErrorKind, Result};
use spdk_sys::Library;

use crate::{BACKEND, PciAddress};

/// Which channel to open, and how SPDK's environment is to be set up.
///
/// The environment is set up once per process and then shared, so that all options but [`address`](Self::address) are those of the process: an engine
/// opened later may leave them out, or give the same again.
///
/// By name, for [`set`](Self::set), such as in `ioat:0000:00:04.0,mem=512`:
///
/// | key | value | default |
/// |---|---|---|
/// | `address` | PCI address of one channel, `0000:00:04.0` or `00:04.0` | all channels |
/// | `lib` | directory of SPDK's shared libraries | `DMA_SPDK_LIB_DIR`, then the system |
/// | `cores` | CPUs for the environment: mask `0x3`, or list `0+2-3` | the first that this process may use |
/// | `mem` | memory for DMA in MiB, reserved at once | as needed; 512 without huge pages |
/// | `huge` | huge pages: `auto`, `on`, `off` | `auto` |
/// | `allow` | PCI addresses that SPDK may take, joined by `+` | all |
/// | `env` | who sets SPDK's environment up: `own`, or `external` for the program itself | `own` |
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct IoatOptions {
    /// The channel's PCI address. `None` (the default): all channels that this process can have, and each queue takes a free one.
    pub address: Option<PciAddress>,
    /// The directory of SPDK's shared libraries. `None` (the default): what the environment variable `DMA_SPDK_LIB_DIR` says, then where the system
    /// has them.
    pub lib_dir: Option<PathBuf>,
    /// The CPUs for SPDK's environment. It runs nothing there by itself; the threads that use queues stay where they are. `None` (the default): the
    /// first CPU that this process may use. Not empty; numbers below [`CORES_MAX`](Self::CORES_MAX).
    pub cores: Option<BTreeSet<u32>>,
    /// Memory for DMA, in MiB, at least 1, which is reserved when the environment is set up. `None` (the default): huge pages are taken as needed;
    /// without huge pages, [`MEM_WITHOUT_HUGE`](Self::MEM_WITHOUT_HUGE).
    pub mem: Option<u32>,
    /// Whether memory for DMA comes from huge pages. Default [`HugePages::Auto`].
    pub huge: HugePages,
    /// The PCI functions that SPDK may take for this process. `None` (the default): all. Others are left to other processes.
    pub allow: Option<BTreeSet<PciAddress>>,
    /// Who sets SPDK's environment up. Default [`EnvSetup::Own`].
    pub env: EnvSetup,
    /// SPDK's calls, if not to be loaded.
    pub(crate) library: Option<Library>,
}

/// Whether memory for DMA comes from huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HugePages {
    /// From huge pages if the system has any. If it has none: an error if it has an I/OAT device, else without.
    #[default]
    Auto,
    /// From huge pages or not at all.
    On,
    /// From ordinary pages. On hardware that needs an IOMMU.
    Off,
}

/// Who sets SPDK's environment up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EnvSetup {
    /// This crate, with the first engine.
    #[default]
    Own,
    /// The program did so itself (`spdk_env_init`), before the first engine.
    External,
}

impl IoatOptions {
    /// The keys that [`set`](Self::set) knows.
    pub const KEYS: [&'static str; 7] = ["address", "lib", "cores", "mem", "huge", "allow", "env"];
    /// Numbers of CPUs are below this.
    pub const CORES_MAX: u32 = 1024;
    /// What [`mem`](Self::mem) is without huge pages if nobody says, in MiB.
    pub const MEM_WITHOUT_HUGE: u32 = 512;

    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the channel.
    #[must_use]
    pub const fn with_address(mut self, address: PciAddress) -> Self {
        self.address = Some(address);
        self
    }

    /// Sets the directory of SPDK's shared libraries.
    #[must_use]
    pub fn with_lib_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.lib_dir = Some(dir.into());
        self
    }

    /// Sets SPDK's calls: nothing is loaded. Engines opened with the same calls share an environment.
    #[must_use]
    pub fn with_library(mut self, library: Library) -> Self {
        self.library = Some(library);
        self
    }

    /// Sets the CPUs for SPDK's environment.
    #[must_use]
    pub fn with_cores(mut self, cores: impl IntoIterator<Item = u32>) -> Self {
        self.cores = Some(cores.into_iter().collect());
        self
    }

    /// Sets the memory for DMA, in MiB.
    #[must_use]
    pub const fn with_mem(mut self, mib: u32) -> Self {
        self.mem = Some(mib);
        self
    }

    /// Sets whether memory comes from huge pages.
    #[must_use]
    pub const fn with_huge(mut self, huge: HugePages) -> Self {
        self.huge = huge;
        self
    }

    /// Sets the PCI functions that SPDK may take.
    #[must_use]
    pub fn with_allow(mut self, functions: impl IntoIterator<Item = PciAddress>) -> Self {
        self.allow = Some(functions.into_iter().collect());
        self
    }

    /// Sets who sets SPDK's environment up.
    #[must_use]
    pub const fn with_env(mut self, env: EnvSetup) -> Self {
        self.env = env;
        self
    }

    /// Sets an option by its name; see the table above.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: there is no such option, with a list of those there are; or it has no such value, with what it may be.
    pub fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let bad =
            |hint: &str| invalid(format!("option `{key}` cannot be `{value}`")).with_hint(hint.to_owned());
        match key {
            "address" => self.address = Some(address(value)?),
            "lib" if value.is_empty() => return Err(bad("name the directory of SPDK's shared libraries")),
            "lib" => self.lib_dir = Some(PathBuf::from(value)),
            "cores" => {
                let cores =
                    parse_cores(value).ok_or_else(|| bad("a mask such as 0x3, or a list such as 0+2-3"))?;
                self.cores = Some(cores);
            }
            "mem" => {
                let mib = value.parse().ok().filter(|mib| (1..=i32::MAX as u32).contains(mib));
                self.mem = Some(mib.ok_or_else(|| bad("a number of MiB, at least 1"))?);
            }
            "huge" => {
                self.huge = match value {
                    "auto" => HugePages::Auto,
                    "on" => HugePages::On,
                    "off" => HugePages::Off,
                    _ => return Err(bad("auto, on or off")),
                };
            }
            "allow" => self.allow = Some(value.split('+').map(address).collect::<Result<_>>()?),
            "env" => {
                self.env = match value {
                    "own" => EnvSetup::Own,
                    "external" => EnvSetup::External,
                    _ => return Err(bad("own or external")),
                };
            }
            _ => {
                return Err(invalid(format!("there is no option `{key}`"))
                    .with_hint(format!("there are: {}", Self::KEYS.join(", "))));
            }
        }
        Ok(())
    }

    /// Fails for values that no environment can have.
    pub(crate) fn check(&self) -> Result<()> {
        if self.mem == Some(0) || self.mem.is_some_and(|mib| i32::try_from(mib).is_err()) {
            return Err(invalid(format!("{} MiB of memory", self.mem.unwrap_or(0)))
                .with_hint("ask for at least 1 MiB, or leave it out"));
        }
        if let Some(cores) = &self.cores {
            let known = !cores.is_empty() && cores.iter().all(|core| *core < Self::CORES_MAX);
            if !known {
                return Err(invalid(format!("cores `{}`", Cores(cores)))
                    .with_hint(format!("name at least one CPU, with numbers below {}", Self::CORES_MAX)));
            }
        }
        if self.allow.as_ref().is_some_and(BTreeSet::is_empty) {
            return Err(
                invalid("no PCI function is allowed").with_hint("name at least one, or leave `allow` out")
            );
        }
        Ok(())
    }
}

fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message).with_operation("open engine").with_backend(BACKEND)
}

fn address(text: &str) -> Result<PciAddress> {
    text.parse().map_err(|error: Error| error.with_backend(BACKEND))
}

/// A set of CPUs as SPDK takes it, without the brackets: `0,2-3`.
pub(crate) struct Cores<'a>(pub(crate) &'a BTreeSet<u32>);

impl fmt::Display for Cores<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cores = self.0.iter().copied().peekable();
        let mut between = "";
        while let Some(first) = cores.next() {
            let mut last = first;
            while let Some(next) = cores.next_if_eq(&(last + 1)) {
                last = next;
            }
            write!(f, "{between}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            between = ",";
        }
        Ok(())
    }
}

/// Reads a mask, `0x3`, or a list, `0+2-3`, also as SPDK writes it, `[0,2-3]`.
fn parse_cores(text: &str) -> Option<BTreeSet<u32>> {
    let mut cores = BTreeSet::new();
    if let Some(mask) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        for (at, digit) in mask.bytes().rev().enumerate() {
            let digit = char::from(digit).to_digit(16)?;
            let first = u32::try_from(at).ok()?.checked_mul(4)?;
            cores.extend((0..4).filter(|bit| digit >> bit & 1 == 1).map(|bit| first + bit));
        }
    } else {
        let list = text.strip_prefix('[').map_or(Some(text), |rest| rest.strip_suffix(']'))?;
        for part in list.split(['+', ',']) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.parse().ok().filter(|core| *core < IoatOptions::CORES_MAX);
            let (first, last): (u32, u32) = (number(first)?, number(last)?);
            if first > last {
                return None;
            }
            cores.extend(first..=last);
        }
    }
    (!cores.is_empty() && cores.iter().all(|core| *core < IoatOptions::CORES_MAX)).then_some(cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_set_by_name() {
        let mut options = IoatOptions::new();
        for (key, value) in [
            ("address", "00:04.1"),
            ("lib", "/opt/spdk/lib"),
            ("cores", "0x15"),
            ("mem", "256"),
            ("huge", "off"),
            ("allow", "00:04.1+0000:80:04.0"),
            ("env", "external"),
        ] {
            options.set(key, value).unwrap();
        }
        let address = |text: &str| text.parse::<PciAddress>().unwrap();
        let expected = IoatOptions::new()
            .with_address(address("00:04.1"))
            .with_lib_dir("/opt/spdk/lib")
            .with_cores([0, 2, 4])
            .with_mem(256)
            .with_huge(HugePages::Off)
            .with_allow([address("00:04.1"), address("80:04.0")])
            .with_env(EnvSetup::External);
        assert_eq!(format!("{options:?}"), format!("{expected:?}"));
        options.check().unwrap();
    }

    #[test]
    fn bad_options_are_named() {
        for (key, value, says) in [
            ("depth", "1", "there are: address"),
            ("mem", "0", "at least 1"),
            ("mem", "1G", "at least 1"),
            ("huge", "yes", "auto, on or off"),
            ("cores", "", "mask"),
            ("cores", "0x", "mask"),
            ("cores", "3-1", "mask"),
            ("cores", "99999999", "mask"),
            ("cores", "0xz", "mask"),
            ("allow", "", "PCI address"),
            ("address", "4.0", "PCI address"),
            ("lib", "", "directory"),
            ("env", "mine", "external"),
        ] {
            let error = IoatOptions::new().set(key, value).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains(says), "{key}={value}: {error}");
        }
        for options in [
            IoatOptions::new().with_mem(0),
            IoatOptions::new().with_cores([]),
            IoatOptions::new().with_cores([5000]),
            IoatOptions::new().with_allow([]),
        ] {
            assert_eq!(options.check().unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
    }

    #[test]
    fn cores_are_written_as_spdk_reads_them() {
        let round = |text: &str| Cores(&parse_cores(text).unwrap()).to_string();
        assert_eq!(round("0x1"), "0");
        assert_eq!(round("[0,2-3]"), "0,2-3");
        assert_eq!(round("7+0-2+3"), "0-3,7");
        assert_eq!(round("0x8000000000000000000000"), "87");
    }
}
