//! Memory protection and translation: the table of registered regions.
#![expect(
    unsafe_code,
    reason = "the table holds the addresses of memory that it does not own, and frees what it does"
)]

use std::alloc::{self, Layout};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use super::task::TaskError;

bitflags::bitflags! {
    /// What may be done with a region.
    ///
    /// The local rights bind the device that a region is registered with. The remote ones are what a peer's
    /// device may do: they bind this device where the region is [remote](RegionSpec::remote).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Rights: u8 {
        /// The device itself may read it.
        const LOCAL_READ = 1;
        /// The device itself may write it.
        const LOCAL_WRITE = 2;
        /// A peer's device may read it.
        const REMOTE_READ = 4;
        /// A peer's device may write it.
        const REMOTE_WRITE = 8;
    }
}

impl fmt::Display for Rights {
    /// `read+write` and the like; the remote ones as `remote-read`; `none` when empty.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = ["read", "write", "remote-read", "remote-write"];
        let mut first = true;
        for (bit, name) in Self::all().iter().zip(names) {
            if self.contains(bit) {
                write!(f, "{}{name}", if first { "" } else { "+" })?;
                first = false;
            }
        }
        if first { f.write_str("none") } else { Ok(()) }
    }
}

/// The name under which a region is registered. Keys of unregistered regions are never given out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionKey {
    pub(super) index: u32,
    generation: u32,
}

impl RegionKey {
    /// The key as one number, for interfaces that hand keys out as integers.
    #[must_use]
    pub const fn to_raw(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// The key that [`RegionKey::to_raw`] made `raw` from. Any number is accepted; one that names no region
    /// is found out when it is used.
    #[must_use]
    pub const fn from_raw(raw: u64) -> Self {
        Self { index: raw as u32, generation: (raw >> 32) as u32 }
    }
}

impl fmt::Display for RegionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

/// A stretch of a region, as a descriptor names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The region.
    pub key: RegionKey,
    /// The first byte's address, counted as the region's own addresses are.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
}

/// Why a peer's memory cannot be touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerError {
    /// The peer took its memory back.
    Revoked,
    /// The peer ended.
    Gone,
}

/// Leave to touch memory that belongs to a peer, asked for whenever bytes are about to move.
///
/// The model calls [`acquire`](Self::acquire), moves some bytes, and calls [`release`](Self::release), all
/// within one call of [`Device::advance`](super::Device::advance): leave is never held over model time, so
/// a peer that waits for it to end waits for one memory copy at most. A copy may take leave several times.
pub trait PeerAccess: fmt::Debug + Send + Sync {
    /// Asks for leave. After `Ok` the memory stays valid until [`release`](Self::release).
    ///
    /// # Errors
    ///
    /// The memory must not be touched, now or later.
    fn acquire(&self) -> Result<(), PeerError>;

    /// Gives back what one successful [`acquire`](Self::acquire) got.
    fn release(&self);
}

/// Memory of a peer that has no address in this process: its bytes are fetched and sent.
///
/// The model calls these within one call of [`Device::advance`](super::Device::advance), for as many bytes at a time as
/// its buffer holds, so a peer that wants its memory back waits for one such piece at most.
pub trait FarMemory: fmt::Debug + Send + Sync {
    /// Copies the bytes from `offset` of the region to `to`.
    ///
    /// # Errors
    ///
    /// The peer's memory cannot be reached, now or later; `to` may hold anything.
    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<(), PeerError>;

    /// Copies `from` to the bytes from `offset` of the region.
    ///
    /// # Errors
    ///
    /// The peer's memory cannot be reached, now or later; some of the bytes may have been written.
    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), PeerError>;
}

/// Where the bytes of a region are.
#[derive(Clone, Debug)]
pub enum Place {
    /// In this process, whose own they are.
    Here(NonNull<u8>),
    /// In this process, but a peer's.
    Shared(NonNull<u8>, Arc<dyn PeerAccess>),
    /// In a peer.
    Far(Arc<dyn FarMemory>),
}

