//! Memory of other processes: handles of allocations, and allocations that were opened by a handle.
//!
//! An allocation of a pool is a range of the file by which the pool was imported. The handle of any other
//! allocation names a process, one of its file descriptors, and a range of that file, which is a device's
//! memory. The process that opens the handle maps the range from `/proc/PID/fd`, so the kernel checks its
//! permission.
#![expect(unsafe_code, reason = "maps memory")]

use std::ffi::c_void;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use rustix::fs::{Mode, OFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::codes::{Code, Outcome, require};

/// The first bytes of each handle of an allocation, and of an allocation of a pool.
const MAGIC: [u8; 8] = *b"cuda-emu";
const POOL_MAGIC: [u8; 8] = *b"cuda-ptr";
const PAGE: u64 = 4096;
/// The name of the file that is a device's memory, before the device's number.
pub(crate) const FILE_NAME: &str = "vram";

/// `CUipcMemHandle`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct MemHandle {
    magic: [u8; 8],
    process: u32,
    file: u32,
    /// The range of the allocation in the file.
    offset: u64,
    len: u64,
    /// A number that differs for each allocation of the process.
    id: u64,
    rest: [u64; 3],
}

const _: () = assert!(size_of::<MemHandle>() == 64);

impl MemHandle {
    /// Makes the handle of an allocation in `file`.
    pub(crate) fn new(file: &OwnedFd, offset: u64, len: u64, id: u64) -> Self {
        let file = file.as_raw_fd().unsigned_abs();
        Self { magic: MAGIC, process: std::process::id(), file, offset, len, id, rest: [0; 3] }
    }

    /// Returns the length of the allocation.
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }
}

/// `CUmemPoolPtrExportData`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct PointerHandle {
    magic: [u8; 8],
    /// The number of the file, by which handles of other pools are refused.
    inode: u64,
    /// The range of the allocation in the file.
    offset: u64,
    len: u64,
    /// A number that differs for each allocation of the process.
    id: u64,
    rest: [u64; 3],
}

const _: () = assert!(size_of::<PointerHandle>() == 64);

impl PointerHandle {
    /// Makes the handle of an allocation in `file`.
    pub(crate) fn new(file: &OwnedFd, offset: u64, len: u64, id: u64) -> Outcome<Self> {
        let inode = rustix::fs::fstat(file).map_err(|_| Code::UNKNOWN)?.st_ino;
        Ok(Self { magic: POOL_MAGIC, inode, offset, len, id, rest: [0; 3] })
    }

    /// Returns the length of the allocation.
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }
}

/// The handle by which memory was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Allocation(MemHandle),
    Pool(PointerHandle),
}

/// Opens a file descriptor of another process, whose file has a name that begins with `name`, and cannot
/// become shorter.
pub(crate) fn open_file_of(process: u32, file: u32, name: &str) -> Outcome<OwnedFd> {
    if process == std::process::id() {
        // The real driver also refuses to open memory and events of the same process.
        return Err(Code::INVALID_CONTEXT);
    }
    let path = format!("/proc/{process}/fd/{file}");
    let found = std::fs::read_link(&path).map_err(|_| Code::MAP_FAILED)?;
    // The file's name is checked, because the process may have ended, and another process may have its
    // number.
    if !found.to_string_lossy().starts_with(&format!("/memfd:{name}")) {
        return Err(Code::MAP_FAILED);
    }
    let failed = |_| Code::MAP_FAILED;
    let file = rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
    let seals = rustix::fs::fcntl_get_seals(&file).map_err(failed)?;
    if seals.contains(SealFlags::SHRINK) { Ok(file) } else { Err(Code::MAP_FAILED) }
}

/// Returns the name of the file by which a pool is imported: that of a device's memory, or of a pool's host
/// memory. `None` for other files, and for a file that may become shorter.
pub(crate) fn pool_file_name(file: &OwnedFd) -> Option<String> {
    let name = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    let seals = rustix::fs::fcntl_get_seals(file).ok()?;
    let name = name.to_string_lossy();
    let name = name.strip_prefix("/memfd:")?.trim_end_matches(" (deleted)");
    seals.contains(SealFlags::SHRINK).then(|| name.to_owned())
}

