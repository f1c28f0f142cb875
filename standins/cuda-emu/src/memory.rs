//! Memory: the address space of each device, its allocations, and pinned and registered host memory.
//!
//! The addresses of device memory that programs see belong to a mapping without access rights, so the CPU
//! cannot touch them. The bytes are in a second mapping, which only the devices of this stand-in use.
#![expect(unsafe_code, reason = "maps memory")]

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::os::fd::OwnedFd;
use std::ptr;

use dma_standin::check_file_size;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::advice::AdvisedRanges;
use crate::codes::{Code, Outcome};
use crate::peer_memory::{FILE_NAME, MemHandle, Origin, PeerMemory, PointerHandle};
use crate::pool::{MemPool, Place, PoolKey, Pools, Sharing};
use crate::ptx::Mapped;

/// Device allocations begin at multiples of this. Real devices align allocations at least to this.
const GRANULE: u64 = 512;
/// Gap between allocations, so that an access just past the end of one does not hit the next.
const GAP: u64 = 512;
const PAGE: u64 = 4096;
/// Size of a device's address space, as a multiple of its memory.
const SPARE: u64 = 2;
/// Pinned allocations of fewer bytes do not begin at a page boundary.
const PINNED_SHARE_PAGES: u64 = 1 << 20;
/// New device memory and pinned memory are filled with this value, up to `STALE_LEN` bytes, because real
/// memory is not zeroed.
const STALE: u8 = 0xa5;
const STALE_LEN: usize = 1 << 20;

/// The kind of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AllocationKind {
    Device,
    /// Host memory of `cuMemHostAlloc`.
    Pinned,
    /// Host memory of the program.
    Registered {
        read_only: bool,
    },
    /// Memory of another process.
    Peer {
        host: bool,
    },
    /// Host memory of `cuMemAllocManaged`.
    Managed,
    /// Memory that a stream frees in its order. Programs cannot name it any more.
    Freeing {
        stream: u64,
        place: FreedPlace,
    },
}

impl AllocationKind {
    pub(crate) const fn is_on_device(self) -> bool {
        matches!(self, Self::Device | Self::Peer { host: false })
    }
}

/// The place of memory that a stream frees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FreedPlace {
    Device,
    Host,
    Peer,
}

/// Memory that the driver knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocation {
    pub(crate) addr: u64,
    pub(crate) len: u64,
    /// Device of the context that made the allocation.
    pub(crate) device: usize,
    /// Context that made the allocation, or 0 if the memory is from a pool.
    pub(crate) context: u64,
    /// Pool of the allocation, or 0.
    pub(crate) pool: u64,
    pub(crate) kind: AllocationKind,
    pub(crate) id: u64,
}

impl Allocation {
    fn end(&self) -> u64 {
        self.addr + self.len
    }

    /// Returns the bytes that the allocation takes of the device's memory.
    fn room(&self) -> u64 {
        self.len.next_multiple_of(GRANULE)
    }

    /// Returns the place of memory that `cuMemFree` and `cuMemFreeAsync` free, and `None` for other memory.
    /// `is_in_order` is true for the second.
    const fn freed_place(&self, is_in_order: bool) -> Option<FreedPlace> {
        match self.kind {
            AllocationKind::Device => Some(FreedPlace::Device),
            AllocationKind::Pinned if self.pool != 0 => Some(FreedPlace::Host),
            AllocationKind::Managed if self.pool != 0 || !is_in_order => Some(FreedPlace::Host),
            AllocationKind::Peer { .. } if self.pool != 0 => Some(FreedPlace::Peer),
            _ => None,
        }
    }
}

/// The place of a range of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Range {
    /// Device memory, with the address of its bytes in this process.
    Device { bytes: u64 },
    /// Host memory that is pinned or registered.
    Host,
    /// Host memory that is registered for reading only.
    ReadOnly,
    /// Host memory that the driver does not know.
    Pageable,
}

impl Range {
    pub(crate) const fn bytes(self, addr: u64) -> u64 {
        match self {
            Self::Device { bytes } => bytes,
            _ => addr,
        }
    }
}

/// The addresses of a device's memory.
#[derive(Debug)]
pub(crate) struct Space {
    /// First address that programs see.
    base: u64,
    /// First address of the bytes in this process.
    bytes: u64,
    len: u64,
    total: u64,
    used: u64,
    file: OwnedFd,
}

