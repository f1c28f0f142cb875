//! Memory of this process that can be exported.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use dma_core::Access;
use dma_process::{above_stdio, available_memory, check_file_size};
use rustix::fs::{
    FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags, fallocate, fchmod, fcntl_add_seals, fcntl_get_seals,
    fstat, fstatfs, ftruncate, memfd_create,
};
use rustix::io::{Errno, retry_on_intr};

use super::mapping::Mapping;
use super::{Pages, RemoteError};

/// Memory of this process that it can [export](super::Export) to other processes.
///
/// The memory is zeroed and resident, so a copy causes no page fault and cannot fail for lack of memory.
/// Clones are handles to the same memory, which is freed when the last handle is dropped. Exports, and
/// imports in other processes, also keep the memory allocated.
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
    /// Rights that may be granted to peers.
    peers: Access,
}

impl SharedMemory {
    /// Allocates `len` bytes, aligned to a page. The time is proportional to `len`, because the pages are
    /// zeroed in this call.
    ///
    /// # Errors
    ///
    /// [`RemoteError::Empty`] for 0 bytes; [`RemoteError::OutOfMemory`] or [`RemoteError::Os`] if the system
    /// lacks memory or huge pages.
    pub fn allocate(len: usize, pages: Pages) -> Result<Self, RemoteError> {
        Self::allocate_for(Access::all(), len, 1, pages)
    }

    /// Allocates memory as [`allocate`](Self::allocate) does, at a multiple of `align` and of the page size.
    /// Exports can grant at most the rights `peers`.
    ///
    /// If `peers` lack [`Access::WRITE`], the memory is sealed (`F_SEAL_FUTURE_WRITE`, Linux 5.1): the kernel
    /// then allows writes only through this process's own mapping. Older kernels lack this seal; a `tracing`
    /// warning says so.
    ///
    /// # Errors
    ///
    /// See [`allocate`](Self::allocate); also [`RemoteError::Misaligned`] if `align` is not a power of two.
    pub fn allocate_for(peers: Access, len: usize, align: usize, pages: Pages) -> Result<Self, RemoteError> {
        if len == 0 {
            return Err(RemoteError::Empty { what: "shared memory" });
        }
        if !align.is_power_of_two() {
            return Err(RemoteError::Misaligned { align });
        }
        if pages == Pages::PreferHuge
            && huge_page_size().is_some_and(|huge| len >= huge)
            && let Ok(memory) = Self::make(peers, len, align, true)
        {
            return Ok(memory);
        }
        Self::make(peers, len, align, pages == Pages::Huge)
    }

    /// Allocates memory with huge or normal pages, as [`allocate_for`](Self::allocate_for) describes.
    fn make(peers: Access, len: usize, align: usize, huge: bool) -> Result<Self, RemoteError> {
        let failed = |operation| move |errno| RemoteError::os(operation, errno);
        let unavailable = |available| RemoteError::OutOfMemory { requested: len as u64, available };
        let (file, page_size) =
            create(huge).map_err(failed("creating shared memory (memfd_create, fchmod)"))?;
        let size = len.checked_next_multiple_of(page_size).ok_or(unavailable(isize::MAX as u64))?;
        // The kernel overcommits, so the allocation would succeed, and the kernel could kill a process later.
        if !huge
            && let Some(available) = available_memory()
            && size as u64 > available
        {
            return Err(unavailable(available));
        }
        fill(&file, size as u64).map_err(failed("allocating shared memory (ftruncate, fallocate)"))?;
        let mapping = Mapping::new(file.as_fd(), 0, size, true, align);
        let mapping = mapping.map_err(failed("mapping shared memory (mmap)"))?;
        // Seal the file after mapping it, because this mapping must stay writable.
        let sealed = seal(&file, peers.contains(Access::WRITE));
        sealed.map_err(failed("sealing shared memory (fcntl)"))?;
        Ok(Self { inner: Arc::new(Inner { mapping, file, len, page_size, peers }) })
    }

    /// Returns a pointer to the first byte, with the requested alignment. It is valid until the last handle
    /// is dropped.
    ///
    /// Importers may access granted bytes at any time, so make no references to them. Copy bytes in and out,
    /// as [`read_at`](Self::read_at) and [`write_at`](Self::write_at) do.
    #[must_use]
    pub fn ptr(&self) -> NonNull<u8> {
        self.inner.mapping.at(0)
    }

