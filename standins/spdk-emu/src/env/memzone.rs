//! Named memory zones.
#![expect(unsafe_code, reason = "the names are C's")]

use std::collections::BTreeMap;
use std::ffi::{CString, c_int, c_uint};
use std::sync::Mutex;

use super::memory;
use crate::c_abi::{Addr, Ptr, Text, c, c_calls};
use crate::lock;

static ZONES: Mutex<BTreeMap<CString, (Addr, usize)>> = Mutex::new(BTreeMap::new());

c_calls! {
    fn spdk_memzone_reserve(name: Text, len: usize, numa_id: c_int, flags: c_uint) -> Addr {
        // SAFETY: both functions have the same requirements, and this function's caller meets them.
        unsafe { spdk_memzone_reserve_aligned(name, len, numa_id, flags, 64) }
    }

    fn spdk_memzone_reserve_aligned(
        name: Text,
        len: usize,
        _numa_id: c_int,
        _flags: c_uint,
        align: c_uint,
    ) -> Addr {
        let most = c::SPDK_MAX_MEMZONE_NAME_LEN as usize;
        let Some(name) = name.get().filter(|name| name.to_bytes().len() < most) else { return Addr::NULL };
        let mut zones = lock(&ZONES);
        if zones.contains_key(name) {
            return Addr::NULL;
        }
        let Some(zone) = memory::allocate_zeroed(len, align as usize) else { return Addr::NULL };
        zones.insert(name.to_owned(), (zone, len));
        zone
    }

    fn spdk_memzone_lookup(name: Text) -> Addr {
        name.get().and_then(|name| lock(&ZONES).get(name).copied()).map_or(Addr::NULL, |(zone, _)| zone)
    }

    fn spdk_memzone_free(name: Text) -> c_int {
        match name.get().and_then(|name| lock(&ZONES).remove(name)) {
            Some((zone, _)) => {
                memory::free(zone);
                0
            }
            None => -1,
        }
    }

    fn spdk_memzone_dump(file: Ptr<libc::FILE>) {
        for (name, (zone, len)) in &*lock(&ZONES) {
            let line = format!("{}: {len} bytes at {:#x}\n", name.to_string_lossy(), zone.addr());
            crate::log::write_to(file, &line);
        }
    }
}
