//! Memory protection and translation: the table of registered regions.
#![expect(
    unsafe_code,
    reason = "the table stores addresses of memory that it does not own, and frees the memory that it owns"
)]

use std::alloc::{self, Layout};
use std::ptr::NonNull;
use std::sync::Arc;

use dma_core::{RegionKey, Segment};

use super::region::{
    self, FarMemory, KeyName, MAX_REGIONS, PeerAccess, PeerError, RegionError, RegionMemory, RegionSpec,
    Rights,
};
use super::task::TaskError;

/// Address of memory that the device may access from the thread that drives it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory(NonNull<u8>);

impl Memory {
    pub(super) const NOWHERE: Self = Self(NonNull::dangling());

    #[inline]
    pub(super) const fn ptr(self) -> *mut u8 {
        self.0.as_ptr()
    }
}

// SAFETY: the value is only an address. The registration promises that the device may access the memory on
// any thread until it is unregistered. Only the device accesses memory that the table allocated.
unsafe impl Send for Memory {}
// SAFETY: a shared `Memory` is only an address, which gives no access by itself.
unsafe impl Sync for Memory {}

/// A checked and translated [`Segment`]. The device may access its bytes while the region is pinned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    memory: Memory,
    pub(super) len: u64,
    /// Offset in the region. Unlike an address, it is the same in every run.
    pub(super) offset: u64,
    region: u32,
    pub(super) remote: bool,
    /// True if the memory has no address in this process, and is accessed by [`MemoryTable::far`].
    pub(super) far: bool,
}

impl Piece {
    /// Returns the address of the byte at `at`, which is at most the piece's length. The piece must not be
    /// far.
    #[inline]
    pub(super) fn ptr(&self, at: u64) -> *mut u8 {
        debug_assert!(at <= self.len && !self.far);
        // The conversion is lossless, because `at` is at most the length of a region in memory.
        self.memory.0.as_ptr().wrapping_add(at as usize)
    }
}

/// The kinds of access to a peer's region.
#[derive(Debug)]
enum Peer {
    Shared(Arc<dyn PeerAccess>),
    Far(Arc<dyn FarMemory>),
}

#[derive(Debug)]
struct Region {
    addr: u64,
    memory: Memory,
    len: u64,
    rights: Rights,
    peer: Option<Peer>,
    /// Number of segments of tasks in flight that name the region.
    pins: u32,
    /// Layout, if the table allocated the memory.
    owned: Option<Layout>,
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Some(layout) = self.owned {
            // SAFETY: `MemoryTable::allocate` allocated the memory with this layout, and only this call
            // frees it.
            unsafe { alloc::dealloc(self.memory.0.as_ptr(), layout) }
        }
    }
}

#[derive(Debug, Default)]
struct RegionEntry {
    generation: u32,
    region: Option<Region>,
}

/// First address of allocated regions. It is large, so that small numbers are never addresses.
const FIRST_ADDRESS: u64 = 0x1000_0000;
/// Alignment of allocated regions, and the minimum gap between them.
const PAGE: u64 = 4096;

/// The table of all registered regions.
#[derive(Debug)]
pub(super) struct MemoryTable {
    entries: Vec<RegionEntry>,
    free: Vec<u32>,
    next_address: u64,
}

impl Default for MemoryTable {
    fn default() -> Self {
        Self { entries: Vec::new(), free: Vec::new(), next_address: FIRST_ADDRESS }
    }
}

impl MemoryTable {
    fn insert(&mut self, region: Region) -> Result<RegionKey, RegionError> {
        if self.free.is_empty() {
            if self.entries.len() == MAX_REGIONS {
                return Err(RegionError::OutOfKeys { max: MAX_REGIONS });
            }
            self.free.push(self.entries.len() as u32);
            self.entries.push(RegionEntry::default());
        }
        let index = self.free.pop().unwrap_or_default();
        let entry = &mut self.entries[index as usize];
        entry.region = Some(region);
        Ok(region::key(index, entry.generation))
    }