/// What to register: memory and what may be done with it.
#[derive(Clone, Debug)]
pub struct RegionSpec {
    /// The address by which descriptors name the first byte.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// What may be done with it.
    pub rights: Rights,
    /// Where the bytes are.
    pub place: Place,
}

impl RegionSpec {
    /// Memory of this process, named by its own addresses.
    #[must_use]
    pub fn local(ptr: NonNull<u8>, len: u64, rights: Rights) -> Self {
        Self { addr: ptr.as_ptr().addr() as u64, len, rights, place: Place::Here(ptr) }
    }

    /// Memory of a peer, found at `ptr` here and named by the peer's addresses from `addr` on.
    #[must_use]
    pub fn remote(addr: u64, ptr: NonNull<u8>, len: u64, rights: Rights, peer: Arc<dyn PeerAccess>) -> Self {
        Self { addr, len, rights, place: Place::Shared(ptr, peer) }
    }

    /// Memory of a peer that has no address here, named by the peer's addresses from `addr` on.
    #[must_use]
    pub fn far(addr: u64, len: u64, rights: Rights, memory: Arc<dyn FarMemory>) -> Self {
        Self { addr, len, rights, place: Place::Far(memory) }
    }

    /// Whether it is a peer's.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        !matches!(self.place, Place::Here(_))
    }
}

/// Why the table of regions did not do as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// The addresses do not exist.
    #[error("a region of {len} bytes at {addr:#x} ends behind the last address; check both")]
    OutOfAddresses {
        /// The first address asked for.
        addr: u64,
        /// The length asked for.
        len: u64,
    },
    /// The memory could not be had.
    #[error("no memory for a region of {len} bytes; ask for less")]
    OutOfMemory {
        /// The length asked for.
        len: u64,
    },
    /// No such region.
    #[error("region {key} is not registered; it may have been unregistered before")]
    Unknown {
        /// The key given.
        key: RegionKey,
    },
    /// Tasks in flight name the region.
    #[error(
        "region {key} is named by segments of tasks in flight ({segments}); let them complete or reset their channels"
    )]
    InUse {
        /// The key given.
        key: RegionKey,
        /// How many segments of tasks in flight name it.
        segments: u32,
    },
    /// Only memory that the device allocated can be read and written through it.
    #[error("region {key} was registered, not allocated by the device; access it where it was allocated")]
    NotOwned {
        /// The key given.
        key: RegionKey,
    },
    /// The stretch is not in the region.
    #[error("{len} bytes at {addr:#x} are not within region {key}")]
    OutOfRange {
        /// The key given.
        key: RegionKey,
        /// The first address asked for.
        addr: u64,
        /// The length asked for.
        len: u64,
    },
}

/// The address of memory that the device may touch from whatever thread drives it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory(NonNull<u8>);

impl Memory {
    pub(super) const NOWHERE: Self = Self(NonNull::dangling());

    #[inline]
    pub(super) const fn ptr(self) -> *mut u8 {
        self.0.as_ptr()
    }
}

// SAFETY: only an address. Whoever registers memory promises that the device may touch it until it is
// unregistered, on any thread; memory that the table allocated itself is touched by nobody else.
unsafe impl Send for Memory {}
// SAFETY: as above; and a shared `Memory` gives nobody access.
unsafe impl Sync for Memory {}

/// A checked and translated [`Segment`]: bytes that the device may touch while the region is pinned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    memory: Memory,
    pub(super) len: u64,
    /// Where the piece begins in its region: unlike an address the same in every run.
    pub(super) offset: u64,
    region: u32,
    pub(super) remote: bool,
    /// It has no address here: its bytes are reached through [`MemoryTable::far`].
    pub(super) far: bool,
}

impl Piece {
    /// The byte at `at`, which must be less than or equal to the piece's length; of a piece that is not far.
    #[inline]
    pub(super) fn ptr(&self, at: u64) -> *mut u8 {
        debug_assert!(at <= self.len && !self.far);
        // In range: `at` is at most the length of a region, which is in memory.
        self.memory.0.as_ptr().wrapping_add(at as usize)
    }
}

