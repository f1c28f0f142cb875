//! Names of sockets, and formats of messages: packets of a connection, which begin with a byte for their
//! kind, and data packets of the fast path.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, socket_with,
    socketpair,
};
use serde::{Deserialize, Serialize};

/// Kinds of packets. `HELLO` carries the fast path's socket.
pub(super) const HELLO: u8 = 1;
pub(super) const WELCOME: u8 = 2;
pub(super) const MESSAGE: u8 = 3;
pub(super) const BYE: u8 = 4;

/// Greeting, which each side sends as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Greeting {
    /// The longest message that this side accepts.
    pub(super) max_msg_size: u32,
    /// Address of the server that the client searches; empty in a server's greeting.
    pub(super) address: String,
}

impl Greeting {
    pub(super) fn to_bytes(&self, kind: u8) -> Vec<u8> {
        let mut bytes = vec![kind];
        // Writing to memory does not fail.
        let _ = serde_json::to_writer(&mut bytes, self);
        bytes
    }

    pub(super) fn parse(kind: u8, packet: &[u8]) -> Option<Self> {
        let greeting: Self = serde_json::from_slice(packet.strip_prefix(&[kind])?).ok()?;
        Some(greeting).filter(|greeting| greeting.max_msg_size > 0)
    }
}

/// Maximum number of clients that wait until the server accepts them.
const BACKLOG: i32 = 128;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// The card's serial number, the function's PCI address and the name. A client sends this text first,
    /// because the socket's name is only a digest of it.
    pub(super) text: String,
}

impl Address {
    pub(super) fn new(serial: &str, pci: &str, name: &str) -> Self {
        Self { text: format!("{serial}\n{pci}\n{name}") }
    }

    fn socket_name(&self) -> io::Result<SocketAddrUnix> {
        let user = rustix::process::geteuid().as_raw();
        let digest = |salt: u8| {
            // The keys are constant, so both processes compute the same digest.
            let mut hasher = DefaultHasher::new();
            (salt, &self.text).hash(&mut hasher);
            hasher.finish()
        };
        let name = format!("doca-emu/comch/{user}/{:016x}{:016x}", digest(0), digest(1));
        Ok(SocketAddrUnix::new_abstract_name(name.as_bytes())?)
    }

    pub(super) fn listen(&self) -> io::Result<OwnedFd> {
        let socket = new_socket()?;
        bind(&socket, &self.socket_name()?)?;
        listen(&socket, BACKLOG)?;
        Ok(socket)
    }

    /// Connects a new socket to the server's socket. Does not block.
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

/// Makes the two ends of a fast path.
pub(super) fn fast_path() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)?)
}

pub(super) fn accept(listener: &OwnedFd) -> io::Result<OwnedFd> {
    Ok(accept_with(listener, FLAGS)?)
}

/// Maximum length of immediate data, in bytes.
pub(super) const IMMEDIATE: usize = 32;
/// Maximum number of buffers in a list.
pub(super) const PIECES: usize = 64;
/// Maximum length of a data packet, in bytes of JSON.
pub(super) const DATA_PACKET_LEN: usize = 512 + PIECES * 44;

/// Name of a started consumer, until it is stopped. A later consumer with the same number has another name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Name {
    pub(super) id: u32,
    pub(super) start: u32,
}

/// A piece of a peer's memory: address and length.
pub(super) type Piece = (u64, u64);

/// Immediate data of a message. The program gets the address of this value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[repr(C)]
pub(super) struct Immediate {
    pub(super) bytes: [u8; IMMEDIATE],
    pub(super) len: u32,
}

impl Immediate {
    pub(super) fn new(from: &[u8]) -> Option<Self> {
        let mut immediate = Self { len: from.len() as u32, ..Self::default() };
        immediate.bytes.get_mut(..from.len())?.copy_from_slice(from);
        Some(immediate)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum DataPacket {
    /// Announces a consumer, with the descriptor of its memory.
    Announce { name: Name, immediate: u32, addr: u64, len: u64, descriptor: Vec<u8> },
    /// Answer to `Announce`.
    Welcome { name: Name },
    /// Reports that a consumer has posted a buffer.
    Posted { name: Name, slot: u32, room: Vec<Piece> },
    /// Reports that a buffer holds a message.
    Filled { name: Name, slot: u32, producer: u32, len: u64, immediate: Immediate },
    /// Reports that a consumer has stopped.
    Withdraw { name: Name },
}

impl DataPacket {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let packet = serde_json::from_slice(bytes).ok()?;
        match packet {
            Self::Filled { immediate, .. } if immediate.len > IMMEDIATE as u32 => None,
            packet => Some(packet),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_comes_back_as_it_was() {
        let greeting = Greeting { max_msg_size: 4080, address: "MT\n0000:3b:00.0\nname".to_owned() };
        let bytes = greeting.to_bytes(HELLO);
        assert_eq!(Greeting::parse(HELLO, &bytes), Some(greeting));
        assert_eq!(Greeting::parse(WELCOME, &bytes), None);
        for end in 0..bytes.len() {
            assert_eq!(Greeting::parse(HELLO, &bytes[..end]), None, "{end} bytes");
        }
    }

    #[test]
    fn data_packets_are_parsed_as_they_were_written() {
        let name = Name { id: 3, start: 9 };
        let immediate = Immediate::new(b"now").unwrap();
        let room = vec![(u64::MAX, u64::MAX); PIECES];
        for packet in [
            DataPacket::Announce { name, immediate: 32, addr: 1 << 40, len: 4096, descriptor: vec![7; 56] },
            DataPacket::Welcome { name },
            DataPacket::Posted { name, slot: 5, room: Vec::new() },
            DataPacket::Posted { name, slot: 5, room },
            DataPacket::Filled { name, slot: 5, producer: 2, len: 1 << 33, immediate },
            DataPacket::Withdraw { name },
        ] {
            let bytes = packet.to_bytes();
            assert!(bytes.len() <= DATA_PACKET_LEN, "{packet:?}");
            assert_eq!(DataPacket::parse(&bytes), Some(packet.clone()));
            for end in 0..bytes.len() {
                assert_eq!(DataPacket::parse(&bytes[..end]), None, "{packet:?} cut to {end}");
            }
        }
        let long = [&DataPacket::Welcome { name }.to_bytes()[..], &[0]].concat();
        assert_eq!(DataPacket::parse(&long), None);
        let slot = Immediate { bytes: [0; IMMEDIATE], len: IMMEDIATE as u32 + 1 };
        let filled = DataPacket::Filled { name, slot: 5, producer: 2, len: 1, immediate: slot };
        assert_eq!(DataPacket::parse(&filled.to_bytes()), None);
        assert_eq!(Immediate::new(&[0; IMMEDIATE + 1]), None);
    }
}
