//! A Unix socket, for two processes of one user on one machine.
#![expect(unsafe_code, reason = "asks the kernel for the peer's user, through the C library")]

use std::fs::{self, DirBuilder};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use dma_handshake::{Origin, Verdict, admit};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::getuid;

use super::{Channel, connect, no_host_connected, stream};
use crate::deadline::{Deadline, POLL_INTERVAL};
use crate::failure::{Failure, failure};
use crate::options::Options;
use crate::protocol::Role;

const NAME: &str = "dma-copy.sock";

/// Path of this user's default socket, in a directory that no other user can write.
pub(super) fn default_path() -> Result<PathBuf, Failure> {
    let uid = getuid().as_raw();
    if let Some(dir) = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from)
        && dir.is_absolute()
        && is_private(&dir, uid)
    {
        return Ok(dir.join(NAME));
    }
    let dir = std::env::temp_dir().join(format!("dma-copy-{uid}"));
    match DirBuilder::new().mode(0o700).create(&dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            Err(failure!(Starting, "cannot create {}: {e}; give a --channel", dir.display()))
        }
        _ if is_private(&dir, uid) => Ok(dir.join(NAME)),
        _ => Err(failure!(
            Starting,
            "{} is not a directory that only you can write; remove it, chmod 700 it, or give a --channel",
            dir.display()
        )),
    }
}

/// True if `dir` is a directory, not a link, that only `uid` can write.
fn is_private(dir: &Path, uid: u32) -> bool {
    fs::symlink_metadata(dir).is_ok_and(|m| m.is_dir() && m.uid() == uid && m.mode() & 0o022 == 0)
}

pub(super) fn open(path: &Path, options: &Options, deadline: Deadline) -> Result<Channel, Failure> {
    // Neither side makes the directory, so it is useless to wait for a listener in it.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if folder.is_some_and(|folder| folder.try_exists().is_ok_and(|exists| !exists)) {
        return Err(failure!(
            Connecting,
            "the directory of {} does not exist; create it, or choose another --channel on both sides",
            path.display()
        ));
    }
    let stream = match options.role() {
        Role::Dpu => listen(path, deadline)?,
        Role::Host => {
            let stream = connect(&path.display().to_string(), deadline, || connect_now(path))?;
            if !is_same_user(&stream) {
                return Err(failure!(
                    Connecting,
                    "{} belongs to another user; choose another --channel on both sides",
                    path.display()
                ));
            }
            stream
        }
    };
    let set_up = || {
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(POLL_INTERVAL))?;
        stream.try_clone()
    };
    let clone = set_up().map_err(|e| failure!(Connecting, "cannot set up {}: {e}", path.display()))?;
    Ok(stream::channel(stream, clone, None, options.timeout))
}

/// Removes the socket's name when dropped.
struct RemoveOnDrop<'a>(&'a Path);

impl Drop for RemoveOnDrop<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0);
    }
}

/// Listens at `path` until a host has connected and sent data.
fn listen(path: &Path, deadline: Deadline) -> Result<UnixStream, Failure> {
    let shown = path.display();
    let explain = |e: io::Error| match e.kind() {
        // Another process has replaced the old socket.
        io::ErrorKind::AlreadyExists => another_listens(path),
        io::ErrorKind::InvalidInput => {
            failure!(Connecting, "{shown} is too long for a socket's name; choose a shorter --channel")
        }
        _ => {
            let remedy = dma::process::open_files_remedy(&e).unwrap_or("choose another --channel");
            failure!(Connecting, "cannot listen on {shown}: {e}; {remedy}")
        }
    };
    let listener = match bind(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            remove_stale(path)?;
            bind(path)
        }
        bound => bound,
    }
    .map_err(explain)?;
    let _name = RemoveOnDrop(path);
    listener.set_nonblocking(true).map_err(explain)?;
    let accept = || match listener.accept() {
        Ok((stream, _)) if is_same_user(&stream) => Ok(Some((Origin::User(getuid().as_raw()), stream))),
        Ok(_) => {
            tracing::warn!("rejected a process of another user");
            Ok(None)
        }
        Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
        Err(e) => Err(explain(e)),
    };
    // A host sends a message at once, so only connections with data are admitted. A process that only checks
    // for a listener (`remove_stale`) closes the connection without sending.
    let read = |stream: UnixStream| {
        if has_data(&stream) { Verdict::Admitted(stream) } else { Verdict::Rejected }
    };
    match admit(&listener, || deadline.is_over_or_interrupted(), accept, read, drop)? {
        Some(stream) => Ok(stream),
        None => Err(no_host_connected(&shown.to_string(), deadline, "")),
    }
}

/// Makes a socket at `path` that only this user can connect to. Fails with `AlreadyExists` if there is a file
/// at `path`.
///
/// The socket gets this name after it listens. So a socket that refuses connections has no listener any more.
/// Only where the path is too long for another name beside it, the socket has its name an instant earlier.
fn bind(path: &Path) -> io::Result<UnixListener> {
    // Refuses a path that is too long, also one that rustix allows without its NUL.
    SocketAddr::from_pathname(path)?;
    let unused = unused_name_beside(path);
    let socket = new_socket(SocketFlags::CLOEXEC)?;
    // Linux gives the file the mode of the socket, minus the umask.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(unused.as_deref().unwrap_or(path))?).map_err(
        |e| match e {
            Errno::ADDRINUSE => Errno::EXIST,
            e => e,
        },
    )?;
    rustix::net::listen(&socket, 128)?;
    let listener = UnixListener::from(socket);
    let Some(unused) = unused else { return Ok(listener) };
    let _unused = RemoveOnDrop(&unused);
    fs::hard_link(&unused, path)?;
    Ok(listener)
}