    /// Registers memory.
    ///
    /// # Safety
    ///
    /// See [`Device::register`](super::Device::register).
    pub(super) unsafe fn register(&mut self, spec: RegionSpec) -> Result<RegionKey, RegionError> {
        let RegionSpec { addr, len, rights, memory } = spec;
        if addr.checked_add(len).is_none() || isize::try_from(len).is_err() {
            return Err(RegionError::OutOfAddresses { addr, len });
        }
        let (memory, peer) = match memory {
            RegionMemory::Local(ptr) => (Memory(ptr), None),
            RegionMemory::Shared(ptr, access) => (Memory(ptr), Some(Peer::Shared(access))),
            RegionMemory::Far(far) => (Memory::NOWHERE, Some(Peer::Far(far))),
        };
        self.insert(Region { addr, memory, len, rights, peer, pins: 0, owned: None })
    }

    /// Allocates zeroed memory and registers it.
    pub(super) fn allocate(
        &mut self,
        len: u64,
        rights: Rights,
        peer: Option<Arc<dyn PeerAccess>>,
    ) -> Result<RegionKey, RegionError> {
        let failed = RegionError::OutOfMemory { len };
        let size = usize::try_from(len.max(1)).map_err(|_| failed)?;
        let layout = Layout::from_size_align(size, PAGE as usize).map_err(|_| failed)?;
        let addr = self.next_address;
        let next = addr.checked_add(len).and_then(|end| end.checked_add(2 * PAGE)).ok_or(failed)?;
        // SAFETY: the layout's size is not 0.
        let ptr = unsafe { alloc::alloc_zeroed(layout) };
        let ptr = NonNull::new(ptr).ok_or(failed)?;
        self.next_address = next / PAGE * PAGE;
        let (memory, peer, owned) = (Memory(ptr), peer.map(Peer::Shared), Some(layout));
        self.insert(Region { addr, memory, len, rights, peer, pins: 0, owned })
    }

    /// Unregisters a region, unless segments of tasks in flight name it. The region's pins and `others` count
    /// these segments.
    pub(super) fn unregister(&mut self, key: RegionKey, others: u32) -> Result<(), RegionError> {
        let region = self.get(key).ok_or(RegionError::Unknown { key })?;
        if region.pins + others > 0 {
            return Err(RegionError::InUse { key, segments: region.pins + others });
        }
        let (index, _) = region::parts(key);
        let entry = &mut self.entries[index as usize];
        entry.region = None;
        // An entry whose generations are used up is never used again, so that keys are not reused.
        if (entry.generation as usize) < MAX_REGIONS - 1 {
            entry.generation += 1;
            self.free.push(index);
        }
        Ok(())
    }

    fn get(&self, key: RegionKey) -> Option<&Region> {
        let (index, generation) = region::parts(key);
        let entry = self.entries.get(index as usize)?;
        entry.region.as_ref().filter(|_| entry.generation == generation)
    }

    /// Returns the address of a region's first byte, and its length.
    pub(super) fn range(&self, key: RegionKey) -> Option<(u64, u64)> {
        self.get(key).map(|region| (region.addr, region.len))
    }

    /// Checks and translates a segment to be read or written.
    #[inline]
    pub(super) fn resolve(&self, segment: Segment, write: bool) -> Result<Piece, TaskError> {
        let (key, addr, len) = (segment.key, segment.addr.0, segment.len as u64);
        let region = self.get(key).ok_or(TaskError::UnknownRegion { key })?;
        let remote = region.peer.is_some();
        let needed = match (write, remote) {
            (false, false) => Rights::LOCAL_READ,
            (true, false) => Rights::LOCAL_WRITE,
            (false, true) => Rights::REMOTE_READ,
            (true, true) => Rights::REMOTE_WRITE,
        };
        let offset = addr.wrapping_sub(region.addr);
        if addr < region.addr || offset > region.len || len > region.len - offset {
            return Err(TaskError::OutOfRange { key, addr, len, base: region.addr, size: region.len });
        }
        if !region.rights.contains(needed) {
            return Err(TaskError::Denied { key, needed, granted: region.rights });
        }
        Ok(piece(region, region::parts(key).0, offset, len))
    }

