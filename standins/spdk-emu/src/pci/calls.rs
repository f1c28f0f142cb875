//! The calls of `env.h` about PCI functions.
#![expect(unsafe_code, reason = "the names are C's; calls back into the program")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, OnceLock};

use super::{Function, functions, walk_c};
use crate::c_abi::{Addr, Ptr, Text, c, c_calls};
use crate::lock;
use crate::pci_addr;
use c::{spdk_pci_addr, spdk_pci_device, spdk_pci_id};

/// `struct spdk_pci_driver`.
pub(crate) struct PciDriver {
    name: &'static CStr,
    ids: Vec<spdk_pci_id>,
}

static DRIVERS: Mutex<Vec<&'static PciDriver>> = Mutex::new(Vec::new());

/// Returns the built-in driver of I/OAT.
fn ioat() -> &'static PciDriver {
    static IOAT: OnceLock<PciDriver> = OnceLock::new();
    IOAT.get_or_init(|| PciDriver { name: c"ioat", ids: Vec::new() })
}

c_calls! {
    fn spdk_pci_get_driver(name: Text) -> Ptr<PciDriver> {
        let Some(name) = name.get() else { return Ptr::NULL };
        let drivers = lock(&DRIVERS);
        let registered = drivers.iter().copied();
        let found = registered.chain([ioat()]).find(|driver| driver.name == name);
        // SAFETY: C has no access to the fields of a driver, so C does not write to it.
        found.map_or(Ptr::NULL, |driver| unsafe { Ptr::of(driver) })
    }

    fn spdk_pci_ioat_get_driver() -> Ptr<PciDriver> {
        // SAFETY: C has no access to the fields of a driver, so C does not write to it.
        unsafe { Ptr::of(ioat()) }
    }

    /// Registers a driver. An entry with the vendor 0 ends its table.
    fn spdk_pci_driver_register(name: Text, id_table: Ptr<spdk_pci_id>, _flags: u32) {
        let (Some(name), false) = (name.get(), id_table.is_null()) else { return };
        // SAFETY: C promises that the table ends with the vendor 0, so all entries up to it exist.
        let ids = (0..).map(|i| unsafe { id_table.read(i) }).take_while(|id| id.vendor_id != 0).collect();
        // Drivers are never freed, because each is registered only once, by a constructor of the
        // program.
        let name = Box::leak(name.to_owned().into_boxed_c_str());
        lock(&DRIVERS).push(Box::leak(Box::new(PciDriver { name, ids })));
    }
}

impl PciDriver {
    /// Returns true for a driver of I/OAT functions. The stand-in has no other functions.
    fn fits(&self) -> bool {
        let any = c::SPDK_PCI_ANY_ID as u16;
        let fits = |id: &spdk_pci_id| {
            let vendor = [any, c::SPDK_PCI_VID_INTEL as u16].contains(&id.vendor_id);
            let device =
                functions().iter().any(|function| [any, function.config.device].contains(&id.device_id));
            vendor && device
        };
        std::ptr::eq(self, ioat()) || self.ids.iter().any(fits)
    }
}

