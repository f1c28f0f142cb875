//! [`Nic`]: the device. It runs requests while it is polled, checks keys and rights, frees places of the send
//! queue by completions alone, and flushes after a failure.
#![expect(unsafe_code, reason = "copies memory by addresses, as the device does")]

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use verbs_sys::*;

/// `IBV_EVENT_CQ_ERR`.
const EVENT_CQ_ERR: c_int = 0;

/// Locks, also after a panic of another thread.
pub(crate) fn lock(shared: &Mutex<State>) -> MutexGuard<'_, State> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the error number of this thread.
pub(crate) fn set_errno(code: c_int) {
    // SAFETY: takes nothing, and returns the address of this thread's number.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the number belongs to this thread, which lives.
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

/// Settings and state of a device. Programs and tests change it by [`Nic::state`]; the installed library
/// takes some of it from its configuration.
#[derive(Debug)]
pub struct State {
    /// Number of devices in the library's list, all the same.
    pub devices: usize,
    /// The vendor's number, as `ibv_query_device` reports it.
    pub vendor_id: u32,
    /// Maximum number of requests of a queue pair.
    pub max_qp_wr: i32,
    /// Maximum length of a message in bytes.
    pub max_msg_sz: u32,
    /// `IBV_LINK_LAYER_*` of the port.
    pub link_layer: u8,
    /// The port has a GID, of the address 127.0.0.1.
    pub has_gid: bool,
    /// Dma-bufs are registered. A file in memory stands for one.
    pub takes_dmabufs: bool,
    /// The port is down: requests end without an answer.
    pub port_down: bool,
    /// Requests are accepted and never run.
    pub hangs: bool,
    /// Completions are lost.
    pub loses: bool,
    /// On average, one of this many requests fails; 0 for none.
    pub fail_every: u64,
    /// Statuses of the next requests. A request with a status of 0 is executed; the others are only reported.
    pub statuses: VecDeque<i32>,
    /// Error numbers of calls, by their names without `ibv_`.
    pub errors: HashMap<&'static str, i32>,
    /// Number of requests of the next chain that are accepted before one is refused.
    pub refuse_after: Option<usize>,
    /// `IBV_EVENT_*` of the next asynchronous events.
    pub events: VecDeque<c_int>,
    /// Records [`chains`](Self::chains) and [`flags`](Self::flags).
    pub records: bool,
    /// Lengths of all posted chains.
    pub chains: Vec<usize>,
    /// Flags of all posted requests.
    pub flags: Vec<c_uint>,
    /// Number of objects of the library that exist.
    pub objects: usize,
    pub(crate) random: u64,
    pub(crate) keys: u32,
    pub(crate) regions: HashMap<u32, Region>,
    pub(crate) queues: HashMap<u32, Queue>,
    pub(crate) completions: HashMap<u32, Completions>,
}

/// Bytes from an address on, with rights, of a protection domain.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) base: u64,
    /// The first byte.
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
    /// Rights of the peer, and its number.
    pub(crate) access: c_int,
    pub(crate) peer: u32,
    pub(crate) cq: u32,
    pub(crate) depth: u64,
    pub(crate) posted: u64,
    /// Requests whose places are free again.
    pub(crate) retired: u64,
    pub(crate) waiting: VecDeque<(u64, ibv_send_wr, ibv_sge)>,
}

#[derive(Debug)]
pub(crate) struct Completions {
    pub(crate) room: usize,
    pub(crate) armed: bool,
    pub(crate) events: u32,
    pub(crate) signal: c_int,
    /// Each with its queue pair, and the number of requests that it retires.
    pub(crate) entries: VecDeque<(ibv_wc, u32, u64)>,
}

// SAFETY: the pointers within are those of requests, which are not followed.
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
            records: true,
            chains: Vec::new(),
            flags: Vec::new(),
            objects: 0,
            random: 0x9e37_79b9_7f4a_7c15,
            keys: 0,
            regions: HashMap::new(),
            queues: HashMap::new(),
            completions: HashMap::new(),
        })))
    }
}

thread_local! {
    /// The device that the library's list shows to this thread instead of the configured one.
    pub(crate) static LISTED: RefCell<Option<Nic>> = const { RefCell::new(None) };
}