    /// Returns the address of a segment's first byte, if the segment lies in a region of this process that
    /// grants the right. Otherwise [`resolve`](Self::resolve) returns the reason or the remote piece.
    #[inline]
    pub(super) fn local(&self, segment: Segment, needed: Rights) -> Option<Memory> {
        let (len, (index, generation)) = (segment.len as u64, region::parts(segment.key));
        let entry = self.entries.get(index as usize)?;
        let region = entry.region.as_ref()?;
        // For an address before the region, this wraps to a number that exceeds every length.
        let offset = segment.addr.0.wrapping_sub(region.addr);
        let inside = offset <= region.len && len <= region.len - offset;
        let usable =
            region.rights.contains(needed) && region.peer.is_none() && entry.generation == generation;
        if !inside || !usable {
            return None;
        }
        NonNull::new(region.memory.ptr().wrapping_add(offset as usize)).map(Memory)
    }

    /// Keeps the regions of `pieces` registered until [`MemoryTable::unpin`].
    #[inline]
    pub(super) fn pin(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            if let Some(region) = &mut self.entries[piece.region as usize].region {
                region.pins += 1;
            }
        }
    }

    #[inline]
    pub(super) fn unpin(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            if let Some(region) = &mut self.entries[piece.region as usize].region {
                region.pins -= 1;
            }
        }
    }

    /// Returns the name of the piece's region.
    pub(super) fn key_name(&self, piece: &Piece) -> KeyName {
        KeyName(region::key(piece.region, self.entries[piece.region as usize].generation))
    }

    /// Acquires access to all of `pieces`. After `Err`, no access is held.
    pub(super) fn acquire<'a>(
        &self,
        pieces: impl Iterator<Item = &'a Piece> + Clone,
    ) -> Result<(), PeerError> {
        for (taken, piece) in pieces.clone().enumerate() {
            if let Some(Err(error)) = self.peer(piece).map(PeerAccess::acquire) {
                self.release(pieces.take(taken));
                return Err(error);
            }
        }
        Ok(())
    }

    pub(super) fn release<'a>(&self, pieces: impl Iterator<Item = &'a Piece>) {
        pieces.filter_map(|piece| self.peer(piece)).for_each(PeerAccess::release);
    }

    fn peer(&self, piece: &Piece) -> Option<&dyn PeerAccess> {
        match self.entries[piece.region as usize].region.as_ref()?.peer.as_ref()? {
            Peer::Shared(access) => Some(access.as_ref()),
            Peer::Far(_) => None,
        }
    }

    /// Returns the access to a far piece.
    pub(super) fn far(&self, piece: &Piece) -> Option<&dyn FarMemory> {
        match self.entries[piece.region as usize].region.as_ref()?.peer.as_ref()? {
            Peer::Shared(_) => None,
            Peer::Far(memory) => Some(memory.as_ref()),
        }
    }

    /// Reads memory that the table allocated.
    pub(super) fn peek(&self, key: RegionKey, addr: u64, out: &mut [u8]) -> Result<(), RegionError> {
        let from = self.owned(key, addr, out.len() as u64)?;
        // SAFETY: `from` lies in memory that the table owns, and is valid for this number of bytes. Nothing
        // writes it now, because the device needs `&mut self` for that. `out` is other memory.
        unsafe { dma_core::racy_copy::copy(out.as_mut_ptr(), from.ptr(0), out.len()) }
        Ok(())
    }

    /// Writes memory that the table allocated.
    pub(super) fn poke(&mut self, key: RegionKey, addr: u64, bytes: &[u8]) -> Result<(), RegionError> {
        let to = self.owned(key, addr, bytes.len() as u64)?;
        // SAFETY: `to` lies in memory that the table owns, and is valid for this number of bytes. With
        // `&mut self` there are no readers.
        unsafe { dma_core::racy_copy::copy(to.ptr(0), bytes.as_ptr(), bytes.len()) }
        Ok(())
    }

    fn owned(&self, key: RegionKey, addr: u64, len: u64) -> Result<Piece, RegionError> {
        let region = self.get(key).ok_or(RegionError::Unknown { key })?;
        if region.owned.is_none() {
            return Err(RegionError::NotOwned { key });
        }
        let offset = addr.checked_sub(region.addr).filter(|o| *o <= region.len && len <= region.len - o);
        let offset = offset.ok_or(RegionError::OutOfRange { key, addr, len })?;
        Ok(piece(region, region::parts(key).0, offset, len))
    }
}

