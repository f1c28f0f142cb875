//! The memory that descriptors name, and a record of the bytes that they may change.

use std::cell::Cell;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};

use super::Descriptor;
use crate::input::Input;

pub(super) const PAGE: usize = 4096;
/// Number of pages of the arena.
const PAGES: usize = 10;
/// Index of the page that is read-only. The other pages, except [`MISSING`], are writable.
const READ_ONLY: usize = 5;
/// Index of the page that cannot be accessed.
const MISSING: usize = 6;
/// Number of inaccessible bytes before and after the arena, more than the longest operation.
const APART: usize = 4 << 30;
/// Number of pages for lists.
const LISTS: usize = 64;
/// Number of pages for records.
const RECORDS: usize = 32;

/// Three mappings: the arena itself between unmapped addresses, lists, and records.
pub(super) struct Arena {
    start: usize,
    lists: usize,
    records: usize,
    used_lists: Cell<usize>,
    used_records: Cell<usize>,
    before: Vec<u8>,
    may_change: Vec<bool>,
}

/// Maps memory. Panics on an error.
fn map(len: usize, rights: i32, flags: i32, file: RawFd) -> usize {
    // SAFETY: the kernel chooses unused addresses for the new mapping.
    let at = unsafe { libc::mmap(ptr::null_mut(), len, rights, flags, file, 0) };
    assert_ne!(at, libc::MAP_FAILED, "{len} bytes: {}", std::io::Error::last_os_error());
    at.expose_provenance()
}

/// Maps a page of a file for writing.
pub(super) fn map_file(file: RawFd) -> usize {
    map(PAGE, libc::PROT_WRITE, libc::MAP_SHARED, file)
}

/// Removes a mapping that no code uses any more.
pub(super) fn unmap(at: usize, len: usize) {
    // SAFETY: the caller made this mapping, and no code uses it any more.
    assert_eq!(unsafe { libc::munmap(ptr::with_exposed_provenance_mut(at), len) }, 0);
}

fn protect(at: usize, rights: i32) {
    // SAFETY: this is a page of the arena, and no reference points to it.
    assert_eq!(unsafe { libc::mprotect(ptr::with_exposed_provenance_mut(at), PAGE, rights) }, 0);
}

/// Returns the bytes of a descriptor.
pub(super) fn bytes(descriptor: &Descriptor) -> Vec<u8> {
    descriptor.iter().flat_map(|word| word.to_le_bytes()).collect()
}

impl Arena {
    pub(super) fn new() -> Self {
        const ANONYMOUS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        const RIGHTS: i32 = libc::PROT_READ | libc::PROT_WRITE;
        let around = map(2 * APART + PAGES * PAGE, libc::PROT_NONE, ANONYMOUS, -1);
        let start = around + APART;
        let before: Vec<u8> = (0..PAGES * PAGE).map(|n| (n * 7 + n / 253) as u8).collect();
        for page in 0..PAGES {
            let at = start + page * PAGE;
            protect(at, RIGHTS);
            // SAFETY: the page belongs to the arena, was made writable above, and is not known to other code
            // yet. `before` has a page of bytes from this offset on.
            unsafe {
                ptr::copy_nonoverlapping(
                    before[page * PAGE..].as_ptr(),
                    ptr::with_exposed_provenance_mut(at),
                    PAGE,
                );
            }
            match page {
                READ_ONLY => protect(at, libc::PROT_READ),
                MISSING => protect(at, libc::PROT_NONE),
                _ => {}
            }
        }
        Self {
            start,
            lists: map(LISTS * PAGE, RIGHTS, ANONYMOUS, -1),
            records: map(RECORDS * PAGE, RIGHTS, ANONYMOUS, -1),
            used_lists: Cell::new(0),
            // The first record is for descriptors whose record is not aligned.
            used_records: Cell::new(1),
            may_change: vec![false; before.len()],
            before,
        }
    }

    /// Returns an address of the arena, or an address without a mapping.
    pub(super) fn address(&self, input: &Input) -> u64 {
        match input.byte() {
            0xff => 1 << 63,
            0xf8..0xff => (self.start - PAGE + input.below((PAGES + 2) * PAGE)) as u64,
            page => (self.start + usize::from(page) % PAGES * PAGE + input.below(PAGE)) as u64,
        }
    }