impl Space {
    fn new(device: usize, total: u64) -> std::io::Result<Self> {
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
        Ok(Self { base, bytes, len, total, used: 0, file })
    }

    fn contains(&self, addr: u64) -> bool {
        addr.wrapping_sub(self.base) < self.len
    }

    fn bytes_at(&self, addr: u64) -> u64 {
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

/// All memory.
#[derive(Debug, Default)]
pub(crate) struct DriverMemory {
    pub(crate) spaces: Vec<Space>,
    pub(crate) pools: Pools,
    known: BTreeMap<u64, Allocation>,
    /// Device memory of other processes, by the address that programs see.
    peers: BTreeMap<u64, PeerMemory>,
    next_id: u64,
    /// The program's advice about managed memory.
    pub(crate) advice: AdvisedRanges,
}

/// Returns a pointer to an address.
fn at(addr: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(addr as usize)
}

impl DriverMemory {
    pub(crate) fn new(sizes: impl Iterator<Item = u64>) -> std::io::Result<Self> {
        Ok(Self {
            spaces: sizes
                .enumerate()
                .map(|(device, size)| Space::new(device, size))
                .collect::<Result<_, _>>()?,
            ..Self::default()
        })
    }

    /// Returns the allocation that contains an address. Excludes memory that a stream frees.
    pub(crate) fn find(&self, addr: u64) -> Option<&Allocation> {
        let (_, found) = self.known.range(..=addr).next_back()?;
        let freed = matches!(found.kind, AllocationKind::Freeing { .. });
        (addr < found.end() && !freed).then_some(found)
    }

    fn add(&mut self, addr: u64, len: u64, device: usize, context: u64, kind: AllocationKind) {
        self.next_id += 1;
        let id = self.next_id;
        self.known.insert(addr, Allocation { addr, len, device, context, pool: 0, kind, id });
    }

    /// Allocates device memory, which is not zeroed.
    pub(crate) fn allocate(&mut self, device: usize, context: u64, len: u64) -> Outcome<u64> {
        let space = &self.spaces[device];
        let room = len.checked_next_multiple_of(GRANULE).filter(|_| len > 0).ok_or(Code::INVALID_VALUE)?;
        if room > space.free() {
            return Err(Code::OUT_OF_MEMORY);
        }
        // Finds the first gap that is large enough.
        let end = space.base + space.len;
        let mut start = space.base;
        for (addr, taken) in self.known.range(space.base..end) {
            if addr - start >= room + GAP {
                break;
            }
            start = (taken.end() + GAP).next_multiple_of(GRANULE);
        }
        if start.checked_add(room).is_none_or(|behind| behind > end) {
            return Err(Code::OUT_OF_MEMORY);
        }
        let bytes = at(space.bytes_at(start)).cast::<u8>();
        // SAFETY: the range is a part of the device's own mapping that no other allocation uses.
        unsafe { bytes.write_bytes(STALE, STALE_LEN.min(room as usize)) };
        self.spaces[device].used += room;
        self.add(start, len, device, context, AllocationKind::Device);
        Ok(start)
    }

    /// Frees memory as `cuMemFree` does. No copy may name the memory any more.
    pub(crate) fn free(&mut self, addr: u64) -> Outcome {
        let allocation = self.known.get(&addr).copied().ok_or(Code::INVALID_VALUE)?;
        let place = allocation.freed_place(false).ok_or(Code::INVALID_VALUE)?;
        self.known.remove(&addr);
        self.return_to_pool(&allocation, place);
        self.release(allocation, place);
        Ok(())
    }

    /// Counts the end of an allocation. A pool of another process does not count its allocations here.
    fn return_to_pool(&mut self, allocation: &Allocation, place: FreedPlace) {
        if place != FreedPlace::Peer {
            self.pools.return_bytes(allocation.pool, allocation.room());
        }
    }

    /// Returns the bytes of an allocation that is no longer known.
    fn release(&mut self, allocation: Allocation, place: FreedPlace) {
        let Allocation { addr, len, pool, .. } = allocation;
        match place {
            FreedPlace::Device => {}
            FreedPlace::Host => {
                self.advice.forget(addr, addr + len);
                if let Some(file) = self.pools.host_file(pool) {
                    file.remove(addr, len.next_multiple_of(PAGE));
                }
                return unmap(addr, len);
            }
            FreedPlace::Peer => {
                self.peers.remove(&addr);
                return;
            }
        }
        let space = &mut self.spaces[allocation.device];
        space.used -= allocation.room();
        let bytes = space.bytes_at(allocation.addr);
        // Pages without bytes of other allocations are returned to the system.
        let (first, behind) = (bytes.next_multiple_of(PAGE), (bytes + allocation.len) / PAGE * PAGE);
        if first < behind {
            // SAFETY: the pages are within the device's own mapping, and hold only bytes of the freed
            // allocation.
            let _ = unsafe { rustix::mm::madvise(at(first), (behind - first) as usize, Advice::LinuxRemove) };
        }
    }

    /// Allocates from a pool, for use in the order of a stream of `device`. Reuses memory whose end is queued
    /// on the same stream.
    pub(crate) fn allocate_from_pool(
        &mut self,
        pool: u64,
        len: u64,
        stream: u64,
        device: usize,
    ) -> Outcome<u64> {
        let known = self.pools.get(pool)?;
        let room = len.checked_next_multiple_of(GRANULE).filter(|_| len > 0).ok_or(Code::INVALID_VALUE)?;
        if known.is_imported() {
            return Err(Code::INVALID_VALUE);
        }
        if known.max != 0 && known.used.saturating_add(room) > known.max {
            return Err(Code::OUT_OF_MEMORY);
        }
        let place = known.place;
        let fits = |old: &&mut Allocation| {
            matches!(old.kind, AllocationKind::Freeing { stream: other, .. } if other == stream)
                && old.pool == pool
                && old.room() == room
        };
        let kind = match place {
            Place::Device(_) => AllocationKind::Device,
            Place::Host => AllocationKind::Pinned,
            Place::Managed => AllocationKind::Managed,
        };
        let addr = if let Some(old) = self.known.values_mut().find(fits) {
            // The new number makes the queued end of the old allocation void.
            self.next_id += 1;
            *old = Allocation { len, id: self.next_id, kind, ..*old };
            old.addr
        } else {
            let addr = match place {
                Place::Device(device) => self.allocate(device, 0, len)?,
                Place::Host if known.is_shareable() => self.map_pool_file(pool, device, len)?,
                Place::Host => self.allocate_host(device, 0, len)?,
                Place::Managed => self.allocate_managed(device, 0, len)?,
            };
            if let Some(made) = self.known.get_mut(&addr) {
                made.pool = pool;
            }
            addr
        };
        self.pools.use_bytes(pool, room);
        Ok(addr)
    }

    /// Maps new memory of a pool of host memory for other processes.
    fn map_pool_file(&mut self, pool: u64, device: usize, len: u64) -> Outcome<u64> {
        let pages = len.checked_next_multiple_of(PAGE).ok_or(Code::OUT_OF_MEMORY)?;
        let file = self.pools.host_file(pool).ok_or(Code::INVALID_VALUE)?;
        let offset = file.extend(pages)?;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the new mapping does not replace another one.
        let mapped = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                pages as usize,
                rights,
                MapFlags::SHARED | MapFlags::NORESERVE,
                &file.file,
                offset,
            )
        };
        let addr = mapped.map_err(|_| Code::OUT_OF_MEMORY)?.expose_provenance() as u64;
        file.add(addr, offset);
        self.add(addr, len, device, 0, AllocationKind::Pinned);
        // SAFETY: these bytes were mapped just now, and nothing else uses them.
        unsafe { at(addr).cast::<u8>().write_bytes(STALE, STALE_LEN.min(len as usize)) };
        Ok(addr)
    }

