//! The guest's memory. It is mapped at the guest's physical addresses, because the stand-in's devices use the
//! addresses of this program.
#![expect(unsafe_code, reason = "maps memory at addresses that a guest chose")]

use std::ffi::c_void;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::mm::{MapFlags, ProtFlags, mmap};
use spdk_sys::bindings as c;

/// Size of the pages that devices can access. A program cannot map the first page.
const PAGE: u64 = 2 << 20;
/// The guest's memory ends below this address. Higher addresses belong to this program.
const END: u64 = 1 << 32;

/// A mapped section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Section {
    start: u64,
    end: u64,
    file: (u64, u64),
    offset: u64,
}

static MAPPED: Mutex<Vec<Section>> = Mutex::new(Vec::new());

/// Maps the whole pages of a section of the guest's memory. Does nothing if the section is already mapped,
/// because each device gets messages about the same sections.
///
/// # Errors
///
/// Other memory is mapped at these addresses, for example because the guest's memory has changed.
pub(crate) fn map(start: u64, len: u64, file: &OwnedFd, offset: u64) -> io::Result<()> {
    let first = start.next_multiple_of(PAGE).max(PAGE);
    let end = start.saturating_add(len).min(END) & !(PAGE - 1);
    if first >= end {
        return Ok(());
    }
    let stat = rustix::fs::fstat(file)?;
    let offset = offset + (first - start);
    let section = Section { start: first, end, file: (stat.st_dev, stat.st_ino), offset };
    let mut mapped = MAPPED.lock().unwrap_or_else(PoisonError::into_inner);
    if mapped.contains(&section) {
        return Ok(());
    }
    let wanted = std::ptr::with_exposed_provenance_mut::<c_void>(first as usize);
    let (protection, flags) =
        (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED_NOREPLACE);
    // SAFETY: with `FIXED_NOREPLACE`, the call fails instead of replacing a mapping.
    let place = unsafe { mmap(wanted, (end - first) as usize, protection, flags, file, offset) }.map_err(
        |error| io::Error::other(format!("the guest's memory from {first:#x} to {end:#x}: {error}")),
    )?;
    // Kernels before 4.17 treat the address as a hint.
    // SAFETY: the call above made this mapping of that length, which is never unmapped.
    if place != wanted || unsafe { c::spdk_mem_register(place, (end - first) as usize) } != 0 {
        return Err(io::Error::other(format!(
            "devices cannot reach the guest's memory from {first:#x} to {end:#x}"
        )));
    }
    mapped.push(section);
    Ok(())
}

/// Reads a word of the guest's memory. Returns `None` if devices cannot access the word.
pub(crate) fn read(at: u64) -> Option<u64> {
    let mapped = MAPPED.lock().unwrap_or_else(PoisonError::into_inner);
    let holds = |section: &Section| (section.start..section.end).contains(&at) && at.is_multiple_of(8);
    mapped.iter().find(|section| holds(section))?;
    // SAFETY: the word is aligned, and in a mapping that is never removed. The guest may store to it at any
    // time, so it is accessed atomically.
    let word = unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(at as usize)) };
    Some(word.load(Ordering::Acquire))
}
