//! Memory that can be exported.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fs::{
    FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags, fallocate, fchmod, fcntl_add_seals, fcntl_get_seals,
    fstat, fstatfs, ftruncate, memfd_create,
};
use rustix::io::{Errno, retry_on_intr};

use super::mapping::Mapping;
use super::{Pages, RemoteError};

/// Memory of this process that it can [export](super::Export) to others.
///
/// It is zeroed, and all of it is there from the start: no page fault and no shortage of memory can hit a copy.
/// Clones are handles to the same memory, which is freed with the last of them. Exports, and imports in other
/// processes, keep the bytes alive too, so freeing it is always safe for them.
#[derive(Clone, Debug)]
pub struct SharedMemory {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    mapping: Mapping,
    file: OwnedFd,
    len: usize,
    page_size: usize,
}

impl SharedMemory {
    /// Allocates `len` bytes, aligned to a page. Takes time in proportion to `len`, as the pages are zeroed now.
    ///
    /// # Errors
    ///
    /// [`RemoteError::Empty`] for no bytes, [`RemoteError::OutOfMemory`] and [`RemoteError::Os`] when the system
    /// cannot give that much, or no huge pages.
    pub fn allocate(len: usize, pages: Pages) -> Result<Self, RemoteError> {
        Self::allocate_aligned(len, 1, pages)
    }

    /// As [`allocate`](Self::allocate), at an address that is a multiple of `align` and of the page size.
    ///
    /// # Errors
    ///
    /// As [`allocate`](Self::allocate), and [`RemoteError::Misaligned`] if `align` is not a power of two.
    pub fn allocate_aligned(len: usize, align: usize, pages: Pages) -> Result<Self, RemoteError> {
        if len == 0 {
            return Err(RemoteError::Empty { what: "shared memory" });
        }
        if !align.is_power_of_two() {
            return Err(RemoteError::Misaligned { align });
        }
        if pages == Pages::PreferHuge {
            if huge_page_size().is_some_and(|huge| len >= huge)
                && let Ok(memory) = Self::make(len, align, true)
            {
                return Ok(memory);
            }
            return Self::make(len, align, false);
        }
        Self::make(len, align, pages == Pages::Huge)
    }

    fn make(len: usize, align: usize, huge: bool) -> Result<Self, RemoteError> {
        let failed = |errno| RemoteError::os("allocating shared memory", errno);
        let unavailable = |available| RemoteError::OutOfMemory { asked: len as u64, available };
        let (file, page_size) = create(huge).map_err(failed)?;
        let size = len.checked_next_multiple_of(page_size).ok_or(unavailable(isize::MAX as u64))?;
        // The kernel would end this process, or another, rather than answer that it has no more.
        if !huge
            && let Some(available) = available_memory()
            && size as u64 > available
        {
            return Err(unavailable(available));
        }
        fill(&file, size as u64).map_err(failed)?;
        let mapping = Mapping::new(file.as_fd(), 0, size, true, align).map_err(failed)?;
        Ok(Self { inner: Arc::new(Inner { mapping, file, len, page_size }) })
    }

    /// The first byte; aligned as asked for, valid until the last handle is dropped.
    ///
    /// Importers may read and write what they were granted at any time, so make no references to it: copy in and
    /// out, as [`read_at`](Self::read_at) and [`write_at`](Self::write_at) do.
    #[must_use]
    pub fn ptr(&self) -> NonNull<u8> {
        self.inner.mapping.at(0)
    }