    /// Returns the default pool of this kind and location. `handle` is used if the pool does not exist yet.
    pub(crate) fn default_pool(&mut self, handle: u64, key: PoolKey, place: Place) -> u64 {
        let devices = self.spaces.len();
        self.pools.default_of(key).unwrap_or_else(|| {
            self.pools.add_default(handle, MemPool::new(key, place, Sharing::Private, 0, devices));
            handle
        })
    }

    /// Returns the file by which another process imports a pool.
    pub(crate) fn export_pool(&self, pool: u64) -> Outcome<OwnedFd> {
        let pool = self.pools.get(pool)?;
        let file = match (&pool.sharing, pool.place) {
            (Sharing::Device, Place::Device(device)) => &self.spaces[device].file,
            (Sharing::Host(file), _) => &file.file,
            _ => return Err(Code::INVALID_VALUE),
        };
        file.try_clone().map_err(|_| Code::OUT_OF_MEMORY)
    }

    /// Returns the handle by which another process that has imported the pool maps an allocation.
    pub(crate) fn export_pointer(&self, addr: u64) -> Outcome<PointerHandle> {
        let found = self.find(addr).filter(|found| found.addr == addr).ok_or(Code::INVALID_VALUE)?;
        let pool = self.pools.get(found.pool)?;
        let (file, offset) = match (&pool.sharing, found.kind) {
            (Sharing::Device, AllocationKind::Device) => {
                let space = &self.spaces[found.device];
                (&space.file, addr - space.base)
            }
            (Sharing::Host(file), AllocationKind::Pinned) => {
                (&file.file, file.offset_of(addr).ok_or(Code::INVALID_VALUE)?)
            }
            _ => return Err(Code::INVALID_VALUE),
        };
        PointerHandle::new(file, offset, found.len, found.id)
    }

