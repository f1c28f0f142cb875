//! `doca_dev.h`: representors, by which the DPU knows the host's functions.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use crate::card::Card;
use crate::config::{FunctionConfig, Side};
use crate::dev::{Dev, native_kind};
use crate::door::{Code, Handle, INVALID, Mark, Object, Out, Text, answer, c, require};
use crate::list::Lists;
use crate::pci;

/// What can be asked of a representor: `struct doca_devinfo_rep`.
pub(crate) struct RepInfo {
    mark: Mark,
    card: Arc<Card>,
    index: usize,
}

impl Object for RepInfo {
    const MARK: u32 = 0xde_03_00_01;

    fn mark(&self) -> &Mark {
        &self.mark
    }
}

impl RepInfo {
    /// The function that is represented.
    pub(crate) fn function(&self) -> &FunctionConfig {
        &self.card.config.function[self.index]
    }
}

/// An open representor: `struct doca_dev_rep`.
pub(crate) struct Rep {
    mark: Mark,
    pub(crate) info: Arc<RepInfo>,
}

impl Object for Rep {
    const MARK: u32 = 0xde_04_00_01;

    fn mark(&self) -> &Mark {
        &self.mark
    }
}

static LISTS: Lists<RepInfo> = Lists::new();

/// Lists the representors that pass a filter.
#[unsafe(no_mangle)]
extern "C" fn doca_devinfo_rep_create_list(
    dev: Handle<Dev>,
    filter: c_int,
    dev_list_rep: Out<*const Handle<RepInfo>>,
    nb_devs_rep: Out<u32>,
) -> Code {
    answer(|| {
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
                Arc::new(RepInfo { mark: Mark::new(RepInfo::MARK), card: Arc::clone(card), index })
            })
            .collect();
        nb_devs_rep.put(reps.len() as u32)?;
        dev_list_rep.put(LISTS.create(reps))
    })
}

/// Destroys a list. Open representors stay.
#[unsafe(no_mangle)]
extern "C" fn doca_devinfo_rep_destroy_list(dev_list_rep: *const Handle<RepInfo>) -> Code {
    answer(|| LISTS.destroy(dev_list_rep))
}

/// Opens a representor.
#[unsafe(no_mangle)]
extern "C" fn doca_dev_rep_open(devinfo: Handle<RepInfo>, dev_rep: Out<Handle<Rep>>) -> Code {
    answer(|| {
        dev_rep.check()?;
        let rep = Rep { mark: Mark::new(Rep::MARK), info: devinfo.arc()? };
        dev_rep.put(Handle::give_arc(Arc::new(rep)))
    })
}

/// Closes a representor.
#[unsafe(no_mangle)]
extern "C" fn doca_dev_rep_close(dev_rep: Handle<Rep>) -> Code {
    answer(|| {
        // A comm channel server has it.
        require(Arc::strong_count(&dev_rep.arc()?) == 2, c::DOCA_ERROR_IN_USE)?;
        dev_rep.take_arc().map(drop)
    })
}

/// What can be asked of an open representor, or NULL.
#[unsafe(no_mangle)]
extern "C" fn doca_dev_rep_as_devinfo(dev_rep: Handle<Rep>) -> *const RepInfo {
    dev_rep.get().map_or(std::ptr::null(), |rep| Arc::as_ptr(&rep.info))
}

/// The unique name of the function.
#[unsafe(no_mangle)]
extern "C" fn doca_devinfo_rep_get_vuid(devinfo_rep: Handle<RepInfo>, vuid: Out<c_char>, size: u32) -> Code {
    answer(|| vuid.text(devinfo_rep.get()?.function().vuid.as_deref().unwrap_or_default(), size as usize))
}

/// The address, as `0000:3b:00.0`.
#[unsafe(no_mangle)]
extern "C" fn doca_devinfo_rep_get_pci_addr_str(
    devinfo_rep: Handle<RepInfo>,
    pci_addr_str: Out<c_char>,
) -> Code {
    answer(|| {
        pci_addr_str.text(&devinfo_rep.get()?.function().pci, c::DOCA_DEVINFO_REP_PCI_ADDR_SIZE as usize)
    })
}

/// Whether an address, as `0000:3b:00.0` or `3b:00.0`, is the function's.
#[unsafe(no_mangle)]
extern "C" fn doca_devinfo_rep_is_equal_pci_addr(
    devinfo_rep: Handle<RepInfo>,
    pci_addr_str: Text,
    is_equal: Out<u8>,
) -> Code {
    answer(|| {
        let address = pci::whole(pci_addr_str.str()?).ok_or(INVALID)?;
        is_equal.put((devinfo_rep.get()?.function().pci == address).into())
    })
}

/// PF, VF or SF.
#[unsafe(no_mangle)]
extern "C" fn doca_devinfo_rep_get_pci_func_type(
    devinfo_rep: Handle<RepInfo>,
    pci_func_type: Out<c::doca_pci_func_type>,
) -> Code {
    answer(|| pci_func_type.put(native_kind(devinfo_rep.get()?.function().kind)))
}

/// Whether the function was plugged while the machine ran.
#[unsafe(no_mangle)]
extern "C" fn doca_devinfo_rep_get_is_hotplug(devinfo_rep: Handle<RepInfo>, is_hotplug: Out<u8>) -> Code {
    answer(|| is_hotplug.put(devinfo_rep.get()?.function().hotplug.into()))
}

/// The name of the network interface on the DPU that stands for the function.
#[unsafe(no_mangle)]
extern "C" fn doca_devinfo_rep_get_iface_name(
    devinfo_rep: Handle<RepInfo>,
    iface_name: Out<c_char>,
    size: u32,
) -> Code {
    answer(|| {
        let info = devinfo_rep.get()?;
        require(size >= c::DOCA_DEVINFO_IFACE_NAME_SIZE, INVALID)?;
        require(!info.function().emulated, c::DOCA_ERROR_NOT_SUPPORTED)?;
        iface_name.text(&format!("pf{}hpf", info.index), size as usize)
    })
}

/// The number that the card has the function under.
#[unsafe(no_mangle)]
extern "C" fn doca_devinfo_rep_get_vhca_id(devinfo_rep: Handle<RepInfo>, vhca_id: Out<u16>) -> Code {
    answer(|| {
        let info = devinfo_rep.get()?;
        vhca_id.put(info.function().vhca_id.unwrap_or(info.index as u16))
    })
}
