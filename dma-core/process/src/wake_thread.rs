//! Wakes a thread of the library by an event descriptor.

use std::os::fd::{AsFd, AsRawFd};

/// Wakes a thread that waits for an `eventfd`. Returns false if the program has closed the descriptor, as a
/// daemon closes all: then the thread cannot be woken, and the number may belong to another file of the
/// program, which must not be written. Do not join the thread then, but leak it, with its descriptors.
#[must_use = "the thread may not wake"]
pub fn wake_thread(event: impl AsFd) -> bool {
    let event = event.as_fd();
    let link = rustix::fs::readlink(format!("/proc/self/fd/{}", event.as_raw_fd()), Vec::new());
    let is_event = match link {
        Ok(link) => link.as_bytes().starts_with(b"anon_inode:[eventfd]"),
        // Without procfs, only a number that is not in use is noticed.
        Err(_) => rustix::io::fcntl_getfd(event).is_ok(),
    };
    // The write fails only if the counter is full, and then the thread wakes anyway.
    let _ = is_event && rustix::io::write(event, &1_u64.to_ne_bytes()).is_ok();
    is_event
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    #[test]
    fn only_an_event_is_written() {
        let event = eventfd(0, EventfdFlags::CLOEXEC).expect("a descriptor");
        assert!(wake_thread(&event));
        let mut count = [0; 8];
        assert_eq!(rustix::io::read(&event, &mut count), Ok(8));
        assert_eq!(u64::from_ne_bytes(count), 1);
        let file = tempfile::tempfile().expect("a file");
        assert!(!wake_thread(&file));
        assert_eq!(file.metadata().expect("open").len(), 0);
    }
}