    /// Maps an allocation of an imported pool. An allocation that is mapped already has one address.
    pub(crate) fn import_pointer(&mut self, pool: u64, handle: PointerHandle) -> Outcome<u64> {
        let origin = Origin::Pool(handle);
        let known = self.pools.get(pool)?;
        let Sharing::Imported(file) = &known.sharing else { return Err(Code::INVALID_VALUE) };
        let (device, host) = match known.place {
            Place::Device(device) => (device, false),
            Place::Host | Place::Managed => (0, true),
        };
        // Memory that a stream frees may be mapped again before the stream has done so.
        let mut mapped = self.peers.iter().filter(|(_, peer)| peer.origin == origin).map(|(addr, _)| *addr);
        if let Some(addr) = mapped.find(|addr| self.find(*addr).is_some()) {
            return Ok(addr);
        }
        let peer = PeerMemory::of_pool(handle, file, host)?;
        let addr = peer.addr();
        self.add(addr, handle.len(), device, 0, AllocationKind::Peer { host });
        if let Some(made) = self.known.get_mut(&addr) {
            made.pool = pool;
        }
        self.peers.insert(addr, peer);
        Ok(addr)
    }

    /// Begins to free memory in the order of a stream. Returns the number of the allocation, by which
    /// [`end_free`](Self::end_free) ends this.
    pub(crate) fn begin_free(&mut self, addr: u64, stream: u64) -> Outcome<u64> {
        let known = self.known.get_mut(&addr).ok_or(Code::INVALID_VALUE)?;
        let place = known.freed_place(true).ok_or(Code::INVALID_VALUE)?;
        known.kind = AllocationKind::Freeing { stream, place };
        let allocation = *known;
        self.return_to_pool(&allocation, place);
        Ok(allocation.id)
    }

    /// Frees memory, unless the stream has allocated it again.
    pub(crate) fn end_free(&mut self, addr: u64, id: u64) {
        let found = self.known.get(&addr).filter(|known| known.id == id).copied();
        if let Some(allocation) = found
            && let AllocationKind::Freeing { place, .. } = allocation.kind
        {
            self.known.remove(&addr);
            self.release(allocation, place);
        }
    }

    /// Returns the handle by which another process opens the allocation of device memory with this address.
    pub(crate) fn handle_of(&self, addr: u64) -> Outcome<MemHandle> {
        let found = self
            .find(addr)
            .filter(|found| found.kind == AllocationKind::Device && found.pool == 0)
            .ok_or(Code::INVALID_VALUE)?;
        let space = &self.spaces[found.device];
        Ok(MemHandle::new(&space.file, found.addr - space.base, found.len, found.id))
    }

    /// Opens device memory of another process. Returns its address, which is the same until
    /// [`close_peer`](Self::close_peer) was called once for each opening.
    pub(crate) fn open_peer(&mut self, device: usize, context: u64, handle: MemHandle) -> Outcome<u64> {
        if let Some((addr, peer)) =
            self.peers.iter_mut().find(|(_, peer)| peer.origin == Origin::Allocation(handle))
        {
            peer.users += 1;
            return Ok(*addr);
        }
        let peer = PeerMemory::open(handle)?;
        let addr = peer.addr();
        self.add(addr, handle.len(), device, context, AllocationKind::Peer { host: false });
        self.peers.insert(addr, peer);
        Ok(addr)
    }

