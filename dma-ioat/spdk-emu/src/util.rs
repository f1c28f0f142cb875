//! Arithmetic and iovecs.
#![expect(unsafe_code, reason = "the names are C's")]

use std::ffi::{c_char, c_int};

use crate::c_abi::{Addr, Ptr, c_calls, put_text};
use crate::config::Config;
use libc::iovec;

c_calls! {
    fn spdk_u32log2(x: u32) -> u32 { x.checked_ilog2().unwrap_or(0) }
    fn spdk_u64log2(x: u64) -> u64 { x.checked_ilog2().unwrap_or(0).into() }
}

/// Addresses and lengths of vectors, without empty ones.
///
/// # Safety
///
/// `iov` has `count` vectors.
unsafe fn parts(iov: Ptr<iovec>, count: usize) -> impl Iterator<Item = (Addr, usize)> {
    // SAFETY: the array has `count` vectors, which C does not change during the call.
    let parts = unsafe { iov.slice(count) }.iter();
    parts.map(|part| (Addr::new(part.iov_base), part.iov_len)).filter(|(_, len)| *len > 0)
}

/// Copies between lists of buffers, up to the shorter total. Returns the number of bytes copied.
///
/// # Safety
///
/// The buffers are valid for their lengths, and no other code uses them during the call.
unsafe fn copy(
    mut from: impl Iterator<Item = (Addr, usize)>,
    mut to: impl Iterator<Item = (Addr, usize)>,
) -> usize {
    let mut copied = 0;
    let (mut src, mut dst) = (from.next(), to.next());
    while let (Some((src_at, src_len)), Some((dst_at, dst_len))) = (src, dst) {
        let len = src_len.min(dst_len);
        // SAFETY: the range lies within both buffers.
        unsafe { src_at.copy_to(dst_at, len) };
        copied += len;
        let rest =
            |at: Addr, whole: usize| (whole > len).then(|| (Addr::at(at.addr() + len as u64), whole - len));
        src = rest(src_at, src_len).or_else(|| from.next());
        dst = rest(dst_at, dst_len).or_else(|| to.next());
    }
    copied
}

c_calls! {
    fn spdk_iov_memset(iovs: Ptr<iovec>, iovcnt: c_int, value: c_int) {
        // SAFETY: C passes an array of `iovcnt` vectors, and does not change it during the call.
        for (at, len) in unsafe { parts(iovs, usize::try_from(iovcnt).unwrap_or(0)) } {
            // SAFETY: the vectors are of bytes that C has.
            let bytes = unsafe { at.to::<u8>() };
            // SAFETY: `i` is below the vector's length, and C lends the bytes to this call.
            (0..len).for_each(|i| unsafe { bytes.write(i, value as u8) });
        }
    }

    fn spdk_iovcpy(siov: Ptr<iovec>, siovcnt: usize, diov: Ptr<iovec>, diovcnt: usize) -> usize {
        // SAFETY: C passes an array of `siovcnt` vectors, and does not change it during the call.
        let from = unsafe { parts(siov, siovcnt) };
        // SAFETY: C passes an array of `diovcnt` vectors, and does not change it during the call.
        let to = unsafe { parts(diov, diovcnt) };
        // SAFETY: each vector names bytes that C lends to this call; `copy` allows an overlap.
        unsafe { copy(from, to) }
    }

    fn spdk_iovmove(siov: Ptr<iovec>, siovcnt: usize, diov: Ptr<iovec>, diovcnt: usize) -> usize {
        // SAFETY: C passes an array of `siovcnt` vectors, and does not change it during the call.
        let from = unsafe { parts(siov, siovcnt) };
        // SAFETY: C passes an array of `diovcnt` vectors, and does not change it during the call.
        let to = unsafe { parts(diov, diovcnt) };
        // SAFETY: each vector names bytes that C lends to this call; `copy` allows an overlap.
        unsafe { copy(from, to) }
    }

    fn spdk_copy_iovs_to_buf(buf: Addr, buf_len: usize, iovs: Ptr<iovec>, iovcnt: c_int) {
        // SAFETY: C passes an array of `iovcnt` vectors, and does not change it during the call.
        let parts = unsafe { parts(iovs, usize::try_from(iovcnt).unwrap_or(0)) };
        // SAFETY: the buffer has `buf_len` bytes, and each vector names bytes that C lends to this call.
        unsafe { copy(parts, [(buf, buf_len)].into_iter()) };
    }

    fn spdk_copy_buf_to_iovs(iovs: Ptr<iovec>, iovcnt: c_int, buf: Addr, buf_len: usize) {
        // SAFETY: C passes an array of `iovcnt` vectors, and does not change it during the call.
        let parts = unsafe { parts(iovs, usize::try_from(iovcnt).unwrap_or(0)) };
        // SAFETY: the buffer has `buf_len` bytes, and each vector names bytes that C lends to this call.
        unsafe { copy([(buf, buf_len)].into_iter(), parts) };
    }
}

c_calls! {
    /// Identifies the stand-in: no SPDK has this call. Writes the profiles of the channels and their sources.
    /// Returns 0, or -1 without a valid configuration or enough room.
    fn spdk_emu_model(model: Ptr<c_char>, size: usize) -> c_int {
        let Ok(config) = Config::in_use() else { return -1 };
        let mut profiles: Vec<_> =
            config.sockets.iter().map(|s| format!("profile {} ({})", s.profile.name, s.profile.source)).collect();
        profiles.dedup();
        // SAFETY: `model` is NULL or has room for `size` bytes.
        let fits = unsafe { put_text(model, size, &format!("spdk-emu, {}", profiles.join(", "))) };
        if fits { 0 } else { -1 }
    }
}
