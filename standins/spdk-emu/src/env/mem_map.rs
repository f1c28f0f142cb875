//! Memory maps that the program makes (`spdk_mem_map`). Each map's callback is called when memory
//! is registered or unregistered.
#![expect(unsafe_code, reason = "the names are C's; calls back into the program")]

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::Mutex;

use super::map;
use super::translation::{PAGE, SHIFT};
use crate::c_abi::{Addr, Ptr, c, c_calls};
use crate::lock;

/// `struct spdk_mem_map`.
pub(crate) struct MemMap {
    default: u64,
    ops: c::spdk_mem_map_ops,
    context: Addr,
    /// The translation of each page of 2 MiB.
    translations: Mutex<BTreeMap<u64, u64>>,
}

/// Maps that have a callback for registrations.
static LISTENING: Mutex<Vec<Ptr<MemMap>>> = Mutex::new(Vec::new());

fn notify(map: Ptr<MemMap>, addr: u64, len: u64, registered: bool) -> c_int {
    let Some(MemMap { ops, context, .. }) = map.get() else { return 0 };
    let Some(call) = ops.notify_cb else { return 0 };
    let action = if registered { c::SPDK_MEM_MAP_NOTIFY_REGISTER } else { c::SPDK_MEM_MAP_NOTIFY_UNREGISTER };
    // SAFETY: the program passed this function together with this context, and the map is not freed.
    unsafe { call(context.raw(), map.raw().cast(), action, Addr::at(addr).raw(), len as usize) }
}

/// Calls the callbacks of all maps, after memory was registered or before it is unregistered.
fn changed(addr: u64, len: u64, registered: bool) {
    for map in lock(&LISTENING).iter() {
        notify(*map, addr, len, registered);
    }
}

c_calls! {
    fn spdk_mem_map_alloc(default: u64, ops: Ptr<c::spdk_mem_map_ops>, cb_ctx: Addr) -> Ptr<MemMap> {
        let none = c::spdk_mem_map_ops { notify_cb: None, are_contiguous: None };
        let ops = ops.get().copied().unwrap_or(none);
        let translations = Mutex::default();
        // SAFETY: no code of this crate writes a whole object of this type.
        let given = unsafe { Ptr::give(Box::new(MemMap { default, ops, context: cb_ctx, translations })) };
        if ops.notify_cb.is_some() {
            if !map::for_each(|addr, len| notify(given, addr, len, true) == 0) {
                // SAFETY: the map was created above, and the callback, which got its address, does not keep
                // it after a failure.
                drop(unsafe { given.take() });
                return Ptr::NULL;
            }
            map::listen(changed);
            lock(&LISTENING).push(given);
        }
        given
    }

    fn spdk_mem_map_free(pmap: Ptr<Ptr<MemMap>>) {
        let Some(given) = pmap.get().copied().filter(|map| !map.is_null()) else { return };
        lock(&LISTENING).retain(|known| known.raw() != given.raw());
        map::for_each(|addr, len| {
            notify(given, addr, len, false);
            true
        });
        // SAFETY: C promises that the map is from `spdk_mem_map_alloc`, and is freed once.
        drop(unsafe { given.take() });
        pmap.put(Ptr::NULL);
    }
}

/// Returns the pages of a range, if the range consists of whole pages in the address space.
fn pages(addr: u64, size: u64) -> Option<impl Iterator<Item = u64>> {
    map::check(addr, size).ok().map(|()| addr >> SHIFT..(addr + size) >> SHIFT)
}

c_calls! {
    fn spdk_mem_map_set_translation(map: Ptr<MemMap>, vaddr: u64, size: u64, translation: u64) -> c_int {
        let (Some(map), Some(pages)) = (map.get(), pages(vaddr, size)) else { return -libc::EINVAL };
        let mut translations = lock(&map.translations);
        for page in pages {
            translations.insert(page, translation);
        }
        0
    }

    fn spdk_mem_map_clear_translation(map: Ptr<MemMap>, vaddr: u64, size: u64) -> c_int {
        let (Some(map), Some(pages)) = (map.get(), pages(vaddr, size)) else { return -libc::EINVAL };
        let mut translations = lock(&map.translations);
        for page in pages {
            translations.remove(&page);
        }
        0
    }

    fn spdk_mem_map_translate(map: Ptr<MemMap>, vaddr: u64, size: Ptr<u64>) -> u64 {
        let Some(map) = map.get() else { return map::NOWHERE };
        if !map::translates(vaddr) {
            return map.default;
        }
        let translations = lock(&map.translations);
        let at = |page: u64| translations.get(&page).copied().unwrap_or(map.default);
        let first = at(vaddr >> SHIFT);
        let most = size.get().copied().unwrap_or(1);
        let mut len = PAGE - vaddr % PAGE;
        let mut last = first;
        while len < most && first != map.default {
            let next = at((vaddr + len) >> SHIFT);
            let joined = match map.ops.are_contiguous {
                // SAFETY: the program passed this function for translations of its map, and both arguments
                // are such translations.
                Some(joined) => unsafe { joined(last, next) != 0 },
                None => false,
            };
            if next == map.default || !joined {
                break;
            }
            last = next;
            len += PAGE;
        }
        size.put(len.min(most));
        first
    }
}
