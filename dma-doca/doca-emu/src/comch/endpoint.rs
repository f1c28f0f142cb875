//! A server or a client, as a context.
#![expect(unsafe_code, reason = "the program's callbacks and messages")]

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::address::{Address, accept};
use super::connection::{Connection, Link, Packet, is_ours};
use super::frame::{self, Greeting};
use super::{ReceiveCallback, SendCallback, StatusCallback};
use crate::config::ComchConfig;
use crate::ctx::{Context, Ctx, Ready, State};
use crate::dev::Dev;
use crate::door::{Code, Handle, INVALID, Mark, Object, Outcome, c, require};
use crate::log::sdk_log;
use crate::rep::Rep;
use crate::task::{Head, Holder, Pool, Submit, Task};

/// How long a client looks for its server before it gives up.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often it looks.
const RETRY: Duration = Duration::from_millis(5);
/// Descriptors served in one progress as long as the program notices nothing.
const ROUNDS: u32 = 64;
/// Closed connections whose handles are still known to be closed.
const REMEMBERED: usize = 256;
/// The listener among the descriptors waited for; connections have their numbers.
const LISTENER: u64 = 0;

/// What a send task is about.
pub(crate) struct Send {
    connection: RefCell<Option<Rc<Connection>>>,
    message: Cell<*const u8>,
    len: Cell<u32>,
}

/// How send tasks are set up.
#[derive(Clone, Copy)]
pub(super) struct SendConf {
    pub(super) completed: SendCallback,
    pub(super) failed: SendCallback,
    pub(super) tasks: u32,
}

/// A server or a client: `struct doca_comch_server`, `struct doca_comch_client`.
pub(crate) struct Endpoint {
    mark: Mark,
    pub(super) ctx: Ctx,
    this: Weak<Self>,
    pub(super) dev: Arc<Dev>,
    /// The host's function; none makes it a client.
    pub(super) rep: Option<Arc<Rep>>,
    address: Address,
    pub(super) max_msg_size: Cell<u32>,
    pub(super) recv_queue_size: Cell<u32>,
    pub(super) send_conf: Cell<Option<SendConf>>,
    pub(super) on_message: Cell<Option<ReceiveCallback>>,
    pub(super) on_connect: Cell<Option<StatusCallback>>,
    pub(super) on_disconnect: Cell<Option<StatusCallback>>,
    pool: RefCell<Rc<Pool<Send>>>,
    /// Tasks that ended and are to be reported.
    ended: RefCell<VecDeque<(u32, Code)>>,
    listener: RefCell<Option<OwnedFd>>,
    /// Made on the first start.
    epoll: OnceCell<OwnedFd>,
    connections: RefCell<Vec<Rc<Connection>>>,
    closed: RefCell<VecDeque<Rc<Connection>>>,
    next_id: Cell<u64>,
    /// Descriptors that had something to say when last asked.
    ready: RefCell<VecDeque<u64>>,
    buffer: RefCell<Vec<u8>>,
    /// Until when a client looks for its server, and when it looks next.
    deadline: Cell<Option<Instant>>,
    retry_at: Cell<Option<Instant>>,
}

impl Object for Endpoint {
    const MARK: u32 = 0xcc_02_00_01;

    fn mark(&self) -> &Mark {
        &self.mark
    }
}

impl Endpoint {
    /// A server for a representor's function, or a client on the device's own.
    pub(super) fn new(dev: Arc<Dev>, rep: Option<Arc<Rep>>, name: &str) -> Rc<Self> {
        let function = rep.as_ref().map_or_else(|| dev.function(), |rep| rep.info.function());
        let address = Address::new(&dev.card().config.serial, &function.pci, name);
        let limits = &dev.card().config.comch;
        let (max_msg_size, max_recv) = (limits.max_msg_size, limits.max_recv_queue_size);
        Rc::new_cyclic(|this: &Weak<Self>| {
            let context: Weak<dyn Context> = this.clone();
            Self {
                mark: Mark::new(Self::MARK),
                pool: RefCell::new(Rc::new(Pool::new(0, &context, Send::empty))),
                ctx: Ctx::new(context),
                this: this.clone(),
                dev,
                rep,
                address,
                max_msg_size: Cell::new(max_msg_size),
                recv_queue_size: Cell::new(max_recv.min(64)),
                send_conf: Cell::new(None),
                on_message: Cell::new(None),
                on_connect: Cell::new(None),
                on_disconnect: Cell::new(None),
                ended: RefCell::default(),
                listener: RefCell::new(None),
                epoll: OnceCell::new(),
                connections: RefCell::default(),
                closed: RefCell::default(),
                next_id: Cell::new(LISTENER + 1),
                ready: RefCell::default(),
                buffer: RefCell::default(),
                deadline: Cell::new(None),
                retry_at: Cell::new(None),
            }
        })
    }