    /// Length in bytes, as allocated; never 0.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.inner.len
    }

    /// Copies the bytes from `offset` to `to`.
    ///
    /// # Errors
    ///
    /// [`RemoteError::OutOfRange`], and `to` is unchanged.
    pub fn read_at(&self, offset: usize, to: &mut [u8]) -> Result<(), RemoteError> {
        self.check(offset, to.len())?;
        if self.inner.mapping.read(offset, to) { Ok(()) } else { Err(self.out_of_range(offset, to.len())) }
    }

    /// Copies `from` to the bytes from `offset`.
    ///
    /// # Errors
    ///
    /// [`RemoteError::OutOfRange`], and the memory is unchanged.
    pub fn write_at(&self, offset: usize, from: &[u8]) -> Result<(), RemoteError> {
        self.check(offset, from.len())?;
        if self.inner.mapping.write(offset, from) {
            Ok(())
        } else {
            Err(self.out_of_range(offset, from.len()))
        }
    }

    /// Whether `len` bytes from `offset` are within what was asked for (the mapping ends with a whole page).
    pub(super) fn check(&self, offset: usize, len: usize) -> Result<(), RemoteError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.inner.len => Ok(()),
            _ => Err(self.out_of_range(offset, len)),
        }
    }

    fn out_of_range(&self, offset: usize, len: usize) -> RemoteError {
        RemoteError::OutOfRange { offset: offset as u64, len: len as u64, available: self.inner.len as u64 }
    }

    /// Size of its pages in bytes; a power of two.
    pub(super) fn page_size(&self) -> usize {
        self.inner.page_size
    }

    /// A descriptor of the memory for a peer that may write it.
    pub(super) fn file(&self) -> Result<OwnedFd, RemoteError> {
        self.inner.file.try_clone().map_err(|source| RemoteError::Os {
            operation: "duplicating the descriptor of shared memory",
            source,
        })
    }

    /// A descriptor of the memory through which the kernel lets nobody write it.
    pub(super) fn read_only_file(&self) -> Result<OwnedFd, RemoteError> {
        let path = format!("/proc/thread-self/fd/{}", self.inner.file.as_raw_fd());
        retry_on_intr(|| rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()))
            .map_err(|errno| RemoteError::os("opening shared memory read-only through /proc", errno))
    }

    /// Never frees the memory.
    pub(super) fn leak(&self) {
        std::mem::forget(self.clone());
    }
}

/// An empty file in memory, and the size of its pages.
fn create(huge: bool) -> Result<(OwnedFd, usize), Errno> {
    let flags = if huge { MemfdFlags::HUGETLB } else { MemfdFlags::empty() };
    let flags = flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = match memfd_create("dma-shared", flags | MemfdFlags::NOEXEC_SEAL) {
        // Linux before 6.3 does not know the flag.
        Err(Errno::INVAL) => memfd_create("dma-shared", flags),
        other => other,
    }?;
    // Nobody gets a writable descriptor out of a read-only one by accident.
    fchmod(&file, Mode::RUSR)?;
    let page_size =
        if huge { usize::try_from(fstatfs(&file)?.f_bsize).unwrap_or(0) } else { rustix::param::page_size() };
    if !page_size.is_power_of_two() {
        return Err(Errno::INVAL);
    }
    Ok((file, page_size))
}

/// Gives the file its size for good, and pages for all of it.
fn fill(file: &OwnedFd, size: u64) -> Result<(), Errno> {
    // The kernel undoes a step that a signal interrupts, so keep a step shorter than the period of any timer.
    const STEP: u64 = 8 << 20;
    retry_on_intr(|| ftruncate(file, size))?;
    let mut done = 0;
    while done < size {
        let step = STEP.min(size - done);
        retry_on_intr(|| fallocate(file, FallocateFlags::empty(), done, step))?;
        done += step;
    }
    fcntl_add_seals(file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
}

/// A page with nothing but a lease word in it: its descriptor and this process's mapping of it.
pub(super) fn control_page() -> Result<(OwnedFd, Mapping), Errno> {
    let (file, page_size) = create(false)?;
    fill(&file, page_size as u64)?;
    let mapping = Mapping::new(file.as_fd(), 0, page_size, true, 1)?;
    Ok((file, mapping))
}

/// Whether touching bytes up to `end` of `file` can never fail: it is that long and cannot shrink.
pub(super) fn cannot_shrink(file: BorrowedFd<'_>, end: u64) -> bool {
    let sealed = fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
    let long_enough = fstat(file).is_ok_and(|stat| u64::try_from(stat.st_size).is_ok_and(|size| size >= end));
    sealed && long_enough
}

/// Bytes that the system says it can still hand out, if it says.
fn available_memory() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    Some(meminfo_bytes(&meminfo, "MemAvailable:")? + meminfo_bytes(&meminfo, "SwapFree:").unwrap_or(0))
}

/// Size of the huge pages that [`create`] uses, if the system has any.
fn huge_page_size() -> Option<usize> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    usize::try_from(meminfo_bytes(&meminfo, "Hugepagesize:")?).ok()
}

