//! The comm channel of DOCA 1.5 to 2.5: built from a server or client of later versions, with a progress
//! engine of its own.
//!
//! Programs of that time, such as NVIDIA's Secure Channel, send on one thread and receive on another. So the
//! calls take a lock. No call blocks.
//!
//! Choices of ours, where no public source describes the real library:
//!
//! - A connection stays in progress as long as the service makes no call. Sending copies the message to the
//!   system, so no message is counted as in flight. The size of the send queue is checked, but has no effect.
//!   The size of the receive queue limits the messages that are stored while a state is updated. A message
//!   that is longer than the program's buffer stays in the queue, and the call returns `INVALID_VALUE`.
//!   Sending an empty message returns `INVALID_VALUE` too.
//! - After the end of a connection and its last message, each call of `doca_comm_channel_ep_recvfrom` on a
//!   client returns `CONNECTION_RESET`. A service learns of the end from its event channel, its list and the
//!   peer's state. The peer exists until the service disconnects it.
//! - The event channel for room is readable whenever there is room, and the one for new clients whenever
//!   there is a new client, even if they are not armed.
#![expect(unsafe_code, reason = "makes handles of peers")]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::ptr;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::event::epoll::{self, EventData, EventFlags};

use super::connection::{Connection, Counters, Link};
use super::endpoint::{Endpoint, Receiver};
use super::wire;
use crate::c_abi::{Handle, INVALID, Mark, Outcome, c, object, require};
use crate::dev::Dev;
use crate::notifier::Notifier;
use crate::pe::Pe;
use crate::rep::Rep;

/// Locks all objects of the comm channel of these versions. They are shared between threads, but count their
/// references without atomics.
pub(super) fn lock() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    dma_process::lock(&LOCK)
}

/// An endpoint: `struct doca_comm_channel_ep_t`.
pub(super) struct Channel {
    mark: Mark,
    pub(super) dev: RefCell<Option<Arc<Dev>>>,
    pub(super) rep: RefCell<Option<Arc<Rep>>>,
    /// The maximum length of a message. 0 stands for the device's limit.
    pub(super) max_msg_size: Cell<u16>,
    pub(super) send_queue_size: Cell<u16>,
    pub(super) recv_queue_size: Cell<u16>,
    active: RefCell<Option<Rc<Active>>>,
}

object!(Channel, 0xcc_07_00_01);

/// A connection: `struct doca_comm_channel_addr_t`. It stays until the program disconnects it.
pub(super) struct Peer {
    mark: Mark,
    active: Weak<Active>,
    connection: Rc<Connection>,
    pub(super) user_data: Cell<u64>,
    pub(super) shown: Cell<Counters>,
}

object!(Peer, 0xcc_08_00_01);

/// A service that listens, or a client that has connected.
pub(super) struct Active {
    this: Weak<Self>,
    /// The progress engine's notifier is readable when messages have arrived.
    pub(super) pe: Rc<Pe>,
    pub(super) endpoint: Rc<Endpoint>,
    /// Readable when a peer has room for a message.
    pub(super) room: Notifier,
    /// Readable if clients connected or disconnected since the last update.
    pub(super) changes: Notifier,
    /// Maximum number of messages that are kept while the service's state is updated.
    inbox_size: usize,
    inbox: RefCell<VecDeque<(Rc<Peer>, Vec<u8>)>>,
    peers: RefCell<Vec<Rc<Peer>>>,
    /// Connections that were open at the last update.
    pub(super) listed: RefCell<Vec<Handle<Peer>>>,
    /// Number of connections that had not been accepted at the last update.
    pub(super) waiting: Cell<u32>,
}

impl Channel {
    pub(super) fn new() -> Self {
        Self {
            mark: Mark::of::<Self>(),
            dev: RefCell::default(),
            rep: RefCell::default(),
            max_msg_size: Cell::new(0),
            send_queue_size: Cell::new(64),
            recv_queue_size: Cell::new(64),
            active: RefCell::default(),
        }
    }

    pub(super) fn active(&self) -> Outcome<Rc<Active>> {
        self.active.borrow().clone().ok_or(c::DOCA_ERROR_BAD_STATE)
    }

    /// Returns `BAD_STATE` if the endpoint listens or is connected.
    pub(super) fn require_idle(&self) -> Outcome {
        require(self.active.borrow().is_none(), c::DOCA_ERROR_BAD_STATE)
    }

