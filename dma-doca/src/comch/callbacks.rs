//! Callbacks of an endpoint, which run inside of the endpoint's calls of the SDK.
#![expect(unsafe_code, reason = "called by C")]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use doca_sys::bindings::*;

/// State of an endpoint that its callbacks write. The callbacks find this state in a thread-local variable,
/// because not every SDK version has user data for connections.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// True for a client. Its messages may arrive before its connection is reported as open.
    pub(super) client: Cell<bool>,
    pub(super) peers: RefCell<Vec<Peer>>,
    pub(super) sends: RefCell<Vec<Outgoing>>,
}

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) raw: *mut doca_comch_connection,
    /// Distinguishes the connection from an earlier one at the same address.
    pub(super) number: u64,
    pub(super) inbox: VecDeque<Vec<u8>>,
    pub(super) open: bool,
    pub(super) accepted: bool,
}

/// A message that is being sent. The device reads the message until the send task ends.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) number: u64,
    pub(super) task: *mut doca_task,
    /// The task, with the type that callbacks pass.
    pub(super) send: *mut doca_comch_task_send,
    pub(super) _message: Box<[u8]>,
    /// The result, once the task has ended.
    pub(super) end: Option<doca_error_t>,
    /// Set when the sender has stopped waiting for the result.
    pub(super) abandoned: bool,
    pub(super) status: unsafe extern "C" fn(*const doca_task) -> doca_error_t,
    pub(super) free: unsafe extern "C" fn(*mut doca_task),
}

thread_local! {
    static CURRENT: Cell<*const Events> = const { Cell::new(std::ptr::null()) };
}

impl Events {
    /// Runs `call`. Callbacks that run inside of `call` write to this value.
    pub(super) fn during<T>(&self, call: impl FnOnce() -> T) -> T {
        let before = CURRENT.replace(self);
        let result = call();
        CURRENT.set(before);
        result
    }

    /// Returns a number for a connection or a message that no other one in the process has.
    pub(super) fn number() -> u64 {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the number of a client's connection, which is added on first use.
    pub(super) fn own(&self, raw: *mut doca_comch_connection) -> u64 {
        let known =
            self.peers.borrow().iter().find(|peer| peer.raw == raw && peer.open).map(|peer| peer.number);
        known.unwrap_or_else(|| self.add(raw))
    }

    /// Adds an open connection that is not accepted yet, and returns its number.
    pub(super) fn add(&self, raw: *mut doca_comch_connection) -> u64 {
        let number = Self::number();
        let peer = Peer { raw, number, inbox: VecDeque::new(), open: true, accepted: false };
        self.peers.borrow_mut().push(peer);
        number
    }

    fn ended(&self, task: *mut doca_comch_task_send, failed: bool) {
        let mut sends = self.sends.borrow_mut();
        let Some(at) = sends.iter().position(|send| send.send == task && send.end.is_none()) else { return };
        let send = &mut sends[at];
        // SAFETY: `send.task` is the ended task that this callback reports, and is freed only below.
        let status = unsafe { (send.status)(send.task) };
        send.end = Some(match (failed, status) {
            (false, _) => DOCA_SUCCESS,
            (true, DOCA_SUCCESS) => DOCA_ERROR_UNKNOWN,
            (true, status) => status,
        });
        // SAFETY: a callback may free its own task, which is not used again.
        unsafe { (send.free)(send.task) };
        if send.abandoned {
            sends.swap_remove(at);
        }
    }
}

/// Calls `tell` with the state of the endpoint whose call runs on this thread, if there is one.
fn current(tell: impl FnOnce(&Events)) {
    let events = CURRENT.get();
    // SAFETY: the pointer is null, or was set by `during`, which has not returned and borrows the
    // value.
    if let Some(events) = unsafe { events.as_ref() } {
        tell(events);
    }
}

pub(super) unsafe extern "C" fn sent(task: *mut doca_comch_task_send, _: doca_data, _: doca_data) {
    current(|events| events.ended(task, false));
}

pub(super) unsafe extern "C" fn not_sent(task: *mut doca_comch_task_send, _: doca_data, _: doca_data) {
    current(|events| events.ended(task, true));
}

pub(super) unsafe extern "C" fn received(
    _: *mut doca_comch_event_msg_recv,
    buffer: *mut u8,
    len: u32,
    connection: *mut doca_comch_connection,
) {
    let message = if buffer.is_null() {
        Vec::new()
    } else {
        // SAFETY: the SDK passes a pointer to `len` bytes, which are valid while the callback runs.
        unsafe { std::slice::from_raw_parts(buffer, len as usize) }.to_vec()
    };
    current(|events| {
        if events.client.get() {
            events.own(connection);
        }
        let mut peers = events.peers.borrow_mut();
        if let Some(peer) = peers.iter_mut().find(|peer| peer.raw == connection && peer.open) {
            peer.inbox.push_back(message);
        }
    });
}

pub(super) unsafe extern "C" fn connected(
    _: *mut doca_comch_event_connection_status_changed,
    connection: *mut doca_comch_connection,
    successful: u8,
) {
    if successful != 0 {
        current(|events| {
            events.add(connection);
        });
    }
}

pub(super) unsafe extern "C" fn disconnected(
    _: *mut doca_comch_event_connection_status_changed,
    connection: *mut doca_comch_connection,
    _: u8,
) {
    current(|events| {
        let mut peers = events.peers.borrow_mut();
        if let Some(peer) = peers.iter_mut().find(|peer| peer.raw == connection && peer.open) {
            peer.open = false;
        }
    });
}
