//! Traffic of an endpoint's sockets: new clients, greetings, messages, and ends of connections.
#![expect(unsafe_code, reason = "the program's callbacks")]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::connection::{Connection, Link, Packet, is_ours};
use super::endpoint::{Endpoint, FAST, LISTENER, SEARCH_LIMIT};
use super::fast_path::{ConsumerChange, FastPath};
use super::wire::{self, Greeting};
use super::wire::{accept, fast_path};
use super::{OnMessage, StatusCallback};
use crate::c_abi::{Outcome, c, pointer_to};
use crate::ctx::State;
use crate::log::sdk_log;

/// Interval between a client's attempts to find its server.
const RETRY: Duration = Duration::from_millis(5);
/// Number of closed connections that are kept, so that calls can recognize their handles as closed.
const REMEMBERED: usize = 256;

impl Endpoint {
    /// Returns the endpoint's epoll descriptor, which the progress engine watches. Made on first use.
    pub(super) fn epoll(&self) -> Outcome<BorrowedFd<'_>> {
        let system = |_| c::DOCA_ERROR_OPERATING_SYSTEM;
        if self.epoll.get().is_none() {
            let made = epoll::create(CreateFlags::CLOEXEC).map_err(system)?;
            self.ctx.pe().ok_or(c::DOCA_ERROR_NOT_CONNECTED)?.watch(made.as_fd())?;
            let _ = self.epoll.set(made);
        }
        Ok(self.epoll.get().ok_or(c::DOCA_ERROR_UNEXPECTED)?.as_fd())
    }

    /// Watches a descriptor for data. `id` identifies the descriptor in the epoll data.
    pub(super) fn watch(&self, fd: BorrowedFd<'_>, id: u64) -> Outcome {
        let added = epoll::add(self.epoll()?, fd, EventData::new_u64(id), EventFlags::IN);
        added.map_err(|_| c::DOCA_ERROR_OPERATING_SYSTEM)
    }

    /// Adds the event "room to send" to the socket's events, or removes it.
    pub(super) fn watch_room(&self, connection: &Connection, wanted: bool) {
        let flags = if wanted { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        if let (Some(epoll), Some(socket)) = (self.epoll.get(), connection.socket.borrow().as_ref()) {
            // This succeeds, because an open socket is watched.
            let _ = epoll::modify(epoll, socket, EventData::new_u64(connection.id), flags);
        }
    }

    pub(super) fn new_connection(&self, socket: Option<OwnedFd>) -> Rc<Connection> {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        let fast = FastPath::new(Arc::clone(&self.dev), Arc::clone(&self.wake_flag));
        let connection = Rc::new(Connection::new(id, self.this.clone(), fast, socket));
        self.connections.borrow_mut().push(Rc::clone(&connection));
        connection
    }

    pub(super) fn find(&self, id: u64) -> Option<Rc<Connection>> {
        self.connections.borrow().iter().find(|connection| connection.id == id).cloned()
    }

    /// Returns the number of the next readable descriptor.
    pub(super) fn next_ready(&self) -> Option<u64> {
        if self.ready.borrow().is_empty() {
            let mut events = [epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; 16];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            let count = epoll::wait(self.epoll.get()?, &mut events[..], Some(&now)).unwrap_or(0);
            self.ready.borrow_mut().extend(events[..count].iter().map(|event| event.data.u64()));
        }
        self.ready.borrow_mut().pop_front()
    }

    /// Serves a readable descriptor. Returns `true` if a callback ran.
    pub(super) fn serve(&self, id: u64) -> bool {
        if id == LISTENER {
            self.admit();
            return false;
        }
        let Some(connection) = self.find(id & !FAST) else { return false };
        if id & FAST != 0 {
            connection.fast.receive();
            return false;
        }
        if connection.link.get() == Link::Closed {
            return self.end(&connection);
        }
        self.send_pending(&connection);
        let mut buffer = self.buffer.take();
        buffer.resize(self.max_msg_size.get().max(1 << 10) as usize + 1, 0);
        let noticed = match connection.receive(&mut buffer) {
            Packet::None => false,
            Packet::End => self.end(&connection),
            Packet::Bytes(length) => self.take(&connection, &mut buffer[..length]),
        };
        self.buffer.replace(buffer);
        noticed
    }

    /// Accepts a client. The program is notified when the client has sent its greeting.
    pub(super) fn admit(&self) {
        let listener = self.listener.borrow();
        let Some(Ok(socket)) = listener.as_ref().map(accept) else { return };
        let room = self.connections.borrow().len() < self.limits().max_clients as usize;
        if !room || !is_ours(&socket) {
            sdk_log!(WARNING, "comch server: a client was refused");
            return;
        }
        let connection = self.new_connection(Some(socket));
        let watched =
            connection.socket.borrow().as_ref().map(|socket| self.watch(socket.as_fd(), connection.id));
        if watched != Some(Ok(())) {
            self.remove(&connection);
        }
    }

    pub(super) fn greeting(&self, address: &str) -> Greeting {
        Greeting { max_msg_size: self.max_msg_size.get(), address: address.to_owned() }
    }

    /// Handles a packet. Returns `true` if a callback ran.
    pub(super) fn take(&self, connection: &Rc<Connection>, packet: &mut [u8]) -> bool {
        let server = self.is_server();
        match (connection.link.get(), packet.first()) {
            (Link::Greeting, _) => {
                let kind = if server { wire::HELLO } else { wire::WELCOME };
                let greeting = Greeting::parse(kind, packet);
                let greeting = greeting.filter(|greeting| !server || greeting.address == self.address.text);
                let (Some(greeting), Some(channel)) = (greeting, connection.handed.take()) else {
                    sdk_log!(ERROR, "comch: the other side is not a peer of this stand-in");
                    return self.end(connection);
                };
                if server && connection.send(&[&self.greeting("").to_bytes(wire::WELCOME)]).is_err() {
                    return self.end(connection);
                }
                // Set the state last. Otherwise the disconnect of a client that left in the meantime would be
                // reported.
                connection.peer_max.set(greeting.max_msg_size);
                connection.link.set(Link::Open);
                if self.watch(channel.as_fd(), connection.id | FAST).is_err() {
                    sdk_log!(ERROR, "comch: new consumers of the other side may not be detected");
                }
                connection.fast.open(Arc::new(channel));
                if server {
                    self.tell(self.on_connect.get(), connection);
                } else {
                    self.ctx.enter(State::Running);
                }
                true
            }
            (Link::Open, Some(&wire::MESSAGE)) => {
                let (_, message) = packet.split_at_mut(1);
                connection.count(2, message.len());
                if let Some(receiver) = self.receiver() {
                    receiver.received(connection, message);
                } else if let Some(on_message) = self.on_message.get() {
                    let event = ptr::from_ref(self).cast_mut().cast();
                    let handle = pointer_to(&**connection);
                    let (start, len) = (message.as_mut_ptr(), message.len());
                    match on_message {
                        // SAFETY: the program's function takes the event, the message and the connection,
                        // which live until the call returns.
                        OnMessage::Comch(callback) => unsafe { callback(event, start, len as u32, handle) },
                        // SAFETY: the program's function takes the event, the message and the connection,
                        // which live until the call returns.
                        OnMessage::Cc(callback) => unsafe { callback(event, start, len, handle) },
                    }
                }
                true
            }
            _ => self.end(connection),
        }
    }

    /// Serves the fast paths of all connections. Returns `true` if a callback ran.
    pub(super) fn attend(&self) -> bool {
        if !self.wake_flag.take() {
            return false;
        }
        let connections = self.connections.borrow().clone();
        for connection in &connections {
            let Some(event) = connection.fast.next_event() else { continue };
            // The next call serves further events.
            self.wake_flag.call();
            let (id, callback) = match (event, self.on_consumer.get()) {
                (_, None) => continue,
                (ConsumerChange::Created(id), Some((came, _))) => (id, came),
                (ConsumerChange::Destroyed(id), Some((_, went))) => (id, went),
            };
            let event = ptr::from_ref(self).cast_mut().cast();
            // SAFETY: the program's function takes the event and the connection, which live until the call
            // returns.
            unsafe { callback(event, pointer_to(&**connection), id) }
            return true;
        }
        false
    }

    pub(super) fn tell(&self, callback: Option<StatusCallback>, connection: &Rc<Connection>) {
        if let Some(receiver) = self.receiver() {
            receiver.changed(connection);
        }
        let Some(callback) = callback else { return };
        let event = ptr::from_ref(self).cast_mut().cast();
        // SAFETY: the program's function takes the event and the connection, which live until the call
        // returns.
        unsafe { callback(event, pointer_to(&**connection), 1) }
    }

    /// Ends a connection. A client stops when its connection ends. Returns `true` if a callback ran.
    pub(super) fn end(&self, connection: &Rc<Connection>) -> bool {
        let greeted = connection.peer_max.get() > 0;
        connection.close();
        self.abandon_pending(connection);
        if self.is_server() {
            if connection.ending.replace(true) {
                return false;
            }
            if greeted {
                self.tell(self.on_disconnect.get(), connection);
            }
            self.remove(connection);
            return greeted;
        }
        if self.ctx.state() == State::Starting && !greeted {
            // The server ended during the greeting. Another server may start, so search again.
            self.restart_search(connection);
            return false;
        }
        if greeted {
            sdk_log!(INFO, "comch client: the server ended the connection");
        }
        self.ctx.begin_stop();
        true
    }

    /// Restarts a client's search for its server.
    pub(super) fn restart_search(&self, connection: &Connection) {
        connection.close();
        connection.link.set(Link::Greeting);
        let now = Instant::now();
        self.deadline.set(Some(now + SEARCH_LIMIT));
        self.retry_at.set(Some(now + RETRY));
    }

    /// Closes a connection and makes its handle invalid. The connection is kept for a while, so that calls
    /// can recognize the handle.
    pub(super) fn remove(&self, connection: &Rc<Connection>) {
        connection.close();
        connection.forget();
        self.connections.borrow_mut().retain(|other| !Rc::ptr_eq(other, connection));
        let mut closed = self.closed.borrow_mut();
        closed.push_back(Rc::clone(connection));
        if closed.len() > REMEMBERED {
            closed.pop_front();
        }
    }

    /// Ends the tasks of all messages that wait for room, with an error.
    pub(super) fn abandon_pending(&self, connection: &Connection) {
        for (task, _) in connection.pending.take() {
            self.tasks.end(task, c::DOCA_ERROR_CONNECTION_ABORTED);
        }
    }

    /// Sends messages that wait for room, until the socket is full.
    pub(super) fn send_pending(&self, connection: &Connection) {
        let mut pending = connection.pending.borrow_mut();
        if pending.is_empty() {
            return;
        }
        while let Some((task, message)) = pending.front() {
            let status = match connection.send_message(message) {
                Ok(()) => c::DOCA_SUCCESS,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => c::DOCA_ERROR_CONNECTION_RESET,
            };
            self.tasks.end(*task, status);
            pending.pop_front();
        }
        self.watch_room(connection, false);
    }

    /// Tries to find the server. Returns `true` if a callback ran.
    pub(super) fn find_server(&self) -> bool {
        let Some(connection) = self.connections.borrow().first().cloned() else { return false };
        let now = Instant::now();
        if self.deadline.get().is_some_and(|deadline| now >= deadline) {
            self.deadline.set(None);
            sdk_log!(ERROR, "comch client: no server found for {}", self.address.text.replace('\n', " "));
            connection.close();
            self.ctx.begin_stop();
            return true;
        }
        if connection.socket.borrow().is_some() || self.retry_at.get().is_some_and(|at| now < at) {
            return false;
        }
        self.retry_at.set(Some(now + RETRY));
        let Ok(socket) = self.address.connect() else { return false };
        let Ok((ours, theirs)) = fast_path() else { return false };
        if !is_ours(&socket) || self.watch(socket.as_fd(), connection.id).is_err() {
            return false;
        }
        connection.socket.replace(Some(socket));
        // The server is found. There is no time limit for its program to accept the connection.
        self.deadline.set(None);
        let hello = self.greeting(&self.address.text).to_bytes(wire::HELLO);
        connection.handed.set(Some(ours));
        if connection.pass(&hello, theirs.as_fd()).is_err() {
            self.restart_search(&connection);
        }
        false
    }
}
