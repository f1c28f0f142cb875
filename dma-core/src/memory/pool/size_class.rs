//! [`SizeClass`]: the buffers of one size. [`PoolSlot`] returns a buffer to its class.
#![expect(unsafe_code, reason = "converts handles of blocks to pointers and back")]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::free_set::{self, FreeSet, Released};
use super::growth::Growth;
use super::holders::Holders;
use crate::memory::region::{Range, Region, RegionHandle, RegionInner};
use crate::{EngineId, Error, ErrorKind, Place, guarded};
use dma_process::ForkMark;

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
    pub(super) growth: Option<Growth>,
    /// Requests that found no free buffer.
    pub(super) exhausted: AtomicU64,
}

/// The position of a block in its pool.
pub(crate) struct PoolSlot {
    pub(super) class: Arc<SizeClass>,
    pub(super) block: u32,
}

impl PoolSlot {
    /// Returns a block to its pool. `last` is its last handle.
    #[inline]
    pub(crate) fn give_back(last: RegionHandle) {
        let ptr = last.into_ptr();
        // `FreeSet::give` gets no reference to the block or its class, because both may be freed as soon as
        // the block is free.
        // SAFETY: the handle kept the block alive, and the block is released only below.
        let Some(pool_slot) = &unsafe { ptr.as_ref() }.pool_slot else { unreachable!("a block of a pool") };
        if pool_slot.class.process.is_child() {
            // Leak the block. A lock of the pool may be held by a thread that does not exist in this forked
            // process.
            return;
        }
        let (word, bit) = pool_slot.class.free.place(pool_slot.block);
        if !free_set::give(word, bit) {
            SizeClass::give_with_lock(&Arc::clone(&pool_slot.class), pool_slot.block, ptr);
        }
    }
}

impl SizeClass {
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
        let ptr = self.blocks[block as usize].load(Ordering::Relaxed);
        let ptr = NonNull::new(ptr).expect("a free block has a handle");
        // SAFETY: the handle was converted to this pointer when the block was made or returned. The free set
        // returns a block to only one caller, so the pointer is converted back only once.
        unsafe { RegionHandle::from_ptr(ptr) }
    }

    /// Returns the first `len` bytes of a block that was taken from the free set.
    #[inline]
    pub(super) fn range(&self, block: u32, len: usize, holder: u32) -> Range {
        self.holders.set(block, holder);
        let mut range = Range::whole(Region(self.handle(block)));
        range.len = len;
        range
    }

    pub(super) fn refuse(&self, backend: &'static str) -> Error {
        fail(
            ErrorKind::OutOfResources,
            format!("all {} buffers of {} bytes are in use", self.made(), self.len),
            backend,
        )
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
