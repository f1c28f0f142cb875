//! [`SizeClass`]: the buffers of one size.
#![expect(unsafe_code, reason = "converts handles of blocks to pointers and back")]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::free_set::{self, FreeSet, Released};
use super::holders::Holders;
use super::options::PoolOptions;
use crate::memory::range::Range;
use crate::memory::region::{Keeper, Region, RegionHandle, RegionInner};
use crate::{DmaEngine, EngineId, Error, ErrorKind, Place, guarded};
use dma_process::{ForkMark, count};

/// The buffers of one size.
pub(super) struct SizeClass {
    /// The length of each buffer, in bytes.
    pub(super) len: usize,
    /// The maximum number of buffers.
    pub(super) max: usize,
    /// The number of buffers that have been made.
    pub(super) made: AtomicUsize,
    /// The initial number of buffers.
    pub(super) began_with: usize,
    /// The engine that the buffers are registered with.
    pub(super) engine: EngineId,
    pub(super) place: Place,
    /// The process that made the pool.
    pub(super) process: ForkMark,
    pub(super) free: FreeSet,
    /// Pointers of the handles of all blocks that have not been freed, by number.
    pub(super) blocks: Box<[AtomicPtr<RegionInner>]>,
    pub(super) holders: Holders,
    /// The regions that the buffers are parts of.
    pub(super) slabs: Mutex<Vec<Region>>,
    /// `None` for a class that does not grow.
    pub(super) growth: Option<Growth>,
    /// Requests that found no free buffer.
    pub(super) exhausted: AtomicU64,
}

/// The means of a class to add buffers.
pub(super) struct Growth {
    pub(super) engine: Arc<dyn DmaEngine>,
    /// The number of buffers that are added at a time.
    pub(super) step: usize,
    pub(super) options: PoolOptions,
    /// The time of the last attempt, if it failed.
    pub(super) failed: Mutex<Option<Instant>>,
}

impl Keeper for SizeClass {
    const OWNS_MEMORY: bool = true;

    #[inline]
    unsafe fn take_back(keeper: NonNull<Self>, number: u32, last: RegionHandle) {
        // SAFETY: `last` keeps the class alive until the block is released.
        let class = unsafe { keeper.as_ref() };
        if class.process.is_child() {
            // Leak the block. A lock of the pool may be held by a thread that does not exist in this forked
            // process.
            std::mem::forget(last);
            return;
        }
        let cache = class.free.own_cache();
        let ptr = last.into_ptr();
        // The functions that release the block get no reference to the block or its class, because both may
        // be freed as soon as the block is free.
        if !free_set::give_to_cache(cache, number) {
            // SAFETY: the block is not released yet, so the class exists, and `keeper` is the pointer of its
            // `Arc`.
            unsafe { Self::give_uncached(keeper, number, ptr) };
        }
    }
}

impl SizeClass {
    /// Releases a block that the thread's cache did not accept. `ptr` is its last handle.
    ///
    /// # Safety
    ///
    /// `this` is the pointer of an `Arc` that exists until the block is released.
    #[inline(never)]
    unsafe fn give_uncached(this: NonNull<Self>, block: u32, ptr: NonNull<RegionInner>) {
        // SAFETY: the class exists until the block is released below.
        let (word, bit) = unsafe { this.as_ref() }.free.place(block);
        if free_set::give(word, bit) {
            return;
        }
        // SAFETY: the block is not released yet, so the class exists, and this is the pointer of its `Arc`.
        unsafe { Arc::increment_strong_count(this.as_ptr().cast_const()) };
        // SAFETY: the count was incremented just above, for this `Arc`.
        let class = unsafe { Arc::from_raw(this.as_ptr().cast_const()) };
        class.give_with_lock(block, ptr);
    }

    #[cold]
    fn give_with_lock(&self, block: u32, ptr: NonNull<RegionInner>) {
        match self.free.give_with_lock(block) {
            Released::Kept(waker) => {
                // The waker belongs to another task than the buffer.
                waker.map(|waker| guarded("a task's waker", || waker.wake()));
            }
            Released::Closed => {
                // SAFETY: the last handle was converted to this pointer, and only this line converts it back,
                // because the closed set did not accept the block.
                let last = unsafe { RegionHandle::from_ptr(ptr) };
                // SAFETY: the block is not in the free set, so `last` is its only handle.
                unsafe { last.free() };
            }
        }
    }

    /// Returns the handle of a block that the caller took from the free set.
    #[inline]
    pub(super) fn handle(&self, block: u32) -> RegionHandle {
        let ptr = self.blocks.get(block as usize).and_then(|ptr| NonNull::new(ptr.load(Ordering::Relaxed)));
        debug_assert!(ptr.is_some(), "a free block has a handle");
        // SAFETY: the free set has only numbers of blocks that were made. Without this, the check would take
        // an eighth of the instructions of the shortest request.
        let ptr = unsafe { ptr.unwrap_unchecked() };
        // SAFETY: the handle was converted to this pointer when the block was made or returned. The free set
        // returns a block to only one caller, so the pointer is converted back only once.
        unsafe { RegionHandle::from_ptr(ptr) }
    }

    /// Returns the first `len` bytes of a block that was taken from the free set.
    #[inline]
    pub(super) fn range(&self, block: u32, len: usize) -> Range {
        let mut range = Range::whole(Region(self.handle(block)));
        range.len = len;
        range
    }

    /// Returns the first `len` bytes of a block as [`range`](Self::range) does, and records the holder.
    pub(super) fn range_for(&self, block: u32, len: usize, holder: u32) -> Range {
        self.holders.set(block, holder);
        self.range(block, len)
    }

    /// Names all buffers of the class, and adds the verb in the singular or in the plural.
    pub(super) fn all(&self, is: &str, are: &str) -> String {
        let len = count(self.len, "byte", "bytes");
        match self.made() {
            1 => format!("the only buffer of {len} {is}"),
            made => format!("all {made} buffers of {len} {are}"),
        }
    }

    pub(super) fn refuse(&self, backend: &'static str) -> Error {
        fail(ErrorKind::OutOfResources, format!("{} in use", self.all("is", "are")), backend)
            .with_hint("drop buffers, await `get`, or give the pool more buffers of this size")
    }

    pub(super) fn made(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }
}

/// Makes an error of a pool.
pub(super) fn fail(kind: ErrorKind, message: String, backend: &'static str) -> Error {
    Error::new(kind, message).with_operation("pool").with_backend(backend)
}
