//! A Unix socket, for two processes of one user on one machine.
#![expect(unsafe_code, reason = "asks the kernel who the peer is, through the C library")]

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::Mode;
use rustix::net::RecvFlags;
use rustix::process::{getuid, umask};

use super::stream::{StreamReceiver, StreamSender};
use super::{Channel, connect, nobody, wait_for};
use crate::failure::{Failure, failure};
use crate::options::Options;
use crate::protocol::{MAX_MESSAGE, Role};
use crate::{Deadline, check_interrupt};

/// The socket's name where the user gave none.
const NAME: &str = "dma_copy.sock";

/// How long a host may take to say its first word.
const FIRST_WORD: Duration = Duration::from_secs(5);

/// Where the sides of one user meet: in a directory that nobody else can write.
pub(super) fn default_path() -> Result<PathBuf, Failure> {
    let uid = getuid().as_raw();
    if let Some(dir) = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from)
        && dir.is_absolute()
        && is_private(&dir, uid)
    {
        return Ok(dir.join(NAME));
    }
    let dir = std::env::temp_dir().join(format!("dma_copy-{uid}"));
    match DirBuilder::new().mode(0o700).create(&dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            Err(failure!(Starting, "cannot create {}: {e}; give a --channel", dir.display()))
        }
        _ if is_private(&dir, uid) => Ok(dir.join(NAME)),
        _ => Err(failure!(
            Starting,
            "{} is not a directory of yours alone; remove it, chmod 700 it, or give a --channel",
            dir.display()
        )),
    }
}

/// Whether `dir` is a directory, no link to one, that only `uid` can write.
fn is_private(dir: &Path, uid: u32) -> bool {
    fs::symlink_metadata(dir).is_ok_and(|m| m.is_dir() && m.uid() == uid && m.mode() & 0o022 == 0)
}

pub(super) fn open(path: &Path, options: &Options, deadline: Deadline) -> Result<Channel, Failure> {
    let stream = match options.role() {
        Role::Dpu => listen(path, deadline)?,
        Role::Host => {
            let stream = connect(&path.display().to_string(), deadline, || UnixStream::connect(path))?;
            if !is_friend(&stream) {
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
        stream.set_write_timeout(Some(options.timeout))?;
        stream.try_clone()
    };
    let clone = set_up().map_err(|e| failure!(Connecting, "cannot set up {}: {e}", path.display()))?;
    Ok(Channel {
        sender: Box::new(StreamSender::new(clone, None)),
        receiver: Box::new(StreamReceiver::new(stream, None)),
        max_message: MAX_MESSAGE,
    })
}

/// A socket's name, removed in the end.
struct Name<'a>(&'a Path);

impl Drop for Name<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0);
    }
}

/// Waits for a host of the same user.
fn listen(path: &Path, deadline: Deadline) -> Result<UnixStream, Failure> {
    let shown = path.display();
    let explain = |e: io::Error| match e.kind() {
        io::ErrorKind::InvalidInput => {
            failure!(Connecting, "{shown} is too long for a socket's name; choose a shorter --channel")
        }
        io::ErrorKind::NotFound => {
            failure!(
                Connecting,
                "the directory of {shown} does not exist; create it, or choose another --channel"
            )
        }
        _ => failure!(Connecting, "cannot listen on {shown}: {e}; choose another --channel"),
    };
    let listener = match bind(path) {
        Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
            make_way(path)?;
            bind(path)
        }
        bound => bound,
    }
    .map_err(explain)?;
    let _name = Name(path);
    listener.set_nonblocking(true).map_err(explain)?;
    loop {
        check_interrupt()?;
        match listener.accept() {
            Ok((stream, _)) if is_friend(&stream) => {
                if speaks(&stream) {
                    return Ok(stream);
                }
            }
            Ok(_) => tracing::warn!("turned away a process of another user"),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                if deadline.is_over() {
                    return Err(nobody(&shown.to_string(), deadline));
                }
                wait_for(&listener, Duration::from_millis(50));
            }
            Err(e) => return Err(explain(e)),
        }
    }
}

/// Binds so that only this user can connect, from the first moment on. No other thread creates files yet.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let before = umask(Mode::RWXG | Mode::RWXO | Mode::XUSR);
    let listener = UnixListener::bind(path);
    umask(before);
    listener
}

/// Removes a socket that nobody listens on any more.
fn make_way(path: &Path) -> Result<(), Failure> {
    let shown = path.display();
    let is_socket = fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket());
    if !is_socket {
        return Err(failure!(Connecting, "{shown} is there already and no socket; choose another --channel"));
    }
    match UnixStream::connect(path) {
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path)
            .map_err(|e| failure!(Connecting, "cannot remove the old socket {shown}: {e}")),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        _ => Err(failure!(
            Connecting,
            "another dma_copy listens on {shown}; wait until it is done, or choose another --channel on both sides"
        )),
    }
}

/// Whether the peer says something: a host does at once, and who only looks whether somebody listens here (`make_way`) never does.
fn speaks(stream: &UnixStream) -> bool {
    let peek = || {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(FIRST_WORD))?;
        let (_, n) = rustix::net::recv(stream, &mut [0_u8; 1][..], RecvFlags::PEEK)?;
        stream.set_read_timeout(None)?;
        io::Result::Ok(n > 0)
    };
    peek().unwrap_or(false)
}

/// Whether the process at the other end is of this user, or of root, who may do everything anyway.
fn is_friend(stream: &UnixStream) -> bool {
    let mut cred = libc::ucred { pid: 0, uid: u32::MAX, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `cred` and `len` are valid for writing, and `len` is the size of `cred`. (rustix has this call, and no word for a peer
    // whose process id cannot be seen from here.)
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
