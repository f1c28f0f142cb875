//! Memory of pools: allocations and frees in the order of a stream, and pools of other processes.
#![expect(unsafe_code, reason = "maps memory")]

use std::os::fd::OwnedFd;
use std::ptr;

use rustix::mm::{MapFlags, ProtFlags};

use super::allocation::Allocation;
use super::{AllocationKind, DriverMemory, GRANULE, PAGE, STALE, STALE_LEN, at};
use crate::codes::{Code, Outcome, require};
use crate::peer_memory::{Origin, PeerMemory, PointerHandle};
use crate::pool::{MemPool, Place, PoolKey, Sharing};

impl DriverMemory {
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
        require(!known.is_imported(), Code::INVALID_VALUE)?;
        require(known.max == 0 || known.used.saturating_add(room) <= known.max, Code::OUT_OF_MEMORY)?;
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
}
