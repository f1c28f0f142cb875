//! [`Space`]: the addresses of a device's memory.
#![expect(unsafe_code, reason = "maps memory")]

use std::os::fd::OwnedFd;
use std::ptr;

use dma_standin::check_file_size;
use rustix::mm::{MapFlags, ProtFlags};

use super::PAGE;
use crate::peer_memory::FILE_NAME;

/// Size of a device's address space, as a multiple of its memory.
const SPARE: u64 = 2;

/// The addresses of a device's memory.
#[derive(Debug)]
pub(crate) struct Space {
    /// First address that programs see.
    pub(super) base: u64,
    /// First address of the bytes in this process.
    pub(super) bytes: u64,
    pub(super) len: u64,
    total: u64,
    pub(super) used: u64,
    /// The allocations below this address have no gap between them.
    pub(super) full_below: u64,
    pub(super) file: OwnedFd,
}

impl Space {
    pub(super) fn new(device: usize, total: u64) -> std::io::Result<Self> {
        let total = total.next_multiple_of(PAGE);
        let len = total * SPARE;
        let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create(format!("{FILE_NAME}{device}"), flags)?;
        check_file_size(&file, len)?;
        rustix::fs::ftruncate(&file, len)?;
        // Programs get this file as a dma-buf. If it became shorter, SIGBUS would end this process.
        let seals = rustix::fs::SealFlags::SHRINK | rustix::fs::SealFlags::GROW | rustix::fs::SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals)?;
        let flags = MapFlags::NORESERVE;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the new mapping does not replace another one.
        let bytes = unsafe {
            rustix::mm::mmap(ptr::null_mut(), len as usize, rights, flags | MapFlags::SHARED, &file, 0)
        }?;
        // SAFETY: the new mapping does not replace another one.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                len as usize,
                ProtFlags::empty(),
                flags | MapFlags::PRIVATE,
            )
        }?;
        let [base, bytes] = [base, bytes].map(|start| start.expose_provenance() as u64);
        Ok(Self { base, bytes, len, total, used: 0, full_below: base, file })
    }

    pub(super) fn contains(&self, addr: u64) -> bool {
        addr.wrapping_sub(self.base) < self.len
    }

    pub(super) fn bytes_at(&self, addr: u64) -> u64 {
        self.bytes + (addr - self.base)
    }

    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    pub(crate) const fn free(&self) -> u64 {
        self.total - self.used
    }

    /// Returns the first address and the length of the bytes of the whole device.
    pub(crate) const fn mapping(&self) -> (u64, u64) {
        (self.bytes, self.len)
    }
}
