//! `doca_dev.h`, `doca_error.h` and `doca_version.h`.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::ffi::{c_char, c_int};

use crate::c_abi::{Code, Handle, INVALID, Out, Outcome, Text, c, older_calls, renamed};
use crate::config::FunctionConfig;
use crate::dev::{self, Dev, Info};
use crate::rep::{self, Rep, RepInfo};
use crate::{error, mmap, world};

renamed! {
    fn doca_devinfo_list_create(dev_list: Out<*const Handle<Info>>, nb_devs: Out<u32>)
        = world::doca_devinfo_create_list;
    fn doca_devinfo_list_destroy(dev_list: *const Handle<Info>) = world::doca_devinfo_destroy_list;
    fn doca_devinfo_rep_list_create(
        dev: Handle<Dev>, filter: c_int, list: Out<*const Handle<RepInfo>>, count: Out<u32>,
    ) = rep::doca_devinfo_rep_create_list;
    fn doca_devinfo_rep_list_destroy(list: *const Handle<RepInfo>) = rep::doca_devinfo_rep_destroy_list;
    fn doca_dev_open(devinfo: Handle<Info>, dev: Out<*const Dev>) = dev::doca_dev_open;
    fn doca_dev_close(dev: Handle<Dev>) = dev::doca_dev_close;
    fn doca_dev_rep_open(devinfo: Handle<RepInfo>, dev_rep: Out<Handle<Rep>>) = rep::doca_dev_rep_open;
    fn doca_dev_rep_close(dev: Handle<Rep>) = rep::doca_dev_rep_close;
    fn doca_dev_as_devinfo(dev: Handle<Dev>) -> *const Info = dev::doca_dev_as_devinfo;
    fn doca_dev_rep_as_devinfo(dev: Handle<Rep>) -> *const RepInfo = rep::doca_dev_rep_as_devinfo;
    fn doca_devinfo_get_pci_addr_str(devinfo: Handle<Info>, text: Out<c_char>)
        = dev::doca_devinfo_get_pci_addr_str;
    fn doca_devinfo_get_is_pci_addr_equal(devinfo: Handle<Info>, text: Text, equal: Out<u8>)
        = dev::doca_devinfo_is_equal_pci_addr;
    fn doca_devinfo_get_ipv4_addr(devinfo: Handle<Info>, address: Out<u8>, size: u32)
        = dev::doca_devinfo_get_ipv4_addr;
    fn doca_devinfo_get_ipv6_addr(devinfo: Handle<Info>, address: Out<u8>, size: u32)
        = dev::doca_devinfo_get_ipv6_addr;
    fn doca_devinfo_get_mac_addr(devinfo: Handle<Info>, address: Out<u8>, size: u32)
        = dev::doca_devinfo_get_mac_addr;
    fn doca_devinfo_get_iface_name(devinfo: Handle<Info>, name: Out<c_char>, size: u32)
        = dev::doca_devinfo_get_iface_name;
    fn doca_devinfo_get_ibdev_name(devinfo: Handle<Info>, name: Out<c_char>, size: u32)
        = dev::doca_devinfo_get_ibdev_name;
    fn doca_devinfo_get_lid(devinfo: Handle<Info>, lid: Out<u16>) = dev::doca_devinfo_get_lid;
    fn doca_devinfo_get_is_mmap_export_supported(devinfo: Handle<Info>, can: Out<u8>)
        = mmap::calls::doca_mmap_cap_is_export_pci_supported;
    fn doca_devinfo_get_is_mmap_export_dpu_supported(devinfo: Handle<Info>, can: Out<u8>)
        = mmap::calls::doca_mmap_cap_is_export_pci_supported;
    fn doca_devinfo_get_is_mmap_from_export_supported(devinfo: Handle<Info>, can: Out<u8>)
        = mmap::calls::doca_mmap_cap_is_create_from_export_pci_supported;
    fn doca_devinfo_get_is_mmap_from_export_dpu_supported(devinfo: Handle<Info>, can: Out<u8>)
        = mmap::calls::doca_mmap_cap_is_create_from_export_pci_supported;
    fn doca_devinfo_rep_get_is_list_all_supported(devinfo: Handle<Info>, can: Out<u8>)
        = dev::doca_devinfo_rep_cap_is_filter_all_supported;
    fn doca_devinfo_rep_get_is_list_net_supported(devinfo: Handle<Info>, can: Out<u8>)
        = dev::doca_devinfo_rep_cap_is_filter_net_supported;
    fn doca_devinfo_rep_get_vuid(rep: Handle<RepInfo>, vuid: Out<c_char>, size: u32)
        = rep::doca_devinfo_rep_get_vuid;
    fn doca_devinfo_rep_get_pci_func_type(rep: Handle<RepInfo>, kind: Out<c::doca_pci_func_type>)
        = rep::doca_devinfo_rep_get_pci_func_type;
    fn doca_devinfo_rep_get_pci_addr_str(rep: Handle<RepInfo>, text: Out<c_char>)
        = rep::doca_devinfo_rep_get_pci_addr_str;
    fn doca_devinfo_rep_get_is_pci_addr_equal(rep: Handle<RepInfo>, text: Text, equal: Out<u8>)
        = rep::doca_devinfo_rep_is_equal_pci_addr;
    fn doca_get_error_name(error: Code) -> *const c_char = error::doca_error_get_name;
    fn doca_get_error_string(error: Code) -> *const c_char = error::doca_error_get_descr;
    fn doca_version_runtime() -> *const c_char = world::doca_version_runtime;
    fn doca_emu_model(devinfo: Handle<Info>, model: Out<c_char>, size: u32) = dev::doca_emu_model;
}

/// The bus in the lowest 8 bits, the device in 5 above, the function in 3.
fn bdf(function: &FunctionConfig) -> Outcome<u16> {
    let part = |at: std::ops::Range<usize>| {
        function.pci.get(at).and_then(|digits| u16::from_str_radix(digits, 16).ok()).ok_or(INVALID)
    };
    Ok(part(5..7)? | part(8..10)? << 8 | part(11..12)? << 13)
}

older_calls! {
    fn doca_devinfo_get_pci_addr(devinfo: Handle<Info>, pci_addr: Out<u16>) {
        pci_addr.make(|| bdf(devinfo.get()?.function()))
    }
    fn doca_devinfo_rep_get_pci_addr(devinfo_rep: Handle<RepInfo>, pci_addr: Out<u16>) {
        pci_addr.make(|| bdf(devinfo_rep.get()?.function()))
    }
}