c_calls! {
    fn spdk_pci_enumerate(driver: Ptr<PciDriver>, call: c::spdk_pci_enum_cb, ctx: Addr) -> c_int {
        match driver.get() {
            // SAFETY: C passes a callback that may be called with `ctx` and a function.
            Some(driver) if driver.fits() && !unsafe { walk_c(call, ctx, None) }.0 => -1,
            Some(_) => 0,
            None => -1,
        }
    }

    fn spdk_pci_device_attach(
        driver: Ptr<PciDriver>,
        call: c::spdk_pci_enum_cb,
        ctx: Addr,
        address: Ptr<spdk_pci_addr>,
    ) -> c_int {
        let (Some(driver), Some(allowed)) = (driver.get(), address.get()) else { return -1 };
        if !driver.fits() {
            return -1;
        }
        // SAFETY: `address` is a valid pointer that C passed, and is not NULL, because `get` returned a
        // value.
        unsafe { spdk_pci_device_allow(address) };
        // SAFETY: C passes a callback that may be called with `ctx`.
        let (whole, last) = unsafe { walk_c(call, ctx, Some(allowed)) };
        if whole && last >= 0 { last } else { -1 }
    }

    fn spdk_pci_for_each_device(
        ctx: Addr,
        call: Option<unsafe extern "C" fn(*mut c_void, *mut spdk_pci_device)>,
    ) {
        let Some(call) = call else { return };
        for function in functions().iter().filter(|function| function.is_seen()) {
            // SAFETY: the program passed this function together with this context, and functions are never
            // freed.
            unsafe { call(ctx.raw(), function.handle().raw()) };
        }
    }

    fn spdk_pci_device_detach(device: Ptr<spdk_pci_device>) {
        if let Some(function) = Function::of(device) {
            function.release(true);
        }
    }

    fn spdk_pci_device_allow(address: Ptr<spdk_pci_addr>) -> c_int {
        let Some(address) = address.get() else { return -libc::EINVAL };
        let is = |function: &&Function| pci_addr::compare(&function.config.pci, address).is_eq();
        if let Some(function) = functions().iter().find(is) {
            function.allowed.store(true, Relaxed);
        }
        0
    }

    /// Claims a function. Each process has its own functions, so this fails only if the configuration
    /// requires that.
    fn spdk_pci_device_claim(device: Ptr<spdk_pci_device>) -> c_int {
        match Function::of(device) {
            Some(function) if function.config.taken => -libc::EACCES,
            Some(_) => 0,
            None => -libc::EINVAL,
        }
    }

    fn spdk_pci_device_unclaim(_device: Ptr<spdk_pci_device>) {}
    fn spdk_pci_device_is_removed(_device: Ptr<spdk_pci_device>) -> bool { false }

    fn spdk_pci_device_map_bar(
        device: Ptr<spdk_pci_device>,
        bar: u32,
        mapped: Ptr<Addr>,
        phys: Ptr<u64>,
        size: Ptr<u64>,
    ) -> c_int {
        let Some(function) = Function::of(device) else { return -libc::EINVAL };
        if bar != 0 {
            return -libc::ENODEV;
        }
        match function.map_bar() {
            Ok((addr, len)) => {
                mapped.put(addr);
                phys.put(addr.addr());
                size.put(len);
                0
            }
            Err(errno) => errno,
        }
    }

    fn spdk_pci_device_unmap_bar(device: Ptr<spdk_pci_device>, bar: u32, mapped: Addr) -> c_int {
        match Function::of(device) {
            Some(function) if bar == 0 && function.unmap_bar(mapped) => 0,
            _ => -libc::EINVAL,
        }
    }

    fn spdk_pci_device_cfg_read(device: Ptr<spdk_pci_device>, value: Addr, len: u32, offset: u32) -> c_int {
        let Some(function) = Function::of(device).filter(|_| !value.is_null()) else { return -1 };
        let space = lock(&function.space);
        let Some(bytes) = space.read(offset as usize, len as usize) else { return -1 };
        // SAFETY: C promises room for `len` bytes, which are only written as `u8`.
        let value = unsafe { value.to::<u8>() };
        for (i, byte) in bytes.iter().enumerate() {
            // SAFETY: `i` is less than `len`, and C promises room for `len` bytes.
            unsafe { value.write(i, *byte) };
        }
        0
    }

    fn spdk_pci_device_cfg_write(device: Ptr<spdk_pci_device>, value: Addr, len: u32, offset: u32) -> c_int {
        let Some(function) =
            Function::of(device).filter(|_| !value.is_null() && len as usize <= super::config_space::SIZE)
        else {
            return -1;
        };
        // SAFETY: C passes `len` bytes, which are only read as `u8`.
        let value = unsafe { value.to::<u8>() };
        // SAFETY: C passes `len` bytes, and does not change them during the call.
        let bytes = unsafe { value.slice(len as usize) };
        if lock(&function.space).write(offset as usize, bytes).is_some() { 0 } else { -1 }
    }
}