    pub(super) fn is_server(&self) -> bool {
        self.rep.is_some()
    }

    pub(super) fn limits(&self) -> &ComchConfig {
        &self.dev.card().config.comch
    }

    fn pool(&self) -> Rc<Pool<Send>> {
        Rc::clone(&self.pool.borrow())
    }

    /// The connection, if it is this endpoint's and not closed.
    pub(super) fn own(&self, connection: Handle<Connection>) -> Outcome<Rc<Connection>> {
        let wanted = connection.get()?;
        let connections = self.connections.borrow();
        let found = connections.iter().find(|own| ptr::eq(Rc::as_ptr(own), wanted));
        found.cloned().ok_or(INVALID)
    }

    /// A client's only connection, from its start until it is idle.
    pub(super) fn client_connection(&self) -> Outcome<Rc<Connection>> {
        self.connections.borrow().first().cloned().ok_or(c::DOCA_ERROR_BAD_STATE)
    }

    pub(super) fn alloc(
        &self,
        connection: Handle<Connection>,
        message: *const c_void,
        len: u32,
    ) -> Outcome<Handle<Task<Send>>> {
        let connection = self.own(connection)?;
        require(!message.is_null() && len > 0 && len <= self.max_msg_size.get(), INVALID)?;
        require(self.ctx.state() == State::Running, c::DOCA_ERROR_BAD_STATE)?;
        require(connection.link.get() == Link::Open, c::DOCA_ERROR_NOT_CONNECTED)?;
        require(len <= connection.peer_max.get(), INVALID)?;
        let pool = self.pool();
        let task = pool.take(c::doca_data { u64_: 0 }).ok_or(c::DOCA_ERROR_NO_MEMORY)?;
        task.body.connection.replace(Some(connection));
        task.body.message.set(message.cast());
        task.body.len.set(len);
        Ok(Handle::of(task))
    }

    /// Ends a connection at the program's wish: the other side is told, and the program once more when it is done.
    pub(super) fn disconnect(&self, connection: &Connection) -> Outcome {
        require(connection.link.get() == Link::Open, c::DOCA_ERROR_NOT_CONNECTED)?;
        match connection.send(&[&[frame::BYE]]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(c::DOCA_ERROR_AGAIN),
            // Gone already: that is what was wished for.
            Ok(()) | Err(_) => {}
        }
        // Not reported from here: callbacks run in the progress engine only.
        connection.link.set(Link::Closed);
        self.ready.borrow_mut().push_back(connection.id);
        if let Some(pe) = self.ctx.pe() {
            pe.wake();
        }
        Ok(())
    }