/// Returns a short random name in the directory of `path`, or `None` if it is too long for a socket.
fn unused_name_beside(path: &Path) -> Option<PathBuf> {
    let name = format!(".{:08x}", RandomState::new().build_hasher().finish() as u32);
    Some(path.with_file_name(name)).filter(|unused| SocketAddr::from_pathname(unused).is_ok())
}

/// Removes a socket file that has no listener. Fails if a process listens on it, or if it is not a socket.
fn remove_stale(path: &Path) -> Result<(), Failure> {
    let shown = path.display();
    let is_socket = fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket());
    if !is_socket {
        return Err(failure!(Connecting, "{shown} exists and is not a socket; choose another --channel"));
    }
    let removed = match connect_now(path) {
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => remove_if_refused(path),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(true),
        _ => Ok(false),
    };
    match removed {
        Ok(true) => Ok(()),
        Ok(false) => Err(another_listens(path)),
        Err(e) => Err(failure!(Connecting, "cannot remove the old socket {shown}: {e}")),
    }
}

/// Removes the socket at `path` if it refuses connections. Returns false if a process listens on it.
///
/// Another process may have replaced a stale socket in the meantime, so this moves the socket to a name that
/// no other process uses, and tries it there. If such a name is too long, the caller's attempt to connect has
/// to suffice.
fn remove_if_refused(path: &Path) -> io::Result<bool> {
    let Some(moved) = unused_name_beside(path) else {
        return match fs::remove_file(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(true),
            removed => removed.map(|()| true),
        };
    };
    match fs::rename(path, &moved) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(true),
        renamed => renamed?,
    }
    let _moved = RemoveOnDrop(&moved);
    let is_refused = connect_now(&moved).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused);
    if !is_refused {
        fs::hard_link(&moved, path)?;
    }
    Ok(is_refused)
}

fn another_listens(path: &Path) -> Failure {
    failure!(
        Connecting,
        "another dma-copy listens on {}; wait until it is done, or choose another --channel on both sides",
        path.display()
    )
}

/// Connects to the socket at `path`. Fails with `WouldBlock` if its backlog is full.
fn connect_now(path: &Path) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let socket = new_socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    rustix::net::connect(&socket, &address)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn new_socket(flags: SocketFlags) -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// True if the peer has sent a byte.
fn has_data(stream: &UnixStream) -> bool {
    rustix::net::recv(stream, &mut [0_u8; 1][..], RecvFlags::PEEK | RecvFlags::DONTWAIT)
        .is_ok_and(|(_, n)| n > 0)
}

/// True if the peer's process belongs to this user, or to root.
fn is_same_user(stream: &UnixStream) -> bool {
    let mut cred = libc::ucred { pid: 0, uid: u32::MAX, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `cred` and `len` are valid for writing, and `len` is the size of `cred`. (rustix's call cannot
    // represent a peer whose process id is invisible in this PID namespace.)
    let answer = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut cred).cast(),
            &raw mut len,
        )
    };
    answer == 0 && (cred.uid == getuid().as_raw() || cred.uid == 0)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Another process would take a socket that refuses a connection for stale, and remove it.
    #[test]
    fn a_socket_that_has_its_name_listens() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        for _ in 0..8 {
            let (over, refused) = (AtomicBool::new(false), AtomicBool::new(false));
            // The listeners stay open until the thread has ended, because one that closes refuses connections
            // that are being made.
            let listeners: io::Result<Vec<_>> = std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        let connected = connect_now(&path);
                        if connected.is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused) {
                            refused.store(true, Ordering::Relaxed);
                        }
                    }
                });
                let listeners = (0..50).map(|_| {
                    let listener = bind(&path)?;
                    fs::remove_file(&path)?;
                    Ok(listener)
                });
                let listeners = listeners.collect();
                over.store(true, Ordering::Relaxed);
                listeners
            });
            listeners.unwrap();
            assert!(!refused.into_inner());
        }
    }

    #[test]
    fn only_a_stale_socket_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = bind(&path).unwrap();
        assert_eq!(bind(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        remove_stale(&path).expect_err("a process listens");
        assert!(!remove_if_refused(&path).unwrap());
        connect_now(&path).expect("the socket has its name again");
        drop(listener);
        remove_stale(&path).expect("no process listens");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "no file is left");
        bind(&path).unwrap();
    }

    /// The temporary name of the socket does not fit into an address any more.
    #[test]
    fn the_longest_path_of_a_socket_can_be_bound() {
        let folder = tempfile::tempdir().unwrap();
        let used = folder.path().as_os_str().len() + "//s".len();
        let inner = folder.path().join("d".repeat(107 - used));
        fs::create_dir(&inner).unwrap();
        let path = inner.join("s");
        assert_eq!(path.as_os_str().len(), 107);
        let listener = bind(&path).unwrap();
        assert_eq!(fs::symlink_metadata(&path).unwrap().mode() & 0o777, 0o600);
        connect_now(&path).expect("the socket listens");
        assert_eq!(bind(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        remove_stale(&path).expect_err("a process listens");
        drop(listener);
        remove_stale(&path).expect("no process listens");
        assert_eq!(fs::read_dir(&inner).unwrap().count(), 0, "no file is left");
        bind(&path).unwrap();
        assert_eq!(bind(&inner.join("ss")).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
