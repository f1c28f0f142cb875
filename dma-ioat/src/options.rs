//! [`IoatOptions`]: the channel, and the settings of SPDK's environment.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use dma_core::{Error, ErrorKind, PciAddress, Result};
use spdk_sys::Library;

use crate::error::NAME;

/// Valid amounts of memory, in MiB. SPDK's type for it is `int`.
const MEMORY: RangeInclusive<u32> = 1..=i32::MAX as u32;

dma_core::options! {
    /// The channel to open, and the settings of SPDK's environment.
    ///
    /// The environment is set up once per process and then shared, so all options except
    /// [`address`](Self::address) apply to the process. An engine that is opened later must leave them out or
    /// repeat them.
    ///
    /// In engine names, such as `ioat:0000:00:04.0,mem=512`, the address follows the backend, and these
    /// options come next:
    ///
    /// | key | value | default |
    /// |---|---|---|
    /// | `lib` | directory of SPDK's shared libraries | `DMA_SPDK_LIB_DIR`, then the system |
    /// | `cores` | CPUs for the environment: mask `0x3`, or list `0+2-3` | the first usable CPU |
    /// | `mem` | MiB of memory for DMA, reserved at set-up | grows as needed; 512 without huge pages |
    /// | `huge` | huge pages: `auto`, `on`, `off` | `auto` |
    /// | `allow` | PCI addresses that SPDK may take, joined by `+` | all I/OAT functions |
    /// | `env` | sets up SPDK's environment: `own` for this crate, `external` for the program | `own` |
    #[derive(Clone, Debug)]
    pub struct IoatOptions {
        /// The channel's PCI address. `None` (the default): all channels that this process can attach, and
        /// each queue takes a free channel.
        pub address: Option<PciAddress>, with_address(Some(PciAddress));
        /// The directory of SPDK's shared libraries. `None` (the default): the environment variable
        /// `DMA_SPDK_LIB_DIR`, then the system's directories.
        pub lib_dir: Option<PathBuf>, with_lib_dir(Some(impl Into<PathBuf>)),
            "lib": path("FOLDER"), "the folder of SPDK's shared libraries",
            default "DMA_SPDK_LIB_DIR, then the system's folders", needs trust;
        /// The CPUs for SPDK's environment, which runs no work there and does not move the threads that use
        /// queues. `None` (the default): the first usable CPU. The set must not be empty, and its numbers
        /// must be below [`CORES_MAX`](Self::CORES_MAX).
        pub cores: Option<BTreeSet<u32>>,
            with_cores(impl IntoIterator<Item = u32> => Some(cores.into_iter().collect())),
            "cores": read("0xMASK|N[-N][+N...]", |text| parse_cores(text).map(Some)),
            "CPUs for SPDK's environment", default "the first usable CPU";
        /// Memory for DMA, in MiB, at least 1, which is reserved when the environment is set up. `None` (the
        /// default): huge pages are reserved as needed; without huge pages,
        /// [`MEM_WITHOUT_HUGE`](Self::MEM_WITHOUT_HUGE).
        pub mem: Option<u32>, with_mem(Some(u32)),
            "mem": number(MEMORY), "memory for DMA in MiB, reserved when the environment is set up",
            default "as needed; 512 without huge pages";
        /// Use of huge pages for DMA memory. Default [`HugePages::Auto`].
        pub huge: HugePages, with_huge(HugePages),
            "huge": choice("auto" => HugePages::Auto, "on" => HugePages::On, "off" => HugePages::Off),
            "use of huge pages for DMA memory", default "auto";
        /// The PCI functions that SPDK may take for this process. `None` (the default): the I/OAT functions
        /// that the system shows, so that DPDK's drivers take no other device. If the system has none, SPDK's
        /// environment is not set up. With calls from [`with_library`](Self::with_library), the default is
        /// all functions that these calls offer.
        pub allow: Option<BTreeSet<PciAddress>>,
            with_allow(impl IntoIterator<Item = PciAddress> => Some(allow.into_iter().collect())),
            "allow": read("ADDRESS[+ADDRESS...]", |text| parse_addresses(text).map(Some)),
            "PCI functions that SPDK may take", default "all I/OAT functions";
        /// The code that sets up SPDK's environment. Default [`EnvSetup::Own`].
        pub env: EnvSetup, with_env(EnvSetup),
            "env": choice("own" => EnvSetup::Own, "external" => EnvSetup::External),
            "the code that sets up SPDK's environment", default "own";
        /// SPDK's calls. With them, no library is loaded, and engines opened with the same calls share an
        /// environment. Default: the library is loaded.
        pub(crate) library: Option<Library>, with_library(Some(impl Into<Library>));
    }
    names NAME, device address = str::parse,
        "a PCI address, such as 00:04.0; without one, all channels, and each queue takes a free one";
}

