//! Maps of a program's own, kept up with what is registered.
#![expect(unsafe_code, reason = "the names are C's; calls back into the program")]

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::map;
use super::translation::{ADDRESS_BITS, PAGE, SHIFT};
use crate::door::{Ptr, c};

/// `struct spdk_mem_map`.
pub(crate) struct MemMap {
    default: u64,
    ops: c::spdk_mem_map_ops,
    context: Ptr<c_void>,
    /// Of pages of 2 MiB.
    translations: Mutex<BTreeMap<u64, u64>>,
}

/// Those that want to be told of changes.
static TOLD: Mutex<Vec<Ptr<MemMap>>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn tell(map: Ptr<MemMap>, addr: u64, len: u64, registered: bool) -> c_int {
    let Some(MemMap { ops, context, .. }) = map.get() else { return 0 };
    let Some(notify) = ops.notify_cb else { return 0 };
    let action = if registered { c::SPDK_MEM_MAP_NOTIFY_REGISTER } else { c::SPDK_MEM_MAP_NOTIFY_UNREGISTER };
    // SAFETY: the program's own function, with the map and the context that it gave.
    unsafe { notify(context.raw(), map.cast().raw(), action, Ptr::<c_void>::at(addr).raw(), len as usize) }
}

/// Memory was registered, or is about to be no more.
pub(super) fn changed(addr: u64, len: u64, registered: bool) {
    for map in lock(&TOLD).iter() {
        tell(*map, addr, len, registered);
    }
}

#[unsafe(no_mangle)]
extern "C" fn spdk_mem_map_alloc(
    default: u64,
    ops: Ptr<c::spdk_mem_map_ops>,
    cb_ctx: Ptr<c_void>,
) -> Ptr<MemMap> {
    let none = c::spdk_mem_map_ops { notify_cb: None, are_contiguous: None };
    let ops = ops.get().copied().unwrap_or(none);
    let translations = Mutex::default();
    let given = Ptr::give(Box::new(MemMap { default, ops, context: cb_ctx, translations }));
    if ops.notify_cb.is_some() {
        if !map::for_each(|addr, len| tell(given, addr, len, true) == 0) {
            drop(given.take());
            return Ptr::NULL;
        }
        lock(&TOLD).push(given);
    }
    given
}

#[unsafe(no_mangle)]
extern "C" fn spdk_mem_map_free(pmap: Ptr<Ptr<MemMap>>) {
    let Some(given) = pmap.get().copied().filter(|map| !map.is_null()) else { return };
    lock(&TOLD).retain(|told| told.raw() != given.raw());
    map::for_each(|addr, len| {
        tell(given, addr, len, false);
        true
    });
    drop(given.take());
    pmap.put(Ptr::NULL);
}

/// The pages, if they are whole ones of a program.
fn pages(addr: u64, size: u64) -> Option<impl Iterator<Item = u64>> {
    let end = addr.checked_add(size).filter(|end| *end <= 1 << ADDRESS_BITS);
    let whole = (addr | size).is_multiple_of(PAGE);
    end.filter(|_| whole).map(|end| addr >> SHIFT..end >> SHIFT)
}

#[unsafe(no_mangle)]
extern "C" fn spdk_mem_map_set_translation(
    map: Ptr<MemMap>,
    vaddr: u64,
    size: u64,
    translation: u64,
) -> c_int {
    let (Some(map), Some(pages)) = (map.get(), pages(vaddr, size)) else { return -libc::EINVAL };
    let mut translations = lock(&map.translations);
    for page in pages {
        translations.insert(page, translation);
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn spdk_mem_map_clear_translation(map: Ptr<MemMap>, vaddr: u64, size: u64) -> c_int {
    let (Some(map), Some(pages)) = (map.get(), pages(vaddr, size)) else { return -libc::EINVAL };
    let mut translations = lock(&map.translations);
    for page in pages {
        translations.remove(&page);
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn spdk_mem_map_translate(map: Ptr<MemMap>, vaddr: u64, size: Ptr<u64>) -> u64 {
    let Some(map) = map.get() else { return map::NOWHERE };
    let translations = lock(&map.translations);
    let at = |page: u64| translations.get(&page).copied().unwrap_or(map.default);
    let first = at(vaddr >> SHIFT);
    let most = size.get().copied().unwrap_or(1);
    let mut len = PAGE - vaddr % PAGE;
    let mut last = first;
    while len < most && first != map.default {
        let next = at((vaddr + len) >> SHIFT);
        let joined = match map.ops.are_contiguous {
            // SAFETY: the program's own function.
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
