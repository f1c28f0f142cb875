//! Memory that devices can access: registration, and translation to bus addresses.
#![expect(unsafe_code, reason = "the names are C's")]

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use dma_standin::c_abi::require;

use super::translation::{ADDRESS_BITS, PAGE, SHIFT, SPDK_ADDRESS_BITS, Table};
use crate::c_abi::{Addr, Outcome, Ptr, answer, c_calls};
use crate::lock;

/// The bus address of each page of the program, combined with [`KNOWN`].
static TO_BUS: Table = Table::new();
/// The program's address of each page of the bus, combined with [`KNOWN`].
static FROM_BUS: Table = Table::new();

/// Marks an entry as present, because an address can be 0.
const KNOWN: u64 = 1;
/// Result of `spdk_vtophys` for addresses without a translation.
pub(crate) const NOWHERE: u64 = u64::MAX;

/// Set if bus addresses are the program's addresses.
static VIRTUAL: AtomicBool = AtomicBool::new(false);
/// Number of pages that got physical bus addresses.
static GIVEN: AtomicU64 = AtomicU64::new(0);
/// The first physical bus address. It is above the machine's first 4 GiB.
const FIRST_BUS: u64 = 1 << 32;

/// Called when memory was registered, and before it is unregistered. Set by the first `spdk_mem_map_alloc`.
static LISTENER: OnceLock<fn(addr: u64, len: u64, registered: bool)> = OnceLock::new();

/// Registered ranges by first address. The environment's own memory is included.
static RANGES: Mutex<BTreeMap<u64, Range>> = Mutex::new(BTreeMap::new());

#[derive(Clone, Copy, Debug)]
struct Range {
    len: u64,
    own: bool,
}

/// Sets the address mode of pages registered from now on.
pub(crate) fn use_virtual(virtual_addresses: bool) {
    VIRTUAL.store(virtual_addresses, Ordering::Relaxed);
}

pub(crate) fn is_virtual() -> bool {
    VIRTUAL.load(Ordering::Relaxed)
}

/// Returns the bus address for the next page. Pages that are registered one after another are never
/// contiguous.
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
/// `-EINVAL`: the range is not whole pages, or exceeds the address space; `-EBUSY`: some of the pages are
/// registered.
pub(crate) fn register(addr: u64, len: u64, own: bool) -> Outcome {
    check(addr, len)?;
    if len == 0 {
        return Ok(());
    }
    let mut ranges = lock(&RANGES);
    require(pages(addr, len).all(|page| TO_BUS.get(page) == 0), -libc::EBUSY)?;
    for page in pages(addr, len) {
        let bus = if is_virtual() { page } else { next_bus() };
        FROM_BUS.set(bus, page | KNOWN);
        TO_BUS.set(page, bus | KNOWN);
    }
    ranges.insert(addr, Range { len, own });
    notify(addr, len, true);
    Ok(())
}

/// Unregisters ranges, each of which was registered by one call.
///
/// # Errors
///
/// `-EINVAL`: the range is not whole pages, or some pages are not registered or belong to the environment;
/// `-ERANGE`: a registered range is only partly within it.
pub(crate) fn unregister(addr: u64, len: u64, own: bool) -> Outcome {
    check(addr, len)?;
    if len == 0 {
        return Ok(());
    }
    let mut ranges = lock(&RANGES);
    require(pages(addr, len).all(|page| TO_BUS.get(page) != 0), -libc::EINVAL)?;
    let inside: Vec<_> = ranges.range(addr..addr + len).map(|(first, range)| (*first, *range)).collect();
    let whole = inside.first().is_some_and(|(first, _)| *first == addr)
        && inside.last().is_some_and(|(first, range)| first + range.len == addr + len);
    require(whole, -libc::ERANGE)?;
    require(inside.iter().all(|(_, range)| range.own == own), -libc::EINVAL)?;
    for (first, range) in inside {
        notify(first, range.len, false);
        ranges.remove(&first);
    }
    for page in pages(addr, len) {
        let bus = TO_BUS.get(page) & !KNOWN;
        TO_BUS.set(page, 0);
        FROM_BUS.set(bus, 0);
    }
    Ok(())
}

/// Returns `-EINVAL` unless the range consists of whole pages in the address space.
pub(super) fn check(addr: u64, len: u64) -> Outcome {
    let end = addr.checked_add(len).filter(|end| *end <= 1 << ADDRESS_BITS);
    if !(addr | len).is_multiple_of(PAGE) || end.is_none() { Err(-libc::EINVAL) } else { Ok(()) }
}

