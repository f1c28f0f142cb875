//! What the SDK calls while an endpoint progresses.
#![expect(unsafe_code, reason = "called by C")]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use doca_sys::bindings::*;

/// What callbacks have told an endpoint. They run inside of its calls, on its thread, and find it there: not every version lets them
/// ask a connection for it.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) peers: RefCell<Vec<Peer>>,
    pub(super) sends: RefCell<Vec<Outgoing>>,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) raw: *mut doca_comch_connection,
    /// Tells it from an earlier one at the same address.
    pub(super) number: u64,
    pub(super) inbox: VecDeque<Vec<u8>>,
    pub(super) open: bool,
    pub(super) accepted: bool,
}

/// A message on its way. The device reads it until its task ends.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) number: u64,
    pub(super) task: *mut doca_task,
    /// The same, as its callbacks have it.
    pub(super) send: *mut doca_comch_task_send,
    pub(super) _message: Box<[u8]>,
    /// How it ended, once it has.
    pub(super) end: Option<doca_error_t>,
    /// Nobody waits for it any more.
    pub(super) abandoned: bool,
    pub(super) status: unsafe extern "C" fn(*const doca_task) -> doca_error_t,
    pub(super) free: unsafe extern "C" fn(*mut doca_task),
}

thread_local! {
    static CURRENT: Cell<*const Told> = const { Cell::new(std::ptr::null()) };
}

impl Told {
    /// Runs `call`, whose callbacks tell this value.
    pub(super) fn during<T>(&self, call: impl FnOnce() -> T) -> T {
        let before = CURRENT.replace(self);
        let result = call();
        CURRENT.set(before);
        result
    }

    /// The number for something new.
    pub(super) fn number() -> u64 {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }

    /// A connection that has come.
    pub(super) fn add(&self, raw: *mut doca_comch_connection) -> u64 {
        let number = Self::number();
        let peer = Peer { raw, number, inbox: VecDeque::new(), open: true, accepted: false };
        self.peers.borrow_mut().push(peer);
        number
    }

    /// The task of a message has ended.
    fn ended(&self, task: *mut doca_comch_task_send, failed: bool) {
        let mut sends = self.sends.borrow_mut();
        let Some(at) = sends.iter().position(|send| send.send == task && send.end.is_none()) else { return };
        let send = &mut sends[at];
        // SAFETY: a task that has ended, which this callback is about.
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

/// What the callback that runs now is to tell.
fn current(tell: impl FnOnce(&Told)) {
    let told = CURRENT.get();
    // SAFETY: null, or set by `during`, which has not returned.
    if let Some(told) = unsafe { told.as_ref() } {
        tell(told);
    }
}

pub(super) unsafe extern "C" fn sent(task: *mut doca_comch_task_send, _: doca_data, _: doca_data) {
    current(|told| told.ended(task, false));
}

pub(super) unsafe extern "C" fn not_sent(task: *mut doca_comch_task_send, _: doca_data, _: doca_data) {
    current(|told| told.ended(task, true));
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
        // SAFETY: a message lies there for as long as the callback runs.
        unsafe { std::slice::from_raw_parts(buffer, len as usize) }.to_vec()
    };
    current(|told| {
        let mut peers = told.peers.borrow_mut();
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
        current(|told| {
            told.add(connection);
        });
    }
}

pub(super) unsafe extern "C" fn disconnected(
    _: *mut doca_comch_event_connection_status_changed,
    connection: *mut doca_comch_connection,
    _: u8,
) {
    current(|told| {
        let mut peers = told.peers.borrow_mut();
        if let Some(peer) = peers.iter_mut().find(|peer| peer.raw == connection && peer.open) {
            peer.open = false;
        }
    });
}
