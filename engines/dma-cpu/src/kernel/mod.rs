//! Copy and fill kernels: the C library's `memcpy`, and loops that write past the cache.
//!
//! Other threads or processes may write source and destination at any time. So this module makes no
//! references to the data, and no accesses that would be data races in Rust: `asm!` blocks and
//! [`dma_core::racy_copy`] move the bytes.

#![expect(unsafe_code, reason = "moves bytes between raw addresses")]

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
mod asan;
mod cache_speed;
mod cached;
#[cfg(target_arch = "x86_64")]
mod cpuid;
#[cfg(target_arch = "x86_64")]
mod measured;
mod pieces;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod vectors;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use std::fmt;

use dma_core::InlineCopy;

type CopyFn = unsafe fn(dst: *mut u8, src: *const u8, len: usize);
type CopyAllFn = unsafe fn(copies: &[InlineCopy]);
type FillFn = unsafe fn(dst: *mut u8, pattern: [u8; 8], len: usize);

pub(super) use cache_speed::hot_cost;
pub(super) use pieces::SHORT;

/// See [`Kernel::piece_of_both`]. A piece and its two copies fit in a level-1 cache of 32 KiB.
const PIECE_OF_BOTH: usize = 8 << 10;
/// Up to this length, copies to two destinations are not divided into pieces: the source and one destination
/// fit in a level-1 cache of 32 KiB, so that the second copy reads the source from this cache anyway. With
/// pieces, a copy of 16 KiB takes 1.15 times as long (Zen 4).
const WHOLE_BOTH_MAX: usize = 16 << 10;

/// Returns the size of a core's second level cache in bytes, if the CPU reports it.
pub(super) fn second_level_cache() -> Option<usize> {
    #[cfg(target_arch = "x86_64")]
    let bytes = cpuid::second_level_cache();
    #[cfg(not(target_arch = "x86_64"))]
    let bytes = None;
    bytes
}

/// A method to move bytes with the CPU's instructions.
///
/// Every value of this type can run on this CPU, because kernels whose instructions the CPU lacks are never
/// returned.
///
/// Two kinds exist. [`Kernel::memcpy`] goes through the cache and wins when the data is in it. A *streaming*
/// kernel writes whole cache lines directly to memory. Unlike `memcpy` below glibc's non-temporal threshold,
/// a streaming kernel does not read the destination first, and leaves it outside the cache. Streaming wins
/// when the data comes from memory and the result is not read soon.
#[derive(Clone, Copy)]
pub struct Kernel {
    name: &'static str,
    streaming: bool,
    copy: CopyFn,
    copy_all: CopyAllFn,
    fill: FillFn,
}

impl Kernel {
    /// Returns the kernel that uses the C library's `memcpy` and `memset`, and a plain loop for fill patterns
    /// of more than one byte value.
    ///
    /// Lengths above 2 KiB and below 16 KiB are copied by vectors of 32 bytes (AVX2) or 64 bytes (AVX-512)
    /// instead, if the first such copy of the process measures that they are faster. One in 64 of these
    /// copies is timed. If it was slower than a copy in the core's own cache, the next ones use `memcpy`.
    ///
    /// Lengths above 2 KiB and up to 1 MiB are copied 2 KiB at a time if the page offset of the destination
    /// is up to 63 bytes greater than that of the source, and the first such copy of the process measures
    /// that `memcpy` is four times as slow. This position is common for consecutive allocations. For these
    /// lengths glibc may use `rep movsb`, which on some CPUs can take 20 times as long as vector instructions
    /// in this case (glibc bug 30994).
    #[must_use]
    pub const fn memcpy() -> Self {
        Self {
            name: "memcpy",
            streaming: false,
            copy: cached::copy,
            copy_all: cached::copy_all,
            fill: cached::fill,
        }
    }

