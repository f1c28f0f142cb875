//! What an engine's memory and queues must do: the implementer's side of the contract, below the safe API.
#![expect(unsafe_code, reason = "declares the traits whose implementers the safe API trusts with memory")]

use std::fmt;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::time::Duration;

use crate::{Access, EngineId, ErrorKind, NativeError, Result};

/// Memory that an engine's device can reach: allocated, registered, or imported from a peer.
///
/// # Safety
///
/// The safe API makes slices and destroys memory on the word of this trait, so an implementer promises:
/// - `engine_id`, `key`, `base`, `len`, `access` and `cpu_visible` never change.
/// - If `cpu_visible`, then `base .. base + len` is mapped, initialized and valid for reads and writes by the CPU until this value
///   is dropped, and the engine itself touches it only as the descriptors submitted to its queues say.
/// - Dropping deregisters. The safe API drops a region only when no descriptor that names it is in flight, or never.
#[expect(clippy::len_without_is_empty, reason = "a region is never empty")]
pub unsafe trait RawRegion: fmt::Debug + Send + Sync {
    /// The engine whose queues take this region's key.
    fn engine_id(&self) -> EngineId;

    /// How descriptors name this region.
    fn key(&self) -> RegionKey;

    /// The address of the first byte, as descriptors give it: the CPU's own address if `cpu_visible`, else whatever the engine
    /// counts from.
    fn base(&self) -> NonNull<u8>;

    /// The length in bytes, at least 1.
    fn len(&self) -> usize;

    /// What the device may do with it.
    fn access(&self) -> Access;

    /// Whether the CPU may use `base` as a pointer. Never for imported memory.
    fn cpu_visible(&self) -> bool;

    /// Exports `len` bytes from byte `offset` on with `rights`.
    ///
    /// # Safety
    ///
    /// Until the export is revoked, or for ever if revoking fails, the peer may read these bytes, and with [`Access::WRITE`] write them,
    /// at any time: there is no reference to them in this process, unless to be read only while `rights` are to read only.
    /// [`Window::export`](crate::Window::export) sees to that.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the engine or this memory cannot be exported; `AccessDenied` if `rights` go beyond what the memory was
    /// allocated with; `OutOfRange`; `OutOfResources`.
    unsafe fn export(&self, offset: usize, len: usize, rights: Access) -> Result<Box<dyn RawExport>>;
}

/// Memory granted to a peer. Dropping revokes, as [`revoke`](Self::revoke) does with a deadline of the engine's choice.
pub trait RawExport: fmt::Debug + Send + Sync {
    /// The backend's own blob, to be framed by [`ExportDescriptor`](crate::ExportDescriptor). At most 64 KiB.
    fn native(&self) -> &[u8];

    /// The address by which the peer's engine counts, for backends whose blob does not hold it.
    fn address(&self) -> u64;

    /// Takes the grant back: once this returns `Ok`, no peer reads or writes the memory any more. Idempotent. Waits for
    /// peers' copies in progress up to `timeout`.
    ///
    /// # Errors
    ///
    /// `TimedOut` if a peer is still at it: then the memory must not be reused.
    fn revoke(&mut self, timeout: Duration) -> Result<()>;
}

/// How an engine names a region in its descriptors: a number of the engine's choosing, opaque to everybody else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RegionKey(pub usize);

/// One contiguous piece of one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The region.
    pub key: RegionKey,
    /// The first byte: the region's [`base`](RawRegion::base) plus the offset.
    pub addr: NonNull<u8>,
    /// The length in bytes.
    pub len: usize,
}

// SAFETY: a segment is a name for memory; using it is what needs a promise, and `RawQueue::submit` asks for that.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

