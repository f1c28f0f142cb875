//! The simulated device's own memory, which has addresses that the CPU cannot access.
//!
//! The addresses are a mapping without rights, so that an access by the CPU ends the process by SIGSEGV,
//! as on a device whose memory the CPU cannot access. The model moves the bytes through a second mapping.
#![expect(unsafe_code, reason = "maps the memory")]

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex};

use dma_core::{Error, ErrorKind, MemoryRequest, Result};
use dma_process::{above_stdio, available_memory, check_file_size, lock};
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create,
};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// All memory of one device.
#[derive(Debug)]
pub(super) struct DeviceMemory {
    /// The addresses for descriptors. This mapping cannot be accessed.
    addresses: DeviceMapping,
    /// The mapping through which the model accesses the bytes.
    bytes: DeviceMapping,
    file: OwnedFd,
    used: Mutex<Ranges>,
}

/// Allocated ranges: the offset of the first byte, and the length. They consist of whole pages and do not
/// overlap.
type Ranges = BTreeMap<usize, usize>;

/// Mapped pages.
#[derive(Debug)]
struct DeviceMapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the value owns its pages, whose bytes are accessed only through raw pointers.
unsafe impl Send for DeviceMapping {}
// SAFETY: a shared reference gives access only to the address.
unsafe impl Sync for DeviceMapping {}

impl DeviceMapping {
    /// Maps pages of `file`, or reserves addresses without pages.
    fn new(len: usize, file: Option<&OwnedFd>) -> Result<Self, Errno> {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        let start = match file {
            // SAFETY: the system chooses the address of the new mapping, so no other mapping is replaced.
            Some(file) => unsafe { mmap(ptr::null_mut(), len, rights, MapFlags::SHARED, file, 0) },
            // SAFETY: the system chooses the address of the new mapping, so no other mapping is replaced.
            None => unsafe {
                let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
                mmap_anonymous(ptr::null_mut(), len, ProtFlags::empty(), flags)
            },
        }?;
        Ok(Self { start: NonNull::new(start.cast()).ok_or(Errno::NOMEM)?, len })
    }

    /// Returns the address of byte `offset`, which is within the mapping.
    fn at(&self, offset: usize) -> NonNull<u8> {
        debug_assert!(offset < self.len);
        // SAFETY: the caller passes an offset within the mapping.
        unsafe { self.start.add(offset) }
    }
}