/// Use of huge pages for DMA memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HugePages {
    /// Huge pages, if the system has any. Otherwise, an error on machines with an I/OAT device, and ordinary
    /// pages on other machines.
    #[default]
    Auto,
    /// Huge pages; an error if the system has none.
    On,
    /// Ordinary pages, which on hardware need an IOMMU.
    Off,
}

/// The code that sets up SPDK's environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EnvSetup {
    /// This crate, with the first engine.
    #[default]
    Own,
    /// The program, by `spdk_env_init`, before the first engine.
    External,
}

impl IoatOptions {
    /// CPU numbers must be below this limit.
    pub const CORES_MAX: u32 = 1024;
    /// Default of [`mem`](Self::mem) without huge pages, in MiB.
    pub const MEM_WITHOUT_HUGE: u32 = 512;

    /// Checks that the values are within their ranges.
    pub(crate) fn check(&self) -> Result<()> {
        if self.mem.is_some_and(|mib| !MEMORY.contains(&mib)) {
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
    Error::new(ErrorKind::InvalidArgument, message).with_operation("open engine").with_backend(NAME)
}

fn parse_addresses(text: &str) -> Result<BTreeSet<PciAddress>, String> {
    text.split('+').map(|one| one.parse().map_err(|e: Error| format!("`{one}`: {}", e.hint()))).collect()
}

/// Formats a set of CPUs for SPDK, without the brackets: `0,2-3`.
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

/// Parses a set of CPUs: a mask such as `0x3`, or a list such as `0+2-3`.
fn parse_cores(text: &str) -> Result<BTreeSet<u32>, &'static str> {
    cores(text).ok_or("give a mask such as 0x3, or a list such as 0+2-3")
}

fn cores(text: &str) -> Option<BTreeSet<u32>> {
    let mut cores = BTreeSet::new();
    if let Some(mask) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        for (at, digit) in mask.bytes().rev().enumerate() {
            let digit = char::from(digit).to_digit(16)?;
            let first = u32::try_from(at).ok()?.checked_mul(4)?;
            cores.extend((0..4).filter(|bit| digit >> bit & 1 == 1).map(|bit| first + bit));
        }
    } else {
        for part in text.split('+') {
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

    fn options(name: &str) -> Result<IoatOptions> {
        IoatOptions::from_name(&name.parse().unwrap())
    }

    #[test]
    fn names_set_every_option() {
        let name = "ioat:00:04.1,lib=/opt/spdk/lib,cores=0x15,mem=256,huge=off,allow=00:04.1+0000:80:04.0,env=external";
        let read = options(name).unwrap();
        let address = |text: &str| text.parse::<PciAddress>().unwrap();
        let expected = IoatOptions::new()
            .with_address(address("00:04.1"))
            .with_lib_dir("/opt/spdk/lib")
            .with_cores([0, 2, 4])
            .with_mem(256)
            .with_huge(HugePages::Off)
            .with_allow([address("00:04.1"), address("80:04.0")])
            .with_env(EnvSetup::External);
        assert_eq!(format!("{read:?}"), format!("{expected:?}"));
        read.check().unwrap();
    }

    #[test]
    fn bad_options_are_named() {
        for (name, says) in [
            ("ioat:depth=1", "there are: lib, cores"),
            ("ioat:mem=1G", "a whole number from 1"),
            ("ioat:huge=yes", "auto, on, off"),
            ("ioat:cores=", "mask"),
            ("ioat:cores=0x", "mask"),
            ("ioat:cores=3-1", "mask"),
            ("ioat:cores=99999999", "mask"),
            ("ioat:cores=0xz", "mask"),
            ("ioat:allow=", "DDDD:BB:DD.F"),
            ("ioat:allow=00:04.0+4.1", "`4.1`"),
            ("ioat:4.0", "PCI address"),
            ("ioat:lib=", "path"),
            ("ioat:env=mine", "external"),
        ] {
            let error = options(name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains(says), "{name}: {error}");
        }
        assert_eq!(options("ioat:mem=0").unwrap_err().kind(), ErrorKind::OutOfRange);
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
        assert_eq!(round("3+2+0"), "0,2-3");
        assert_eq!(round("7+0-2+3"), "0-3,7");
        assert_eq!(round("0x8000000000000000000000"), "87");
    }
}
