//! Which memory devices reach, and by which addresses: translation, registration.
#![expect(unsafe_code, reason = "the names are C's")]

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::translation::{ADDRESS_BITS, PAGE, SHIFT, Table};
use crate::door::{Outcome, Ptr, answer};

/// The program's pages: the address by which devices know each, with [`KNOWN`] set.
static TO_BUS: Table = Table::new();
/// The other way round.
static FROM_BUS: Table = Table::new();

/// Marks an entry as one: an address can be 0.
const KNOWN: u64 = 1;
/// What `spdk_vtophys` answers where there is no translation.
pub(crate) const NOWHERE: u64 = u64::MAX;

/// Devices know memory by the program's addresses.
static VIRTUAL: AtomicBool = AtomicBool::new(false);
/// Pages given bus addresses so far, where those are not the program's.
static GIVEN: AtomicU64 = AtomicU64::new(0);
/// Above the machine's first 4 GiB.
const FIRST_BUS: u64 = 1 << 32;

/// Registered ranges, first address to length. Those of the environment's own memory are among them.
static RANGES: Mutex<BTreeMap<u64, Range>> = Mutex::new(BTreeMap::new());

#[derive(Clone, Copy, Debug)]
struct Range {
    len: u64,
    own: bool,
}

fn ranges() -> MutexGuard<'static, BTreeMap<u64, Range>> {
    RANGES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on devices know memory by the program's addresses, or not.
pub(crate) fn use_virtual(virtual_addresses: bool) {
    VIRTUAL.store(virtual_addresses, Ordering::Relaxed);
}

pub(crate) fn is_virtual() -> bool {
    VIRTUAL.load(Ordering::Relaxed)
}

/// The bus address of one more page. Of two neighbours in the order they come the second is never behind the first.
fn next_bus() -> u64 {
    let number = GIVEN.fetch_add(1, Ordering::Relaxed);
    FIRST_BUS + (number ^ 1) * PAGE
}

fn pages(addr: u64, len: u64) -> impl Iterator<Item = u64> {
    (0..len >> SHIFT).map(move |page| addr + page * PAGE)
}

/// Registers whole pages.
///
/// # Errors
///
/// `-EINVAL`: not whole pages, or not a program's; `-EBUSY`: some are registered.
pub(crate) fn register(addr: u64, len: u64, own: bool) -> Outcome {
    check(addr, len)?;
    if len == 0 {
        return Ok(());
    }
    let mut ranges = ranges();
    if pages(addr, len).any(|page| TO_BUS.get(page) != 0) {
        return Err(-libc::EBUSY);
    }
    for page in pages(addr, len) {
        let bus = if is_virtual() { page } else { next_bus() };
        FROM_BUS.set(bus, page | KNOWN);
        TO_BUS.set(page, bus | KNOWN);
    }
    ranges.insert(addr, Range { len, own });
    super::memory::changed(addr, len, true);
    Ok(())
}

/// Ends that of ranges that were registered each by one call.
///
/// # Errors
///
/// `-EINVAL`: not whole pages, or some are not registered, or are the environment's own; `-ERANGE`: the ends are in the
/// midst of what was registered.
pub(crate) fn unregister(addr: u64, len: u64, own: bool) -> Outcome {
    check(addr, len)?;
    if len == 0 {
        return Ok(());
    }
    let mut ranges = ranges();
    if pages(addr, len).any(|page| TO_BUS.get(page) == 0) {
        return Err(-libc::EINVAL);
    }
    let inside: Vec<_> = ranges.range(addr..addr + len).map(|(first, range)| (*first, *range)).collect();
    let whole = inside.first().is_some_and(|(first, _)| *first == addr)
        && inside.last().is_some_and(|(first, range)| first + range.len == addr + len);
    if !whole {
        return Err(-libc::ERANGE);
    }
    if inside.iter().any(|(_, range)| range.own != own) {
        return Err(-libc::EINVAL);
    }
    for (first, range) in inside {
        super::memory::changed(first, range.len, false);
        ranges.remove(&first);
    }
    for page in pages(addr, len) {
        let bus = TO_BUS.get(page) & !KNOWN;
        TO_BUS.set(page, 0);
        FROM_BUS.set(bus, 0);
    }
    Ok(())
}