    /// Returns the streaming kernel for this CPU, or `None` on an architecture without one.
    ///
    /// On x86-64, this kernel has two orders of lines, and uses the one that this process has measured to be
    /// faster. The first 16 copies of at least 16 KiB measure it, on up to 64 KiB of each.
    #[must_use]
    pub fn streaming() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        let streaming = measured::kernel();
        #[cfg(not(target_arch = "x86_64"))]
        let streaming = Self::all().find(|kernel| kernel.streaming);
        streaming
    }

    /// Returns every kernel that this CPU can run: `memcpy` first, then the streaming kernels. Each of these
    /// has one order of lines.
    pub fn all() -> impl Iterator<Item = Self> {
        #[cfg(target_arch = "x86_64")]
        let streaming = x86_64::available();
        #[cfg(target_arch = "aarch64")]
        let streaming = std::iter::once(aarch64::STNP);
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let streaming = std::iter::empty();
        std::iter::once(Self::memcpy()).chain(streaming)
    }

    /// Returns a short name for reports: `memcpy`; `avx2`, `sse2` or `stnp` for
    /// [`streaming`](Self::streaming); and for kernels of [`all`](Self::all) with one order of lines, this
    /// order too: `avx2 pages`, `avx2 linear`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns true if this kernel writes past the cache.
    #[must_use]
    pub const fn is_streaming(&self) -> bool {
        self.streaming
    }

    /// Copies `len` bytes from `src` to `dst`.
    ///
    /// Accepts any alignment and any length, including zero. When this method returns, every byte is written
    /// and ordered before any later store of this thread, so a completion may be signalled with an ordinary
    /// release store.
    ///
    /// # Safety
    ///
    /// `src` must be valid for reads and `dst` for writes of `len` bytes, and the two ranges must not
    /// overlap. No reference to either range may be in use while this runs. If another process or thread
    /// writes to the ranges at the same time, the bytes in `dst` are unspecified, but the behavior is
    /// defined.
    #[inline]
    pub unsafe fn copy(&self, dst: *mut u8, src: *const u8, len: usize) {
        // SAFETY: this method and the function have the same requirements, which the caller meets, and the
        // CPU has the instructions (see `all`).
        unsafe { (self.copy)(dst, src, len) }
    }

    /// Copies all ranges. A streaming kernel overlaps the memory accesses of several ranges, and orders all
    /// writes before later stores only once, at the end.
    ///
    /// # Safety
    ///
    /// See [`Kernel::copy`], for each copy. A byte that several copies write, as windows allow, has the value
    /// that one of them writes.
    #[inline]
    pub(super) unsafe fn copy_all(&self, copies: &[InlineCopy]) {
        // SAFETY: this method and the function have the same requirements, which the caller meets, and the
        // CPU has the instructions (see `all`).
        unsafe { (self.copy_all)(copies) }
    }

    /// Returns the number of bytes that a copy of `len` bytes to two destinations copies to the first one
    /// before it copies them to the second one. Through the cache, they are so few that the second copy reads
    /// them from the level-1 cache. Past the cache, each destination is written at once.
    pub(super) const fn piece_of_both(&self, len: usize) -> usize {
        if self.streaming || len <= WHOLE_BOTH_MAX { len } else { PIECE_OF_BOTH }
    }

    /// Copies `len` bytes from `src` to each of `dst`.
    ///
    /// # Safety
    ///
    /// See [`Kernel::copy`], for each destination. The destinations must not overlap.
    pub(super) unsafe fn copy_to_both(&self, dst: [*mut u8; 2], src: *const u8, len: usize) {
        let mut at = 0;
        while at < len {
            let n = self.piece_of_both(len).min(len - at);
            for dst in dst {
                // SAFETY: `at + n <= len`, and the caller ensures access to `len` bytes of all ranges.
                unsafe { self.copy(dst.wrapping_add(at), src.wrapping_add(at), n) };
            }
            at += n;
        }
    }

    /// Writes repetitions of `pattern` to the `len` bytes at `dst`, beginning with its first byte. If `len`
    /// is not a multiple of 8, the last repetition is cut short.
    ///
    /// Accepts any alignment and any length, including zero. The writes are ordered before later stores, like
    /// those of [`Kernel::copy`].
    ///
    /// # Safety
    ///
    /// `dst` must be valid for writes of `len` bytes, and no reference to these bytes may be in use while
    /// this runs.
    #[inline]
    pub unsafe fn fill(&self, dst: *mut u8, pattern: [u8; 8], len: usize) {
        // SAFETY: this method and the function have the same requirements, which the caller meets, and the
        // CPU has the instructions (see `all`).
        unsafe { (self.fill)(dst, pattern, len) }
    }
}

impl Default for Kernel {
    /// Returns [`Kernel::memcpy`].
    fn default() -> Self {
        Self::memcpy()
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel")
            .field("name", &self.name)
            .field("streaming", &self.streaming)
            .finish_non_exhaustive()
    }
}
