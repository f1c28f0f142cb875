//! [`Nic`]: the device. The device runs requests while it is polled, checks keys and rights, frees places of
//! the send queue only by completions, and flushes requests after a failure.
#![expect(unsafe_code, reason = "copies memory by addresses, as the device does")]

mod execution;

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrayvec::ArrayVec;
use verbs_sys::*;

use crate::network::{Job, Node, Request};

/// The only GID, at index 1.
pub(crate) const GID: ibv_gid = ibv_gid { raw: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1] };

/// Locks the mutex, even if another thread has panicked while holding it.
pub(crate) fn lock(shared: &Mutex<State>) -> MutexGuard<'_, State> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the error number of this thread.
pub(crate) fn set_errno(code: c_int) {
    // SAFETY: the call has no requirements, and returns the address of this thread's error number.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the error number belongs to this thread, which is running.
    unsafe { *errno = code };
}

/// `IBV_WC_*` statuses.
pub mod wc {
    /// `IBV_WC_LOC_LEN_ERR`.
    pub const LENGTH: i32 = 1;
    /// `IBV_WC_LOC_PROT_ERR`.
    pub const PROTECTION: i32 = 4;
    /// `IBV_WC_WR_FLUSH_ERR`.
    pub const FLUSHED: i32 = 5;
    /// `IBV_WC_REM_INV_REQ_ERR`.
    pub const REMOTE_INVALID: i32 = 9;
    /// `IBV_WC_REM_ACCESS_ERR`.
    pub const REMOTE_ACCESS: i32 = 10;
    /// `IBV_WC_REM_OP_ERR`.
    pub const REMOTE_FAILED: i32 = 11;
    /// `IBV_WC_RETRY_EXC_ERR`.
    pub const NO_ANSWER: i32 = 12;
    /// `IBV_WC_RNR_RETRY_EXC_ERR`.
    pub const NOT_READY: i32 = 13;
}

/// Settings and state of a device. Tests change them through [`Nic::state`]; the installed library reads some
/// settings from its configuration.
#[derive(Debug, Default)]
pub struct State {
    /// Number of identical devices in the library's list.
    pub devices: usize,
    /// The vendor's number, as `ibv_query_device` reports it.
    pub vendor_id: u32,
    /// Maximum number of requests of a queue pair.
    pub max_qp_wr: i32,
    /// Maximum length of a message in bytes.
    pub max_msg_sz: u32,
    /// `IBV_LINK_LAYER_*` of the port.
    pub link_layer: u8,
    /// True if the port has a GID, with the address 127.0.0.1.
    pub has_gid: bool,
    /// True if dma-bufs can be registered. A file in memory represents a dma-buf.
    pub takes_dmabufs: bool,
    /// True if the port is down: requests end without an answer.
    pub port_down: bool,
    /// True if requests are accepted but never run.
    pub hangs: bool,
    /// True if completions are lost.
    pub loses: bool,
    /// On average, one of this many requests fails; 0 for none.
    pub fail_every: u64,
    /// Statuses of the next requests. A request with the status 0 is executed. For others, the status is
    /// reported without execution.
    pub statuses: VecDeque<i32>,
    /// Error numbers that calls return, by their names without `ibv_`.
    pub errors: HashMap<&'static str, i32>,
    /// Number of requests of the next chain that are accepted before one is refused.
    pub refuse_after: Option<usize>,
    /// True if queue pairs reach those of other stand-in devices, including devices of other processes.
    pub is_networked: bool,
    /// True if [`chains`](Self::chains) and [`flags`](Self::flags) are recorded.
    pub records: bool,
    /// Lengths of all posted chains.
    pub chains: Vec<usize>,
    /// Flags of all posted requests.
    pub flags: Vec<c_uint>,
    /// Number of objects of the library that exist.
    pub objects: usize,
    /// Asynchronous events: `IBV_EVENT_*`, and the address of the object that the event is about.
    pub(crate) events: VecDeque<(c_int, usize)>,
    /// Files that count the asynchronous events, one for each context.
    pub(crate) event_files: Vec<c_int>,
    pub(crate) random: u64,
    pub(crate) keys: u32,
    /// The device's entry among the machine's devices, once there is a queue pair.
    pub(crate) node: Option<Node>,
    pub(crate) regions: HashMap<u32, Region>,
    pub(crate) queues: HashMap<u32, Queue>,
    pub(crate) shared_receives: HashMap<u32, SharedReceives>,
    pub(crate) completions: HashMap<u32, Completions>,
    /// Requests that got no answer from another device, in the order of their attempts. They are not reported
    /// yet.
    pub(crate) unanswered: VecDeque<Job>,
    /// Number of receives that other devices know to have ended, and whose completions are not in a queue
    /// yet.
    pub(crate) undelivered: usize,
}

/// A registered range of addresses, with its rights and protection domain.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) base: u64,
    /// Pointer to the first byte.
    pub(crate) bytes: *mut u8,
    /// The mapping of a dma-buf: start and length.
    pub(crate) mapping: Option<(*mut c_void, usize)>,
    pub(crate) len: u64,
    pub(crate) rights: c_int,
    pub(crate) pd: usize,
}