fn check(addr: u64, len: u64) -> Outcome {
    let end = addr.checked_add(len).filter(|end| *end <= 1 << ADDRESS_BITS);
    if !(addr | len).is_multiple_of(PAGE) || end.is_none() { Err(-libc::EINVAL) } else { Ok(()) }
}

/// Calls `each` with the registered ranges.
pub(crate) fn for_each(mut each: impl FnMut(u64, u64) -> bool) -> bool {
    ranges().iter().all(|(addr, range)| each(*addr, range.len))
}

/// Where devices find the byte at an address, or [`NOWHERE`]; and how many from there on are in a row for them, up to `most`.
#[inline]
pub(crate) fn to_bus(addr: u64, most: u64) -> (u64, u64) {
    let entry = TO_BUS.get(addr);
    if entry == 0 {
        return (NOWHERE, 0);
    }
    let within = addr & (PAGE - 1);
    let bus = (entry & !KNOWN) + within;
    let mut len = PAGE - within;
    while len < most {
        let next = TO_BUS.get(addr + len);
        if next == 0 || next & !KNOWN != bus + len {
            break;
        }
        len += PAGE;
    }
    (bus, len.min(most))
}

/// The program's address of the byte that devices know by a bus address, and how many bytes from there on are in its page.
#[inline]
pub(crate) fn from_bus(bus: u64) -> Option<(u64, u64)> {
    let entry = FROM_BUS.get(bus);
    let within = bus & (PAGE - 1);
    (entry != 0 && bus >> ADDRESS_BITS == 0).then(|| ((entry & !KNOWN) + within, PAGE - within))
}

#[unsafe(no_mangle)]
extern "C" fn spdk_vtophys(buf: Ptr<c_void>, size: Ptr<u64>) -> u64 {
    let most = size.get().copied().unwrap_or(1).max(1);
    let (bus, len) = to_bus(buf.addr(), most);
    if bus != NOWHERE {
        size.put(len);
    }
    bus
}

#[unsafe(no_mangle)]
extern "C" fn spdk_iommu_is_enabled() -> bool {
    is_virtual()
}

/// Whether all of the pages are there; devices cannot be given what is not.
fn is_mapped(addr: u64, len: u64) -> bool {
    let mut seen = vec![0_u8; (len >> 12) as usize];
    // SAFETY: the vector has a byte for each page of 4 KiB; that the pages exist is what the call finds out.
    let result = unsafe { libc::mincore(Ptr::<c_void>::at(addr).raw(), len as usize, seen.as_mut_ptr()) };
    result == 0
}

#[unsafe(no_mangle)]
extern "C" fn spdk_mem_register(vaddr: Ptr<c_void>, len: usize) -> c_int {
    let (addr, len) = (vaddr.addr(), len as u64);
    answer(check(addr, len).and_then(|()| {
        if len > 0 && !is_mapped(addr, len) {
            return Err(-libc::EFAULT);
        }
        register(addr, len, false)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn spdk_mem_unregister(vaddr: Ptr<c_void>, len: usize) -> c_int {
    answer(unregister(vaddr.addr(), len as u64, false))
}

/// Sees to it that the pages can be registered later; here there is nothing to prepare.
#[unsafe(no_mangle)]
extern "C" fn spdk_mem_reserve(vaddr: Ptr<c_void>, len: usize) -> c_int {
    let (addr, len) = (vaddr.addr(), len as u64);
    let free = || if pages(addr, len).any(|page| TO_BUS.get(page) != 0) { Err(-libc::EBUSY) } else { Ok(()) };
    answer(check(addr, len).and_then(|()| free()))
}

#[unsafe(no_mangle)]
extern "C" fn spdk_mem_get_numa_id(buf: Ptr<c_void>, size: Ptr<u64>) -> i32 {
    let most = size.get().copied().unwrap_or(1).max(1);
    let addr = buf.addr();
    let ranges = ranges();
    let holds = ranges.range(..=addr).next_back().filter(|(first, range)| addr < **first + range.len);
    match holds {
        Some((first, range)) if range.own => {
            size.put((first + range.len - addr).min(most));
            0
        }
        _ => -1,
    }
}

/// The environment's memory has no file here.
#[unsafe(no_mangle)]
extern "C" fn spdk_mem_get_fd_and_offset(_vaddr: Ptr<c_void>, _offset: Ptr<u64>) -> c_int {
    -libc::ENOTSUP
}
