//! [`PciAddress`]: the address of a device.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::contract::error::{Error, ErrorKind, Result};

/// The PCI address of a device's function.
///
/// The notation is `DDDD:BB:DD.F` or, in domain 0, `BB:DD.F`, in hexadecimal. `Display` writes the first
/// form, which is the kernel's notation (`lspci -D`).
///
/// ```
/// use dma_core::PciAddress;
///
/// let address: PciAddress = "3b:00.1".parse()?;
/// assert_eq!(address, "0000:3B:00.1".parse()?);
/// assert_eq!(address.to_string(), "0000:3b:00.1");
/// # Ok::<(), dma_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PciAddress {
    /// The domain, which is 0 on most machines. Domains of virtual bridges have five to eight digits.
    pub domain: u32,
    /// The bus.
    pub bus: u8,
    /// The device, below 32.
    pub device: u8,
    /// The function, below 8.
    pub function: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

impl FromStr for PciAddress {
    type Err = Error;

    /// Parses `DDDD:BB:DD.F` or `BB:DD.F`. Letters may be in upper or lower case, and the domain may have up
    /// to eight digits.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for anything else.
    fn from_str(text: &str) -> Result<Self> {
        parse(text).ok_or_else(|| {
            Error::new(ErrorKind::InvalidArgument, format!("`{text}` is not a PCI address"))
                .with_hint("write it as DDDD:BB:DD.F or BB:DD.F, such as 0000:03:00.0 or 03:00.0")
        })
    }
}

fn parse(text: &str) -> Option<PciAddress> {
    let hex = |text: &str, digits: RangeInclusive<usize>| {
        let well_formed = digits.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
        well_formed.then(|| u32::from_str_radix(text, 16).ok()).flatten()
    };
    let byte = |text: &str, digits: usize| hex(text, digits..=digits).and_then(|n| u8::try_from(n).ok());
    let (rest, function) = text.rsplit_once('.')?;
    let mut parts = rest.rsplit(':');
    let (device, bus, domain) = (parts.next()?, parts.next()?, parts.next());
    let address = PciAddress {
        domain: domain.map_or(Some(0), |domain| hex(domain, 4..=8))?,
        bus: byte(bus, 2)?,
        device: byte(device, 2)?,
        function: byte(function, 1)?,
    };
    (parts.next().is_none() && address.device < 32 && address.function < 8).then_some(address)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_spellings_are_read() {
        for (text, canonical) in [
            ("0000:00:04.0", "0000:00:04.0"),
            ("00:04.7", "0000:00:04.7"),
            ("10000:e1:1f.3", "10000:e1:1f.3"),
            ("ffffFFFF:ff:1f.7", "ffffffff:ff:1f.7"),
            ("000A:Ff:00.0", "000a:ff:00.0"),
        ] {
            assert_eq!(text.parse::<PciAddress>().unwrap().to_string(), canonical);
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "04.0",
            "00:04",
            "03:00.0 ",
            "00:20.0",
            "00:04.8",
            "0:04.0",
            "000:00:04.0",
            "123456789:00:04.0",
            "x:00:04.0",
            "0:0:0:0.0",
            "+0:04.0",
            ":00:04.0",
            "0000:00:04.00",
            "éé:00.0",
        ] {
            let error = text.parse::<PciAddress>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{text}");
            assert!(error.hint().contains("DDDD:BB:DD.F"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn a_printed_address_parses_to_itself(domain: u32, bus: u8, device in 0_u8..32, function in 0_u8..8) {
            let address = PciAddress { domain, bus, device, function };
            prop_assert_eq!(address.to_string().parse::<PciAddress>().unwrap(), address);
            let short = PciAddress { domain: 0, ..address };
            prop_assert_eq!(short.to_string()[5..].parse::<PciAddress>().unwrap(), short);
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = text.parse::<PciAddress>();
        }
    }
}
