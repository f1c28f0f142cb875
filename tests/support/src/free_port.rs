//! TCP ports that no other test and no connection gets.

use std::net::Ipv4Addr;
use std::sync::Mutex;

use rustix::fd::OwnedFd;
use rustix::net::{
    AddressFamily, SocketAddrV4, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt,
};

/// One socket for each port that [`free_port`] has returned.
static RESERVED: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());

/// Returns a TCP port of this host without a listener, which stays reserved until this process ends: a
/// program that names the port can listen on it, but the system gives it to no other socket. Connections are
/// refused until a program listens.
///
/// The reservation is a socket that is bound and does not listen. A listener that allows the reuse of its
/// address, as those of the standard library do, can be bound beside it.
pub fn free_port() -> u16 {
    let socket =
        socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("a socket");
    sockopt::set_socket_reuseaddr(&socket, true).expect("an option of every socket");
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)).expect("a free port");
    let address = SocketAddrV4::try_from(getsockname(&socket).expect("it is bound")).expect("IPv4");
    RESERVED.lock().expect("no panic while it is locked").push(socket);
    address.port()
}