fn meminfo_bytes(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> usize {
        rustix::param::page_size()
    }

    #[test]
    fn is_zeroed_and_holds_what_is_written() {
        let len = 2 * page() + 5;
        let memory = SharedMemory::allocate(len, Pages::Normal).unwrap();
        let mut all = vec![1; len];
        memory.read_at(0, &mut all).unwrap();
        assert!(all.iter().all(|&byte| byte == 0));
        memory.write_at(len - 3, b"end").unwrap();
        memory.clone().read_at(len - 4, &mut all[..4]).unwrap();
        assert_eq!(&all[..4], b"\0end");
        assert_eq!(memory.ptr().addr().get() % page(), 0);
    }

    #[test]
    fn the_rest_of_the_last_page_is_out_of_range() {
        let memory = SharedMemory::allocate(10, Pages::Normal).unwrap();
        assert!(matches!(
            memory.write_at(8, b"abc"),
            Err(RemoteError::OutOfRange { offset: 8, len: 3, available: 10 })
        ));
        assert!(memory.read_at(usize::MAX, &mut [0]).is_err());
        assert!(memory.read_at(11, &mut []).is_err());
        memory.read_at(10, &mut []).unwrap();
    }

    #[test]
    fn impossible_sizes_are_refused() {
        assert!(matches!(SharedMemory::allocate(0, Pages::Normal), Err(RemoteError::Empty { .. })));
        for len in [1 << 50, isize::MAX as usize, usize::MAX] {
            let error = SharedMemory::allocate(len, Pages::Normal).unwrap_err();
            assert!(matches!(error, RemoteError::OutOfMemory { .. }), "{error}");
        }
    }

    #[test]
    fn huge_pages_are_there_or_refused_with_a_remedy() {
        match SharedMemory::allocate(page() + 1, Pages::Huge) {
            Ok(memory) => {
                assert_eq!(memory.ptr().addr().get() % memory.page_size(), 0);
                memory.write_at(page(), b"x").unwrap();
                assert!(memory.write_at(page() + 1, b"x").is_err());
            }
            Err(error) => assert!(error.to_string().contains("vm.nr_hugepages"), "{error}"),
        }
    }

    #[test]
    fn huge_pages_are_preferred_but_not_demanded() {
        for len in [1, 5 << 20] {
            let memory = SharedMemory::allocate(len, Pages::PreferHuge).unwrap();
            memory.write_at(len - 1, b"x").unwrap();
        }
    }

    #[test]
    fn alignment_is_as_asked_for() {
        for shift in 0..=30 {
            let memory = SharedMemory::allocate_aligned(3 * page(), 1 << shift, Pages::Normal).unwrap();
            assert!(memory.ptr().addr().get().is_multiple_of(1 << shift));
            assert!(memory.ptr().addr().get().is_multiple_of(page()));
            memory.write_at(3 * page() - 1, b"x").unwrap();
        }
        for align in [0, 3, usize::MAX] {
            let error = SharedMemory::allocate_aligned(1, align, Pages::Normal).unwrap_err();
            assert!(matches!(error, RemoteError::Misaligned { .. }), "{error}");
        }
        SharedMemory::allocate_aligned(1, 1 << (usize::BITS - 1), Pages::Normal).unwrap_err();
    }

    #[test]
    fn size_is_sealed() {
        let memory = SharedMemory::allocate(page(), Pages::Normal).unwrap();
        let file = memory.file().unwrap();
        assert_eq!(ftruncate(&file, 0), Err(Errno::PERM));
        assert!(cannot_shrink(file.as_fd(), page() as u64));
        assert!(!cannot_shrink(file.as_fd(), page() as u64 + 1));
        let unsealed = memfd_create("unsealed", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&unsealed, page() as u64).unwrap();
        assert!(!cannot_shrink(unsealed.as_fd(), page() as u64));
    }

    #[test]
    fn the_kernel_keeps_a_read_only_descriptor_read_only() {
        let memory = SharedMemory::allocate(page(), Pages::Normal).unwrap();
        let file = memory.read_only_file().unwrap();
        assert_eq!(Mapping::new(file.as_fd(), 0, page(), true, 1).unwrap_err(), Errno::ACCESS);
        assert_eq!(rustix::io::pwrite(&file, b"x", 0), Err(Errno::BADF));
        let mapping = Mapping::new(file.as_fd(), 0, page(), false, 1).unwrap();
        assert!(!mapping.write(0, b"x"));
        memory.write_at(0, b"seen").unwrap();
        let mut seen = [0; 4];
        assert!(mapping.read(0, &mut seen));
        assert_eq!(&seen, b"seen");
    }
}
