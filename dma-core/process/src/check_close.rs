//! [`check_close`]: errors that only closing a file reports.
#![expect(unsafe_code, reason = "closes a descriptor for the result, which the standard library ignores")]

use std::io;
use std::os::fd::{AsFd, IntoRawFd};

/// Reports what the system says when `file` is closed. `file` stays open.
///
/// Network and user-space file systems report a full disk, a used up quota or a broken connection only here,
/// or when the file is synced. Without such an error, the bytes have reached the server, but not necessarily
/// its disk. Local file systems do nothing. May block.
///
/// ```
/// dma_process::check_close(&tempfile::tempfile()?)?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// Errors of the file system, such as `StorageFull` and `QuotaExceeded`; an error if the process may open no
/// more files.
pub fn check_close(file: impl AsFd) -> io::Result<()> {
    // A file system does this work whenever one of a file's descriptors is closed.
    let duplicate = file.as_fd().try_clone_to_owned()?;
    // SAFETY: the value that owned the descriptor does not exist any more. The descriptor is closed once,
    // also if the call fails.
    if unsafe { libc::close(duplicate.into_raw_fd()) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