/// Registers `listener`, which is called after memory is registered and before it is unregistered. Only the
/// first call has an effect.
pub(super) fn listen(listener: fn(addr: u64, len: u64, registered: bool)) {
    LISTENER.get_or_init(|| listener);
}

fn notify(addr: u64, len: u64, registered: bool) {
    if let Some(listener) = LISTENER.get() {
        listener(addr, len, registered);
    }
}

/// Calls `each` with the registered ranges until it returns false. Returns true if `each` never returned
/// false.
pub(crate) fn for_each(mut each: impl FnMut(u64, u64) -> bool) -> bool {
    lock(&RANGES).iter().all(|(addr, range)| each(*addr, range.len))
}

/// Returns the bus address of a byte, and the number of bytes, up to `most`, that are contiguous for devices
/// from there on. Without a translation, returns [`NOWHERE`] and the number of bytes up to the end of the
/// page.
#[inline]
pub(crate) fn to_bus(addr: u64, most: u64) -> (u64, u64) {
    let entry = TO_BUS.get(addr);
    let within = addr & (PAGE - 1);
    if entry == 0 {
        return (NOWHERE, most.min(PAGE - within));
    }
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

/// Returns the program's address for a bus address, and the number of bytes from there to the end of the
/// page.
#[inline]
pub(crate) fn from_bus(bus: u64) -> Option<(u64, u64)> {
    let entry = FROM_BUS.get(bus);
    let within = bus & (PAGE - 1);
    (entry != 0 && bus >> ADDRESS_BITS == 0).then(|| ((entry & !KNOWN) + within, PAGE - within))
}

/// Returns false for addresses beyond SPDK's maps. For these addresses, translations do not change the size.
pub(super) fn translates(addr: u64) -> bool {
    addr >> SPDK_ADDRESS_BITS == 0
}

c_calls! {
    fn spdk_vtophys(buf: Addr, size: Ptr<u64>) -> u64 {
        let (bus, len) = to_bus(buf.addr(), size.get().copied().unwrap_or(0));
        // SPDK writes the size even after a failure, and even if it was 0.
        if translates(buf.addr()) {
            size.put(len);
        }
        bus
    }

    fn spdk_iommu_is_enabled() -> bool { is_virtual() }
}

/// Returns true if all pages are mapped.
fn is_mapped(addr: u64, len: u64) -> bool {
    let mut seen = vec![0_u8; (len >> 12) as usize];
    // SAFETY: the vector has a byte for each page of 4 KiB of the range. The call itself checks that the
    // range is mapped.
    let result = unsafe { libc::mincore(Addr::at(addr).raw(), len as usize, seen.as_mut_ptr()) };
    result == 0
}

c_calls! {
    fn spdk_mem_register(vaddr: Addr, len: usize) -> c_int {
        let (addr, len) = (vaddr.addr(), len as u64);
        answer(check(addr, len).and_then(|()| {
            require(len == 0 || is_mapped(addr, len), -libc::EFAULT)?;
            register(addr, len, false)
        }))
    }

    fn spdk_mem_unregister(vaddr: Addr, len: usize) -> c_int {
        answer(unregister(vaddr.addr(), len as u64, false))
    }

    /// Checks that the pages can be registered later. Does nothing else.
    fn spdk_mem_reserve(vaddr: Addr, len: usize) -> c_int {
        let (addr, len) = (vaddr.addr(), len as u64);
        let free = || if pages(addr, len).any(|page| TO_BUS.get(page) != 0) { Err(-libc::EBUSY) } else { Ok(()) };
        answer(check(addr, len).and_then(|()| free()))
    }

    fn spdk_mem_get_numa_id(buf: Addr, size: Ptr<u64>) -> i32 {
        let most = size.get().copied().unwrap_or(0);
        let addr = buf.addr();
        let ranges = lock(&RANGES);
        let holds = ranges.range(..=addr).next_back().filter(|(first, range)| addr < **first + range.len);
        let node = if holds.is_some_and(|(_, range)| range.own) { 0 } else { -1 };
        if translates(addr) {
            size.put((PAGE - addr % PAGE).min(most));
        }
        node
    }

    /// Returns `-ENOTSUP`, because the memory of the stand-in's environment has no files.
    fn spdk_mem_get_fd_and_offset(_vaddr: Addr, _offset: Ptr<u64>) -> c_int { -libc::ENOTSUP }
}
