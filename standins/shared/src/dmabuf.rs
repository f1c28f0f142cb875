//! Dma-bufs: of the kernel, and files in memory that represent them.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{SeekFrom, fstat, seek};

/// Returns the offset of the first byte of a dma-buf in its file, and the length of the dma-buf.
///
/// A file in memory that represents a dma-buf begins at its position, because one file has all memory of a
/// stand-in's device. A dma-buf of the kernel has no position.
///
/// # Errors
///
/// The file descriptor is not open.
pub fn dmabuf_range(fd: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
    let size = fstat(fd)?.st_size.unsigned_abs();
    let start = seek(fd, SeekFrom::Current(0)).unwrap_or(0);
    Ok((start, size.saturating_sub(start)))
}