impl Drop for DeviceMapping {
    fn drop(&mut self) {
        // SAFETY: the pages were mapped with this length, and are unmapped once. Regions keep the device's
        // memory alive, so no region uses it any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

impl DeviceMemory {
    /// Creates a device's memory of `len` bytes, rounded up to whole pages.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if the address space has no room; `Os`.
    pub(super) fn new(len: u64) -> Result<Self> {
        let too_much = || Error::new(ErrorKind::OutOfMemory, format!("{len} bytes of device memory"));
        let pages = usize::try_from(len).ok().and_then(|len| len.checked_next_multiple_of(page()));
        let size = pages.ok_or_else(too_much)?;
        let failed = |errno| match errno {
            Errno::NOMEM | Errno::INVAL | Errno::FBIG => too_much().with_hint("ask for less `device_memory`"),
            errno => Error::from(std::io::Error::from(errno)),
        };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("dma-sim", flags).map(above_stdio).map_err(failed)?;
        check_file_size(&file, size as u64)?;
        ftruncate(&file, size as u64).map_err(failed)?;
        // Programs and engines get this file as a dma-buf. If it became shorter, SIGBUS would end this
        // process.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).map_err(failed)?;
        let bytes = DeviceMapping::new(size, Some(&file)).map_err(failed)?;
        let addresses = DeviceMapping::new(size, None).map_err(failed)?;
        Ok(Self { addresses, bytes, file, used: Mutex::default() })
    }

    /// Returns the host's pointer to the `len` bytes at the device's address `addr`, if they are within one
    /// allocation.
    pub(super) fn find(&self, addr: u64, len: usize) -> Option<NonNull<u8>> {
        let offset = addr.checked_sub(self.addresses.start.addr().get() as u64)?;
        let offset = usize::try_from(offset).ok()?;
        let used = lock(&self.used);
        let (start, size) = used.range(..=offset).next_back()?;
        let inside = offset - start < *size && len <= size - (offset - start);
        inside.then(|| self.bytes.at(offset))
    }

    /// Allocates zeroed bytes according to `request`.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if the device or the system has too little memory.
    pub(super) fn allocate(self: &Arc<Self>, request: &MemoryRequest) -> Result<Allocation> {
        let full =
            || request.out_of_memory().with_hint("free device memory, or open with more `device_memory`");
        let size = request.len.checked_next_multiple_of(page()).ok_or_else(full)?;
        let offset = {
            let mut used = lock(&self.used);
            let offset = self.find_room(&used, size, request.align).ok_or_else(full)?;
            if let Some(available) = available_memory().filter(|available| size as u64 > *available) {
                return Err(request.out_of_memory().with_numbers(size as u64, available));
            }
            used.insert(offset, size);
            offset
        };
        let allocation = Allocation { memory: Arc::clone(self), offset, size };
        // The file's pages are zero until they are written. Dropping an allocation releases its pages.
        match fallocate(&self.file, FallocateFlags::KEEP_SIZE, offset as u64, size as u64) {
            Ok(()) => Ok(allocation),
            Err(Errno::NOSPC | Errno::NOMEM) => Err(request.out_of_memory()),
            Err(errno) => Err(Error::from(std::io::Error::from(errno))),
        }
    }

    /// Returns the first offset whose address is a multiple of `align`, with `size` free bytes.
    fn find_room(&self, used: &Ranges, size: usize, align: usize) -> Option<usize> {
        let base = self.addresses.start.addr().get();
        let mut at = 0_usize;
        for (&start, &len) in used.iter().chain([(&self.addresses.len, &0)]) {
            let aligned = base.checked_add(at)?.checked_next_multiple_of(align.max(page()))? - base;
            if aligned.checked_add(size)? <= start {
                return Some(aligned);
            }
            at = start + len;
        }
        None
    }
}

/// Allocated memory of a device. Dropping it frees the memory.
#[derive(Debug)]
pub(super) struct Allocation {
    memory: Arc<DeviceMemory>,
    offset: usize,
    size: usize,
}

impl Allocation {
    /// Returns the device's address of the first byte.
    pub(super) fn addr(&self) -> u64 {
        self.memory.addresses.at(self.offset).addr().get() as u64
    }

    /// Returns the pointer to the first byte through which the model accesses it.
    pub(super) fn bytes(&self) -> NonNull<u8> {
        self.memory.bytes.at(self.offset)
    }

    /// Returns the file that represents the memory as a dma-buf, and the offset of the first byte in this
    /// file.
    pub(super) fn dmabuf(&self) -> Result<(OwnedFd, u64)> {
        Ok((self.memory.file.as_fd().try_clone_to_owned()?, self.offset as u64))
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // The pages are released, so that the next allocation finds zeros. If this fails, the range is
        // never reused.
        match fallocate(&self.memory.file, flags, self.offset as u64, self.size as u64) {
            Ok(()) => {
                lock(&self.memory.used).remove(&self.offset);
            }
            Err(errno) => {
                let len = self.size;
                dma_core::deferred_log!(error, %errno, len, "simulated device memory is leaked")
            }
        }
    }
}

/// Returns the size of a page in bytes, which is the granularity of allocations.
fn page() -> usize {
    rustix::param::page_size()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_dma_buf_cannot_become_shorter() {
        let memory = DeviceMemory::new(1 << 20).unwrap();
        assert_eq!(ftruncate(&memory.file, 0), Err(Errno::PERM));
        assert_eq!(fcntl_add_seals(&memory.file, SealFlags::WRITE), Err(Errno::PERM));
    }

    #[test]
    fn allocations_are_apart_aligned_and_come_back() {
        let memory = Arc::new(DeviceMemory::new(64 * page() as u64).unwrap());
        let request = |len, align| MemoryRequest::new(len).with_align(align);
        let a = memory.allocate(&request(1, 1)).unwrap();
        let b = memory.allocate(&request(page() + 1, 8 * page())).unwrap();
        assert!(b.addr().is_multiple_of(8 * page() as u64), "{:#x}", b.addr());
        let c = memory.allocate(&request(page(), 1)).unwrap();
        assert!(a.addr() + page() as u64 <= b.addr().min(c.addr()));
        let full = memory.allocate(&request(64 * page(), 1)).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::OutOfMemory, "{full}");
        let huge = memory.allocate(&request(1 << 60, 1)).unwrap_err();
        assert!(huge.hint().contains("device_memory"), "{huge}");
        // SAFETY: the pointer leads to the bytes of `a`, which no other code accesses.
        unsafe { a.bytes().write(7) };
        drop((a, b, c));
        let all = memory.allocate(&request(64 * page(), 1)).unwrap();
        // SAFETY: the pointer leads to the bytes of `all`, which no other code accesses.
        assert_eq!(unsafe { all.bytes().read() }, 0, "zeroed");
    }

    #[test]
    fn only_allocated_bytes_are_found() {
        let memory = Arc::new(DeviceMemory::new(16 * page() as u64).unwrap());
        let a = memory.allocate(&MemoryRequest::new(2 * page())).unwrap();
        let addr = a.addr();
        assert_eq!(memory.find(addr, 2 * page()), Some(a.bytes()));
        assert!(memory.find(addr + 1, 2 * page()).is_none() && memory.find(addr - 1, 1).is_none());
        assert!(memory.find(a.bytes().addr().get() as u64, 1).is_none(), "an address of the CPU");
        assert!(memory.find(addr, usize::MAX).is_none() && memory.find(u64::MAX, 1).is_none());
        drop(a);
        assert!(memory.find(addr, 1).is_none(), "freed");
    }
}
