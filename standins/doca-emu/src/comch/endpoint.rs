//! Servers and clients of the comm channel.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::connection::{Connection, Link};
use super::fast_path::WakeFlag;
use super::wire;
use super::wire::Address;
use super::{ConsumerCallback, OnMessage, StatusCallback};
use crate::c_abi::{Handle, INVALID, Mark, NO_DATA, Outcome, TaskBytes, c, object, require};
use crate::config::ComchConfig;
use crate::ctx::Ctx;
use crate::dev::Dev;
use crate::rep::Rep;
use crate::task::{Task, Tasks};

/// Time limit of a client's search for its server.
pub(super) const SEARCH_LIMIT: Duration = Duration::from_secs(3);
/// Number that identifies the listener in the epoll data. Connections use their own numbers.
pub(super) const LISTENER: u64 = 0;
/// Added to a connection's number to identify its fast path in the epoll data.
pub(super) const FAST: u64 = 1 << 63;

/// Receives the events of an endpoint's connections instead of the callbacks.
pub(super) trait Receiver {
    /// Stores a message of a connection.
    fn received(&self, connection: &Rc<Connection>, message: &[u8]);

    /// Signals that a client has connected or disconnected.
    fn changed(&self, connection: &Rc<Connection>);
}

pub(crate) struct Send {
    pub(super) connection: RefCell<Option<Rc<Connection>>>,
    pub(super) message: Cell<TaskBytes>,
}

/// A server or a client: `struct doca_comch_server`, `struct doca_comch_client`.
pub(crate) struct Endpoint {
    mark: Mark,
    pub(super) ctx: Ctx,
    pub(super) this: Weak<Self>,
    pub(super) dev: Arc<Dev>,
    /// The host's function that a server serves; `None` for a client.
    pub(super) rep: Option<Arc<Rep>>,
    pub(super) address: Address,
    pub(super) max_msg_size: Cell<u32>,
    pub(super) recv_queue_size: Cell<u32>,
    pub(super) tasks: Tasks<Send>,
    pub(super) on_message: Cell<Option<OnMessage>>,
    pub(super) on_connect: Cell<Option<StatusCallback>>,
    pub(super) on_disconnect: Cell<Option<StatusCallback>>,
    /// If set, this receiver gets messages and connection changes instead of the callbacks.
    pub(super) receiver: RefCell<Option<Weak<dyn Receiver>>>,
    /// The callbacks for new and for ended consumers of the peer.
    pub(super) on_consumer: Cell<Option<(ConsumerCallback, ConsumerCallback)>>,
    /// Raised by the fast paths of this endpoint's connections.
    pub(super) wake_flag: Arc<WakeFlag>,
    pub(super) listener: RefCell<Option<OwnedFd>>,
    pub(super) epoll: OnceCell<OwnedFd>,
    pub(super) connections: RefCell<Vec<Rc<Connection>>>,
    pub(super) closed: RefCell<VecDeque<Rc<Connection>>>,
    pub(super) next_id: Cell<u64>,
    /// Numbers of descriptors that were readable at the last poll.
    pub(super) ready: RefCell<VecDeque<u64>>,
    pub(super) buffer: RefCell<Vec<u8>>,
    /// Time limit of a client's search for its server.
    pub(super) deadline: Cell<Option<Instant>>,
    pub(super) retry_at: Cell<Option<Instant>>,
}

object!(Endpoint, 0xcc_02_00_01);

impl Endpoint {
    /// Makes a server for a representor's function, or a client on the device's own function.
    pub(super) fn new(dev: Arc<Dev>, rep: Option<Arc<Rep>>, name: &str) -> Rc<Self> {
        let function = rep.as_ref().map_or_else(|| dev.function(), |rep| rep.info.function());
        let address = Address::new(&dev.card().config.serial, &function.pci, name);
        let limits = &dev.card().config.comch;
        let (max_msg_size, max_recv) = (limits.max_msg_size, limits.max_recv_queue_size);
        Rc::new_cyclic(|this: &Weak<Self>| Self {
            mark: Mark::of::<Self>(),
            ctx: Ctx::new(this.clone()),
            this: this.clone(),
            dev,
            rep,
            address,
            max_msg_size: Cell::new(max_msg_size),
            recv_queue_size: Cell::new(max_recv.min(64)),
            tasks: Tasks::new(this.clone()),
            on_message: Cell::new(None),
            on_connect: Cell::new(None),
            on_disconnect: Cell::new(None),
            receiver: RefCell::default(),
            on_consumer: Cell::new(None),
            wake_flag: Arc::default(),
            listener: RefCell::new(None),
            epoll: OnceCell::new(),
            connections: RefCell::default(),
            closed: RefCell::default(),
            next_id: Cell::new(LISTENER + 1),
            ready: RefCell::default(),
            buffer: RefCell::default(),
            deadline: Cell::new(None),
            retry_at: Cell::new(None),
        })
    }

    pub(super) fn is_server(&self) -> bool {
        self.rep.is_some()
    }

    pub(super) fn receiver(&self) -> Option<Rc<dyn Receiver>> {
        self.receiver.borrow().as_ref().and_then(Weak::upgrade)
    }

    pub(super) fn limits(&self) -> &ComchConfig {
        &self.dev.card().config.comch
    }

    /// Returns the connection with this handle. `INVALID_VALUE` if the connection is not one of this
    /// endpoint.
    pub(super) fn own(&self, connection: Handle<Connection>) -> Outcome<Rc<Connection>> {
        let wanted = connection.get()?;
        let connections = self.connections.borrow();
        let found = connections.iter().find(|own| ptr::eq(Rc::as_ptr(own), wanted));
        found.cloned().ok_or(INVALID)
    }

    /// Returns a client's only connection, which exists from the start of the client until the client is
    /// idle.
    pub(super) fn client_connection(&self) -> Outcome<Rc<Connection>> {
        self.connections.borrow().first().cloned().ok_or(c::DOCA_ERROR_BAD_STATE)
    }

    pub(super) fn alloc(
        &self,
        connection: Handle<Connection>,
        message: TaskBytes,
    ) -> Outcome<Handle<Task<Send>>> {
        let connection = self.own(connection)?;
        require(!message.is_null() && message.len() > 0, INVALID)?;
        require(message.len() <= self.max_msg_size.get() as usize, INVALID)?;
        self.ctx.require_running()?;
        require(connection.link.get() == Link::Open, c::DOCA_ERROR_NOT_CONNECTED)?;
        require(message.len() <= connection.peer_max.get() as usize, INVALID)?;
        self.tasks.alloc(NO_DATA, |send| {
            send.connection.replace(Some(connection));
            send.message.set(message);
        })
    }

    /// Ends a connection. Notifies the other side now, and later calls the program's callback.
    pub(super) fn disconnect(&self, connection: &Connection) -> Outcome {
        require(connection.link.get() == Link::Open, c::DOCA_ERROR_NOT_CONNECTED)?;
        require(!connection.fast.is_used(), c::DOCA_ERROR_IN_USE)?;
        match connection.send(&[&[wire::BYE]]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(c::DOCA_ERROR_AGAIN),
            // The other side has closed the socket already.
            Ok(()) | Err(_) => {}
        }
        // The callback runs in the next progress call, because callbacks run only there.
        connection.link.set(Link::Closed);
        self.ready.borrow_mut().push_back(connection.id);
        if let Some(pe) = self.ctx.pe() {
            pe.wake();
        }
        Ok(())
    }
}

impl Default for Send {
    fn default() -> Self {
        Self { connection: RefCell::new(None), message: Cell::new(TaskBytes::EMPTY) }
    }
}
