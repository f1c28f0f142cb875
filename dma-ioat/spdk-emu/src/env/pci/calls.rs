//! The calls of `env.h` about PCI functions.
#![expect(unsafe_code, reason = "the names are C's; calls back into the program")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, OnceLock};

use super::{Function, addr, functions, lock, walk_c};
use crate::door::{Ptr, Text, c, put_text};
use c::{spdk_pci_addr, spdk_pci_device, spdk_pci_id};

/// `struct spdk_pci_driver`.
pub(crate) struct Driver {
    name: &'static CStr,
    ids: Vec<spdk_pci_id>,
}

static DRIVERS: Mutex<Vec<&'static Driver>> = Mutex::new(Vec::new());

/// The driver of I/OAT, which is there without being registered.
fn ioat() -> &'static Driver {
    static IOAT: OnceLock<Driver> = OnceLock::new();
    IOAT.get_or_init(|| Driver { name: c"ioat", ids: Vec::new() })
}

/// What C sees of a function.
pub(super) fn device(addr: spdk_pci_addr, id: spdk_pci_id, numa: i32) -> spdk_pci_device {
    let none = std::ptr::null_mut();
    spdk_pci_device {
        parent: std::ptr::null_mut(),
        dev_handle: std::ptr::null_mut(),
        addr,
        id,
        __bindgen_anon_1: c::spdk_pci_device__bindgen_ty_1 { numa_id: numa },
        type_: c"pci".as_ptr(),
        map_bar: Some(map_bar),
        unmap_bar: Some(unmap_bar),
        cfg_read: Some(cfg_read),
        cfg_write: Some(cfg_write),
        internal: c::spdk_pci_device__spdk_pci_device_internal {
            driver: std::ptr::null_mut(),
            attached: false,
            claim_fd: -1,
            pending_removal: false,
            removed: false,
            tailq: c::spdk_pci_device__spdk_pci_device_internal__bindgen_ty_1 {
                tqe_next: std::ptr::null_mut(),
                tqe_prev: none,
            },
        },
    }
}

extern "C" fn map_bar(
    device: *mut spdk_pci_device,
    bar: u32,
    mapped: *mut *mut c_void,
    phys: *mut u64,
    size: *mut u64,
) -> c_int {
    spdk_pci_device_map_bar(Ptr::new(device), bar, Ptr::new(mapped).cast(), Ptr::new(phys), Ptr::new(size))
}

extern "C" fn unmap_bar(device: *mut spdk_pci_device, bar: u32, mapped: *mut c_void) -> c_int {
    spdk_pci_device_unmap_bar(Ptr::new(device), bar, Ptr::new(mapped))
}

extern "C" fn cfg_read(device: *mut spdk_pci_device, value: *mut c_void, len: u32, offset: u32) -> c_int {
    spdk_pci_device_cfg_read(Ptr::new(device), Ptr::new(value), len, offset)
}

extern "C" fn cfg_write(device: *mut spdk_pci_device, value: *mut c_void, len: u32, offset: u32) -> c_int {
    spdk_pci_device_cfg_write(Ptr::new(device), Ptr::new(value), len, offset)
}

#[unsafe(no_mangle)]
extern "C" fn spdk_pci_get_driver(name: Text) -> Ptr<Driver> {
    let Some(name) = name.get() else { return Ptr::NULL };
    let drivers = lock(&DRIVERS);
    let registered = drivers.iter().copied();
    let found = registered.chain([ioat()]).find(|driver| driver.name == name);
    found.map_or(Ptr::NULL, Ptr::of)
}

#[unsafe(no_mangle)]
extern "C" fn spdk_pci_ioat_get_driver() -> Ptr<Driver> {
    Ptr::of(ioat())
}

/// The table ends with a vendor 0.
#[unsafe(no_mangle)]
extern "C" fn spdk_pci_driver_register(name: Text, id_table: Ptr<spdk_pci_id>, _flags: u32) {
    let (Some(name), false) = (name.get(), id_table.is_null()) else { return };
    let ids = (0..).map(|i| id_table.read(i)).take_while(|id| id.vendor_id != 0).collect();
    // Registered for good: the program's constructors do it.
    let name = Box::leak(name.to_owned().into_boxed_c_str());
    lock(&DRIVERS).push(Box::leak(Box::new(Driver { name, ids })));
}