/// One unit of work for a device.
///
/// Nearly every descriptor is a copy of one segment to another: that one is laid out flat, in a cache line, so that making and reading it costs next
/// to nothing. Anything else stands in a [`Listed`] beside it.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor<'a> {
    token: u64,
    len: usize,
    src: NonNull<u8>,
    src_key: RegionKey,
    dst: NonNull<u8>,
    dst_key: RegionKey,
    listed: Option<&'a Listed<'a>>,
    fence: bool,
}

// SAFETY: a descriptor names memory; using it is what needs a promise, and `RawQueue::submit` asks for that.
unsafe impl Send for Descriptor<'_> {}
// SAFETY: as above.
unsafe impl Sync for Descriptor<'_> {}

/// What a descriptor asks for if it is more than a copy of one segment to another. No list is empty, nor any segment in it; none is longer than
/// [`Limits::max_segments`](crate::Limits::max_segments).
#[derive(Clone, Copy, Debug)]
pub enum Listed<'a> {
    /// Copy `src` to `dst`, of the same total length.
    Copy {
        /// What is read, piece after piece.
        src: &'a [Segment],
        /// What is written, piece after piece.
        dst: &'a [Segment],
    },
    /// Write the 8 bytes of `pattern` over and over, beginning at the first byte of `dst`, the last repetition cut off. Only with
    /// [`Capabilities::FILL`](crate::Capabilities::FILL).
    Fill {
        /// The bytes to repeat, first byte first.
        pattern: [u8; 8],
        /// What is written, piece after piece.
        dst: &'a [Segment],
    },
}

/// What a descriptor asks for, as its reader sees it.
#[derive(Clone, Copy, Debug)]
pub enum Work<'a> {
    /// Copy one segment to another of the same length.
    Copy {
        /// What is read.
        src: Segment,
        /// What is written.
        dst: Segment,
    },
    /// Anything else.
    Listed(&'a Listed<'a>),
}

impl<'a> Descriptor<'a> {
    /// A copy of `src` to `dst`, which have the same length.
    #[inline]
    #[must_use]
    pub const fn copy(token: u64, src: Segment, dst: Segment) -> Self {
        Self {
            token,
            len: dst.len,
            src: src.addr,
            src_key: src.key,
            dst: dst.addr,
            dst_key: dst.key,
            listed: None,
            fence: false,
        }
    }

    /// A descriptor for what `listed` asks.
    #[must_use]
    pub fn listed(token: u64, listed: &'a Listed<'a>) -> Self {
        let none = NonNull::dangling();
        Self {
            token,
            len: listed.total_len(),
            src: none,
            src_key: RegionKey(0),
            dst: none,
            dst_key: RegionKey(0),
            listed: Some(listed),
            fence: false,
        }
    }

    /// Sets the fence: this descriptor *and all later ones* of the queue start only when all earlier ones have completed. Only with
    /// [`Capabilities::FENCE`](crate::Capabilities::FENCE).
    #[inline]
    #[must_use]
    pub const fn with_fence(mut self, fence: bool) -> Self {
        self.fence = fence;
        self
    }

    /// Comes back in the completion; the queue does not look at it.
    #[inline]
    #[must_use]
    pub const fn token(&self) -> u64 {
        self.token
    }

    /// Whether it carries a fence: see [`with_fence`](Self::with_fence).
    #[inline]
    #[must_use]
    pub const fn fence(&self) -> bool {
        self.fence
    }

    /// The bytes that it writes; at least 1 and at most [`Limits::max_transfer`](crate::Limits::max_transfer).
    #[inline]
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a descriptor is never empty")]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// What it asks for.
    #[inline]
    #[must_use]
    pub const fn work(&self) -> Work<'a> {
        match self.listed {
            None => Work::Copy {
                src: Segment { key: self.src_key, addr: self.src, len: self.len },
                dst: Segment { key: self.dst_key, addr: self.dst, len: self.len },
            },
            Some(listed) => Work::Listed(listed),
        }
    }
}

