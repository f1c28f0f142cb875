//! [`PciAddress`]: where a channel is.

use std::fmt;
use std::str::FromStr;

use dma_core::{Error, ErrorKind, Result};
use spdk_sys::bindings::spdk_pci_addr;

/// The PCI address of an I/OAT function, which is one channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PciAddress {
    /// 0 on most machines.
    pub domain: u32,
    /// The bus.
    pub bus: u8,
    /// The device, below 32.
    pub device: u8,
    /// The function, below 8.
    pub function: u8,
}

impl PciAddress {
    pub(crate) const fn of_native(native: &spdk_pci_addr) -> Self {
        Self { domain: native.domain, bus: native.bus, device: native.dev, function: native.func }
    }

    pub(crate) const fn to_native(self) -> spdk_pci_addr {
        spdk_pci_addr { domain: self.domain, bus: self.bus, dev: self.device, func: self.function }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (rest, function) = text.rsplit_once('.')?;
        let mut parts = rest.rsplit(':');
        let (device, bus, domain) = (parts.next()?, parts.next()?, parts.next());
        let hex = |text: &str, digits: std::ops::RangeInclusive<usize>| {
            let well_formed = digits.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
            well_formed.then(|| u32::from_str_radix(text, 16).ok()).flatten()
        };
        let address = Self {
            // The kernel numbers domains of virtual bridges with more than four digits.
            domain: domain.map_or(Some(0), |domain| hex(domain, 4..=8))?,
            bus: u8::try_from(hex(bus, 2..=2)?).ok()?,
            device: u8::try_from(hex(device, 2..=2)?).ok()?,
            function: u8::try_from(hex(function, 1..=1)?).ok()?,
        };
        (parts.next().is_none() && address.device < 32 && address.function < 8).then_some(address)
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

impl FromStr for PciAddress {
    type Err = Error;

    /// Reads `DDDD:BB:DD.F` or `BB:DD.F`, in hexadecimal.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for anything else.
    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text).ok_or_else(|| {
            Error::new(ErrorKind::InvalidArgument, format!("`{text}` is no PCI address"))
                .with_backend(crate::BACKEND)
                .with_hint("write it as DDDD:BB:DD.F or BB:DD.F, such as 0000:00:04.0 or 00:04.0")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        for (text, canonical) in [
            ("0000:00:04.0", "0000:00:04.0"),
            ("00:04.7", "0000:00:04.7"),
            ("10000:e1:1f.3", "10000:e1:1f.3"),
            ("000A:Ff:00.0", "000a:ff:00.0"),
        ] {
            assert_eq!(text.parse::<PciAddress>().unwrap().to_string(), canonical);
        }
        for text in ["", "04.0", "00:04", "00:20.0", "00:04.8", "0:04.0", "x:00:04.0", "0:0:0:0.0", "+0:04.0"]
        {
            let error = text.parse::<PciAddress>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{text}");
        }
    }
}
