//! `doca_dev.h`, but for representors: the devices that there are, and those that are open.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::ffi::c_char;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::card::Card;
use crate::config::{self, FunctionConfig, Kind, Side};
use crate::door::{Code, Handle, INVALID, Mark, Object, Out, Outcome, Text, answer, c, require};
use crate::list::Lists;
use crate::pci;

/// What can be asked of a PCI function: `struct doca_devinfo`.
pub(crate) struct Info {
    mark: Mark,
    pub(crate) card: Arc<Card>,
    /// Which of the card's functions.
    pub(crate) index: usize,
    /// The device, if it is open, and how many times.
    open: Mutex<Option<(Arc<Dev>, u32)>>,
}

impl Object for Info {
    const MARK: u32 = 0xde_01_00_01;

    fn mark(&self) -> &Mark {
        &self.mark
    }
}

impl Info {
    pub(crate) fn new(card: Arc<Card>, index: usize) -> Self {
        Self { mark: Mark::new(Self::MARK), card, index, open: Mutex::new(None) }
    }

    pub(crate) fn function(&self) -> &FunctionConfig {
        &self.card.config.function[self.index]
    }

    fn opened(&self) -> MutexGuard<'_, Option<(Arc<Dev>, u32)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(self: &Arc<Self>) -> *const Dev {
        let mut open = self.opened();
        let (dev, times) = open
            .get_or_insert_with(|| (Arc::new(Dev { mark: Mark::new(Dev::MARK), info: Arc::clone(self) }), 0));
        *times += 1;
        Arc::as_ptr(dev)
    }
}

/// An open device: `struct doca_dev`. Its info holds it, until it is closed as often as it was opened.
pub(crate) struct Dev {
    mark: Mark,
    pub(crate) info: Arc<Info>,
}

impl Object for Dev {
    const MARK: u32 = 0xde_02_00_01;

    fn mark(&self) -> &Mark {
        &self.mark
    }
}

impl Dev {
    pub(crate) fn card(&self) -> &Arc<Card> {
        &self.info.card
    }

    pub(crate) fn function(&self) -> &FunctionConfig {
        self.info.function()
    }

    fn close(self: Arc<Self>) -> Outcome {
        let mut open = self.info.opened();
        let (dev, times) = open.as_mut().ok_or(INVALID)?;
        if *times == 1 {
            // Beside the info and this call, somebody else has it: a memory map or a context.
            require(Arc::strong_count(dev) == 2, c::DOCA_ERROR_IN_USE)?;
            dev.mark.wipe();
            *open = None;
        } else {
            *times -= 1;
        }
        Ok(())
    }
}

static LISTS: Lists<Info> = Lists::new();

/// Lists the devices. On `BAD_CONFIG` a line on the standard error output says what is wrong with the configuration.
#[unsafe(no_mangle)]
extern "C" fn doca_devinfo_create_list(dev_list: Out<*const Handle<Info>>, nb_devs: Out<u32>) -> Code {
    answer(|| {
        dev_list.check()?;
        nb_devs.check()?;
        let world = config::world().map_err(|error| {
            eprintln!("DOCA stand-in: {error}");
            c::DOCA_ERROR_BAD_CONFIG
        })?;
        nb_devs.put(world.infos.len() as u32)?;
        dev_list.put(LISTS.create(world.infos.clone()))
    })
}

/// Destroys a list. Open devices stay.
#[unsafe(no_mangle)]
extern "C" fn doca_devinfo_destroy_list(dev_list: *const Handle<Info>) -> Code {
    answer(|| LISTS.destroy(dev_list))
}

/// Opens a device, or counts that it was opened once more.
#[unsafe(no_mangle)]
extern "C" fn doca_dev_open(devinfo: Handle<Info>, dev: Out<*const Dev>) -> Code {
    answer(|| {
        dev.check()?;
        dev.put(devinfo.arc()?.open())
    })
}

/// Closes a device that was opened once, or counts. NULL is nothing to close, which NVIDIA's samples rely on.
#[unsafe(no_mangle)]
extern "C" fn doca_dev_close(dev: Handle<Dev>) -> Code {
    answer(|| if dev.is_null() { Ok(()) } else { dev.arc()?.close() })
}

/// Nothing to reclaim here.
#[unsafe(no_mangle)]
extern "C" fn doca_dev_accelerate_resource_reclaim(dev: Handle<Dev>) -> Code {
    answer(|| {
        dev.get()?;
        Err(c::DOCA_ERROR_NOT_SUPPORTED)
    })
}

