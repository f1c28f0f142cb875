//! Tests of attaching again with `reattach = "spdk"`.
#![expect(unsafe_code, reason = "calls of C functions")]

#[path = "support/env.rs"]
mod env;

use std::ffi::c_void;
use std::ptr;
use std::time::{Duration, Instant};

use spdk_sys::bindings as c;

#[derive(Default)]
struct Found {
    wanted: bool,
    devices: Vec<*mut c::spdk_pci_device>,
    channels: Vec<*mut c::spdk_ioat_chan>,
}

unsafe extern "C" fn on_probe(found: *mut c_void, device: *mut c::spdk_pci_device) -> bool {
    // SAFETY: `probe` passed a pointer to its `Found` as the context, which only these callbacks use during
    // the call.
    let found = unsafe { &mut *found.cast::<Found>() };
    found.devices.push(device);
    found.wanted
}

unsafe extern "C" fn on_attach(
    found: *mut c_void,
    _: *mut c::spdk_pci_device,
    channel: *mut c::spdk_ioat_chan,
) {
    // SAFETY: `probe` passed a pointer to its `Found`, which only these callbacks use during the
    // call.
    let found = unsafe { &mut *found.cast::<Found>() };
    found.channels.push(channel);
}

fn probe(wanted: bool) -> Found {
    let mut found = Found { wanted, ..Found::default() };
    // SAFETY: the callbacks take a pointer to a `Found`, which lives as long as the call.
    let result = unsafe { c::spdk_ioat_probe((&raw mut found).cast(), Some(on_probe), Some(on_attach)) };
    assert_eq!(result, 0);
    found
}

#[test]
fn a_function_comes_back_when_it_was_unplugged_and_has_settled() {
    env::set_up("reattach = 'spdk'\nfunction = [{ pci = '0:4.0' }]");
    let found = probe(true);
    assert_eq!((found.devices.len(), found.channels.len()), (1, 1));
    // SAFETY: the channel is attached, and is not used again.
    unsafe { c::spdk_ioat_detach(found.channels[0]) };
    assert!(probe(true).devices.is_empty(), "SPDK treats it as attached");
    let detached = Instant::now();
    // SAFETY: the library returned this device, which is never freed, and its channel is detached.
    unsafe { c::spdk_pci_device_detach(found.devices[0]) };
    let again = loop {
        let again = probe(false);
        if !again.devices.is_empty() {
            break again;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(detached.elapsed() >= Duration::from_secs(2), "it had just been plugged in");
    assert!(ptr::eq(again.devices[0], found.devices[0]) && again.channels.is_empty());
    assert!(probe(true).devices.is_empty(), "SPDK treats a declined function as attached");
}