impl Listed<'_> {
    /// The bytes that it writes.
    #[must_use]
    pub fn total_len(&self) -> usize {
        match self {
            Self::Copy { dst, .. } | Self::Fill { dst, .. } => dst.iter().map(|s| s.len).sum(),
        }
    }
}

/// How a descriptor ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// All bytes are in place and visible to the CPU.
    Done,
    /// The device, or the rules of memory, refused or broke it. The destination is undefined.
    Failed(ErrorKind),
    /// The device was reset before it reported this descriptor; submitting it again is safe.
    Aborted,
}

/// The report that a descriptor ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The descriptor's token.
    pub token: u64,
    /// The code of the device or library for a failure, for [`RawQueue::explain`]; 0 if there is none.
    pub native: i32,
    /// How it ended.
    pub outcome: Outcome,
}

impl Completion {
    /// The completion of a descriptor that succeeded.
    #[must_use]
    #[inline]
    pub const fn done(token: u64) -> Self {
        Self { token, native: 0, outcome: Outcome::Done }
    }
}

/// What a queue knows of its device's doings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RawStats {
    /// Doorbells rung.
    pub doorbells: u64,
    /// Device resets that the queue has recovered from.
    pub resets: u64,
}

impl RawStats {
    /// These numbers.
    #[must_use]
    #[inline]
    pub const fn new(doorbells: u64, resets: u64) -> Self {
        Self { doorbells, resets }
    }
}

/// A device's submission and completion path, used by one thread at a time.
///
/// Nothing here blocks, and once warm nothing allocates.
///
/// # Safety
///
/// The safe API gives memory back to its owner on the word of this trait, so an implementer promises:
/// - Every accepted descriptor is reported by `poll` exactly once, or never (a lost completion, a dead device).
/// - Memory named by an accepted descriptor is accessed only until it is reported, and not at all once it is; on `Done` all its
///   bytes are visible to the thread that polled.
/// - Nothing outside of the destination is written.
/// - A descriptor may start at any time from `submit` on. Once `flush` was called, and fences and the device's health permit it, it
///   must start by itself; of a software device, it may wait for a `poll` instead, if the event then tells whoever sleeps on it to.
/// - Dropping a queue with descriptors in flight either makes sure that the device touches their memory no more, or leaks. (The
///   safe API never does it.)
pub unsafe trait RawQueue: fmt::Debug + Send {
    /// The engine whose regions this queue takes.
    fn engine_id(&self) -> EngineId;

    /// The most descriptors in flight, as granted; at least what was asked for.
    fn depth(&self) -> usize;

    /// Hands descriptors to the device, in order, and says how many it took: fewer than `batch.len()` means that the queue is full, or that the
    /// next descriptor has a problem, which submitting it again (as the first) names. The lists of a descriptor are read before this returns.
    ///
    /// # Safety
    ///
    /// For every descriptor: its regions belong to this queue's engine and grant the access; its segments lie inside of them; it keeps to
    /// the engine's capabilities and limits; source and destination do not overlap. Until its completion, or for ever if none
    /// comes, the regions stay registered, nobody writes the source, and nobody reads or writes the destination (but for memory
    /// shared with a peer, whose bytes are then undefined).
    ///
    /// # Errors
    ///
    /// Only if the first descriptor is refused, and then nothing of the batch was taken: `QueueFull` is *not* an error (0 is returned);
    /// `DeviceLost`, `Closed`, and what the device refuses by itself.
    unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> Result<usize>;

    /// Rings the doorbell for all that was submitted. Trouble shows up in completions.
    fn flush(&mut self);

    /// Makes progress and writes completions to the front of `completions`; returns how many. 0 means that nothing is there now.
    /// Never blocks; a software device may do a bounded piece of its work in here.
    fn poll(&mut self, completions: &mut [Completion]) -> usize;

    /// The name and description of a completion's `native` code.
    fn explain(&self, native: i32) -> NativeError;

