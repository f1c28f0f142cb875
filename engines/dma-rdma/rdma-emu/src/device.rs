//! [`Nic`]: the device. The device runs requests while it is polled, checks keys and rights, frees places of
//! the send queue only by completions, and flushes requests after a failure.
#![expect(unsafe_code, reason = "copies memory by addresses, as the device does")]

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use verbs_sys::*;

use crate::network::{Job, Node, Request};

/// `IBV_EVENT_CQ_ERR`.
const EVENT_CQ_ERR: c_int = 0;

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
    /// `IBV_WC_LOC_PROT_ERR`.
    pub const PROTECTION: i32 = 4;
    /// `IBV_WC_WR_FLUSH_ERR`.
    pub const FLUSHED: i32 = 5;
    /// `IBV_WC_REM_INV_REQ_ERR`.
    pub const REMOTE_INVALID: i32 = 9;
    /// `IBV_WC_REM_ACCESS_ERR`.
    pub const REMOTE_ACCESS: i32 = 10;
    /// `IBV_WC_RETRY_EXC_ERR`.
    pub const NO_ANSWER: i32 = 12;
}

/// Settings and state of a device. Tests change them through [`Nic::state`]; the installed library reads some
/// settings from its configuration.
#[derive(Debug)]
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
    /// `IBV_EVENT_*` of the next asynchronous events.
    pub events: VecDeque<c_int>,
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
    pub(crate) random: u64,
    pub(crate) keys: u32,
    /// The device's entry among the machine's devices, once there is a queue pair.
    pub(crate) node: Option<Node>,
    pub(crate) regions: HashMap<u32, Region>,
    pub(crate) queues: HashMap<u32, Queue>,
    pub(crate) completions: HashMap<u32, Completions>,
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

#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) state: c_int,
    pub(crate) pd: usize,
    /// Rights of the peer (`access`), and number of the peer's queue pair (`peer`).
    pub(crate) access: c_int,
    pub(crate) peer: u32,
    pub(crate) cq: u32,
    pub(crate) depth: u64,
    pub(crate) posted: u64,
    /// Number of requests whose places are free again.
    pub(crate) retired: u64,
    /// Time limit for an answer of another device.
    pub(crate) patience: Duration,
    pub(crate) resets: u64,
    /// True while a request is at another device. Later requests wait.
    pub(crate) is_asking: bool,
    pub(crate) waiting: VecDeque<(u64, ibv_send_wr, ibv_sge)>,
}

#[derive(Debug)]
pub(crate) struct Completions {
    pub(crate) room: usize,
    pub(crate) armed: bool,
    pub(crate) events: u32,
    pub(crate) signal: c_int,
    /// Completions, each with its queue pair, and with the number of requests whose places are free once this
    /// completion is polled.
    pub(crate) entries: VecDeque<(ibv_wc, u32, u64)>,
}

