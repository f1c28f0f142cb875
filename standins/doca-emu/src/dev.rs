//! `doca_dev.h` without representors: the machine's devices, and open devices.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::ffi::c_char;
use std::sync::{Arc, Mutex};

use dma_process::lock;

use crate::c_abi::{Handle, INVALID, Mark, Out, Outcome, Text, c, c_calls, getters, object, require};
use crate::card::Card;
use crate::config::{FunctionConfig, FunctionKind, Side, whole_address};

/// A PCI function: `struct doca_devinfo`.
pub(crate) struct Info {
    mark: Mark,
    pub(crate) card: Arc<Card>,
    pub(crate) index: usize,
    open: Mutex<Option<(Arc<Dev>, u32)>>,
}

object!(Info, 0xde_01_00_01);

impl Info {
    pub(crate) fn new(card: Arc<Card>, index: usize) -> Self {
        Self { mark: Mark::of::<Self>(), card, index, open: Mutex::new(None) }
    }

    pub(crate) fn function(&self) -> &FunctionConfig {
        &self.card.config.function[self.index]
    }

    fn open(self: &Arc<Self>) -> *const Dev {
        let mut open = lock(&self.open);
        let (dev, times) = open
            .get_or_insert_with(|| (Arc::new(Dev { mark: Mark::of::<Dev>(), info: Arc::clone(self) }), 0));
        *times += 1;
        Arc::as_ptr(dev)
    }
}

/// An open device: `struct doca_dev`. Its [`Info`] keeps the device alive until it was closed as often as it
/// was opened.
pub(crate) struct Dev {
    mark: Mark,
    pub(crate) info: Arc<Info>,
}

object!(Dev, 0xde_02_00_01);

impl Dev {
    pub(crate) fn card(&self) -> &Arc<Card> {
        &self.info.card
    }

    pub(crate) fn function(&self) -> &FunctionConfig {
        self.info.function()
    }

    fn close(self: Arc<Self>) -> Outcome {
        let mut open = lock(&self.info.open);
        let (dev, times) = open.as_mut().ok_or(INVALID)?;
        if *times == 1 {
            // The `Info` and this call have one reference each. If there are more, a memory map or a context
            // uses the device.
            require(Arc::strong_count(dev) == 2, c::DOCA_ERROR_IN_USE)?;
            dev.mark.wipe();
            *open = None;
        } else {
            *times -= 1;
        }
        Ok(())
    }
}

pub(crate) fn native_kind(kind: FunctionKind) -> c::doca_pci_func_type {
    match kind {
        FunctionKind::Pf => c::DOCA_PCI_FUNC_TYPE_PF,
        FunctionKind::Vf => c::DOCA_PCI_FUNC_TYPE_VF,
        FunctionKind::Sf => c::DOCA_PCI_FUNC_TYPE_SF,
    }
}

fn no(devinfo: &Handle<Info>, supported: &Out<u8>) -> Outcome {
    devinfo.get()?;
    supported.put(0)
}

getters! {
    doca_mmap_cap_is_export_pci_supported
        | doca_devinfo_get_is_mmap_export_supported
        | doca_devinfo_get_is_mmap_export_dpu_supported(info: Info) -> u8 { info.function().export.into() }
    doca_mmap_cap_is_create_from_export_pci_supported
        | doca_devinfo_get_is_mmap_from_export_supported
        | doca_devinfo_get_is_mmap_from_export_dpu_supported(info: Info) -> u8 { info.function().import.into() }
    /// Writes the data rate of the port, in bits per second.
    doca_devinfo_get_active_rate(info: Info) -> u64 { info.function().rate.saturating_mul(1_000_000_000) }
    /// Writes 1 for devices on the DPU, which list representors, and 0 for others.
    doca_devinfo_rep_cap_is_filter_all_supported
        | doca_devinfo_rep_get_is_list_all_supported(info: Info) -> u8 {
        (info.function().side == Side::Dpu).into()
    }
    /// Writes 1 for devices on the DPU, which list representors, and 0 for others.
    doca_devinfo_rep_cap_is_filter_net_supported
        | doca_devinfo_rep_get_is_list_net_supported(info: Info) -> u8 {
        (info.function().side == Side::Dpu).into()
    }
    doca_devinfo_get_pci_func_type(info: Info) -> c::doca_pci_func_type { native_kind(info.function().kind) }
}

