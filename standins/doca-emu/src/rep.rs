//! `doca_dev.h`: representors, which stand for the host's functions on the DPU.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use crate::c_abi::{Handle, INVALID, Mark, Out, Text, c, c_calls, getters, object, require};
use crate::card::Card;
use crate::config::{FunctionConfig, Side, whole_address};
use crate::dev::{Dev, native_kind};
use crate::world::Lists;

/// A represented function: `struct doca_devinfo_rep`.
pub(crate) struct RepInfo {
    mark: Mark,
    card: Arc<Card>,
    index: usize,
}

object!(RepInfo, 0xde_03_00_01);

impl RepInfo {
    pub(crate) fn function(&self) -> &FunctionConfig {
        &self.card.config.function[self.index]
    }
}

/// An open representor: `struct doca_dev_rep`.
pub(crate) struct Rep {
    mark: Mark,
    pub(crate) info: Arc<RepInfo>,
}

object!(Rep, 0xde_04_00_01);

static LISTS: Lists<RepInfo> = Lists::new();

getters! {
    doca_devinfo_rep_get_pci_func_type(info: RepInfo) -> c::doca_pci_func_type {
        native_kind(info.function().kind)
    }
    doca_devinfo_rep_get_is_hotplug(info: RepInfo) -> u8 { info.function().hotplug.into() }
}

c_calls! {
    /// Lists the representors that pass a filter.
    fn doca_devinfo_rep_create_list | doca_devinfo_rep_list_create(
        dev: Handle<Dev>,
        filter: c_int,
        dev_list_rep: Out<*const Handle<RepInfo>>,
        nb_devs_rep: Out<u32>,
    ) {
        dev_list_rep.check()?;
        nb_devs_rep.check()?;
        let dev = dev.get()?;
        require(dev.function().side == Side::Dpu, c::DOCA_ERROR_NOT_SUPPORTED)?;
        let filter = c::doca_devinfo_rep_filter::try_from(filter).map_err(|_| INVALID)?;
        require(
            filter & !(c::DOCA_DEVINFO_REP_FILTER_NET | c::DOCA_DEVINFO_REP_FILTER_EMULATED) == 0,
            INVALID,
        )?;
        let wanted = |function: &FunctionConfig| match function.emulated {
            _ if filter == c::DOCA_DEVINFO_REP_FILTER_ALL => true,
            true => filter & c::DOCA_DEVINFO_REP_FILTER_EMULATED != 0,
            false => filter & c::DOCA_DEVINFO_REP_FILTER_NET != 0,
        };
        let card = dev.card();
        let reps: Vec<_> = (card.config.function.iter().enumerate())
            .filter(|(_, function)| function.is_represented() && wanted(function))
            .map(|(index, _)| {
                Arc::new(RepInfo { mark: Mark::of::<RepInfo>(), card: Arc::clone(card), index })
            })
            .collect();
        nb_devs_rep.put(reps.len() as u32)?;
        dev_list_rep.put(LISTS.create(reps))
    }
    /// Destroys a list. Open representors stay valid.
    fn doca_devinfo_rep_destroy_list
        | doca_devinfo_rep_list_destroy(dev_list_rep: *const Handle<RepInfo>) { LISTS.destroy(dev_list_rep) }
    fn doca_dev_rep_open(devinfo: Handle<RepInfo>, dev_rep: Out<Handle<Rep>>) {
        dev_rep.check()?;
        let rep = Rep { mark: Mark::of::<Rep>(), info: devinfo.arc()? };
        dev_rep.put(Handle::give_arc(Arc::new(rep)))
    }
    /// Closes a representor. Returns `IN_USE` while a comm channel server uses the representor.
    fn doca_dev_rep_close(dev_rep: Handle<Rep>) {
        require(Arc::strong_count(&dev_rep.arc()?) == 2, c::DOCA_ERROR_IN_USE)?;
        dev_rep.take_arc().map(drop)
    }
    fn doca_dev_rep_as_devinfo(dev_rep: Handle<Rep>) -> *const RepInfo {
        dev_rep.get().map_or(std::ptr::null(), |rep| Arc::as_ptr(&rep.info))
    }
    /// Writes the function's unique name.
    fn doca_devinfo_rep_get_vuid(devinfo_rep: Handle<RepInfo>, vuid: Out<c_char>, size: u32) {
        let text = devinfo_rep.get()?.function().vuid.as_deref().unwrap_or_default();
        // SAFETY: C passes the size of its array beside it.
        unsafe { vuid.text(text, size as usize) }
    }
    /// Writes the PCI address, such as `0000:3b:00.0`.
    fn doca_devinfo_rep_get_pci_addr_str(devinfo_rep: Handle<RepInfo>, pci_addr_str: Out<c_char>) {
        let address = &devinfo_rep.get()?.function().pci;
        // SAFETY: the reference requires an array of this size from the program.
        unsafe { pci_addr_str.text(address, c::DOCA_DEVINFO_REP_PCI_ADDR_SIZE as usize) }
    }
    /// Writes the name of the network interface that represents the function on the DPU.
    fn doca_devinfo_rep_get_iface_name(devinfo_rep: Handle<RepInfo>, iface_name: Out<c_char>, size: u32) {
        let info = devinfo_rep.get()?;
        require(size >= c::DOCA_DEVINFO_IFACE_NAME_SIZE, INVALID)?;
        require(!info.function().emulated, c::DOCA_ERROR_NOT_SUPPORTED)?;
        // SAFETY: C passes the size of its array beside it.
        unsafe { iface_name.text(&format!("pf{}hpf", info.index), size as usize) }
    }
    fn doca_devinfo_rep_get_vhca_id(devinfo_rep: Handle<RepInfo>, vhca_id: Out<u16>) {
        let info = devinfo_rep.get()?;
        vhca_id.put(info.function().vhca_id.unwrap_or(info.index as u16))
    }
    /// Compares the PCI address with an address such as `0000:3b:00.0` or `3b:00.0`.
    fn doca_devinfo_rep_is_equal_pci_addr | doca_devinfo_rep_get_is_pci_addr_equal(
        devinfo_rep: Handle<RepInfo>,
        pci_addr_str: Text,
        is_equal: Out<u8>,
    ) {
        let address = whole_address(pci_addr_str.str()?).ok_or(INVALID)?;
        is_equal.put((devinfo_rep.get()?.function().pci == address).into())
    }
}
