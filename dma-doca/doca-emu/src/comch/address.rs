//! Socket name of a channel.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, socket_with,
    socketpair,
};

/// Clients that may wait to be let in.
const BACKLOG: i32 = 128;

/// Address of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// The card's serial number, the function's PCI address and the name: also what a client says first,
    /// since the socket's name is only a digest of it.
    pub(super) text: String,
}

impl Address {
    pub(super) fn new(serial: &str, pci: &str, name: &str) -> Self {
        Self { text: format!("{serial}\n{pci}\n{name}") }
    }

    fn socket_name(&self) -> io::Result<SocketAddrUnix> {
        let user = rustix::process::geteuid().as_raw();
        let digest = |salt: u8| {
            // Always the same keys: both processes get the same digest.
            let mut hasher = DefaultHasher::new();
            (salt, &self.text).hash(&mut hasher);
            hasher.finish()
        };
        let name = format!("doca-emu/comch/{user}/{:016x}{:016x}", digest(0), digest(1));
        Ok(SocketAddrUnix::new_abstract_name(name.as_bytes())?)
    }

    /// A socket that clients find.
    pub(super) fn listen(&self) -> io::Result<OwnedFd> {
        let socket = new_socket()?;
        bind(&socket, &self.socket_name()?)?;
        listen(&socket, BACKLOG)?;
        Ok(socket)
    }

    /// A socket connected to the server's. Does not wait.
    pub(super) fn connect(&self) -> io::Result<OwnedFd> {
        let socket = new_socket()?;
        connect(&socket, &self.socket_name()?)?;
        Ok(socket)
    }
}

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

fn new_socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)?)
}

/// The two ends of a fast path.
pub(super) fn fast_path() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)?)
}

/// Accepts the next client.
pub(super) fn accept(listener: &OwnedFd) -> io::Result<OwnedFd> {
    Ok(accept_with(listener, FLAGS)?)
}