    /// Closes device memory of another process, which no copy may name any more.
    pub(crate) fn close_peer(&mut self, addr: u64) -> Outcome {
        let of_pool = self.known.get(&addr).is_some_and(|known| known.pool != 0);
        let peer = self.peers.get_mut(&addr).filter(|_| !of_pool).ok_or(Code::INVALID_VALUE)?;
        peer.users -= 1;
        if peer.users == 0 {
            self.peers.remove(&addr);
            self.known.remove(&addr);
        }
        Ok(())
    }

    fn take(&mut self, addr: u64, is: impl Fn(AllocationKind) -> bool) -> Option<Allocation> {
        let found = self.known.get(&addr).filter(|found| is(found.kind)).copied()?;
        self.known.remove(&addr);
        Some(found)
    }

    /// Allocates host memory in whole pages.
    pub(crate) fn allocate_host(&mut self, device: usize, context: u64, len: u64) -> Outcome<u64> {
        let addr = self.map_host(device, context, len, AllocationKind::Pinned)?;
        // SAFETY: these bytes were mapped just now, and nothing else uses them.
        unsafe { at(addr).cast::<u8>().write_bytes(STALE, STALE_LEN.min(len as usize)) };
        Ok(addr)
    }

    /// Allocates memory that the CPU and the devices access at the same address.
    pub(crate) fn allocate_managed(&mut self, device: usize, context: u64, len: u64) -> Outcome<u64> {
        self.map_host(device, context, len, AllocationKind::Managed)
    }