c_calls! {
    /// Opens a device. If the device is open already, counts the open and writes the same handle.
    fn doca_dev_open(devinfo: Handle<Info>, dev: Out<*const Dev>) { dev.make(|| Ok(devinfo.arc()?.open())) }
    /// Undoes one open of a device. The last call closes the device. Ignores NULL, because NVIDIA's samples
    /// rely on that.
    fn doca_dev_close(dev: Handle<Dev>) { if dev.is_null() { Ok(()) } else { dev.arc()?.close() } }
    /// Returns `NOT_SUPPORTED`, because there is nothing to reclaim.
    fn doca_dev_accelerate_resource_reclaim(dev: Handle<Dev>) {
        dev.get().and(Err(c::DOCA_ERROR_NOT_SUPPORTED))
    }
    fn doca_dev_as_devinfo(dev: Handle<Dev>) -> *const Info {
        dev.get().map_or(std::ptr::null(), |dev| Arc::as_ptr(&dev.info))
    }
    /// Writes the PCI address, such as `0000:03:00.0`.
    fn doca_devinfo_get_pci_addr_str(devinfo: Handle<Info>, pci_addr_str: Out<c_char>) {
        let address = &devinfo.get()?.function().pci;
        // SAFETY: the reference requires an array of this size from the program.
        unsafe { pci_addr_str.text(address, c::DOCA_DEVINFO_PCI_ADDR_SIZE as usize) }
    }
    /// Compares the PCI address with an address such as `0000:03:00.0` or `03:00.0`.
    fn doca_devinfo_is_equal_pci_addr
        | doca_devinfo_get_is_pci_addr_equal(devinfo: Handle<Info>, pci_addr_str: Text, is_equal: Out<u8>) {
        let address = whole_address(pci_addr_str.str()?).ok_or(INVALID)?;
        is_equal.put((devinfo.get()?.function().pci == address).into())
    }
    /// Writes the IPv4 address. Returns `NOT_FOUND` if the device has none.
    fn doca_devinfo_get_ipv4_addr(devinfo: Handle<Info>, ipv4_addr: Out<u8>, size: u32) {
        ipv4_addr.check()?;
        let address = devinfo.get()?.function().ipv4.ok_or(c::DOCA_ERROR_NOT_FOUND)?;
        // SAFETY: C passes the size of its array beside it.
        unsafe { ipv4_addr.fill(&address.octets(), size as usize) }
    }
    /// Writes the IPv6 address. Returns `OPERATING_SYSTEM` if the device has none.
    fn doca_devinfo_get_ipv6_addr(devinfo: Handle<Info>, ipv6_addr: Out<u8>, size: u32) {
        ipv6_addr.check()?;
        let address = devinfo.get()?.function().ipv6.ok_or(c::DOCA_ERROR_OPERATING_SYSTEM)?;
        // SAFETY: C passes the size of its array beside it.
        unsafe { ipv6_addr.fill(&address.octets(), size as usize) }
    }
    /// Writes the MAC address. Returns `NOT_SUPPORTED` if the port is InfiniBand, or the device has no MAC
    /// address.
    fn doca_devinfo_get_mac_addr(devinfo: Handle<Info>, mac_addr: Out<u8>, size: u32) {
        mac_addr.check()?;
        let function = devinfo.get()?.function();
        let address = function.mac.filter(|_| function.lid.is_none()).ok_or(c::DOCA_ERROR_NOT_SUPPORTED)?;
        // SAFETY: C passes the size of its array beside it.
        unsafe { mac_addr.fill(&address, size as usize) }
    }
    /// Writes the name of the network interface. Returns `OPERATING_SYSTEM` if the device has none.
    fn doca_devinfo_get_iface_name(devinfo: Handle<Info>, iface_name: Out<c_char>, size: u32) {
        let name = devinfo.get()?.function().iface.as_deref().ok_or(c::DOCA_ERROR_OPERATING_SYSTEM)?;
        require(size >= c::DOCA_DEVINFO_IFACE_NAME_SIZE, INVALID)?;
        // SAFETY: C passes the size of its array beside it.
        unsafe { iface_name.text(name, size as usize) }
    }
    fn doca_devinfo_get_ibdev_name(devinfo: Handle<Info>, ibdev_name: Out<c_char>, size: u32) {
        let name = devinfo.get()?.function().ibdev.as_deref().ok_or(c::DOCA_ERROR_OPERATING_SYSTEM)?;
        require(size >= c::DOCA_DEVINFO_IBDEV_NAME_SIZE, INVALID)?;
        // SAFETY: C passes the size of its array beside it.
        unsafe { ibdev_name.text(name, size as usize) }
    }
    /// Writes the LID. Returns `NOT_SUPPORTED` unless the port is InfiniBand.
    fn doca_devinfo_get_lid(devinfo: Handle<Info>, lid: Out<u16>) {
        lid.make(|| devinfo.get()?.function().lid.ok_or(c::DOCA_ERROR_NOT_SUPPORTED))
    }
    fn doca_devinfo_get_vhca_id(devinfo: Handle<Info>, vhca_id: Out<u16>) {
        let info = devinfo.get()?;
        vhca_id.put(info.function().vhca_id.unwrap_or(info.index as u16))
    }
    fn doca_devinfo_cap_is_hotplug_manager_supported(info: Handle<Info>, out: Out<u8>) { no(&info, &out) }
    fn doca_devinfo_cap_is_notification_moderation_supported(devinfo: Handle<Info>, supported: Out<u8>) {
        no(&devinfo, &supported)
    }
    /// Writes 1 if the device supports this filter: devices on the DPU do, if their card has emulated
    /// functions.
    fn doca_devinfo_rep_cap_is_filter_emulated_supported(devinfo: Handle<Info>, supported: Out<u8>) {
        let info = devinfo.get()?;
        let emulated = info.card.config.function.iter().any(|function| function.emulated);
        supported.put((emulated && info.function().side == Side::Dpu).into())
    }
    fn doca_devinfo_cap_is_accelerate_resource_reclaim_supported(devinfo: Handle<Info>, supported: Out<u8>) {
        no(&devinfo, &supported)
    }
    /// Writes the number of a sub-function. Returns `NOT_SUPPORTED` for other functions.
    fn doca_devinfo_get_sf_index(devinfo: Handle<Info>, sf_index: Out<u32>) {
        sf_index.check()?;
        let function = devinfo.get()?.function();
        sf_index.put(function.sf.filter(|_| function.kind == FunctionKind::Sf).ok_or(c::DOCA_ERROR_NOT_SUPPORTED)?)
    }
    /// Writes the profile of the device's card, and the source of the profile's numbers. No SDK has this
    /// call, so the call identifies the stand-in.
    fn doca_emu_model(devinfo: Handle<Info>, model: Out<c_char>, size: u32) {
        let profile = &devinfo.get()?.card.config.profile;
        // SAFETY: C passes the size of its array beside it.
        unsafe {
            model.text(&format!("doca-emu, profile {} ({})", profile.name, profile.source), size as usize)
        }
    }
}