    fn epoll(&self) -> Outcome<BorrowedFd<'_>> {
        let system = |_| c::DOCA_ERROR_OPERATING_SYSTEM;
        if self.epoll.get().is_none() {
            let made = epoll::create(CreateFlags::CLOEXEC).map_err(system)?;
            self.ctx.pe().ok_or(c::DOCA_ERROR_NOT_CONNECTED)?.watch(made.as_fd())?;
            let _ = self.epoll.set(made);
        }
        Ok(self.epoll.get().ok_or(c::DOCA_ERROR_UNEXPECTED)?.as_fd())
    }

    fn watch(&self, fd: BorrowedFd<'_>, id: u64) -> Outcome {
        let added = epoll::add(self.epoll()?, fd, EventData::new_u64(id), EventFlags::IN);
        added.map_err(|_| c::DOCA_ERROR_OPERATING_SYSTEM)
    }

    /// Has the descriptor also say when there is room to send, or not.
    fn watch_room(&self, connection: &Connection, wanted: bool) {
        let flags = if wanted { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        if let (Some(epoll), Some(socket)) = (self.epoll.get(), connection.socket.borrow().as_ref()) {
            // It is watched as long as it is open.
            let _ = epoll::modify(epoll, socket, EventData::new_u64(connection.id), flags);
        }
    }

    fn new_connection(&self, socket: Option<OwnedFd>) -> Rc<Connection> {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        let connection = Rc::new(Connection::new(id, self.this.clone(), socket));
        self.connections.borrow_mut().push(Rc::clone(&connection));
        connection
    }

    fn find(&self, id: u64) -> Option<Rc<Connection>> {
        self.connections.borrow().iter().find(|connection| connection.id == id).cloned()
    }

    /// The next descriptor that has something to say.
    fn next_ready(&self) -> Option<u64> {
        if self.ready.borrow().is_empty() {
            let mut events = [epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; 16];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            let count = epoll::wait(self.epoll.get()?, &mut events[..], Some(&now)).unwrap_or(0);
            self.ready.borrow_mut().extend(events[..count].iter().map(|event| event.data.u64()));
        }
        self.ready.borrow_mut().pop_front()
    }

    /// Does what one descriptor asks for; whether the program noticed.
    fn serve(&self, id: u64) -> bool {
        if id == LISTENER {
            self.admit();
            return false;
        }
        let Some(connection) = self.find(id) else { return false };
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

    /// Lets a client in, who has to greet before anybody is told.
    fn admit(&self) {
        let listener = self.listener.borrow();
        let Some(Ok(socket)) = listener.as_ref().map(accept) else { return };
        let room = self.connections.borrow().len() < self.limits().max_clients as usize;
        if !room || !is_ours(&socket) {
            sdk_log!(WARNING, "comch server: a client was turned away");
            return;
        }
        let connection = self.new_connection(Some(socket));
        let watched =
            connection.socket.borrow().as_ref().map(|socket| self.watch(socket.as_fd(), connection.id));
        if watched != Some(Ok(())) {
            self.remove(&connection);
        }
    }

    fn greeting(&self, address: &str) -> Greeting {
        Greeting { max_msg_size: self.max_msg_size.get(), address: address.to_owned() }
    }

    /// A packet came; whether the program noticed.
    fn take(&self, connection: &Rc<Connection>, packet: &mut [u8]) -> bool {
        let server = self.is_server();
        match (connection.link.get(), packet.first()) {
            (Link::Greeting, _) => {
                let kind = if server { frame::HELLO } else { frame::WELCOME };
                let greeting = Greeting::parse(kind, packet);
                let Some(greeting) =
                    greeting.filter(|greeting| !server || greeting.address == self.address.text)
                else {
                    sdk_log!(ERROR, "comch: the other side is none of ours");
                    return self.end(connection);
                };
                connection.peer_max.set(greeting.max_msg_size);
                if server && connection.send(&[&self.greeting("").to_bytes(frame::WELCOME)]).is_err() {
                    return self.end(connection);
                }
                connection.link.set(Link::Open);
                if server {
                    self.tell(self.on_connect.get(), connection);
                } else {
                    self.ctx.enter(State::Running);
                }
                true
            }
            (Link::Open, Some(&frame::MESSAGE)) => {
                let (_, message) = packet.split_at_mut(1);
                connection.count(2, message.len());
                if let Some(on_message) = self.on_message.get() {
                    let event = ptr::from_ref(self).cast_mut().cast();
                    let handle = Handle::of(&**connection).cast();
                    // SAFETY: the program gave the function to be called with a message, which lies in a buffer of ours
                    // during the call.
                    unsafe { on_message(event, message.as_mut_ptr(), message.len() as u32, handle) }
                }
                true
            }
            _ => self.end(connection),
        }
    }

    fn tell(&self, callback: Option<StatusCallback>, connection: &Rc<Connection>) {
        let Some(callback) = callback else { return };
        let event = ptr::from_ref(self).cast_mut().cast();
        // SAFETY: the program gave the function to be called with a connection, which lives during the call.
        unsafe { callback(event, Handle::of(&**connection).cast(), 1) }
    }

    /// A connection is over, whoever ended it; whether the program noticed. A client is over with it.
    fn end(&self, connection: &Rc<Connection>) -> bool {
        let greeted = connection.peer_max.get() > 0;
        connection.close();
        self.abandon_pending(connection);
        if self.is_server() {
            if greeted {
                self.tell(self.on_disconnect.get(), connection);
            }
            self.remove(connection);
            return greeted;
        }
        if self.ctx.state() == State::Starting && !greeted {
            // The server went while it was greeted: another may come.
            self.look_again(connection);
            return false;
        }
        if greeted {
            sdk_log!(INFO, "comch client: the server ended the connection");
        }
        self.ctx.begin_stop();
        true
    }

    /// A client looks for a server from the beginning.
    fn look_again(&self, connection: &Connection) {
        connection.close();
        connection.link.set(Link::Greeting);
        let now = Instant::now();
        self.deadline.set(Some(now + PATIENCE));
        self.retry_at.set(Some(now + RETRY));
    }

    fn remove(&self, connection: &Rc<Connection>) {
        connection.close();
        connection.forget();
        self.connections.borrow_mut().retain(|other| !Rc::ptr_eq(other, connection));
        let mut closed = self.closed.borrow_mut();
        closed.push_back(Rc::clone(connection));
        if closed.len() > REMEMBERED {
            closed.pop_front();
        }
    }

    /// What was not sent never will be.
    fn abandon_pending(&self, connection: &Connection) {
        let pending = connection.pending.take();
        let ended = pending.into_iter().map(|(task, _)| (task, c::DOCA_ERROR_CONNECTION_ABORTED));
        self.ended.borrow_mut().extend(ended);
    }

    fn send_pending(&self, connection: &Connection) {
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
            self.ended.borrow_mut().push_back((*task, status));
            pending.pop_front();
        }
        self.watch_room(connection, false);
    }

    /// Reports a task that ended.
    fn report(&self, index: u32, status: Code) {
        let pool = self.pool();
        let Some(task) = pool.at(index) else { return };
        self.ctx.in_flight.set(self.ctx.in_flight.get() - 1);
        task.head.end(status);
        let Some(conf) = self.send_conf.get() else { return };
        let callback = if status == c::DOCA_SUCCESS { conf.completed } else { conf.failed };
        let user_data = task.head.user_data.get();
        // SAFETY: the program gave the function to be called with a task of this context.
        unsafe { callback(Handle::of(task).cast(), user_data, self.ctx.user_data()) }
    }

    /// A client looks for its server; whether the program noticed.
    fn look(&self) -> bool {
        let Some(connection) = self.connections.borrow().first().cloned() else { return false };
        let now = Instant::now();
        if self.deadline.get().is_some_and(|deadline| now >= deadline) {
            self.deadline.set(None);
            sdk_log!(ERROR, "comch client: no server answers for {}", self.address.text.replace('\n', " "));
            connection.close();
            self.ctx.begin_stop();
            return true;
        }
        if connection.socket.borrow().is_some() || self.retry_at.get().is_some_and(|at| now < at) {
            return false;
        }
        self.retry_at.set(Some(now + RETRY));
        let Ok(socket) = self.address.connect() else { return false };
        if !is_ours(&socket) || self.watch(socket.as_fd(), connection.id).is_err() {
            return false;
        }
        connection.socket.replace(Some(socket));
        // Found: how soon it is let in is up to the server's program.
        self.deadline.set(None);
        if connection.send(&[&self.greeting(&self.address.text).to_bytes(frame::HELLO)]).is_err() {
            self.look_again(&connection);
        }
        false
    }
}

