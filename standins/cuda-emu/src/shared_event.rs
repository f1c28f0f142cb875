//! Events that several processes use: counters in a page of a file, which each of these processes maps.
#![expect(unsafe_code, reason = "maps memory")]

use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use dma_standin::check_file_size;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::codes::{Code, Outcome, require};
use crate::peer_memory::open_file_of;

/// The first bytes of each handle.
const MAGIC: [u8; 8] = *b"cuda-evt";
/// The name of the file.
const FILE_NAME: &str = "cuda-event";
const LEN: usize = 4096;

/// `CUipcEventHandle`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct EventHandle {
    magic: [u8; 8],
    process: u32,
    file: u32,
    rest: [u64; 6],
}

const _: () = assert!(size_of::<EventHandle>() == 64);

/// The counters of an event.
#[derive(Debug)]
pub(crate) struct SharedEvent {
    file: OwnedFd,
    /// The number of requested records, and the number of the last record that was executed.
    page: NonNull<[AtomicU64; 2]>,
}

// SAFETY: the page is mapped until the value is dropped, and is only accessed atomically.
unsafe impl Send for SharedEvent {}

impl SharedEvent {
    pub(crate) fn new() -> Outcome<Self> {
        let failed = |_| Code::OUT_OF_MEMORY;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create(FILE_NAME, flags).map_err(failed)?;
        check_file_size(&file, LEN as u64).map_err(|_| Code::OUT_OF_MEMORY)?;
        rustix::fs::ftruncate(&file, LEN as u64).map_err(failed)?;
        // If another process made the file shorter, SIGBUS would end this one.
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals).map_err(failed)?;
        Self::map(file)
    }

    /// Opens the event of another process.
    pub(crate) fn open(handle: EventHandle) -> Outcome<Self> {
        require(handle.magic == MAGIC, Code::INVALID_VALUE)?;
        let file = open_file_of(handle.process, handle.file, FILE_NAME)?;
        require(
            rustix::fs::fstat(&file).map_err(|_| Code::MAP_FAILED)?.st_size >= LEN as i64,
            Code::MAP_FAILED,
        )?;
        Self::map(file)
    }

    fn map(file: OwnedFd) -> Outcome<Self> {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the new mapping does not replace another one.
        let page = unsafe { rustix::mm::mmap(ptr::null_mut(), LEN, rights, MapFlags::SHARED, &file, 0) };
        let page = page.map_err(|_| Code::MAP_FAILED)?.cast();
        Ok(Self { file, page: NonNull::new(page).ok_or(Code::MAP_FAILED)? })
    }

    pub(crate) fn handle(&self) -> EventHandle {
        let file = self.file.as_raw_fd().unsigned_abs();
        EventHandle { magic: MAGIC, process: std::process::id(), file, rest: [0; 6] }
    }

    fn counters(&self) -> &[AtomicU64; 2] {
        // SAFETY: the page is mapped until the value is dropped, and all processes access it atomically.
        unsafe { self.page.as_ref() }
    }

    pub(crate) fn wanted(&self) -> u64 {
        self.counters()[0].load(Ordering::SeqCst)
    }

    pub(crate) fn recorded(&self) -> u64 {
        self.counters()[1].load(Ordering::SeqCst)
    }

    /// Requests a record, and returns its number.
    pub(crate) fn request(&self) -> u64 {
        self.counters()[0].fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Executes the record with this number.
    pub(crate) fn record(&self, number: u64) {
        self.counters()[1].fetch_max(number, Ordering::SeqCst);
    }
}

impl Drop for SharedEvent {
    fn drop(&mut self) {
        // SAFETY: `map` made this mapping, and only this value uses it.
        let _ = unsafe { rustix::mm::munmap(self.page.as_ptr().cast(), LEN) };
    }
}
