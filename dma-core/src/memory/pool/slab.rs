//! Allocates the memory of a size class, and divides it into blocks.
#![expect(unsafe_code, reason = "converts handles of blocks to pointers and back")]

use std::fmt;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::free_set::FreeSet;
use super::holders::Holders;
use super::options::{ClassOptions, PoolOptions};
use super::size_class::{Growth, SizeClass, fail};
use crate::contract::HUGE_PAGE;
use crate::memory::empty_region;
use crate::memory::range::Range;
use crate::memory::region::{Home, Region, RegionHandle, RegionInner};
use crate::memory::registration::{allocate, allocate_buffer};
use crate::{
    Access, DmaEngine, ErrorKind, MemoryRequest, Place, RawExport, RawRegion, RegionInfo, Result, Window,
};
use dma_process::ForkMark;

/// Maximum number of buffers of one size.
const MAX_COUNT: usize = 1 << 24;
/// Buffers start at multiples of a cache line, so that two buffers never share a cache line.
pub(super) const LINE: usize = 64;

impl SizeClass {
    /// Makes a range of 0 bytes, which uses no block.
    #[cold]
    pub(super) fn no_bytes(&self, backend: &'static str) -> Range {
        let (id, addr) = ((self.engine, backend), NonNull::<u128>::dangling().cast());
        Range::whole(empty_region::region(id, addr, Access::all(), self.place == Place::Host, None))
    }

    /// Returns the distance between the starts of two blocks, in bytes.
    pub(super) fn stride<E: DmaEngine + ?Sized>(engine: &E, len: usize) -> Option<usize> {
        len.checked_next_multiple_of(engine.info().limits.preferred_alignment.max(LINE))
    }

    /// Allocates the memory of `count` blocks.
    pub(super) fn slab<E: DmaEngine + ?Sized>(
        engine: &E,
        (len, count): (usize, usize),
        options: &PoolOptions,
        place: Place,
    ) -> Result<Window> {
        let info = engine.info();
        let too_much = || {
            fail(ErrorKind::InvalidArgument, format!("{count} buffers of {len} bytes"), info.backend)
                .with_hint("ask for fewer or shorter buffers, at most 2^24 of one size")
        };
        let stride = Self::stride(engine, len).ok_or_else(too_much)?;
        let total = stride.checked_mul(count).filter(|_| count <= MAX_COUNT).ok_or_else(too_much)?;
        let mut request = MemoryRequest::new(total)
            .with_huge_pages(total >= HUGE_PAGE)
            .exportable(options.export)
            .with_node(options.node)
            .with_place(place);
        request.align = request.align.max(info.limits.preferred_alignment.max(LINE));
        let slab = match place {
            Place::Host => allocate_buffer(engine, &request)?.share(),
            Place::Device => Window::new(allocate(engine, &request)?),
        };
        dma_process::check_headroom(count.saturating_mul(2 * size_of::<RegionInner>()))?;
        Ok(slab)
    }

    /// Makes the buffers of one size.
    pub(super) fn new<E: DmaEngine + ?Sized>(
        engine: &E,
        class: ClassOptions,
        options: &PoolOptions,
        place: Place,
        growing: Option<&Arc<dyn DmaEngine>>,
    ) -> Result<Arc<Self>> {
        let ClassOptions { len, count, max } = class;
        let backend = engine.info().backend;
        if max > MAX_COUNT {
            return Err(fail(ErrorKind::InvalidArgument, format!("{max} buffers of {len} bytes"), backend)
                .with_hint("let the pool grow to at most 2^24 buffers of one size"));
        }
        let slab = Self::slab(engine, (len, count), options, place)?;
        let free = FreeSet::new(max);
        let class = Arc::new(Self {
            len,
            max,
            made: AtomicUsize::new(0),
            began_with: count,
            engine: slab.region().engine_id(),
            place,
            process: ForkMark::new(),
            blocks: (0..free.numbers()).map(|_| AtomicPtr::default()).collect(),
            holders: Holders::new(free.numbers()),
            slabs: Mutex::new(vec![slab.region().clone()]),
            growth: growing.filter(|_| max > count).map(|engine| Growth {
                engine: Arc::clone(engine),
                step: count,
                options: options.clone(),
                failed: Mutex::new(None),
            }),
            free,
            exhausted: AtomicU64::new(0),
        });
        let stride = Self::stride(engine, len).expect("the memory was allocated");
        for index in 0..count {
            drop(class.block(&slab, index, index * stride, backend));
        }
        class.made.store(count, Ordering::Relaxed);
        Ok(class)
    }

    /// Makes the block with this index from the memory at `offset` of `slab`. Dropping the handle makes the
    /// block free.
    pub(super) fn block(
        self: &Arc<Self>,
        slab: &Window,
        index: usize,
        offset: usize,
        backend: &'static str,
    ) -> RegionHandle {
        let number = self.free.number(index);
        let block = PoolBlock::new(slab.region().clone(), offset, self.len);
        let home = Home::new(Arc::clone(self), number);
        let region = Region::of_pool(Box::new(block), backend, home);
        let ptr = region.0.into_ptr();
        self.blocks[number as usize].store(ptr.as_ptr(), Ordering::Relaxed);
        // SAFETY: the handle was converted to this pointer just above, and only this line converts it back.
        unsafe { RegionHandle::from_ptr(ptr) }
    }
}

/// The raw region of a block: a part of the region of its size class.
struct PoolBlock {
    slab: Region,
    offset: usize,
    info: RegionInfo,
}

impl PoolBlock {
    pub(super) fn new(slab: Region, offset: usize, len: usize) -> Self {
        let mut info = slab.0.info;
        let segment = info.segment(offset, len);
        (info.addr, info.len) = (segment.addr, segment.len);
        info.cpu = info.cpu.and_then(|_| NonNull::new(segment.addr.as_ptr()));
        Self { slab, offset, info }
    }
}

// SAFETY: the block is a part of a region of the engine and keeps that region alive. `segment` has checked
// that the part lies inside the region. The block has the region's key, because descriptors must name the
// region that the engine knows. Dropping the block deregisters nothing.
unsafe impl RawRegion for PoolBlock {
    fn info(&self) -> &RegionInfo {
        &self.info
    }

    unsafe fn export(&self, offset: usize, len: usize, rights: Access) -> Result<Box<dyn RawExport>> {
        // SAFETY: the offset selects the same bytes in the larger region. The caller meets the requirements
        // for these bytes.
        unsafe { self.slab.as_raw().export(self.offset + offset, len, rights) }
    }

    unsafe fn dmabuf(&self) -> Result<(OwnedFd, u64)> {
        // SAFETY: the caller meets the requirements for the block's bytes, which the returned offset selects.
        let (fd, offset) = unsafe { self.slab.as_raw().dmabuf() }?;
        Ok((fd, offset + self.offset as u64))
    }
}

impl fmt::Debug for PoolBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolBlock")
            .field("offset", &self.offset)
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}
