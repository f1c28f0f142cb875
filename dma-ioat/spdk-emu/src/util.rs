//! Arithmetic, iovecs and file descriptors.
#![expect(unsafe_code, reason = "the names are C's; calls of the C library")]

use std::ffi::{c_char, c_int, c_void};

use crate::config::Config;
use crate::door::{Ptr, put_text};
use libc::iovec;

#[unsafe(no_mangle)]
extern "C" fn spdk_u32log2(x: u32) -> u32 {
    x.checked_ilog2().unwrap_or(0)
}

#[unsafe(no_mangle)]
extern "C" fn spdk_u64log2(x: u64) -> u64 {
    x.checked_ilog2().unwrap_or(0).into()
}

/// The places and lengths that vectors stand for.
fn parts(iov: Ptr<iovec>, count: usize) -> impl Iterator<Item = (Ptr<c_void>, usize)> {
    iov.slice(count).iter().map(|part| (Ptr::new(part.iov_base), part.iov_len)).filter(|(_, len)| *len > 0)
}

/// Copies from one row of places to another, as much as both hold; returns how much that is.
fn copy(
    mut from: impl Iterator<Item = (Ptr<c_void>, usize)>,
    mut to: impl Iterator<Item = (Ptr<c_void>, usize)>,
) -> usize {
    let mut copied = 0;
    let (mut src, mut dst) = (from.next(), to.next());
    while let (Some((src_at, src_len)), Some((dst_at, dst_len))) = (src, dst) {
        let len = src_len.min(dst_len);
        src_at.copy_to(dst_at, len);
        copied += len;
        let rest = |at: Ptr<c_void>, whole: usize| {
            (whole > len).then(|| (Ptr::at(at.addr() + len as u64), whole - len))
        };
        src = rest(src_at, src_len).or_else(|| from.next());
        dst = rest(dst_at, dst_len).or_else(|| to.next());
    }
    copied
}

#[unsafe(no_mangle)]
extern "C" fn spdk_iov_memset(iovs: Ptr<iovec>, iovcnt: c_int, value: c_int) {
    for (at, len) in parts(iovs, usize::try_from(iovcnt).unwrap_or(0)) {
        (0..len).for_each(|i| at.cast::<u8>().write(i, value as u8));
    }
}

#[unsafe(no_mangle)]
extern "C" fn spdk_iovcpy(siov: Ptr<iovec>, siovcnt: usize, diov: Ptr<iovec>, diovcnt: usize) -> usize {
    copy(parts(siov, siovcnt), parts(diov, diovcnt))
}

#[unsafe(no_mangle)]
extern "C" fn spdk_iovmove(siov: Ptr<iovec>, siovcnt: usize, diov: Ptr<iovec>, diovcnt: usize) -> usize {
    copy(parts(siov, siovcnt), parts(diov, diovcnt))
}

#[unsafe(no_mangle)]
extern "C" fn spdk_copy_iovs_to_buf(buf: Ptr<c_void>, buf_len: usize, iovs: Ptr<iovec>, iovcnt: c_int) {
    copy(parts(iovs, usize::try_from(iovcnt).unwrap_or(0)), [(buf, buf_len)].into_iter());
}

#[unsafe(no_mangle)]
extern "C" fn spdk_copy_buf_to_iovs(iovs: Ptr<iovec>, iovcnt: c_int, buf: Ptr<c_void>, buf_len: usize) {
    copy([(buf, buf_len)].into_iter(), parts(iovs, usize::try_from(iovcnt).unwrap_or(0)));
}

/// Sets or clears a flag of a file descriptor.
fn set_nonblock(fd: c_int, on: bool) -> c_int {
    // SAFETY: asks for flags.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    let new = if on { flags | libc::O_NONBLOCK } else { flags & !libc::O_NONBLOCK };
    // SAFETY: sets flags.
    if flags < 0 || (new != flags && unsafe { libc::fcntl(fd, libc::F_SETFL, new) } < 0) {
        return -std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EBADF);
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn spdk_fd_set_nonblock(fd: c_int) -> c_int {
    set_nonblock(fd, true)
}

#[unsafe(no_mangle)]
extern "C" fn spdk_fd_clear_nonblock(fd: c_int) -> c_int {
    set_nonblock(fd, false)
}

fn status(fd: c_int) -> Option<libc::stat> {
    let mut status = std::mem::MaybeUninit::uninit();
    // SAFETY: there is room for the status.
    let result = unsafe { libc::fstat(fd, status.as_mut_ptr()) };
    // SAFETY: the call that succeeded wrote it.
    (result == 0).then(|| unsafe { status.assume_init() })
}

/// Of a file; 0 of anything else.
#[unsafe(no_mangle)]
extern "C" fn spdk_fd_get_size(fd: c_int) -> u64 {
    let file = status(fd).filter(|status| status.st_mode & libc::S_IFMT == libc::S_IFREG);
    file.map_or(0, |status| status.st_size as u64)
}

#[unsafe(no_mangle)]
extern "C" fn spdk_fd_get_blocklen(fd: c_int) -> u32 {
    status(fd).map_or(0, |status| status.st_blksize as u32)
}

/// What no SPDK has: says that this is the stand-in, and writes the profiles that its channels are models of, with their sources. Returns 0,
/// or -1 if there is no configuration or not enough room.
#[unsafe(no_mangle)]
extern "C" fn spdk_emu_model(model: Ptr<c_char>, size: usize) -> c_int {
    let Ok(config) = Config::in_use() else { return -1 };
    let mut profiles: Vec<_> =
        config.sockets.iter().map(|s| format!("profile {} ({})", s.profile.name, s.profile.source)).collect();
    profiles.dedup();
    if put_text(model, size, &format!("spdk-emu, {}", profiles.join(", "))) { 0 } else { -1 }
}
