//! A server or a client, as a context.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::address::Address;
use super::connection::{Connection, Link};
use super::fast::Attention;
use super::frame;
use super::{ConsumerCallback, ReceiveCallback, SendCallback, StatusCallback};
use crate::config::ComchConfig;
use crate::ctx::{Context, Ctx, State};
use crate::dev::Dev;
use crate::door::{Code, Handle, INVALID, Mark, Object, Outcome, c, require};
use crate::rep::Rep;
use crate::task::{Pool, Task};

/// How long a client looks for its server before it gives up.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
/// The listener among the descriptors waited for; connections have their numbers.
pub(super) const LISTENER: u64 = 0;
/// Added to a connection's number for its fast path.
pub(super) const FAST: u64 = 1 << 63;

/// What a send task is about.
pub(crate) struct Send {
    pub(super) connection: RefCell<Option<Rc<Connection>>>,
    pub(super) message: Cell<*const u8>,
    pub(super) len: Cell<u32>,
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
    pub(super) this: Weak<Self>,
    pub(super) dev: Arc<Dev>,
    /// The host's function; none makes it a client.
    pub(super) rep: Option<Arc<Rep>>,
    pub(super) address: Address,
    pub(super) max_msg_size: Cell<u32>,
    pub(super) recv_queue_size: Cell<u32>,
    pub(super) send_conf: Cell<Option<SendConf>>,
    pub(super) on_message: Cell<Option<ReceiveCallback>>,
    pub(super) on_connect: Cell<Option<StatusCallback>>,
    pub(super) on_disconnect: Cell<Option<StatusCallback>>,
    /// For those that come, and those that go.
    pub(super) on_consumer: Cell<Option<(ConsumerCallback, ConsumerCallback)>>,
    /// Called by the fast paths of its connections.
    pub(super) attention: Arc<Attention>,
    pub(super) pool: RefCell<Rc<Pool<Send>>>,
    /// Tasks that ended and are to be reported.
    pub(super) ended: RefCell<VecDeque<(u32, Code)>>,
    pub(super) listener: RefCell<Option<OwnedFd>>,
    /// Made on the first start.
    pub(super) epoll: OnceCell<OwnedFd>,
    pub(super) connections: RefCell<Vec<Rc<Connection>>>,
    pub(super) closed: RefCell<VecDeque<Rc<Connection>>>,
    pub(super) next_id: Cell<u64>,
    /// Descriptors that had something to say when last asked.
    pub(super) ready: RefCell<VecDeque<u64>>,
    pub(super) buffer: RefCell<Vec<u8>>,
    /// Until when a client looks for its server, and when it looks next.
    pub(super) deadline: Cell<Option<Instant>>,
    pub(super) retry_at: Cell<Option<Instant>>,
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
                on_consumer: Cell::new(None),
                attention: Arc::default(),
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

    pub(super) fn pool(&self) -> Rc<Pool<Send>> {
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
        require(!connection.fast.is_used(), c::DOCA_ERROR_IN_USE)?;
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
}

impl Send {
    pub(super) fn empty() -> Self {
        Self { connection: RefCell::new(None), message: Cell::new(ptr::null()), len: Cell::new(0) }
    }
}
