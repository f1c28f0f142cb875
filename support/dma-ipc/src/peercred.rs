//! Credentials of the process at the other end of a Unix socket.

#![expect(unsafe_code, reason = "asks the kernel through the C library")]

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

/// A process's credentials, as the kernel reports them to this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    /// The peer's process id; 0 if it is in a PID namespace that this process cannot see.
    pub(super) pid: u32,
    /// The peer's effective user id when it connected or began to listen.
    pub(super) uid: u32,
}

/// Returns the credentials of the process at the other end of `socket`.
///
/// This does not use rustix's `socket_peercred`, whose process id cannot be 0 (rustix 1.1): the id
/// is 0 for a peer in another PID namespace.
pub(super) fn peer(socket: BorrowedFd<'_>) -> Result<Peer, Errno> {
    let mut cred = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `cred` and `len` are valid for writing, and `len` is the size of `cred`.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut cred).cast(),
            &raw mut len,
        )
    };
    if answer != 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL));
    }
    Ok(Peer { pid: u32::try_from(cred.pid).unwrap_or(0), uid: cred.uid })
}
