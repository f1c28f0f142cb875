//! Keeps files of the library from the numbers of the standard streams.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Returns the file under a number above 2, if it has the number of a standard stream.
///
/// The system gives a new file the lowest free number. A program may have closed its standard streams. If a
/// file of the library had the number 1 then, a later `println!` would write into it. Call this for each file
/// that stays open, before its number is used elsewhere. If the process may open no more files, the file
/// keeps its number.
///
/// ```
/// let file = std::fs::File::open("/dev/null")?;
/// # use std::os::fd::AsRawFd;
/// assert!(dma_process::above_stdio(file).as_raw_fd() > 2);
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use]
pub fn above_stdio<F: AsFd + From<OwnedFd>>(file: F) -> F {
    const FIRST: i32 = 3;
    if file.as_fd().as_raw_fd() >= FIRST {
        return file;
    }
    rustix::io::fcntl_dupfd_cloexec(&file, FIRST).map_or(file, F::from)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::FromRawFd;

    use rustix::io::{FdFlags, fcntl_getfd};

    use super::*;
    use crate::fork::in_child;

    #[test]
    #[expect(unsafe_code, reason = "closes the standard input of a child")]
    fn a_file_with_the_number_of_a_closed_standard_stream_moves() {
        // SAFETY: the child calls only functions that are permitted in a child of a process with threads.
        let fork = || unsafe { libc::fork() };
        assert!(in_child(fork, || {
            // SAFETY: no other code of the child uses the descriptor.
            drop(unsafe { OwnedFd::from_raw_fd(0) });
            let Ok(file) = File::open("/dev/null") else { return false };
            let low = file.as_raw_fd() == 0;
            let file = above_stdio(file);
            // SAFETY: the number is only looked up.
            let is_free = unsafe { libc::fcntl(0, libc::F_GETFD) } == -1;
            low && file.as_raw_fd() >= 3 && is_free && fcntl_getfd(&file) == Ok(FdFlags::CLOEXEC)
        }));
        let file = File::open("/dev/null").expect("it opens");
        let number = file.as_raw_fd();
        assert_eq!(above_stdio(file).as_raw_fd(), number, "other files keep their numbers");
    }
}