    /// Asks the device to give up what it has not finished: those descriptors are reported as `Aborted` by later polls. Returns at
    /// once; afterwards `submit` answers `Closed`. Idempotent.
    fn stop(&mut self);

    /// Doorbells and resets so far.
    fn stats(&self) -> RawStats;

    /// Becomes readable when a completion arrives after [`arm`](Self::arm), or when there is work of a software device that is to be done by
    /// [`poll`](Self::poll), which then may report nothing yet. `None` without [`Capabilities::EVENT_FD`](crate::Capabilities::EVENT_FD).
    fn event_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Asks for the event fd to be made readable by what comes next: see [`event_fd`](Self::event_fd). Returns `false` if completions may be waiting already, so that sleeping
    /// would be wrong: poll instead. A completion that comes between the last poll and this call is never missed.
    ///
    /// # Errors
    ///
    /// `Unsupported` without an event fd; `Os` if the system refuses.
    fn arm(&mut self) -> Result<bool>;

    /// Takes back the readiness of the event fd after a wake, or an `arm` that is not needed any more.
    fn disarm(&mut self);
}

/// Forwards [`RawQueue`] through a pointer; a method added to the trait and forgotten here does not compile.
macro_rules! forward_queue {
    ($($pointer:ty),+) => {$(
        // SAFETY: every call goes to the inner queue, which keeps the promises.
        #[deny(clippy::missing_trait_methods)]
        unsafe impl<Q: RawQueue + ?Sized> RawQueue for $pointer {
            fn engine_id(&self) -> EngineId {
                (**self).engine_id()
            }
            fn depth(&self) -> usize {
                (**self).depth()
            }
            unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> Result<usize> {
                // SAFETY: the caller's promise is the one that the inner queue asks for.
                unsafe { (**self).submit(batch) }
            }
            fn flush(&mut self) {
                (**self).flush();
            }
            fn poll(&mut self, completions: &mut [Completion]) -> usize {
                (**self).poll(completions)
            }
            fn explain(&self, native: i32) -> NativeError {
                (**self).explain(native)
            }
            fn stop(&mut self) {
                (**self).stop();
            }
            fn stats(&self) -> RawStats {
                (**self).stats()
            }
            fn event_fd(&self) -> Option<BorrowedFd<'_>> {
                (**self).event_fd()
            }
            fn arm(&mut self) -> Result<bool> {
                (**self).arm()
            }
            fn disarm(&mut self) {
                (**self).disarm();
            }
        }
    )+};
}
forward_queue!(&mut Q, Box<Q>);

/// Forwards [`RawRegion`] through a pointer; a method added to the trait and forgotten here does not compile.
macro_rules! forward_region {
    ($($pointer:ty),+) => {$(
        // SAFETY: every call goes to the inner region, which keeps the promises and lives as long.
        #[deny(clippy::missing_trait_methods)]
        unsafe impl<R: RawRegion + ?Sized> RawRegion for $pointer {
            fn engine_id(&self) -> EngineId {
                (**self).engine_id()
            }
            fn key(&self) -> RegionKey {
                (**self).key()
            }
            fn base(&self) -> NonNull<u8> {
                (**self).base()
            }
            fn len(&self) -> usize {
                (**self).len()
            }
            fn access(&self) -> Access {
                (**self).access()
            }
            fn cpu_visible(&self) -> bool {
                (**self).cpu_visible()
            }
            unsafe fn export(&self, offset: usize, len: usize, rights: Access) -> Result<Box<dyn RawExport>> {
                // SAFETY: the caller's promise is the one that the inner region asks for.
                unsafe { (**self).export(offset, len, rights) }
            }
        }
    )+};
}
forward_region!(Box<R>, std::sync::Arc<R>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hot_types_are_small() {
        assert_eq!(size_of::<Completion>(), 16);
        assert_eq!(size_of::<Segment>(), 24);
        assert_eq!(size_of::<Descriptor<'_>>(), 64);
    }
}
