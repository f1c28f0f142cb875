//! Shows AddressSanitizer the accesses of `asm!` blocks, which it does not see (`ci/sanitizers.sh`). Without
//! AddressSanitizer, the functions have no code.

/// Checks that `len` bytes at `src` may be read, and `len` bytes at `dst` written. Otherwise
/// AddressSanitizer ends the process with a report.
#[inline(always)]
pub(super) fn check_copy(dst: *mut u8, src: *const u8, len: usize) {
    imp::read(src.addr(), len);
    imp::write(dst.addr(), len);
}

#[cfg(not(dma_address_sanitizer))]
mod imp {
    #[inline(always)]
    pub(super) const fn read(_: usize, _: usize) {}

    #[inline(always)]
    pub(super) const fn write(_: usize, _: usize) {}
}

#[cfg(dma_address_sanitizer)]
mod imp {
    // The calls that compilers insert before accesses of any length.
    unsafe extern "C" {
        pub(super) safe fn __asan_loadN(addr: usize, len: usize);
        pub(super) safe fn __asan_storeN(addr: usize, len: usize);
    }

    pub(super) use __asan_loadN as read;
    pub(super) use __asan_storeN as write;
}
