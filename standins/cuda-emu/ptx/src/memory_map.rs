//! Addresses and limits of the memory of threads and blocks.

/// Generic addresses from here on are addresses of shared memory. No allocation lies there.
pub(super) const SHARED_WINDOW: u64 = 0x7fff_0000_0000_0000;
/// Generic addresses from here on are addresses of the memory of a thread.
pub(super) const LOCAL_WINDOW: u64 = 0x7ffe_0000_0000_0000;
/// Maximum length of the memory that a kernel or a function declares for each thread, in bytes.
pub(super) const LOCAL_MAX: u64 = 64 << 10;
/// Value of memory that a kernel has not written, because real memory is not zeroed.
pub(super) const STALE: u64 = 0xa5a5_a5a5_a5a5_a5a5;