impl Nic {
    /// Makes a device with other settings than the default ones.
    #[must_use]
    pub fn with(set: impl FnOnce(&mut State)) -> Self {
        let nic = Self::default();
        set(&mut nic.state());
        nic
    }

    /// Returns the settings and state. The device waits while the guard exists.
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

    /// Returns the byte at an address, if a region has the key, the bytes and the rights.
    fn granted(&self, pd: usize, key: u32, addr: u64, len: u64, access: c_int) -> Option<*mut u8> {
        let region = self.regions.get(&key)?;
        let inside = addr >= region.base && addr + len <= region.base + region.len;
        let granted = inside && region.pd == pd && region.rights & access == access;
        granted.then(|| region.bytes.wrapping_add((addr - region.base) as usize))
    }

    /// Runs a request, and returns its status.
    fn run_one(&mut self, number: u32, wr: &ibv_send_wr, sge: &ibv_sge) -> c_int {
        let planned = self.statuses.pop_front().filter(|status| *status != 0);
        if let Some(status) = planned {
            return status;
        }
        if self.port_down || (self.fail_every > 0 && self.random().is_multiple_of(self.fail_every)) {
            return wc::NO_ANSWER;
        }
        let len = u64::from(sge.length);
        let (pd, peer) = (self.queues[&number].pd, self.queues[&number].peer);
        let Some(peer) =
            self.queues.get(&peer).filter(|peer| peer.peer == number && peer.state == qp_state::RTS)
        else {
            return wc::NO_ANSWER;
        };
        let reads = wr.opcode == WR_RDMA_READ;
        let (remote, local) =
            if reads { (access::REMOTE_READ, access::LOCAL_WRITE) } else { (access::REMOTE_WRITE, 0) };
        if peer.access & remote == 0 {
            return wc::REMOTE_INVALID;
        }
        let Some(remote) = self.granted(peer.pd, wr.rkey, wr.remote_addr, len, remote) else {
            return wc::REMOTE_ACCESS;
        };
        let Some(local) = self.granted(pd, sge.lkey, sge.addr, len, local) else {
            return wc::PROTECTION;
        };
        let (from, to) = if reads { (remote, local) } else { (local, remote) };
        // SAFETY: both lie within registered regions, which their owners keep mapped until they are
        // deregistered.
        unsafe { ptr::copy(from, to, len as usize) };
        0
    }

    /// Runs up to `most` requests of a completion queue's pairs.
    pub(crate) fn run(&mut self, cq: u32, most: u64) {
        let of_cq = |(number, queue): (&u32, &Queue)| {
            (queue.cq == cq && !queue.waiting.is_empty()).then_some(*number)
        };
        let Some(number) = self.queues.iter().find_map(of_cq) else { return };
        for _ in 0..most {
            let Some(queue) = self.queues.get_mut(&number) else { return };
            let failed = queue.state == qp_state::ERR;
            if self.hangs && !failed {
                return;
            }
            let Some((index, wr, sge)) = queue.waiting.pop_front() else { return };
            let status = if failed { wc::FLUSHED } else { self.run_one(number, &wr, &sge) };
            if status != 0
                && let Some(queue) = self.queues.get_mut(&number)
            {
                queue.state = qp_state::ERR;
            }
            if self.loses || (status == 0 && wr.send_flags & SEND_SIGNALED == 0) {
                continue;
            }
            let entry = ibv_wc { wr_id: wr.wr_id, status, qp_num: number, ..ibv_wc::default() };
            let Some(completions) = self.completions.get_mut(&cq) else { return };
            if completions.entries.len() >= completions.room {
                // The device reports the overflow, and the completion is lost.
                self.events.push_back(EVENT_CQ_ERR);
                return;
            }
            completions.entries.push_back((entry, number, index + 1));
            if std::mem::take(&mut completions.armed) {
                // SAFETY: the channel's file, which is open as long as its completion queue.
                let file = unsafe { std::os::fd::BorrowedFd::borrow_raw(completions.signal) };
                // Fails only for a full counter, which is readable.
                let _ = rustix::io::write(file, &1_u64.to_ne_bytes());
            }
        }
    }
}