/// Whose a region is, if it is a peer's, and how to reach it.
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
    /// Segments of tasks in flight that name the region.
    pins: u32,
    /// How to free the memory, where it is the table's.
    owned: Option<Layout>,
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Some(layout) = self.owned {
            // SAFETY: allocated with this layout in `MemoryTable::allocate`, and nothing else frees it.
            unsafe { alloc::dealloc(self.memory.0.as_ptr(), layout) }
        }
    }
}

#[derive(Debug, Default)]
struct Entry {
    generation: u32,
    region: Option<Region>,
}

/// Addresses of allocated regions begin here, so that small numbers are never addresses.
const FIRST_ADDRESS: u64 = 0x1000_0000;
/// Allocated regions begin on pages and are this far apart at least.
const PAGE: u64 = 4096;

/// All registered regions.
#[derive(Debug)]
pub(super) struct MemoryTable {
    entries: Vec<Entry>,
    free: Vec<u32>,
    next_address: u64,
}

impl Default for MemoryTable {
    fn default() -> Self {
        Self { entries: Vec::new(), free: Vec::new(), next_address: FIRST_ADDRESS }
    }
}

impl MemoryTable {
    fn insert(&mut self, region: Region) -> RegionKey {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry::default());
            (self.entries.len() - 1) as u32
        });
        let entry = &mut self.entries[index as usize];
        entry.region = Some(region);
        RegionKey { index, generation: entry.generation }
    }

    /// Registers memory.
    ///
    /// # Safety
    ///
    /// As [`Device::register`](super::Device::register).
    pub(super) unsafe fn register(&mut self, spec: RegionSpec) -> Result<RegionKey, RegionError> {
        let RegionSpec { addr, len, rights, place } = spec;
        if addr.checked_add(len).is_none() || isize::try_from(len).is_err() {
            return Err(RegionError::OutOfAddresses { addr, len });
        }
        let (memory, peer) = match place {
            Place::Here(ptr) => (Memory(ptr), None),
            Place::Shared(ptr, access) => (Memory(ptr), Some(Peer::Shared(access))),
            Place::Far(far) => (Memory::NOWHERE, Some(Peer::Far(far))),
        };
        Ok(self.insert(Region { addr, memory, len, rights, peer, pins: 0, owned: None }))
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
        // SAFETY: the size is not 0.
        let ptr = unsafe { alloc::alloc_zeroed(layout) };
        let ptr = NonNull::new(ptr).ok_or(failed)?;
        self.next_address = next / PAGE * PAGE;
        let (memory, peer, owned) = (Memory(ptr), peer.map(Peer::Shared), Some(layout));
        Ok(self.insert(Region { addr, memory, len, rights, peer, pins: 0, owned }))
    }

    /// Unless tasks in flight name the region: those that pinned it, and `others`.
    pub(super) fn unregister(&mut self, key: RegionKey, others: u32) -> Result<(), RegionError> {
        let region = self.get(key).ok_or(RegionError::Unknown { key })?;
        if region.pins + others > 0 {
            return Err(RegionError::InUse { key, segments: region.pins + others });
        }
        let entry = &mut self.entries[key.index as usize];
        entry.region = None;
        // An entry whose generations are used up is retired, so that no key ever comes back.
        if let Some(next) = entry.generation.checked_add(1) {
            entry.generation = next;
            self.free.push(key.index);
        }
        Ok(())
    }

    fn get(&self, key: RegionKey) -> Option<&Region> {
        let entry = self.entries.get(key.index as usize)?;
        entry.region.as_ref().filter(|_| entry.generation == key.generation)
    }

    /// The address of a region's first byte, and its length.
    pub(super) fn range(&self, key: RegionKey) -> Option<(u64, u64)> {
        self.get(key).map(|region| (region.addr, region.len))
    }

    /// Checks and translates a segment that will be read from or written to.
    #[inline]
    pub(super) fn resolve(&self, segment: Segment, write: bool) -> Result<Piece, TaskError> {
        let Segment { key, addr, len } = segment;
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
        Ok(piece(region, key.index, offset, len))
    }

    /// The first byte of a segment, if it lies in a region of this process that may be used so. Otherwise
    /// [`resolve`](Self::resolve) tells why not, or what there is instead.
    #[inline]
    pub(super) fn local(&self, segment: Segment, needed: Rights) -> Option<Memory> {
        let Segment { key, addr, len } = segment;
        let entry = self.entries.get(key.index as usize)?;
        let region = entry.region.as_ref()?;
        // Of an address before the region's it becomes more than any length.
        let offset = addr.wrapping_sub(region.addr);
        let inside = offset <= region.len && len <= region.len - offset;
        let usable =
            region.rights.contains(needed) && region.peer.is_none() && entry.generation == key.generation;
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

    /// The name of the piece's region.
    pub(super) fn key(&self, piece: &Piece) -> RegionKey {
        RegionKey { index: piece.region, generation: self.entries[piece.region as usize].generation }
    }

    /// Asks for leave to touch all of `pieces`; on `Err` none is held.
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

    /// What reaches the bytes of a far piece.
    pub(super) fn far(&self, piece: &Piece) -> Option<&dyn FarMemory> {
        match self.entries[piece.region as usize].region.as_ref()?.peer.as_ref()? {
            Peer::Shared(_) => None,
            Peer::Far(memory) => Some(memory.as_ref()),
        }
    }

    /// Reads memory that the table allocated.
    pub(super) fn peek(&self, key: RegionKey, addr: u64, out: &mut [u8]) -> Result<(), RegionError> {
        let from = self.owned(key, addr, out.len() as u64)?;
        // SAFETY: `from` is in memory of the table's own, valid for this many bytes; nothing else writes it
        // now, as the device does so under `&mut` only; `out` is elsewhere.
        unsafe { from.ptr(0).copy_to_nonoverlapping(out.as_mut_ptr(), out.len()) }
        Ok(())
    }

    /// Writes memory that the table allocated.
    pub(super) fn poke(&mut self, key: RegionKey, addr: u64, bytes: &[u8]) -> Result<(), RegionError> {
        let to = self.owned(key, addr, bytes.len() as u64)?;
        // SAFETY: as in `peek`, and `&mut self` keeps readers out.
        unsafe { to.ptr(0).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
        Ok(())
    }

    fn owned(&self, key: RegionKey, addr: u64, len: u64) -> Result<Piece, RegionError> {
        let region = self.get(key).ok_or(RegionError::Unknown { key })?;
        if region.owned.is_none() {
            return Err(RegionError::NotOwned { key });
        }
        let offset = addr.checked_sub(region.addr).filter(|o| *o <= region.len && len <= region.len - o);
        let offset = offset.ok_or(RegionError::OutOfRange { key, addr, len })?;
        Ok(piece(region, key.index, offset, len))
    }
}

/// The piece at `offset` of a region; the caller has checked that it is inside.
#[inline]
fn piece(region: &Region, index: u32, offset: u64, len: u64) -> Piece {
    let start = region.memory.0.as_ptr().wrapping_add(offset as usize);
    // Inside or one behind a region: not null.
    let start = NonNull::new(start).unwrap_or(NonNull::dangling());
    let (remote, far) = (region.peer.is_some(), matches!(region.peer, Some(Peer::Far(_))));
    Piece { memory: Memory(start), len, offset, region: index, remote, far }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(key: RegionKey, addr: u64, len: u64) -> Segment {
        Segment { key, addr, len }
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
            (base + 1, u64::MAX, false),
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
        assert_eq!(old.index, new.index);
        assert_eq!(
            table.resolve(segment(old, addr, 1), false).unwrap_err(),
            TaskError::UnknownRegion { key: old }
        );
        assert_eq!(table.unregister(old, 0), Err(RegionError::Unknown { key: old }));
        assert_eq!(RegionKey::from_raw(new.to_raw()), new);
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
        // SAFETY: refused, so the memory is never touched.
        let refused = unsafe { table.register(spec) };
        assert_eq!(refused, Err(RegionError::OutOfAddresses { addr: u64::MAX, len: 1 }));
        let len = u64::MAX;
        assert_eq!(table.allocate(len, Rights::all(), None), Err(RegionError::OutOfMemory { len }));
    }
}