macro_rules! cfg_accesses {
    ($($read:ident $write:ident $type:ty;)*) => { c_calls! { $(
        fn $read(device: Ptr<spdk_pci_device>, value: Ptr<$type>, offset: u32) -> c_int {
            // SAFETY: C passes a pointer to a value of this size, which can be written.
            unsafe { spdk_pci_device_cfg_read(device, value.void(), size_of::<$type>() as u32, offset) }
        }
        fn $write(device: Ptr<spdk_pci_device>, value: $type, offset: u32) -> c_int {
            let bytes = Addr::new((&raw const value).cast_mut().cast());
            // SAFETY: `value` has this size, and does not change during the call.
            unsafe { spdk_pci_device_cfg_write(device, bytes, size_of::<$type>() as u32, offset) }
        }
    )* } };
}

cfg_accesses! {
    spdk_pci_device_cfg_read8 spdk_pci_device_cfg_write8 u8;
    spdk_pci_device_cfg_read16 spdk_pci_device_cfg_write16 u16;
    spdk_pci_device_cfg_read32 spdk_pci_device_cfg_write32 u32;
}

/// Returns a field of the device. Returns `none` for NULL.
fn field<T>(device: Ptr<spdk_pci_device>, get: impl FnOnce(&spdk_pci_device) -> T, none: T) -> T {
    device.get().map_or(none, get)
}

macro_rules! fields {
    ($($name:ident -> $type:ty { $($field:ident).+ })*) => { c_calls! { $(
        fn $name(device: Ptr<spdk_pci_device>) -> $type { field(device, |device| device.$($field).+, 0) }
    )* } };
}

fields! {
    spdk_pci_device_get_domain -> u32 { addr.domain }
    spdk_pci_device_get_bus -> u8 { addr.bus }
    spdk_pci_device_get_dev -> u8 { addr.dev }
    spdk_pci_device_get_func -> u8 { addr.func }
    spdk_pci_device_get_vendor_id -> u16 { id.vendor_id }
    spdk_pci_device_get_device_id -> u16 { id.device_id }
    spdk_pci_device_get_subvendor_id -> u16 { id.subvendor_id }
    spdk_pci_device_get_subdevice_id -> u16 { id.subdevice_id }
}

c_calls! {
    fn spdk_pci_device_get_addr(device: Ptr<spdk_pci_device>) -> spdk_pci_addr {
        field(device, |device| device.addr, spdk_pci_addr { domain: 0, bus: 0, dev: 0, func: 0 })
    }

    fn spdk_pci_device_get_id(device: Ptr<spdk_pci_device>) -> spdk_pci_id {
        let none = spdk_pci_id { class_id: 0, vendor_id: 0, device_id: 0, subvendor_id: 0, subdevice_id: 0 };
        field(device, |device| device.id, none)
    }

    fn spdk_pci_device_get_numa_id(device: Ptr<spdk_pci_device>) -> c_int {
        Function::of(device).map_or(-1, |function| function.socket.config.numa)
    }

    fn spdk_pci_device_get_socket_id(device: Ptr<spdk_pci_device>) -> c_int {
        // SAFETY: both calls have the same requirements, and `device` is passed on.
        unsafe { spdk_pci_device_get_numa_id(device) }
    }

    fn spdk_pci_device_get_type(device: Ptr<spdk_pci_device>) -> *const c_char {
        field(device, |device| device.type_, std::ptr::null())
    }

    fn spdk_pci_device_get_serial_number(
        device: Ptr<spdk_pci_device>,
        text: Ptr<c_char>,
        room: usize,
    ) -> c_int {
        let Some(function) = Function::of(device).filter(|_| room >= 17) else { return -1 };
        let space = lock(&function.space);
        let Some(bytes) = space.read(0x104, 8) else { return -1 };
        let serial: String = bytes.iter().rev().map(|byte| format!("{byte:02x}")).collect();
        // SAFETY: C promises room for `room` bytes.
        unsafe { text.put_text(room, &serial) };
        0
    }

    fn spdk_pci_device_enable_interrupt(_device: Ptr<spdk_pci_device>) -> c_int { -libc::ENOTSUP }
    fn spdk_pci_device_disable_interrupt(_device: Ptr<spdk_pci_device>) -> c_int { -libc::ENOTSUP }
    fn spdk_pci_device_get_interrupt_efd(_device: Ptr<spdk_pci_device>) -> c_int { -libc::ENOTSUP }
}
