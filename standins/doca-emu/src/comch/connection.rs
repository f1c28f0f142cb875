//! One connection: a socket, and what the program attached to it.
#![expect(unsafe_code, reason = "rustix cannot represent a peer whose process id is not visible")]

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Weak;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use super::fast_path::FastPath;
use super::wire;
use crate::c_abi::{Mark, NO_DATA, Outcome, c, object};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Greeting,
    Open,
    Closed,
}

pub(super) enum Packet {
    None,
    /// A packet of this length is in the buffer.
    Bytes(usize),
    End,
}

/// Counts of sent messages, sent bytes, received messages and received bytes, in the order of `enum
/// doca_comch_counter`.
pub(super) type Counters = [u64; 4];

/// A connection: `struct doca_comch_connection`.
pub(crate) struct Connection {
    mark: Mark,
    /// The connection's number, which is unique within the endpoint.
    pub(super) id: u64,
    pub(super) endpoint: Weak<dyn Any>,
    pub(super) socket: RefCell<Option<OwnedFd>>,
    /// The connection's fast path. Producers and consumers on other threads share this field, and use no
    /// other field.
    pub(super) fast: Arc<FastPath>,
    /// The fast path's socket, until the connection is open. The client makes the socket, and passes one end
    /// to the server.
    pub(super) handed: Cell<Option<OwnedFd>>,
    pub(super) link: Cell<Link>,
    /// Set when the callback for the connection's end begins, so that it does not run again.
    pub(super) ending: Cell<bool>,
    pub(super) user_data: Cell<c::doca_data>,
    /// The longest message that the other side accepts.
    pub(super) peer_max: Cell<u32>,
    pub(super) counters: Cell<Counters>,
    /// Values of the counters at the program's last update.
    pub(super) shown: Cell<Counters>,
    /// Messages that wait for room in the socket, with their tasks.
    pub(super) pending: RefCell<VecDeque<(u32, Vec<u8>)>>,
}

object!(Connection, 0xcc_01_00_01);

impl Connection {
    pub(super) fn new(id: u64, endpoint: Weak<dyn Any>, fast: FastPath, socket: Option<OwnedFd>) -> Self {
        Self {
            mark: Mark::of::<Self>(),
            id,
            endpoint,
            socket: RefCell::new(socket),
            fast: Arc::new(fast),
            handed: Cell::new(None),
            link: Cell::new(Link::Greeting),
            ending: Cell::new(false),
            user_data: Cell::new(NO_DATA),
            peer_max: Cell::new(0),
            counters: Cell::new([0; 4]),
            shown: Cell::new([0; 4]),
            pending: RefCell::default(),
        }
    }

    /// Sends a packet of these parts. On an error, no part of the packet is sent.
    pub(super) fn send(&self, parts: &[&[u8]]) -> io::Result<()> {
        self.send_with(parts, &mut SendAncillaryBuffer::default())
    }

    /// Sends a packet together with a descriptor.
    pub(super) fn pass(&self, packet: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors = [descriptor];
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        self.send_with(&[packet], &mut ancillary)
    }

    fn send_with(&self, parts: &[&[u8]], ancillary: &mut SendAncillaryBuffer<'_, '_, '_>) -> io::Result<()> {
        let socket = self.socket.borrow();
        let socket = socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let mut slices = [IoSlice::new(&[]); 2];
        for (slice, part) in slices.iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        loop {
            match sendmsg(socket, &slices[..parts.len()], ancillary, flags) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends a message, and counts it.
    pub(super) fn send_message(&self, message: &[u8]) -> io::Result<()> {
        self.send(&[&[wire::MESSAGE], message])?;
        self.count(0, message.len());
        Ok(())
    }

    /// Counts a message of this number of bytes: as sent if `which` is 0, as received if `which` is 2.
    pub(super) fn count(&self, which: usize, bytes: usize) {
        let mut counters = self.counters.get();
        counters[which] += 1;
        counters[which + 1] += bytes as u64;
        self.counters.set(counters);
    }

    /// Receives the next packet. A packet that is longer than the buffer breaks the connection.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> Packet {
        let socket = self.socket.borrow();
        let Some(socket) = socket.as_ref() else { return Packet::End };
        // If a peer closes its socket with unread messages, one error precedes the packets that it sent.
        let mut reset = false;
        let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC | RecvFlags::CMSG_CLOEXEC;
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let received = recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut ancillary, flags);
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                    descriptors.for_each(|descriptor| self.handed.set(Some(descriptor)));
                }
            }
            match received.map(|packet| packet.bytes) {
                Ok(0) => return Packet::End,
                Ok(length) if length <= buffer.len() => return Packet::Bytes(length),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Packet::None,
                Err(Errno::CONNRESET) if !reset => reset = true,
                Ok(_) | Err(_) => return Packet::End,
            }
        }
    }

    /// Returns success while the connection is open, `CONNECTION_INPROGRESS` before that,
    /// `CONNECTION_ABORTED` after.
    pub(super) fn link_outcome(&self) -> Outcome {
        match self.link.get() {
            Link::Greeting => Err(c::DOCA_ERROR_CONNECTION_INPROGRESS),
            Link::Open => Ok(()),
            Link::Closed => Err(c::DOCA_ERROR_CONNECTION_ABORTED),
        }
    }

    /// Closes the socket and the fast path. The handle stays valid.
    pub(super) fn close(&self) {
        self.link.set(Link::Closed);
        self.fast.close();
        drop(self.handed.take());
        drop(self.socket.take());
    }

    /// Makes the handle invalid.
    pub(super) fn forget(&self) {
        self.mark.wipe();
    }
}

/// Checks that the other end is a process of this user or of the superuser.
pub(super) fn is_ours(socket: &OwnedFd) -> bool {
    let mut credentials = libc::ucred { pid: 0, uid: u32::MAX, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the descriptor is open, both variables can be written during the call, and `length` is the size
    // of `credentials`.
    let failed = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut length,
        )
    };
    failed == 0 && (credentials.uid == 0 || credentials.uid == rustix::process::geteuid().as_raw())
}