    /// Returns the requested length in bytes; never 0.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.inner.len
    }

    /// Copies the bytes from `offset` on to `to`.
    ///
    /// # Errors
    ///
    /// [`RemoteError::OutOfRange`], and `to` is unchanged.
    pub fn read_at(&self, offset: usize, to: &mut [u8]) -> Result<(), RemoteError> {
        self.check(offset, to.len())?;
        self.inner.mapping.read(offset, to).ok_or_else(|| self.out_of_range(offset, to.len()))
    }

    /// Copies `from` to the bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// [`RemoteError::OutOfRange`], and the memory is unchanged.
    pub fn write_at(&self, offset: usize, from: &[u8]) -> Result<(), RemoteError> {
        self.check(offset, from.len())?;
        self.inner.mapping.write(offset, from).ok_or_else(|| self.out_of_range(offset, from.len()))
    }

    /// Checks that `len` bytes from `offset` on are within the requested length. The mapping may be longer,
    /// because it consists of whole pages.
    pub(super) fn check(&self, offset: usize, len: usize) -> Result<(), RemoteError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.inner.len => Ok(()),
            _ => Err(self.out_of_range(offset, len)),
        }
    }

    fn out_of_range(&self, offset: usize, len: usize) -> RemoteError {
        RemoteError::OutOfRange { offset: offset as u64, len: len as u64, available: self.inner.len as u64 }
    }

    /// Returns the rights that may be granted to peers.
    #[must_use]
    pub fn peers(&self) -> Access {
        self.inner.peers
    }

    /// Returns the page size of the memory in bytes, a power of two.
    pub(super) fn page_size(&self) -> usize {
        self.inner.page_size
    }

    /// Returns a file descriptor of the memory for a peer that may write.
    pub(super) fn file(&self) -> Result<OwnedFd, RemoteError> {
        self.inner.file.try_clone().map_err(|source| RemoteError::Os {
            operation: "duplicating the descriptor of shared memory",
            source,
        })
    }

    /// Returns a file descriptor of the memory that is opened for reading. A peer can open the file again for
    /// writing: only the seal of [`allocate_for`](Self::allocate_for) prevents writes.
    pub(super) fn read_only_file(&self) -> Result<OwnedFd, RemoteError> {
        let path = format!("/proc/thread-self/fd/{}", self.inner.file.as_raw_fd());
        retry_on_intr(|| rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()))
            .map(above_stdio)
            .map_err(|errno| RemoteError::os("opening shared memory read-only through /proc", errno))
    }

    /// Leaks the memory.
    pub(super) fn leak(&self) {
        std::mem::forget(self.clone());
    }
}

/// Creates an empty memfd. Returns the file and its page size.
fn create(huge: bool) -> Result<(OwnedFd, usize), Errno> {
    let flags = if huge { MemfdFlags::HUGETLB } else { MemfdFlags::empty() };
    let flags = flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = match memfd_create("dma-shared", flags | MemfdFlags::NOEXEC_SEAL) {
        // Linux before 6.3 does not know the flag `NOEXEC_SEAL`.
        Err(Errno::INVAL) => memfd_create("dma-shared", flags),
        other => other,
    }?;
    let file = above_stdio(file);
    // The read-only mode prevents only accidental writes, because a process of the same user can change the
    // mode back.
    fchmod(&file, Mode::RUSR)?;
    let page_size =
        if huge { usize::try_from(fstatfs(&file)?.f_bsize).unwrap_or(0) } else { rustix::param::page_size() };
    if !page_size.is_power_of_two() {
        return Err(Errno::INVAL);
    }
    Ok((file, page_size))
}

/// Sets the file's size, and allocates all its pages. Fails with `FBIG` beyond the process's limit on the
/// size of files.
fn fill(file: &OwnedFd, size: u64) -> Result<(), Errno> {
    // If a signal interrupts a step, the kernel undoes the step, which is then repeated. So a step must be
    // shorter than the period of any timer, whose signals would otherwise interrupt it every time.
    const STEP: u64 = 8 << 20;
    check_file_size(file, size).map_err(|_| Errno::FBIG)?;
    retry_on_intr(|| ftruncate(file, size))?;
    let mut done = 0;
    while done < size {
        let step = STEP.min(size - done);
        retry_on_intr(|| fallocate(file, FallocateFlags::empty(), done, step))?;
        done += step;
    }
    Ok(())
}