/// What can be asked of an open device, or NULL.
#[unsafe(no_mangle)]
extern "C" fn doca_dev_as_devinfo(dev: Handle<Dev>) -> *const Info {
    dev.get().map_or(std::ptr::null(), |dev| Arc::as_ptr(&dev.info))
}

/// The address, as `0000:03:00.0`.
#[unsafe(no_mangle)]
extern "C" fn doca_devinfo_get_pci_addr_str(devinfo: Handle<Info>, pci_addr_str: Out<c_char>) -> Code {
    answer(|| pci_addr_str.text(&devinfo.get()?.function().pci, c::DOCA_DEVINFO_PCI_ADDR_SIZE as usize))
}

/// Whether an address, as `0000:03:00.0` or `03:00.0`, is the device's.
#[unsafe(no_mangle)]
extern "C" fn doca_devinfo_is_equal_pci_addr(
    devinfo: Handle<Info>,
    pci_addr_str: Text,
    is_equal: Out<u8>,
) -> Code {
    answer(|| {
        let address = pci::whole(pci_addr_str.str()?).ok_or(INVALID)?;
        is_equal.put((devinfo.get()?.function().pci == address).into())
    })
}

/// The IPv4 address; `NOT_FOUND` if there is none.
#[unsafe(no_mangle)]
extern "C" fn doca_devinfo_get_ipv4_addr(devinfo: Handle<Info>, ipv4_addr: Out<u8>, size: u32) -> Code {
    answer(|| {
        ipv4_addr.check()?;
        let address = devinfo.get()?.function().ipv4.ok_or(c::DOCA_ERROR_NOT_FOUND)?;
        ipv4_addr.fill(&address.octets(), size as usize)
    })
}

/// The IPv6 address; `OPERATING_SYSTEM` if there is none.
#[unsafe(no_mangle)]
extern "C" fn doca_devinfo_get_ipv6_addr(devinfo: Handle<Info>, ipv6_addr: Out<u8>, size: u32) -> Code {
    answer(|| {
        ipv6_addr.check()?;
        let address = devinfo.get()?.function().ipv6.ok_or(c::DOCA_ERROR_OPERATING_SYSTEM)?;
        ipv6_addr.fill(&address.octets(), size as usize)
    })
}

/// The MAC address; `NOT_SUPPORTED` if the port is InfiniBand.
#[unsafe(no_mangle)]
extern "C" fn doca_devinfo_get_mac_addr(devinfo: Handle<Info>, mac_addr: Out<u8>, size: u32) -> Code {
    answer(|| {
        mac_addr.check()?;
        let function = devinfo.get()?.function();
        let address = function.mac.filter(|_| function.lid.is_none()).ok_or(c::DOCA_ERROR_NOT_SUPPORTED)?;
        mac_addr.fill(&address, size as usize)
    })
}

/// The network interface's name; `OPERATING_SYSTEM` if there is none.
#[unsafe(no_mangle)]
extern "C" fn doca_devinfo_get_iface_name(devinfo: Handle<Info>, iface_name: Out<c_char>, size: u32) -> Code {
    answer(|| {
        let name = devinfo.get()?.function().iface.as_deref().ok_or(c::DOCA_ERROR_OPERATING_SYSTEM)?;
        require(size >= c::DOCA_DEVINFO_IFACE_NAME_SIZE, INVALID)?;
        iface_name.text(name, size as usize)
    })
}

/// The RDMA device's name.
#[unsafe(no_mangle)]
extern "C" fn doca_devinfo_get_ibdev_name(devinfo: Handle<Info>, ibdev_name: Out<c_char>, size: u32) -> Code {
    answer(|| {
        let name = devinfo.get()?.function().ibdev.as_deref().ok_or(c::DOCA_ERROR_OPERATING_SYSTEM)?;
        require(size >= c::DOCA_DEVINFO_IBDEV_NAME_SIZE, INVALID)?;
        ibdev_name.text(name, size as usize)
    })
}

/// The LID; `NOT_SUPPORTED` unless the port is InfiniBand.
#[unsafe(no_mangle)]
extern "C" fn doca_devinfo_get_lid(devinfo: Handle<Info>, lid: Out<u16>) -> Code {
    answer(|| {
        lid.check()?;
        lid.put(devinfo.get()?.function().lid.ok_or(c::DOCA_ERROR_NOT_SUPPORTED)?)
    })
}