/// An allocation of another process that this process has opened.
#[derive(Debug)]
pub(crate) struct PeerMemory {
    pub(crate) origin: Origin,
    /// Number of calls that opened the allocation, minus calls that closed it.
    pub(crate) users: usize,
    /// First address that programs see, and first address of the bytes in this process, which are equal for
    /// host memory. Each address is the start of a page; the allocation begins `skip` bytes later.
    maps: [u64; 2],
    map_len: usize,
    skip: u64,
}

impl PeerMemory {
    /// Maps the allocation that a handle names.
    pub(crate) fn open(handle: MemHandle) -> Outcome<Self> {
        let MemHandle { magic, process, file, offset, len, .. } = handle;
        let end = offset.checked_add(len).filter(|_| len > 0).ok_or(Code::INVALID_VALUE)?;
        require(magic == MAGIC, Code::INVALID_VALUE)?;
        let file = open_file_of(process, file, FILE_NAME)?;
        Self::map(Origin::Allocation(handle), &file, [offset, end], false)
    }

    /// Maps an allocation of a pool that was imported by `file`.
    pub(crate) fn of_pool(handle: PointerHandle, file: &OwnedFd, is_host: bool) -> Outcome<Self> {
        let PointerHandle { magic, inode, offset, len, .. } = handle;
        let end = offset.checked_add(len).filter(|_| len > 0).ok_or(Code::INVALID_VALUE)?;
        let of_this_pool = rustix::fs::fstat(file).is_ok_and(|stat| stat.st_ino == inode);
        require(magic == POOL_MAGIC && of_this_pool, Code::INVALID_VALUE)?;
        Self::map(Origin::Pool(handle), file, [offset, end], is_host)
    }

    /// Maps a range of a file that cannot become shorter.
    fn map(origin: Origin, file: &OwnedFd, [offset, end]: [u64; 2], is_host: bool) -> Outcome<Self> {
        let failed = |_| Code::MAP_FAILED;
        require(rustix::fs::fstat(file).map_err(failed)?.st_size.unsigned_abs() >= end, Code::MAP_FAILED)?;
        let first = offset / PAGE * PAGE;
        let map_len = usize::try_from(end.next_multiple_of(PAGE) - first).map_err(|_| Code::MAP_FAILED)?;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the new mapping does not replace another one.
        let bytes =
            unsafe { rustix::mm::mmap(ptr::null_mut(), map_len, rights, MapFlags::SHARED, file, first) }
                .map_err(failed)?;
        let of = |seen: *mut c_void| {
            let maps = [seen, bytes].map(|start: *mut c_void| start.expose_provenance() as u64);
            Self { origin, users: 1, maps, map_len, skip: offset - first }
        };
        if is_host {
            return Ok(of(bytes));
        }
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the new mapping does not replace another one.
        let seen = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), map_len, ProtFlags::empty(), flags) };
        let Ok(seen) = seen else {
            // SAFETY: this call made the mapping, and nothing uses it yet.
            let _ = unsafe { rustix::mm::munmap(bytes, map_len) };
            return Err(Code::OUT_OF_MEMORY);
        };
        Ok(of(seen))
    }

    /// Returns the address that programs see.
    pub(crate) const fn addr(&self) -> u64 {
        self.maps[0] + self.skip
    }

    /// Returns the address of the bytes in this process.
    pub(crate) const fn bytes(&self) -> u64 {
        self.maps[1] + self.skip
    }
}

impl Drop for PeerMemory {
    fn drop(&mut self) {
        let [seen, bytes] = self.maps;
        for start in std::iter::once(bytes).chain((seen != bytes).then_some(seen)) {
            let start = ptr::with_exposed_provenance_mut(start as usize);
            // SAFETY: `open` made the mapping, and no copy uses it any more.
            let _ = unsafe { rustix::mm::munmap(start, self.map_len) };
        }
    }
}
