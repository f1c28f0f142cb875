//! Memory by name.
#![expect(unsafe_code, reason = "the names are C's")]

use std::collections::BTreeMap;
use std::ffi::{CString, c_int, c_uint};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::memory;
use crate::door::{Ptr, Text, c};

static ZONES: Mutex<BTreeMap<CString, (Ptr, usize)>> = Mutex::new(BTreeMap::new());

fn zones() -> MutexGuard<'static, BTreeMap<CString, (Ptr, usize)>> {
    ZONES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[unsafe(no_mangle)]
extern "C" fn spdk_memzone_reserve(name: Text, len: usize, numa_id: c_int, flags: c_uint) -> Ptr {
    spdk_memzone_reserve_aligned(name, len, numa_id, flags, 64)
}

#[unsafe(no_mangle)]
extern "C" fn spdk_memzone_reserve_aligned(
    name: Text,
    len: usize,
    _numa_id: c_int,
    _flags: c_uint,
    align: c_uint,
) -> Ptr {
    let most = c::SPDK_MAX_MEMZONE_NAME_LEN as usize;
    let Some(name) = name.get().filter(|name| name.to_bytes().len() < most) else { return Ptr::NULL };
    let mut zones = zones();
    if zones.contains_key(name) {
        return Ptr::NULL;
    }
    let Some(zone) = memory::allocate_zeroed(len, align as usize) else { return Ptr::NULL };
    zones.insert(name.to_owned(), (zone, len));
    zone
}

#[unsafe(no_mangle)]
extern "C" fn spdk_memzone_lookup(name: Text) -> Ptr {
    name.get().and_then(|name| zones().get(name).copied()).map_or(Ptr::NULL, |(zone, _)| zone)
}

#[unsafe(no_mangle)]
extern "C" fn spdk_memzone_free(name: Text) -> c_int {
    match name.get().and_then(|name| zones().remove(name)) {
        Some((zone, _)) => {
            memory::free(zone);
            0
        }
        None => -1,
    }
}

#[unsafe(no_mangle)]
extern "C" fn spdk_memzone_dump(file: Ptr<libc::FILE>) {
    for (name, (zone, len)) in &*zones() {
        let line = format!("{}: {len} bytes at {:#x}\n", name.to_string_lossy(), zone.addr());
        crate::log::write_to(file, &line);
    }
}
