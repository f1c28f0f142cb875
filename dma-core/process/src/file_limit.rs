//! The limit of the process on the size of files.

use std::os::fd::AsFd;

use rustix::fs::{FileType, fstat};
use rustix::process::Resource;

use crate::resource_limit::resource_limit;
use crate::{Limit, LimitError};

/// Checks that this process may write the first `len` bytes of `file` (`RLIMIT_FSIZE`, `ulimit -f`). The
/// limit also applies to memory files, and thus to memory that is shared with other processes.
///
/// Call this before a file grows: beyond the limit, the kernel sends `SIGXFSZ`, which ends the process
/// unless the program ignores the signal.
///
/// # Errors
///
/// [`Limit::FileSize`] if a regular file would exceed the limit.
pub fn check_file_size(file: impl AsFd, len: u64) -> Result<(), LimitError> {
    let Some(limit) = resource_limit(Resource::Fsize).filter(|limit| len > *limit) else { return Ok(()) };
    if !fstat(file).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile) {
        return Ok(());
    }
    let message = format!("a file of {len} bytes exceeds the limit of this process, {limit} bytes");
    let hint = "raise the limit on the size of files and of shared memory with `ulimit -f`";
    Err(LimitError::new(Limit::FileSize, message, hint).with_numbers(len, limit))
}
