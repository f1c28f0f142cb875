//! Tables of pieces in pinned memory, which the kernel reads.
#![expect(unsafe_code, reason = "writes to pinned memory")]

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use super::kernel::Entry;
use crate::device::Device;
use crate::driver::{Address, HOST_PORTABLE};

/// Length of the longest entry, in bytes. Longer pieces have several entries, so that many warps copy them. A
/// multiple of the kernel's units, so that all entries of a piece have the alignment of the first.
pub(crate) const ENTRY_MAX: usize = 64 << 10;

/// Returns the number of entries of a piece.
pub(crate) const fn entries_of(len: usize) -> usize {
    len.div_ceil(ENTRY_MAX)
}

/// A ring of entries in pinned memory. Each launch uses consecutive entries, and frees them in its order.
#[derive(Debug)]
pub(crate) struct Table {
    device: Arc<Device>,
    entries: NonNull<Entry>,
    len: usize,
    /// Numbers of entries that were ever reserved and freed.
    reserved: u64,
    freed: u64,
}

// SAFETY: the memory belongs to this value, which only its owner writes.
unsafe impl Send for Table {}

impl Table {
    /// Allocates a table of `len` entries. `None` if the driver refuses.
    pub(crate) fn new(device: &Arc<Device>, len: usize) -> Option<Self> {
        let mut start: *mut c_void = std::ptr::null_mut();
        let bytes = len * size_of::<Entry>();
        // SAFETY: the call writes the address to a local variable.
        let made =
            device.call(|driver| unsafe { (driver.cuMemHostAlloc)(&raw mut start, bytes, HOST_PORTABLE) });
        if let Err(code) = made {
            let device = device.name.clone();
            dma_core::deferred_log!(
                warn,
                device,
                code,
                bytes,
                "the driver refuses pinned memory for tables of copies"
            );
            return None;
        }
        let entries = NonNull::new(start.cast())?;
        Some(Self { device: Arc::clone(device), entries, len, reserved: 0, freed: 0 })
    }

    /// Reserves consecutive entries. Returns the index of the first one, and the number of entries to free
    /// later, which includes those that were skipped at the end of the ring. `None` if there are not so many.
    pub(crate) fn reserve(&mut self, number: usize) -> Option<(usize, usize)> {
        let at = (self.reserved % self.len as u64) as usize;
        let skipped = if number > self.len - at { self.len - at } else { 0 };
        let all = skipped + number;
        let used = (self.reserved - self.freed) as usize;
        if number > self.len || all > self.len - used {
            return None;
        }
        self.reserved += all as u64;
        Some((if skipped > 0 { 0 } else { at }, all))
    }

    /// Frees the entries of the launches that were reserved first.
    pub(crate) fn free(&mut self, number: usize) {
        self.freed += number as u64;
        debug_assert!(self.freed <= self.reserved, "each entry is freed once");
    }

    /// Takes back entries that were reserved last.
    pub(crate) fn cancel(&mut self, number: usize) {
        self.reserved -= number as u64;
    }

    /// Writes the entries of these pieces, beginning with entry `first`. Returns the first entry.
    pub(crate) fn fill(
        &mut self,
        first: usize,
        pieces: impl Iterator<Item = (Address, Address, usize)>,
    ) -> *const Entry {
        let mut at = first;
        for (dst, src, len) in pieces {
            let mut done = 0;
            while done < len {
                let now = ENTRY_MAX.min(len - done);
                let entry = Entry { src: src + done as u64, dst: dst + done as u64, len: now as u64 };
                assert!(at < self.len, "the caller has reserved the entries");
                // SAFETY: the index is within the table.
                let place = unsafe { self.entries.add(at) };
                // SAFETY: no launch in progress reads an entry that was reserved for this call.
                unsafe { place.write(entry) };
                at += 1;
                done += now;
            }
        }
        // SAFETY: the caller has reserved at least one entry, so the index is within the table.
        unsafe { self.entries.add(first) }.as_ptr()
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        let start = self.entries.as_ptr().cast::<c_void>();
        // SAFETY: `new` allocated the memory. The queue leaks tables that launches in progress may read.
        let _ = self.device.call(|driver| unsafe { (driver.cuMemFreeHost)(start) });
    }
}