    fn map_host(&mut self, device: usize, context: u64, len: u64, kind: AllocationKind) -> Outcome<u64> {
        if len == 0 || len > isize::MAX as u64 - PAGE {
            return Err(if len == 0 { Code::INVALID_VALUE } else { Code::OUT_OF_MEMORY });
        }
        // Small allocations do not begin at a page boundary; neither do those of the real driver.
        let before = if len < PINNED_SHARE_PAGES { GRANULE } else { 0 };
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        let size = (before + len) as usize;
        // SAFETY: the new mapping does not replace another one.
        let mapped = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), size, rights, MapFlags::PRIVATE) };
        let addr = mapped.map_err(|_| Code::OUT_OF_MEMORY)?.expose_provenance() as u64 + before;
        self.add(addr, len, device, context, kind);
        Ok(addr)
    }

    /// Frees host memory of `cuMemHostAlloc`.
    pub(crate) fn free_host(&mut self, addr: u64) -> Outcome {
        let known = self.known.get(&addr).filter(|known| known.pool == 0);
        known.ok_or(Code::INVALID_VALUE)?;
        let allocation =
            self.take(addr, |known| known == AllocationKind::Pinned).ok_or(Code::INVALID_VALUE)?;
        unmap(addr, allocation.len);
        Ok(())
    }

    /// Makes host memory of the program known to the devices. Two registrations may share a page, but no
    /// byte.
    pub(crate) fn register(
        &mut self,
        device: usize,
        context: u64,
        addr: u64,
        len: u64,
        read_only: bool,
    ) -> Outcome {
        let end = addr.checked_add(len).filter(|_| addr > 0 && len > 0).ok_or(Code::INVALID_VALUE)?;
        let (first, behind) =
            (addr / PAGE * PAGE, end.checked_next_multiple_of(PAGE).ok_or(Code::INVALID_VALUE)?);
        let before = self.known.range(..end).next_back();
        if before.is_some_and(|(_, known)| known.end() > addr) {
            return Err(Code::HOST_MEMORY_ALREADY_REGISTERED);
        }
        let rights = rights_of(first, behind).ok_or(Code::INVALID_VALUE)?;
        if !rights.writable && !read_only {
            return Err(Code::INVALID_VALUE);
        }
        self.add(addr, len, device, context, AllocationKind::Registered { read_only });
        Ok(())
    }

    pub(crate) fn unregister(&mut self, addr: u64) -> Outcome {
        let registered = |kind| matches!(kind, AllocationKind::Registered { .. });
        self.take(addr, registered).map(|_| ()).ok_or(Code::HOST_MEMORY_NOT_REGISTERED)
    }

    /// Returns the place of a range of a copy. Fails unless the whole range is in one place.
    pub(crate) fn range(&self, addr: u64, len: u64) -> Outcome<Range> {
        let end = addr.checked_add(len).ok_or(Code::INVALID_VALUE)?;
        if let Some(found) = self.find(addr) {
            if end > found.end() {
                return Err(Code::INVALID_VALUE);
            }
            return Ok(match found.kind {
                AllocationKind::Device => Range::Device { bytes: self.spaces[found.device].bytes_at(addr) },
                AllocationKind::Peer { host: true } => Range::Host,
                AllocationKind::Peer { host: false } => {
                    let peer = self.peers.get(&found.addr).ok_or(Code::INVALID_VALUE)?;
                    Range::Device { bytes: peer.bytes() + (addr - found.addr) }
                }
                AllocationKind::Pinned
                | AllocationKind::Managed
                | AllocationKind::Registered { read_only: false } => Range::Host,
                AllocationKind::Freeing { .. } => return Err(Code::INVALID_VALUE),
                AllocationKind::Registered { read_only: true } => Range::ReadOnly,
            });
        }
        // The range is device memory that was freed or never allocated, or host memory that is known only in
        // part.
        let partly = self.known.range(addr..end).next().is_some();
        if addr == 0 || partly || self.spaces.iter().any(|space| space.contains(addr)) {
            return Err(Code::INVALID_VALUE);
        }
        Ok(Range::Pageable)
    }

    /// Returns the range that contains an address, as kernels access it, and its device if it is device
    /// memory.
    pub(crate) fn mapped(&self, addr: u64) -> Option<(Mapped, Option<usize>)> {
        let found = self.find(addr)?;
        let (start, end) = (found.addr, found.end());
        let (bytes, device, is_writable) = match found.kind {
            AllocationKind::Device => (self.spaces[found.device].bytes_at(start), Some(found.device), true),
            AllocationKind::Peer { host: true } => (start, None, true),
            AllocationKind::Peer { host: false } => {
                (self.peers.get(&start)?.bytes(), Some(found.device), true)
            }
            AllocationKind::Registered { read_only } => (start, None, !read_only),
            AllocationKind::Pinned | AllocationKind::Managed => (start, None, true),
            AllocationKind::Freeing { .. } => return None,
        };
        Some((Mapped { start, end, bytes, is_writable, is_host: device.is_none() }, device))
    }

    /// Frees the memory of a context that ends. Host memory of the program is unregistered.
    pub(crate) fn drop_context(&mut self, context: u64) {
        let mine: Vec<_> = self.known.values().filter(|known| known.context == context).copied().collect();
        for Allocation { addr, kind, id, .. } in mine {
            // This cannot fail, because the allocation is in the table.
            let _ = match kind {
                AllocationKind::Device | AllocationKind::Managed => self.free(addr),
                AllocationKind::Freeing { .. } => {
                    self.end_free(addr, id);
                    Ok(())
                }
                AllocationKind::Pinned => self.free_host(addr),
                AllocationKind::Registered { .. } => self.unregister(addr),
                AllocationKind::Peer { .. } => {
                    self.known.remove(&addr);
                    self.peers.remove(&addr).map(drop).ok_or(Code::INVALID_VALUE)
                }
            };
        }
    }
}

/// Unmaps host memory of the driver, which no other code uses any more.
fn unmap(addr: u64, len: u64) {
    let start = addr / PAGE * PAGE;
    // SAFETY: `map_host` or `map_pool_file` made this mapping, and the program has promised not to use it any
    // more.
    let _ = unsafe { rustix::mm::munmap(at(start), (addr - start + len) as usize) };
}

/// Access rights of pages.
struct PageRights {
    writable: bool,
}

/// Returns the rights that all pages from `first` up to `behind` have. `None` if some of them are not mapped
/// or cannot be read.
fn rights_of(first: u64, behind: u64) -> Option<PageRights> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let mut reached = first;
    let mut writable = true;
    for line in maps.lines() {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let start = u64::from_str_radix(start, 16).ok()?;
        let end = u64::from_str_radix(end, 16).ok()?;
        if end <= reached {
            continue;
        }
        if start > reached || reached >= behind || !rest.starts_with('r') {
            break;
        }
        writable &= rest.as_bytes().get(1) == Some(&b'w');
        reached = end;
    }
    (reached >= behind).then_some(PageRights { writable })
}