impl Send {
    fn empty() -> Self {
        Self { connection: RefCell::new(None), message: Cell::new(ptr::null()), len: Cell::new(0) }
    }
}

impl Context for Endpoint {
    fn ctx(&self) -> &Ctx {
        &self.ctx
    }

    fn start(&self) -> Outcome<State> {
        let conf = self.send_conf.get();
        let tasks = conf.map_or(0, |conf| conf.tasks);
        if self.pool().len() != tasks as usize {
            let context: Weak<dyn Context> = self.this.clone();
            self.pool.replace(Rc::new(Pool::new(tasks, &context, Send::empty)));
        }
        if !self.is_server() {
            self.new_connection(None);
            self.deadline.set(Some(Instant::now() + PATIENCE));
            self.retry_at.set(None);
            self.epoll()?;
            return Ok(State::Starting);
        }
        let listener = self.address.listen().map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => {
                sdk_log!(
                    ERROR,
                    "comch server: there is one for {} already",
                    self.address.text.replace('\n', " ")
                );
                c::DOCA_ERROR_IN_USE
            }
            _ => c::DOCA_ERROR_OPERATING_SYSTEM,
        })?;
        self.watch(listener.as_fd(), LISTENER)?;
        self.listener.replace(Some(listener));
        Ok(State::Running)
    }

    fn stop(&self) {
        drop(self.listener.take());
        self.deadline.set(None);
        for connection in self.connections.borrow().iter() {
            if connection.link.get() == Link::Open {
                // A socket without room is closed all the same, which tells the other side as well.
                let _ = connection.send(&[&[frame::BYE]]);
            }
            connection.link.set(Link::Closed);
            self.abandon_pending(connection);
            if self.is_server() {
                self.ready.borrow_mut().push_back(connection.id);
            }
        }
    }

    fn is_drained(&self) -> bool {
        let served = !self.is_server() || self.connections.borrow().is_empty();
        served && self.ended.borrow().is_empty() && self.pool().taken() == 0
    }

    fn release(&self) {
        self.ready.borrow_mut().clear();
        let connections = self.connections.borrow().clone();
        for connection in &connections {
            self.remove(connection);
        }
    }

    fn progress(&self) -> bool {
        let next = self.ended.borrow_mut().pop_front();
        if let Some((index, status)) = next {
            self.report(index, status);
            return true;
        }
        match self.ctx.state() {
            State::Idle => return false,
            State::Starting if self.look() => return true,
            _ => {}
        }
        // What the program does not notice is no progress to it: on to the next, and once more for what that led to.
        for _ in 0..ROUNDS {
            let Some(id) = self.next_ready() else { break };
            if self.serve(id) {
                return true;
            }
        }
        false
    }

    fn submit(&self, head: &Head, _how: Submit) -> Outcome {
        require(self.ctx.state() == State::Running, c::DOCA_ERROR_BAD_STATE)?;
        let pool = self.pool();
        let task = pool.find(head).ok_or(INVALID)?;
        let connection = task.body.connection.borrow().clone().ok_or(INVALID)?;
        require(connection.link.get() == Link::Open, c::DOCA_ERROR_NOT_CONNECTED)?;
        // SAFETY: the message lies where the program said that it does, until the task ends.
        let message =
            unsafe { std::slice::from_raw_parts(task.body.message.get(), task.body.len.get() as usize) };
        let mut pending = connection.pending.borrow_mut();
        let sent = if pending.is_empty() {
            connection.send_message(message)
        } else {
            Err(io::ErrorKind::WouldBlock.into())
        };
        match sent {
            Ok(()) => self.ended.borrow_mut().push_back((head.index, c::DOCA_SUCCESS)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                pending.push_back((head.index, message.to_vec()));
                drop(pending);
                self.watch_room(&connection, true);
            }
            Err(_) => self.ended.borrow_mut().push_back((head.index, c::DOCA_ERROR_CONNECTION_RESET)),
        }
        head.holder.set(Holder::Device);
        self.ctx.in_flight.set(self.ctx.in_flight.get() + 1);
        Ok(())
    }

    fn free(&self, head: &Head) {
        let pool = self.pool();
        if let Some(task) = pool.find(head) {
            task.body.connection.replace(None);
            pool.put(head);
        }
    }

    fn ready(&self) -> Ready {
        if !self.ended.borrow().is_empty() || !self.ready.borrow().is_empty() {
            return Ready::Now;
        }
        if self.ctx.state() == State::Stopping && self.is_drained() {
            return Ready::Now;
        }
        // A client that has no socket looks again; one that waits for an answer gives up in time.
        let now = Instant::now();
        let looks = match self.client_connection() {
            Ok(connection) if connection.socket.borrow().is_none() => self.retry_at.get(),
            _ => None,
        };
        match (self.ctx.state(), self.deadline.get()) {
            (State::Starting, Some(deadline)) => {
                Ready::After(looks.unwrap_or(deadline).min(deadline).saturating_duration_since(now))
            }
            _ => Ready::WhenWoken,
        }
    }
}