/// A queue pair.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) pd: usize,
    /// `IBV_QPT_*`.
    pub(crate) qp_type: c_int,
    /// The attributes that were set so far, with the state, the peer (`dest_qp_num`) and the peer's rights
    /// (`qp_access_flags`).
    pub(crate) attr: ibv_qp_attr,
    pub(crate) send_cq: u32,
    pub(crate) recv_cq: u32,
    /// The shared receive queue, if the queue pair has no receive queue of its own.
    pub(crate) srq: Option<u32>,
    /// True if all requests make completions.
    pub(crate) signals_all: bool,
    pub(crate) posted: u64,
    /// Number of requests whose places are free again.
    pub(crate) retired: u64,
    pub(crate) resets: u64,
    /// True while a request is at another device. Later requests wait.
    pub(crate) is_asking: bool,
    pub(crate) waiting: VecDeque<SendRequest>,
    pub(crate) receives: VecDeque<Receive>,
}

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct SharedReceives {
    /// Address of the structure that the program has.
    pub(crate) public: usize,
    pub(crate) pd: usize,
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    /// When fewer receives than this number remain, an event is reported once.
    pub(crate) limit: u32,
    pub(crate) receives: VecDeque<Receive>,
}

/// A request of a send queue.
#[derive(Debug)]
pub(crate) struct SendRequest {
    /// Number of requests that were posted before this one.
    pub(crate) index: u64,
    pub(crate) wr_id: u64,
    pub(crate) flags: c_uint,
    pub(crate) pieces: Pieces,
    /// The bytes of a request with `SEND_INLINE`, instead of pieces.
    pub(crate) inline: Option<Vec<u8>>,
    /// The request that the peer gets.
    pub(crate) remote: Request,
    /// Number of attempts that found no receive at the peer.
    pub(crate) unready: u8,
}

/// A request of a receive queue.
#[derive(Debug)]
pub(crate) struct Receive {
    pub(crate) wr_id: u64,
    pub(crate) pieces: Pieces,
}

/// Maximum number of pieces of a request.
pub(crate) const MAX_SGE: usize = 16;

/// The pieces of a request. Real devices allocate nothing for a request, so the stand-in does not, either.
pub(crate) type Pieces = ArrayVec<ibv_sge, MAX_SGE>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Armed {
    No,
    Solicited,
    Any,
}

#[derive(Debug)]
pub(crate) struct Completions {
    /// Address of the structure that the program has.
    pub(crate) public: usize,
    pub(crate) room: usize,
    pub(crate) armed: Armed,
    /// Number of events that the program has not taken yet.
    pub(crate) pending: u32,
    /// Number of events that the program has taken and not acknowledged yet.
    pub(crate) events: u32,
    pub(crate) signal: c_int,
    /// Completions, each with its queue pair, and with the number of requests whose places are free once this
    /// completion is polled.
    pub(crate) entries: VecDeque<(ibv_wc, u32, u64)>,
}

// SAFETY: the pointers of regions are to memory that any thread may access while it is registered.
unsafe impl Send for State {}

pub(crate) type Shared = Arc<Mutex<State>>;

/// An RDMA device with one port. Clones are the same device.
#[derive(Clone, Debug)]
pub struct Nic(pub(crate) Shared);

impl Default for Nic {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State {
            devices: 1,
            vendor_id: 0x02c9,
            max_qp_wr: 300,
            max_msg_sz: 1 << 30,
            link_layer: LINK_LAYER_ETHERNET,
            has_gid: true,
            takes_dmabufs: true,
            records: true,
            random: 0x9e37_79b9_7f4a_7c15,
            ..State::default()
        })))
    }
}

thread_local! {
    /// The device that the library's list shows to this thread, instead of the configured device.
    pub(crate) static LISTED: RefCell<Option<Nic>> = const { RefCell::new(None) };
}

impl Nic {
    /// Makes a device with these settings.
    #[must_use]
    pub fn with(set: impl FnOnce(&mut State)) -> Self {
        let nic = Self::default();
        set(&mut nic.state());
        nic
    }

    /// Returns a guard of the settings and state. The device waits while the guard exists.
    pub fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }
}

impl State {
    pub(crate) fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Returns the error number that was set for a call, if any. Also sets the thread's error number.
    pub(crate) fn error(&self, call: &str) -> Option<c_int> {
        let code = *self.errors.get(call)?;
        set_errno(code);
        Some(code)
    }

    /// Reports an asynchronous event, `IBV_EVENT_*`, to the open contexts.
    pub fn emit(&mut self, event: c_int) {
        self.emit_about(event, 0);
    }

    fn emit_about(&mut self, event: c_int, public: usize) {
        for file in &self.event_files {
            signal(*file);
        }
        if !self.event_files.is_empty() {
            self.events.push_back((event, public));
        }
    }
}

/// Counts an event in an eventfd.
fn signal(file: c_int) {
    // SAFETY: the file is open as long as its context, or its channel with the completion queues.
    let file = unsafe { std::os::fd::BorrowedFd::borrow_raw(file) };
    // The write fails only if the counter is full, and then the file is readable.
    let _ = rustix::io::write(file, &1_u64.to_ne_bytes());
}