// SAFETY: the pointers of regions are to memory that any thread may access while it is registered. The
// pointers of requests are not dereferenced.
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
            port_down: false,
            hangs: false,
            loses: false,
            fail_every: 0,
            statuses: VecDeque::new(),
            errors: HashMap::new(),
            refuse_after: None,
            events: VecDeque::new(),
            is_networked: false,
            records: true,
            chains: Vec::new(),
            flags: Vec::new(),
            objects: 0,
            random: 0x9e37_79b9_7f4a_7c15,
            keys: 0,
            node: None,
            regions: HashMap::new(),
            queues: HashMap::new(),
            completions: HashMap::new(),
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

    /// Returns the table of the library's calls, whose list shows this device to this thread.
    #[must_use]
    pub fn verbs(&self) -> Verbs {
        LISTED.set(Some(self.clone()));
        crate::calls::TABLE
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

    /// Returns a pointer to the byte at an address, if a region has the key, the bytes and the rights.
    fn granted(&self, pd: usize, key: u32, addr: u64, len: u64, access: c_int) -> Option<*mut u8> {
        let region = self.regions.get(&key)?;
        let inside = addr >= region.base && addr + len <= region.base + region.len;
        let granted = inside && region.pd == pd && region.rights & access == access;
        granted.then(|| region.bytes.wrapping_add((addr - region.base) as usize))
    }

    /// Returns the status of the next request if the request must not be run.
    fn planned_status(&mut self) -> Option<c_int> {
        let planned = self.statuses.pop_front().filter(|status| *status != 0);
        if planned.is_some() {
            return planned;
        }
        let fails = self.port_down || (self.fail_every > 0 && self.random().is_multiple_of(self.fail_every));
        fails.then_some(wc::NO_ANSWER)
    }

    /// Runs a request to a queue pair of this device, and returns its status.
    fn run_one(&self, number: u32, wr: &ibv_send_wr, sge: &ibv_sge) -> c_int {
        let len = u64::from(sge.length);
        let (pd, to) = (self.queues[&number].pd, self.queues[&number].peer);
        let reads = wr.opcode == WR_RDMA_READ;
        let request = Request { reads, to, from: number, rkey: wr.rkey, addr: wr.remote_addr, len };
        let remote = match self.remote(&request) {
            Ok(remote) => remote,
            Err(status) => return status,
        };
        let Some(local) = self.granted(pd, sge.lkey, sge.addr, len, local_rights(reads)) else {
            return wc::PROTECTION;
        };
        let (from, to) = if reads { (remote, local) } else { (local, remote) };
        // SAFETY: both ranges are within registered regions, which their owners keep mapped until they are
        // deregistered.
        unsafe { ptr::copy(from, to, len as usize) };
        0
    }

    /// Returns the first byte that a request of another queue pair names, or the request's status.
    fn remote(&self, request: &Request) -> Result<*mut u8, c_int> {
        let &Request { reads, to, from, rkey, addr, len } = request;
        let connected = |queue: &&Queue| queue.peer == from && queue.state == qp_state::RTS;
        let queue = self.queues.get(&to).filter(connected).ok_or(wc::NO_ANSWER)?;
        let rights = if reads { access::REMOTE_READ } else { access::REMOTE_WRITE };
        if queue.access & rights == 0 {
            return Err(wc::REMOTE_INVALID);
        }
        self.granted(queue.pd, rkey, addr, len, rights).ok_or(wc::REMOTE_ACCESS)
    }

    /// Answers a request of another device: copies to or from `bytes`, and returns the status.
    pub(crate) fn answer(&self, request: &Request, bytes: &mut [u8]) -> c_int {
        if self.port_down || self.hangs {
            return wc::NO_ANSWER;
        }
        let memory = match self.remote(request) {
            Ok(memory) => memory,
            Err(status) => return status,
        };
        let ours = bytes.as_mut_ptr();
        let (from, to) = if request.reads { (memory, ours) } else { (ours, memory) };
        // SAFETY: the memory lies within a registered region, which its owner keeps mapped until it is
        // deregistered. `bytes` has the request's length.
        unsafe { ptr::copy(from, to, bytes.len()) };
        0
    }

    /// Sends a request to another device. An error is the request's status, if it is already known.
    fn ask(&mut self, number: u32, (index, wr, sge): (u64, ibv_send_wr, ibv_sge)) -> Result<(), c_int> {
        let (len, reads) = (u64::from(sge.length), wr.opcode == WR_RDMA_READ);
        let &Queue { pd, peer: to, patience, resets, .. } = &self.queues[&number];
        let local = self.granted(pd, sge.lkey, sge.addr, len, local_rights(reads)).ok_or(wc::PROTECTION)?;
        let mut bytes = Vec::new();
        if !reads {
            bytes.resize(len as usize, 0);
            // SAFETY: the memory lies within a registered region, which its owner keeps mapped until it is
            // deregistered. `bytes` has the request's length.
            unsafe { ptr::copy(local, bytes.as_mut_ptr(), bytes.len()) };
        }
        let request = Request { reads, to, from: number, rkey: wr.rkey, addr: wr.remote_addr, len };
        let node = self.node.as_mut().ok_or(wc::NO_ANSWER)?;
        let sent = node.send(Job { request, bytes, patience, resets, index, wr, sge });
        sent.map_err(|_| wc::NO_ANSWER)?;
        self.queues.entry(number).and_modify(|queue| queue.is_asking = true);
        Ok(())
    }

    /// Ends a request that another device has answered.
    pub(crate) fn finish(&mut self, job: &Job, mut status: c_int) {
        let (number, reads) = (job.request.from, job.request.reads);
        let Some(queue) = self.queues.get_mut(&number).filter(|queue| queue.resets == job.resets) else {
            return;
        };
        queue.is_asking = false;
        let (pd, cq) = (queue.pd, queue.cq);
        if status == 0 && reads {
            match self.granted(pd, job.sge.lkey, job.sge.addr, job.request.len, local_rights(reads)) {
                // SAFETY: the memory lies within a registered region, which its owner keeps mapped until it
                // is deregistered. `bytes` has the request's length.
                Some(local) => unsafe { ptr::copy(job.bytes.as_ptr(), local, job.bytes.len()) },
                None => status = wc::PROTECTION,
            }
        }
        self.complete(cq, number, (job.index, &job.wr), status);
        if self.completions.get(&cq).is_some_and(|completions| completions.armed) {
            self.run(cq, u64::MAX);
        }
    }

    /// Runs up to `most` requests of a completion queue's pairs.
    pub(crate) fn run(&mut self, cq: u32, most: u64) {
        let of_cq = |(number, queue): (&u32, &Queue)| {
            let is_ready = queue.cq == cq && !queue.waiting.is_empty() && !queue.is_asking;
            is_ready.then_some(*number)
        };
        let Some(number) = self.queues.iter().find_map(of_cq) else { return };
        for _ in 0..most {
            let Some(queue) = self.queues.get_mut(&number) else { return };
            let failed = queue.state == qp_state::ERR;
            if self.hangs && !failed {
                return;
            }
            let peer = queue.peer;
            let Some((index, wr, sge)) = queue.waiting.pop_front() else { return };
            let is_foreign = self.node.as_ref().is_some_and(|node| node.is_foreign(peer));
            let status = if failed {
                wc::FLUSHED
            } else if let Some(status) = self.planned_status() {
                status
            } else if is_foreign {
                match self.ask(number, (index, wr, sge)) {
                    Ok(()) => return,
                    Err(status) => status,
                }
            } else {
                self.run_one(number, &wr, &sge)
            };
            if !self.complete(cq, number, (index, &wr), status) {
                return;
            }
        }
    }

    /// Ends a request. Returns false if the completion queue overflows or does not exist.
    fn complete(&mut self, cq: u32, number: u32, (index, wr): (u64, &ibv_send_wr), status: c_int) -> bool {
        if status != 0
            && let Some(queue) = self.queues.get_mut(&number)
        {
            queue.state = qp_state::ERR;
        }
        if self.loses || (status == 0 && wr.send_flags & SEND_SIGNALED == 0) {
            return true;
        }
        let entry = ibv_wc { wr_id: wr.wr_id, status, qp_num: number, ..ibv_wc::default() };
        let Some(completions) = self.completions.get_mut(&cq) else { return false };
        if completions.entries.len() >= completions.room {
            // Like a real device, the stand-in reports the overflow by an event, and loses the completion.
            self.events.push_back(EVENT_CQ_ERR);
            return false;
        }
        completions.entries.push_back((entry, number, index + 1));
        if std::mem::take(&mut completions.armed) {
            // SAFETY: the channel's file is open as long as its completion queue.
            let file = unsafe { std::os::fd::BorrowedFd::borrow_raw(completions.signal) };
            // The write fails only if the counter is full, and then the file is readable.
            let _ = rustix::io::write(file, &1_u64.to_ne_bytes());
        }
        true
    }
}

/// Returns the rights that a request needs for the memory of its own side.
const fn local_rights(reads: bool) -> c_int {
    if reads { access::LOCAL_WRITE } else { 0 }
}