    /// Takes a free record, and returns its number.
    pub(super) fn record(&self) -> usize {
        let number = self.used_records.get();
        self.used_records.set(number + 1);
        assert!(number < RECORDS * PAGE / 32, "more records than steps need");
        number
    }

    pub(super) fn record_at(&self, number: usize) -> u64 {
        (self.records + 32 * number) as u64
    }

    /// Returns an address at which a record or a list is not allowed.
    pub(super) fn no_record(&self, input: &Input) -> u64 {
        let page = [READ_ONLY, MISSING][usize::from(input.byte() & 1)];
        (self.start + page * PAGE + (input.below(PAGE) & !63)) as u64
    }

    /// Returns the status in a record.
    pub(super) fn status(&self, number: usize) -> u8 {
        let at = ptr::with_exposed_provenance_mut(self.records + 32 * number);
        // SAFETY: the address is a byte of the records, which the device writes atomically.
        unsafe { AtomicU8::from_ptr(at) }.load(Ordering::Acquire)
    }

    /// Writes a list outside of all operations' destinations, and returns its address.
    pub(super) fn list(&self, list: &[Descriptor]) -> u64 {
        let at = self.lists + 64 * self.used_lists.get();
        self.used_lists.set(self.used_lists.get() + list.len());
        assert!(self.used_lists.get() <= LISTS * PAGE / 64, "more lists than steps need");
        for (n, descriptor) in list.iter().enumerate() {
            let to = ptr::with_exposed_provenance_mut::<Descriptor>(at + 64 * n);
            // SAFETY: the aligned access lies within the lists, which the assertion above checks. No
            // descriptor in flight names these bytes yet.
            unsafe { to.write_volatile(*descriptor) };
        }
        at as u64
    }

    /// Marks the destinations of an operation as allowed to change.
    pub(super) fn allow(&mut self, opcode: u8, descriptor: &Descriptor) {
        let [_, _, _, dst, len, extra, ..] = *descriptor;
        let len = len & 0xffff_ffff;
        let destinations = match opcode {
            3 | 4 | 0x11 => [Some(dst), None],
            9 => [Some(dst), Some(extra)],
            _ => [None; 2],
        };
        for dst in destinations.into_iter().flatten() {
            let (start, end) = (self.start as u64, (self.start + PAGES * PAGE) as u64);
            let from = dst.clamp(start, end);
            let to = dst.saturating_add(len).clamp(from, end);
            self.may_change[(from - start) as usize..(to - start) as usize].fill(true);
        }
    }

    /// Asserts that no other byte has changed. All work queues must have stopped.
    pub(super) fn check(&self) {
        protect(self.start + MISSING * PAGE, libc::PROT_READ);
        // SAFETY: all pages of the arena are readable now, and all work queues have stopped, so no
        // thread writes it.
        let now = unsafe {
            std::slice::from_raw_parts(ptr::with_exposed_provenance::<u8>(self.start), PAGES * PAGE)
        };
        for (at, (now, before)) in now.iter().zip(&self.before).enumerate() {
            let may = self.may_change[at] && !(READ_ONLY..=MISSING).contains(&(at / PAGE));
            assert!(
                may || now == before,
                "byte {at} changed from {before} to {now}, which no descriptor names"
            );
        }
        let unused = self.records + 32 * self.used_records.get();
        let len = self.records + RECORDS * PAGE - unused;
        // SAFETY: the range lies within the records, and no descriptor uses these records, so no
        // thread writes them.
        let unused = unsafe { std::slice::from_raw_parts(ptr::with_exposed_provenance::<u8>(unused), len) };
        assert!(unused.iter().all(|byte| *byte == 0), "the device wrote a record that no descriptor uses");
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        unmap(self.start - APART, 2 * APART + PAGES * PAGE);
        unmap(self.lists, LISTS * PAGE);
        unmap(self.records, RECORDS * PAGE);
    }
}