/// Returns the piece at `offset` of a region. The caller has checked the range.
#[inline]
fn piece(region: &Region, index: u32, offset: u64, len: u64) -> Piece {
    let start = region.memory.0.as_ptr().wrapping_add(offset as usize);
    // The address lies within a region or at its end, so it is not null.
    let start = NonNull::new(start).unwrap_or(NonNull::dangling());
    let (remote, far) = (region.peer.is_some(), matches!(region.peer, Some(Peer::Far(_))));
    Piece { memory: Memory(start), len, offset, region: index, remote, far }
}

#[cfg(test)]
mod tests {
    use dma_core::DeviceAddr;

    use super::*;

    fn segment(key: RegionKey, addr: u64, len: usize) -> Segment {
        Segment { key, addr: DeviceAddr(addr), len }
    }

    #[test]
    fn nothing_outside_a_region_resolves() {
        let mut table = MemoryTable::default();
        let key = table.allocate(100, Rights::LOCAL_READ, None).unwrap();
        let (base, _) = table.range(key).unwrap();
        for (addr, len, ok) in [
            (base, 100, true),
            (base, 0, true),
            (base + 100, 0, true),
            (base + 99, 1, true),
            (base + 100, 1, false),
            (base + 101, 0, false),
            (base - 1, 1, false),
            (base, 101, false),
            (base + 1, usize::MAX, false),
            (0, 1, false),
            (u64::MAX, 2, false),
        ] {
            let resolved = table.resolve(segment(key, addr, len), false);
            assert_eq!(resolved.is_ok(), ok, "{addr:#x}+{len}");
        }
    }

    #[test]
    fn rights_are_enforced_by_side() {
        #[derive(Debug)]
        struct Free;
        impl PeerAccess for Free {
            fn acquire(&self) -> Result<(), PeerError> {
                Ok(())
            }
            fn release(&self) {}
        }
        let mut table = MemoryTable::default();
        let mut check = |rights, peer: bool, write| {
            let key = table.allocate(1, rights, peer.then(|| Arc::new(Free) as _)).unwrap();
            let (addr, _) = table.range(key).unwrap();
            table.resolve(segment(key, addr, 1), write).is_ok()
        };
        assert!(check(Rights::LOCAL_READ, false, false));
        assert!(!check(Rights::LOCAL_READ, false, true));
        assert!(check(Rights::LOCAL_WRITE, false, true));
        assert!(!check(Rights::REMOTE_READ | Rights::REMOTE_WRITE, false, false));
        assert!(check(Rights::REMOTE_READ, true, false));
        assert!(!check(Rights::REMOTE_READ | Rights::LOCAL_WRITE, true, true));
    }

    #[test]
    fn old_keys_name_nothing() {
        let mut table = MemoryTable::default();
        let old = table.allocate(1, Rights::all(), None).unwrap();
        let (addr, _) = table.range(old).unwrap();
        table.unregister(old, 0).unwrap();
        let new = table.allocate(1, Rights::all(), None).unwrap();
        assert_eq!(region::parts(old), (0, 0));
        assert_eq!(region::parts(new), (0, 1));
        assert_eq!(
            table.resolve(segment(old, addr, 1), false).unwrap_err(),
            TaskError::UnknownRegion { key: old }
        );
        assert_eq!(table.unregister(old, 0), Err(RegionError::Unknown { key: old }));
    }

    #[test]
    fn a_pinned_region_stays() {
        let mut table = MemoryTable::default();
        let key = table.allocate(8, Rights::all(), None).unwrap();
        let (addr, _) = table.range(key).unwrap();
        let piece = table.resolve(segment(key, addr, 8), true).unwrap();
        table.pin(&[piece]);
        assert_eq!(table.unregister(key, 2), Err(RegionError::InUse { key, segments: 3 }));
        table.unpin(&[piece]);
        assert_eq!(table.unregister(key, 0), Ok(()));
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        let mut table = MemoryTable::default();
        let spec = RegionSpec { addr: u64::MAX, ..RegionSpec::local(NonNull::dangling(), 1, Rights::all()) };
        // SAFETY: the registration is refused, so the memory is never accessed.
        let refused = unsafe { table.register(spec) };
        assert_eq!(refused, Err(RegionError::OutOfAddresses { addr: u64::MAX, len: 1 }));
        let len = u64::MAX;
        assert_eq!(table.allocate(len, Rights::all(), None), Err(RegionError::OutOfMemory { len }));
    }
}
