//! `doca_dev.h`: the calls that later versions lack.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use crate::c_abi::{Handle, INVALID, Out, Outcome, c_calls};
use crate::config::FunctionConfig;
use crate::dev::Info;
use crate::rep::RepInfo;

/// The bus in the lowest 8 bits, the device in 5 above, the function in 3.
fn bdf(function: &FunctionConfig) -> Outcome<u16> {
    let part = |at: std::ops::Range<usize>| {
        function.pci.get(at).and_then(|digits| u16::from_str_radix(digits, 16).ok()).ok_or(INVALID)
    };
    Ok(part(5..7)? | part(8..10)? << 8 | part(11..12)? << 13)
}

c_calls! {
    fn doca_devinfo_get_pci_addr(devinfo: Handle<Info>, pci_addr: Out<u16>) {
        pci_addr.make(|| bdf(devinfo.get()?.function()))
    }
    fn doca_devinfo_rep_get_pci_addr(devinfo_rep: Handle<RepInfo>, pci_addr: Out<u16>) {
        pci_addr.make(|| bdf(devinfo_rep.get()?.function()))
    }
}
