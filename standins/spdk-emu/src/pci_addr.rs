//! PCI addresses: parsing, formatting, comparing.
#![expect(unsafe_code, reason = "the names are C's")]

use std::cmp::Ordering;
use std::ffi::{c_char, c_int};

use crate::c_abi::{Ptr, Text, c, c_calls};
use c::spdk_pci_addr;

/// Parses `DDDD:BB:DD.F`, `DDDD:BB:DD`, `BB:DD.F` or `BB:DD`. All forms except the second may also have dots
/// instead of colons.
pub(crate) fn parse(text: &str) -> Option<spdk_pci_addr> {
    let parts: Vec<_> = text.split([':', '.']).collect();
    let separators: String = text.chars().filter(|c| matches!(c, ':' | '.')).collect();
    let (domain, rest, func) = match (separators.as_str(), parts.as_slice()) {
        ("::." | "...", &[domain, bus, dev, func]) => (domain, [bus, dev], func),
        ("::", &[domain, bus, dev]) => (domain, [bus, dev], "0"),
        (":." | "..", &[bus, dev, func]) => ("0", [bus, dev], func),
        (":" | ".", &[bus, dev]) => ("0", [bus, dev], "0"),
        _ => return None,
    };
    let number = |text: &str, most: u32| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        u32::from_str_radix(text, 16).ok().filter(|number| digits && *number <= most)
    };
    Some(spdk_pci_addr {
        domain: number(domain, u32::MAX)?,
        bus: number(rest[0], 0xff)? as u8,
        dev: number(rest[1], 0x1f)? as u8,
        func: number(func, 7)? as u8,
    })
}

pub(crate) fn format(addr: &spdk_pci_addr) -> String {
    format!("{:04x}:{:02x}:{:02x}.{:x}", addr.domain, addr.bus, addr.dev, addr.func)
}

pub(crate) fn compare(a: &spdk_pci_addr, b: &spdk_pci_addr) -> Ordering {
    let key = |addr: &spdk_pci_addr| (addr.domain, addr.bus, addr.dev, addr.func);
    key(a).cmp(&key(b))
}

c_calls! {
    fn spdk_pci_addr_parse(addr: Ptr<spdk_pci_addr>, bdf: Text) -> c_int {
        match bdf.utf8().and_then(parse) {
            Some(parsed) if !addr.is_null() => {
                addr.put(parsed);
                0
            }
            _ => -libc::EINVAL,
        }
    }

    fn spdk_pci_addr_fmt(bdf: Ptr<c_char>, size: usize, addr: Ptr<spdk_pci_addr>) -> c_int {
        match addr.get() {
            // SAFETY: C promises room for `size` bytes.
            Some(addr) if unsafe { bdf.put_text(size, &format(addr)) } => 0,
            _ => -1,
        }
    }

    fn spdk_pci_addr_compare(a: Ptr<spdk_pci_addr>, b: Ptr<spdk_pci_addr>) -> c_int {
        match (a.get(), b.get()) {
            (Some(a), Some(b)) => compare(a, b) as c_int,
            (a, b) => c_int::from(a.is_some()) - c_int::from(b.is_some()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        for (text, whole) in [
            ("0000:00:04.0", "0000:00:04.0"),
            ("00:04.7", "0000:00:04.7"),
            ("1:80:1f.3", "0001:80:1f.3"),
            ("0000:80:04", "0000:80:04.0"),
            ("80:04", "0000:80:04.0"),
            ("0000.80.04.2", "0000:80:04.2"),
        ] {
            assert_eq!(parse(text).map(|addr| format(&addr)).as_deref(), Some(whole), "{text}");
        }
        for text in [
            "",
            "4",
            "0000:00:04.8",
            "0000:00:20.0",
            "0000:100:04.0",
            "x:y",
            "00:04.0.0",
            "-1:0",
            "00.04:0",
            "+1:2",
            "0:0:4:1",
        ] {
            assert!(parse(text).is_none(), "{text}");
        }
    }
}