    /// Starts a service for the representor, or a client if there is no representor.
    pub(super) fn start(&self, dev: Arc<Dev>, rep: Option<Arc<Rep>>, name: &str) -> Outcome<Rc<Active>> {
        let endpoint = Endpoint::new(dev, rep, name);
        let (limits, size) = (endpoint.limits(), self.max_msg_size.get());
        require(u32::from(size) <= limits.max_msg_size, INVALID)?;
        require(u32::from(self.send_queue_size.get()) <= limits.max_send_tasks, INVALID)?;
        require(u32::from(self.recv_queue_size.get()) <= limits.max_recv_queue_size, INVALID)?;
        if size > 0 {
            endpoint.max_msg_size.set(size.into());
        }
        let notifier = || Notifier::new().map_err(|_| c::DOCA_ERROR_INITIALIZATION);
        let (room, changes) = (notifier()?, notifier()?);
        let active = Rc::new_cyclic(|this: &Weak<Active>| Active {
            this: this.clone(),
            pe: Rc::new(Pe::new()),
            endpoint,
            room,
            changes,
            inbox_size: self.recv_queue_size.get().into(),
            inbox: RefCell::default(),
            peers: RefCell::default(),
            listed: RefCell::default(),
            waiting: Cell::new(0),
        });
        let receiver: Weak<Active> = Rc::downgrade(&active);
        active.endpoint.receiver.replace(Some(receiver));
        active.start()?;
        self.active.replace(Some(Rc::clone(&active)));
        Ok(active)
    }

    /// Ends a connection. A client can connect again.
    pub(super) fn disconnect(&self, peer: Handle<Peer>) -> Outcome {
        let active = self.active.borrow().clone().ok_or(c::DOCA_ERROR_NOT_CONNECTED)?;
        let peer = active.own(peer)?;
        if active.endpoint.is_server() {
            close(&active.endpoint, &peer.connection);
            peer.mark.wipe();
            active.peers.borrow_mut().retain(|other| !Rc::ptr_eq(other, &peer));
            active.inbox.borrow_mut().retain(|(from, _)| !Rc::ptr_eq(from, &peer));
        } else {
            self.active.replace(None);
        }
        Ok(())
    }
}

impl Active {
    fn start(&self) -> Outcome {
        let ctx = &self.endpoint.ctx;
        ctx.connect(&self.pe)?;
        match ctx.start() {
            Ok(()) => {
                let listener = self.endpoint.listener.borrow();
                let listener = listener.as_ref().ok_or(c::DOCA_ERROR_UNEXPECTED)?;
                self.changes.watch(listener.as_fd()).map_err(|_| c::DOCA_ERROR_INITIALIZATION)
            }
            Err(c::DOCA_ERROR_IN_PROGRESS) => {
                // Try to connect once.
                self.pe.progress();
                let connection = self.endpoint.client_connection()?;
                require(connection.socket.borrow().is_some(), c::DOCA_ERROR_CONNECTION_ABORTED)?;
                self.admit(&connection);
                Ok(())
            }
            Err(c::DOCA_ERROR_IN_USE) => Err(c::DOCA_ERROR_CONNECTION_ABORTED),
            Err(_) => Err(c::DOCA_ERROR_INITIALIZATION),
        }
    }

    /// Returns the peer of a connection. Creates it if the connection is new.
    fn admit(&self, connection: &Rc<Connection>) -> Rc<Peer> {
        let known = self.peers.borrow().iter().find(|peer| Rc::ptr_eq(&peer.connection, connection)).cloned();
        known.unwrap_or_else(|| {
            if let Some(socket) = &*connection.socket.borrow() {
                // If the system lacks memory to watch the socket, the program is only woken less often.
                for (notifier, flags) in [(&self.room, EventFlags::OUT), (&self.changes, EventFlags::RDHUP)] {
                    let _ = epoll::add(notifier.fd(), socket, EventData::new_u64(0), flags);
                }
            }
            let peer = Rc::new(Peer {
                mark: Mark::of::<Peer>(),
                active: self.this.clone(),
                connection: Rc::clone(connection),
                user_data: Cell::new(0),
                shown: Cell::new([0; 4]),
            });
            self.peers.borrow_mut().push(Rc::clone(&peer));
            peer
        })
    }

    /// Returns the peer with this handle, or `NOT_CONNECTED` if this endpoint has no such peer.
    fn own(&self, peer: Handle<Peer>) -> Outcome<Rc<Peer>> {
        let peers = self.peers.borrow();
        let found = peers.iter().find(|own| ptr::eq(Rc::as_ptr(own), peer.cast()));
        found.cloned().ok_or(c::DOCA_ERROR_NOT_CONNECTED)
    }

    /// Returns a client's peer, which is the service.
    pub(super) fn server(&self) -> Outcome<Handle<Peer>> {
        let peers = self.peers.borrow();
        // SAFETY: the channel keeps its peers until it is disconnected, and C uses no peer after that.
        peers.first().map(|peer| unsafe { Handle::of(&**peer) }).ok_or(c::DOCA_ERROR_UNEXPECTED)
    }

    /// Serves the sockets until this number of messages has arrived, or no work is left.
    fn progress(&self, messages: usize) {
        while self.inbox.borrow().len() < messages && self.pe.progress() {}
    }