impl Driver {
    /// Whether it is a driver for I/OAT's functions, of which all here are.
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

#[unsafe(no_mangle)]
extern "C" fn spdk_pci_enumerate(driver: Ptr<Driver>, call: c::spdk_pci_enum_cb, ctx: Ptr<c_void>) -> c_int {
    match driver.get() {
        Some(driver) if driver.fits() && !walk_c(call, ctx, None).0 => -1,
        Some(_) => 0,
        None => -1,
    }
}

#[unsafe(no_mangle)]
extern "C" fn spdk_pci_device_attach(
    driver: Ptr<Driver>,
    call: c::spdk_pci_enum_cb,
    ctx: Ptr<c_void>,
    address: Ptr<spdk_pci_addr>,
) -> c_int {
    let (Some(driver), Some(address)) = (driver.get(), address.get()) else { return -1 };
    if !driver.fits() {
        return -1;
    }
    spdk_pci_device_allow(Ptr::of(address));
    let (whole, last) = walk_c(call, ctx, Some(address));
    if whole && last >= 0 { last } else { -1 }
}

#[unsafe(no_mangle)]
extern "C" fn spdk_pci_for_each_device(
    ctx: Ptr<c_void>,
    call: Option<unsafe extern "C" fn(*mut c_void, *mut spdk_pci_device)>,
) {
    let Some(call) = call else { return };
    for function in functions().iter().filter(|function| function.is_seen()) {
        // SAFETY: the program's own function, with the context that it gave.
        unsafe { call(ctx.raw(), function.handle().raw()) };
    }
}

#[unsafe(no_mangle)]
extern "C" fn spdk_pci_device_detach(device: Ptr<spdk_pci_device>) {
    if let Some(function) = Function::of(device) {
        function.release(true);
    }
}

#[unsafe(no_mangle)]
extern "C" fn spdk_pci_device_allow(address: Ptr<spdk_pci_addr>) -> c_int {
    let Some(address) = address.get() else { return -libc::EINVAL };
    let is = |function: &&Function| addr::compare(&function.config.pci, address).is_eq();
    if let Some(function) = functions().iter().find(is) {
        function.allowed.store(true, Relaxed);
    }
    0
}

/// Nobody else can have it: each process has functions of its own.
#[unsafe(no_mangle)]
extern "C" fn spdk_pci_device_claim(device: Ptr<spdk_pci_device>) -> c_int {
    match Function::of(device) {
        Some(function) if function.config.taken => -libc::EACCES,
        Some(_) => 0,
        None => -libc::EINVAL,
    }
}

#[unsafe(no_mangle)]
extern "C" fn spdk_pci_device_unclaim(_device: Ptr<spdk_pci_device>) {}

#[unsafe(no_mangle)]
extern "C" fn spdk_pci_device_is_removed(_device: Ptr<spdk_pci_device>) -> bool {
    false
}

#[unsafe(no_mangle)]
extern "C" fn spdk_pci_device_map_bar(
    device: Ptr<spdk_pci_device>,
    bar: u32,
    mapped: Ptr<Ptr<c_void>>,
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

#[unsafe(no_mangle)]
extern "C" fn spdk_pci_device_unmap_bar(
    device: Ptr<spdk_pci_device>,
    bar: u32,
    mapped: Ptr<c_void>,
) -> c_int {
    match Function::of(device) {
        Some(function) if bar == 0 && function.unmap_bar(mapped) => 0,
        _ => -libc::EINVAL,
    }
}

#[unsafe(no_mangle)]
extern "C" fn spdk_pci_device_cfg_read(
    device: Ptr<spdk_pci_device>,
    value: Ptr<c_void>,
    len: u32,
    offset: u32,
) -> c_int {
    let Some(function) = Function::of(device).filter(|_| !value.is_null()) else { return -1 };
    let space = lock(&function.space);
    let Some(bytes) = space.read(offset as usize, len as usize) else { return -1 };
    for (i, byte) in bytes.iter().enumerate() {
        value.cast::<u8>().write(i, *byte);
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn spdk_pci_device_cfg_write(
    device: Ptr<spdk_pci_device>,
    value: Ptr<c_void>,
    len: u32,
    offset: u32,
) -> c_int {
    let Some(function) =
        Function::of(device).filter(|_| !value.is_null() && len as usize <= super::config_space::SIZE)
    else {
        return -1;
    };
    let bytes = value.cast::<u8>().slice(len as usize);
    if lock(&function.space).write(offset as usize, bytes).is_some() { 0 } else { -1 }
}

#[unsafe(no_mangle)]
extern "C" fn spdk_pci_device_cfg_read8(device: Ptr<spdk_pci_device>, value: Ptr<u8>, offset: u32) -> c_int {
    spdk_pci_device_cfg_read(device, value.cast(), 1, offset)
}

#[unsafe(no_mangle)]
extern "C" fn spdk_pci_device_cfg_read16(
    device: Ptr<spdk_pci_device>,
    value: Ptr<u16>,
    offset: u32,
) -> c_int {
    spdk_pci_device_cfg_read(device, value.cast(), 2, offset)
}

#[unsafe(no_mangle)]
extern "C" fn spdk_pci_device_cfg_read32(
    device: Ptr<spdk_pci_device>,
    value: Ptr<u32>,
    offset: u32,
) -> c_int {
    spdk_pci_device_cfg_read(device, value.cast(), 4, offset)
}

#[unsafe(no_mangle)]
extern "C" fn spdk_pci_device_cfg_write8(device: Ptr<spdk_pci_device>, value: u8, offset: u32) -> c_int {
    spdk_pci_device_cfg_write(device, Ptr::of(&value).cast(), 1, offset)
}

#[unsafe(no_mangle)]
extern "C" fn spdk_pci_device_cfg_write16(device: Ptr<spdk_pci_device>, value: u16, offset: u32) -> c_int {
    spdk_pci_device_cfg_write(device, Ptr::of(&value).cast(), 2, offset)
}

#[unsafe(no_mangle)]
extern "C" fn spdk_pci_device_cfg_write32(device: Ptr<spdk_pci_device>, value: u32, offset: u32) -> c_int {
    spdk_pci_device_cfg_write(device, Ptr::of(&value).cast(), 4, offset)
}

/// A field of the device, as C sees it.
fn field<T>(device: Ptr<spdk_pci_device>, get: impl FnOnce(&spdk_pci_device) -> T, none: T) -> T {
    device.get().map_or(none, get)
}

#[unsafe(no_mangle)]
extern "C" fn spdk_pci_device_get_domain(device: Ptr<spdk_pci_device>) -> u32 {
    field(device, |device| device.addr.domain, 0)
}

#[unsafe(no_mangle)]
extern "C" fn spdk_pci_device_get_bus(device: Ptr<spdk_pci_device>) -> u8 {
    field(device, |device| device.addr.bus, 0)
}

#[unsafe(no_mangle)]
extern "C" fn spdk_pci_device_get_dev(device: Ptr<spdk_pci_device>) -> u8 {
    field(device, |device| device.addr.dev, 0)
}

#[unsafe(no_mangle)]
extern "C" fn spdk_pci_device_get_func(device: Ptr<spdk_pci_device>) -> u8 {
    field(device, |device| device.addr.func, 0)
}

#[unsafe(no_mangle)]
extern "C" fn spdk_pci_device_get_addr(device: Ptr<spdk_pci_device>) -> spdk_pci_addr {
    field(device, |device| device.addr, spdk_pci_addr { domain: 0, bus: 0, dev: 0, func: 0 })
}

#[unsafe(no_mangle)]
extern "C" fn spdk_pci_device_get_vendor_id(device: Ptr<spdk_pci_device>) -> u16 {
    field(device, |device| device.id.vendor_id, 0)
}

#[unsafe(no_mangle)]
extern "C" fn spdk_pci_device_get_device_id(device: Ptr<spdk_pci_device>) -> u16 {
    field(device, |device| device.id.device_id, 0)
}

#[unsafe(no_mangle)]
extern "C" fn spdk_pci_device_get_subvendor_id(device: Ptr<spdk_pci_device>) -> u16 {
    field(device, |device| device.id.subvendor_id, 0)
}

#[unsafe(no_mangle)]
extern "C" fn spdk_pci_device_get_subdevice_id(device: Ptr<spdk_pci_device>) -> u16 {
    field(device, |device| device.id.subdevice_id, 0)
}

#[unsafe(no_mangle)]
extern "C" fn spdk_pci_device_get_id(device: Ptr<spdk_pci_device>) -> spdk_pci_id {
    let none = spdk_pci_id { class_id: 0, vendor_id: 0, device_id: 0, subvendor_id: 0, subdevice_id: 0 };
    field(device, |device| device.id, none)
}

#[unsafe(no_mangle)]
extern "C" fn spdk_pci_device_get_numa_id(device: Ptr<spdk_pci_device>) -> c_int {
    Function::of(device).map_or(-1, |function| function.socket.config.numa)
}

#[unsafe(no_mangle)]
extern "C" fn spdk_pci_device_get_socket_id(device: Ptr<spdk_pci_device>) -> c_int {
    spdk_pci_device_get_numa_id(device)
}

#[unsafe(no_mangle)]
extern "C" fn spdk_pci_device_get_type(device: Ptr<spdk_pci_device>) -> *const c_char {
    field(device, |device| device.type_, std::ptr::null())
}

#[unsafe(no_mangle)]
extern "C" fn spdk_pci_device_get_serial_number(
    device: Ptr<spdk_pci_device>,
    text: Ptr<c_char>,
    room: usize,
) -> c_int {
    let Some(function) = Function::of(device).filter(|_| room >= 17) else { return -1 };
    let space = lock(&function.space);
    let Some(bytes) = space.read(0x104, 8) else { return -1 };
    let serial: String = bytes.iter().rev().map(|byte| format!("{byte:02x}")).collect();
    put_text(text, room, &serial);
    0
}

#[unsafe(no_mangle)]
extern "C" fn spdk_pci_device_enable_interrupt(_device: Ptr<spdk_pci_device>) -> c_int {
    -libc::ENOTSUP
}

#[unsafe(no_mangle)]
extern "C" fn spdk_pci_device_disable_interrupt(_device: Ptr<spdk_pci_device>) -> c_int {
    -libc::ENOTSUP
}

#[unsafe(no_mangle)]
extern "C" fn spdk_pci_device_get_interrupt_efd(_device: Ptr<spdk_pci_device>) -> c_int {
    -libc::ENOTSUP
}