/// Seals the file's size. Unless `writable`, also seals its bytes against new writers.
fn seal(file: &OwnedFd, writable: bool) -> Result<(), Errno> {
    let size = SealFlags::SHRINK | SealFlags::GROW;
    if !writable {
        match fcntl_add_seals(file, size | SealFlags::FUTURE_WRITE | SealFlags::SEAL) {
            Err(Errno::INVAL) => dma_core::deferred_log!(
                warn,
                "this kernel cannot prevent peers from writing memory that they may only read: F_SEAL_FUTURE_WRITE needs Linux 5.1"
            ),
            sealed => return sealed,
        }
    }
    fcntl_add_seals(file, size | SealFlags::SEAL)
}

/// Creates the page of a lease word. Returns its file and this process's mapping of it.
pub(super) fn control_page() -> Result<(OwnedFd, Mapping), Errno> {
    let (file, page_size) = create(false)?;
    fill(&file, page_size as u64)?;
    seal(&file, true)?;
    let mapping = Mapping::new(file.as_fd(), 0, page_size, true, 1)?;
    Ok((file, mapping))
}

/// Returns true if the bytes of `file` up to `end` can be accessed safely, because the file is long enough
/// and cannot shrink.
pub(super) fn cannot_shrink(file: BorrowedFd<'_>, end: u64) -> bool {
    let sealed = fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
    let long_enough = fstat(file).is_ok_and(|stat| u64::try_from(stat.st_size).is_ok_and(|size| size >= end));
    sealed && long_enough
}

/// Returns the size in bytes of the huge pages that [`create`] uses, if the system supports huge pages.
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
            let memory =
                SharedMemory::allocate_for(Access::all(), 3 * page(), 1 << shift, Pages::Normal).unwrap();
            assert!(memory.ptr().addr().get().is_multiple_of(1 << shift));
            assert!(memory.ptr().addr().get().is_multiple_of(page()));
            memory.write_at(3 * page() - 1, b"x").unwrap();
        }
        for align in [0, 3, usize::MAX] {
            let error = SharedMemory::allocate_for(Access::all(), 1, align, Pages::Normal).unwrap_err();
            assert!(matches!(error, RemoteError::Misaligned { .. }), "{error}");
        }
        SharedMemory::allocate_for(Access::all(), 1, 1 << (usize::BITS - 1), Pages::Normal).unwrap_err();
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

    /// Makes every attempt to write that a peer of the same user can make with a received file descriptor.
    #[test]
    fn read_only_memory_cannot_be_written_through_a_reopened_descriptor() {
        let reopened = |peers| {
            let memory = SharedMemory::allocate_for(peers, page(), 1, Pages::Normal).unwrap();
            assert_eq!(memory.peers(), peers);
            memory.write_at(0, b"mine").unwrap();
            let sent = memory.read_only_file().unwrap();
            fchmod(&sent, Mode::RUSR | Mode::WUSR).unwrap();
            let path = format!("/proc/self/fd/{}", sent.as_raw_fd());
            (memory, rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap())
        };
        let (memory, again) = reopened(Access::READ);
        assert_eq!(rustix::io::pwrite(&again, b"x", 0), Err(Errno::PERM));
        assert_eq!(Mapping::new(again.as_fd(), 0, page(), true, 1).unwrap_err(), Errno::PERM);
        assert_eq!(ftruncate(&again, 0), Err(Errno::PERM));
        assert_eq!(
            fallocate(&again, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 4096),
            Err(Errno::PERM)
        );
        // The owner's mapping stays writable, and readers see the written bytes.
        memory.write_at(0, b"MINE").unwrap();
        let mut seen = [0; 4];
        assert_eq!(rustix::io::pread(&again, &mut seen, 0), Ok(4));
        assert_eq!(&seen, b"MINE");
        // Without the seal, the peer can write.
        let (_memory, again) = reopened(Access::all());
        assert_eq!(rustix::io::pwrite(&again, b"x", 0), Ok(1));
    }

    #[test]
    fn the_kernel_keeps_a_read_only_descriptor_read_only() {
        let memory = SharedMemory::allocate(page(), Pages::Normal).unwrap();
        let file = memory.read_only_file().unwrap();
        assert_eq!(Mapping::new(file.as_fd(), 0, page(), true, 1).unwrap_err(), Errno::ACCESS);
        assert_eq!(rustix::io::pwrite(&file, b"x", 0), Err(Errno::BADF));
        let mapping = Mapping::new(file.as_fd(), 0, page(), false, 1).unwrap();
        assert!(mapping.write(0, b"x").is_none());
        memory.write_at(0, b"seen").unwrap();
        let mut seen = [0; 4];
        assert!(mapping.read(0, &mut seen).is_some());
        assert_eq!(&seen, b"seen");
    }
}