    /// Passes the next message and its source to `take`. If `take` fails, the message stays in the queue.
    pub(super) fn receive(&self, take: impl FnOnce(Handle<Peer>, &[u8]) -> Outcome) -> Outcome {
        self.progress(1);
        let mut inbox = self.inbox.borrow_mut();
        let (peer, message) = inbox.front().ok_or(c::DOCA_ERROR_AGAIN)?;
        // SAFETY: the channel keeps its peers until it is disconnected, and C uses no peer after that.
        take(unsafe { Handle::of(&**peer) }, message)?;
        inbox.pop_front();
        Ok(())
    }

    /// Returns the peer of a client whose connection has ended.
    pub(super) fn lost(&self) -> Option<Handle<Peer>> {
        let peers = self.peers.borrow();
        let peer = peers.first().filter(|peer| peer.connection.link.get() == Link::Closed)?;
        // SAFETY: the channel keeps its peers until it is disconnected, and C uses no peer after that.
        (!self.endpoint.is_server()).then(|| unsafe { Handle::of(&**peer) })
    }

    /// Sends a message. Returns `AGAIN` if the connection is not open yet or has no room, `CONNECTION_RESET`
    /// if it has ended.
    pub(super) fn send(&self, peer: Handle<Peer>, message: &[u8]) -> Outcome {
        let peer = self.own(peer)?;
        let connection = &peer.connection;
        require(!message.is_empty() && message.len() <= self.endpoint.max_msg_size.get() as usize, INVALID)?;
        if connection.link.get() == Link::Greeting {
            self.progress(self.inbox_size);
        }
        match connection.link.get() {
            Link::Greeting => return Err(c::DOCA_ERROR_AGAIN),
            Link::Open => {}
            Link::Closed => return Err(c::DOCA_ERROR_CONNECTION_RESET),
        }
        require(message.len() <= connection.peer_max.get() as usize, INVALID)?;
        connection.send_message(message).map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => c::DOCA_ERROR_AGAIN,
            _ => c::DOCA_ERROR_CONNECTION_RESET,
        })
    }

    /// Makes the descriptor for messages readable when the next message arrives, or at once if one has
    /// arrived.
    pub(super) fn arm(&self) -> Outcome {
        self.pe.notifier()?.clear();
        self.pe.arm()?;
        if !self.inbox.borrow().is_empty() {
            self.pe.wake();
        }
        Ok(())
    }

    /// Updates the list of connections and the number of waiting ones, and clears the signal for changes.
    pub(super) fn update(&self) {
        self.progress(self.inbox_size);
        self.changes.clear();
        let is_open = |peer: &&Rc<Peer>| peer.connection.link.get() == Link::Open;
        let peers = self.peers.borrow();
        // SAFETY: the channel keeps its peers until it is disconnected, and C uses no peer after that.
        let listed = peers.iter().filter(is_open).map(|peer| unsafe { Handle::of(&**peer) }).collect();
        self.listed.replace(listed);
        let connections = self.endpoint.connections.borrow();
        let waiting = connections.iter().filter(|other| other.link.get() == Link::Greeting).count();
        self.waiting.set(waiting as u32);
    }
}

impl Receiver for Active {
    fn received(&self, connection: &Rc<Connection>, message: &[u8]) {
        self.inbox.borrow_mut().push_back((self.admit(connection), message.to_vec()));
    }

    fn changed(&self, connection: &Rc<Connection>) {
        self.admit(connection);
        self.changes.timer().ring(std::time::Duration::ZERO);
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        // Close the listener first, so that a peer that detects the end cannot connect again.
        drop(self.endpoint.listener.take());
        let connections = self.endpoint.connections.borrow().clone();
        for connection in &connections {
            close(&self.endpoint, connection);
        }
        for peer in self.peers.borrow().iter() {
            peer.mark.wipe();
        }
        // Without connections, the context becomes idle in `stop`, unless a client is stopping already.
        let ctx = &self.endpoint.ctx;
        let idle = ctx.stop().is_ok() || ctx.end_stop();
        let left = ctx.disconnect();
        debug_assert!(idle && left.is_ok(), "{left:?}");
    }
}

impl Peer {
    /// Updates the counters. Unless the connection is open, returns `CONNECTION_INPROGRESS` or
    /// `CONNECTION_ABORTED`.
    pub(super) fn update(&self) -> Outcome {
        if let Some(active) = self.active.upgrade() {
            active.progress(active.inbox_size);
        }
        self.shown.set(self.connection.counters.get());
        self.connection.link_outcome()
    }
}

fn close(endpoint: &Endpoint, connection: &Rc<Connection>) {
    if connection.link.get() == Link::Open {
        // If the message cannot be sent, the peer still notices that the socket is closed.
        let _ = connection.send(&[&[wire::BYE]]);
    }
    endpoint.remove(connection);
}
