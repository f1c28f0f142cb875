//! Memory: the address space of each device, its allocations, and pinned and registered host memory.
//!
//! The addresses of device memory that programs see belong to a mapping without access rights, so the CPU
//! cannot touch them. The bytes are in a second mapping, which only the devices of this stand-in use.
#![expect(unsafe_code, reason = "writes and frees memory of the devices")]

mod allocation;
mod host;
mod pooled;
mod space;

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use cuda_ptx::Mapped;
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::mm::Advice;

use crate::advice::AdvisedRanges;
use crate::codes::{Code, Outcome, require};
use crate::peer_memory::{MemHandle, Origin, PeerMemory};
use crate::pool::Pools;
use allocation::{Allocation, FreedPlace};
pub(crate) use allocation::{AllocationKind, Range};
use host::unmap;
use space::Space;

/// Device allocations begin at multiples of this. Real devices align allocations at least to this.
const GRANULE: u64 = 512;
/// Gap between allocations, so that an access just past the end of one does not hit the next.
const GAP: u64 = 512;
const PAGE: u64 = 4096;
/// New device memory and pinned memory are filled with this value, up to `STALE_LEN` bytes, because real
/// memory is not zeroed.
const STALE: u8 = 0xa5;
const STALE_LEN: usize = 1 << 20;

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
        require(room <= space.free(), Code::OUT_OF_MEMORY)?;
        // Finds the first gap that is large enough.
        let end = space.base + space.len;
        let mut start = space.full_below;
        for (addr, taken) in self.known.range(start..end) {
            if addr - start >= room + GAP {
                break;
            }
            start = (taken.end() + GAP).next_multiple_of(GRANULE);
        }
        require(start.checked_add(room).is_some_and(|behind| behind <= end), Code::OUT_OF_MEMORY)?;
        let bytes = at(space.bytes_at(start)).cast::<u8>();
        // SAFETY: the range is a part of the device's own mapping that no other allocation uses.
        unsafe { bytes.write_bytes(STALE, STALE_LEN.min(room as usize)) };
        let space = &mut self.spaces[device];
        space.used += room;
        if start == space.full_below {
            space.full_below = (start + room + GAP).min(end);
        }
        self.add(start, len, device, context, AllocationKind::Device);
        Ok(start)
    }

    /// Allocates device memory for a module's variables, with their first values.
    pub(crate) fn allocate_variables(&mut self, device: usize, context: u64, initial: &[u8]) -> Outcome<u64> {
        let addr = self.allocate(device, context, initial.len() as u64)?;
        let bytes = at(self.spaces[device].bytes_at(addr)).cast::<u8>();
        // SAFETY: the memory was allocated above, and nothing else uses it yet.
        unsafe { bytes.copy_from_nonoverlapping(initial.as_ptr(), initial.len()) };
        if let Some(allocation) = self.known.get_mut(&addr) {
            allocation.kind = AllocationKind::Variables;
        }
        Ok(addr)
    }

    /// Frees the memory of a module's variables.
    pub(crate) fn free_variables(&mut self, addr: u64) {
        if let Some(allocation) = self.take(addr, |kind| kind == AllocationKind::Variables) {
            self.release(allocation, FreedPlace::Device);
        }
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
        space.full_below = space.full_below.min(addr);
        let bytes = space.bytes_at(allocation.addr);
        // Pages without bytes of other allocations are returned to the system.
        let (first, behind) = (bytes.next_multiple_of(PAGE), (bytes + allocation.len) / PAGE * PAGE);
        if first < behind {
            // SAFETY: the pages are within the device's own mapping, and hold only bytes of the freed
            // allocation.
            let _ = unsafe { rustix::mm::madvise(at(first), (behind - first) as usize, Advice::LinuxRemove) };
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

    /// Returns a dma-buf of whole pages of device memory, of which an allocation that is not of a pool has a
    /// part: the device's file, opened again, whose position is the first page.
    pub(crate) fn dmabuf_of(&self, addr: u64, len: u64) -> Outcome<OwnedFd> {
        let end = addr
            .checked_add(len)
            .filter(|end| addr.is_multiple_of(PAGE) && end.is_multiple_of(PAGE) && len > 0);
        let end = end.ok_or(Code::INVALID_VALUE)?;
        // Pages at the ends of an allocation also have bytes of its neighbours.
        let is_whole = |found: &&Allocation| {
            let is_device = found.kind == AllocationKind::Device && found.pool == 0;
            is_device && found.addr < addr + PAGE && found.end() > end - PAGE
        };
        let found = self.known.range(..end).rev().map(|(_, found)| found).find(is_whole);
        let space = &self.spaces[found.ok_or(Code::INVALID_VALUE)?.device];
        let path = format!("/proc/self/fd/{}", space.file.as_raw_fd());
        let file = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        let file = file.map_err(|_| Code::UNKNOWN)?;
        rustix::fs::seek(&file, SeekFrom::Start(addr - space.base)).map_err(|_| Code::UNKNOWN)?;
        Ok(file)
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

    /// Returns the place of a range of a copy. Fails unless the whole range is in one place.
    pub(crate) fn range(&self, addr: u64, len: u64) -> Outcome<Range> {
        let end = addr.checked_add(len).ok_or(Code::INVALID_VALUE)?;
        if let Some(found) = self.find(addr) {
            require(end <= found.end(), Code::INVALID_VALUE)?;
            return Ok(match found.kind {
                AllocationKind::Device | AllocationKind::Variables => {
                    Range::Device { bytes: self.spaces[found.device].bytes_at(addr) }
                }
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
        require(
            addr != 0 && !partly && !self.spaces.iter().any(|space| space.contains(addr)),
            Code::INVALID_VALUE,
        )?;
        Ok(Range::Pageable)
    }

    /// Returns the range that contains an address, as kernels access it, and its device if it is device
    /// memory.
    pub(crate) fn mapped(&self, addr: u64) -> Option<(Mapped, Option<usize>)> {
        let found = self.find(addr)?;
        let (start, end) = (found.addr, found.end());
        let (bytes, device, is_writable) = match found.kind {
            AllocationKind::Device | AllocationKind::Variables => {
                (self.spaces[found.device].bytes_at(start), Some(found.device), true)
            }
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
                AllocationKind::Variables => {
                    self.free_variables(addr);
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