/// The port's rate in bits a second.
#[unsafe(no_mangle)]
extern "C" fn doca_devinfo_get_active_rate(devinfo: Handle<Info>, active_rate: Out<u64>) -> Code {
    answer(|| active_rate.put(devinfo.get()?.function().rate.saturating_mul(1_000_000_000)))
}

/// The number that the card has the function under.
#[unsafe(no_mangle)]
extern "C" fn doca_devinfo_get_vhca_id(devinfo: Handle<Info>, vhca_id: Out<u16>) -> Code {
    answer(|| {
        let info = devinfo.get()?;
        vhca_id.put(info.function().vhca_id.unwrap_or(info.index as u16))
    })
}

/// PF, VF or SF.
#[unsafe(no_mangle)]
extern "C" fn doca_devinfo_get_pci_func_type(
    devinfo: Handle<Info>,
    pci_func_type: Out<c::doca_pci_func_type>,
) -> Code {
    answer(|| pci_func_type.put(native_kind(devinfo.get()?.function().kind)))
}

pub(crate) fn native_kind(kind: Kind) -> c::doca_pci_func_type {
    match kind {
        Kind::Pf => c::DOCA_PCI_FUNC_TYPE_PF,
        Kind::Vf => c::DOCA_PCI_FUNC_TYPE_VF,
        Kind::Sf => c::DOCA_PCI_FUNC_TYPE_SF,
    }
}

/// The number of a sub-function; `NOT_SUPPORTED` if it is none.
#[unsafe(no_mangle)]
extern "C" fn doca_devinfo_get_sf_index(devinfo: Handle<Info>, sf_index: Out<u32>) -> Code {
    answer(|| {
        sf_index.check()?;
        let function = devinfo.get()?.function();
        sf_index.put(function.sf.filter(|_| function.kind == Kind::Sf).ok_or(c::DOCA_ERROR_NOT_SUPPORTED)?)
    })
}

/// No device plugs others.
#[unsafe(no_mangle)]
extern "C" fn doca_devinfo_cap_is_hotplug_manager_supported(
    devinfo: Handle<Info>,
    supported: Out<u8>,
) -> Code {
    answer(|| no(&devinfo, &supported))
}

/// No device moderates notifications.
#[unsafe(no_mangle)]
extern "C" fn doca_devinfo_cap_is_notification_moderation_supported(
    devinfo: Handle<Info>,
    supported: Out<u8>,
) -> Code {
    answer(|| no(&devinfo, &supported))
}

/// No device has resources to reclaim.
#[unsafe(no_mangle)]
extern "C" fn doca_devinfo_cap_is_accelerate_resource_reclaim_supported(
    devinfo: Handle<Info>,
    supported: Out<u8>,
) -> Code {
    answer(|| no(&devinfo, &supported))
}

fn no(devinfo: &Handle<Info>, supported: &Out<u8>) -> Outcome {
    devinfo.get()?;
    supported.put(0)
}

/// Only devices on the DPU list representors.
#[unsafe(no_mangle)]
extern "C" fn doca_devinfo_rep_cap_is_filter_all_supported(
    devinfo: Handle<Info>,
    supported: Out<u8>,
) -> Code {
    answer(|| supported.put((devinfo.get()?.function().side == Side::Dpu).into()))
}

/// Only devices on the DPU list representors.
#[unsafe(no_mangle)]
extern "C" fn doca_devinfo_rep_cap_is_filter_net_supported(
    devinfo: Handle<Info>,
    supported: Out<u8>,
) -> Code {
    answer(|| supported.put((devinfo.get()?.function().side == Side::Dpu).into()))
}

/// Only devices on the DPU whose card has emulated functions list those.
#[unsafe(no_mangle)]
extern "C" fn doca_devinfo_rep_cap_is_filter_emulated_supported(
    devinfo: Handle<Info>,
    supported: Out<u8>,
) -> Code {
    answer(|| {
        let info = devinfo.get()?;
        let emulated = info.card.config.function.iter().any(|function| function.emulated);
        supported.put((emulated && info.function().side == Side::Dpu).into())
    })
}

/// What no SDK has: says that this is the stand-in, and writes the profile that the device's card is a model of, with its source.
#[unsafe(no_mangle)]
extern "C" fn doca_emu_model(devinfo: Handle<Info>, model: Out<c_char>, size: u32) -> Code {
    answer(|| {
        let profile = &devinfo.get()?.card.config.profile;
        model.text(&format!("doca-emu, profile {} ({})", profile.name, profile.source), size as usize)
    })
}
