//! An RDMA device of the tests, behind the table of verbs: it runs requests while it is polled, checks keys
//! and rights, frees places of the send queue by completions alone, and flushes after a failure.
#![expect(unsafe_code, reason = "implements C's calls on memory, as the device does")]

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::event::{EventfdFlags, eventfd};

use crate::verbs::*;
use crate::{RdmaEngine, RdmaOptions};

/// `IBV_WC_*` statuses.
pub(crate) mod wc {
    pub(crate) const PROTECTION: i32 = 4;
    pub(crate) const FLUSHED: i32 = 5;
    pub(crate) const REMOTE_INVALID: i32 = 9;
    pub(crate) const REMOTE_ACCESS: i32 = 10;
    pub(crate) const NO_ANSWER: i32 = 12;
}

/// Settings and state of a device.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) devices: usize,
    pub(crate) vendor_id: u32,
    pub(crate) max_qp_wr: i32,
    pub(crate) max_msg_sz: u32,
    pub(crate) link_layer: u8,
    pub(crate) has_gid: bool,
    /// Dma-bufs are registered; a file in memory stands for one.
    pub(crate) takes_dmabufs: bool,
    pub(crate) port_down: bool,
    /// Requests are taken and never run.
    pub(crate) hangs: bool,
    /// Completions are lost.
    pub(crate) loses: bool,
    /// One of so many requests fails; 0 for none.
    pub(crate) fail_every: u64,
    /// Statuses of the next requests, instead of running them; 0 runs one.
    pub(crate) statuses: VecDeque<i32>,
    /// The answers to the calls of these names.
    pub(crate) errors: HashMap<&'static str, i32>,
    /// Requests of the next chain that are taken before one is refused.
    pub(crate) refuse_after: Option<usize>,
    pub(crate) events: VecDeque<c_int>,
    /// Lengths of the chains, and flags of all requests.
    pub(crate) chains: Vec<usize>,
    pub(crate) flags: Vec<c_uint>,
    /// Objects that exist.
    pub(crate) objects: usize,
    random: u64,
    keys: u32,
    regions: HashMap<u32, Region>,
    queues: HashMap<u32, Queue>,
    completions: HashMap<u32, Completions>,
}

/// Bytes from an address on, with rights, of a protection domain.
#[derive(Debug)]
struct Region {
    base: u64,
    /// The first byte.
    bytes: *mut u8,
    /// The mapping of a dma-buf: start and length.
    mapping: Option<(*mut c_void, usize)>,
    len: u64,
    rights: c_int,
    pd: usize,
}

#[derive(Debug)]
struct Queue {
    state: c_int,
    pd: usize,
    /// Rights of the peer, and its number.
    access: c_int,
    peer: u32,
    cq: u32,
    depth: u64,
    posted: u64,
    /// Requests whose places are free again.
    retired: u64,
    waiting: VecDeque<(u64, ibv_send_wr, ibv_sge)>,
}

#[derive(Debug)]
struct Completions {
    room: usize,
    armed: bool,
    events: u32,
    signal: c_int,
    /// Each with its queue pair, and the number of requests that it retires.
    entries: VecDeque<(ibv_wc, u32, u64)>,
}

// SAFETY: the pointers within are those of requests, which are not followed.
unsafe impl Send for State {}

type Shared = Arc<Mutex<State>>;

/// A device.
#[derive(Clone, Debug)]
pub(crate) struct Fake(Shared);

impl Default for Fake {
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
    /// The device that the library's list of this thread shows.
    static LISTED: RefCell<Option<Shared>> = const { RefCell::new(None) };
}

impl Fake {
    pub(crate) fn with(set: impl FnOnce(&mut State)) -> Self {
        let fake = Self::default();
        set(&mut fake.state());
        fake
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// The table, whose list shows this device to this thread.
    pub(crate) fn verbs(&self) -> Verbs {
        LISTED.set(Some(Arc::clone(&self.0)));
        TABLE
    }

    pub(crate) fn open_with(&self, options: &RdmaOptions) -> dma_core::Result<RdmaEngine> {
        RdmaEngine::with(&self.verbs(), options)
    }

    pub(crate) fn open(&self) -> RdmaEngine {
        self.open_with(&RdmaOptions::new()).unwrap()
    }
}

impl State {
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// The answer that was set for a call; sets the error number, too.
    fn error(&self, call: &str) -> Option<c_int> {
        let code = *self.errors.get(call)?;
        // SAFETY: takes nothing.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: this thread's number.
        unsafe { *errno = code };
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
        // SAFETY: within registered regions, which stay mapped; the tests' descriptors are valid.
        unsafe { ptr::copy(from, to, len as usize) };
        0
    }

    /// Runs up to `most` requests of a completion queue's pairs.
    fn run(&mut self, cq: u32, most: u64) {
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
            assert!(completions.entries.len() < completions.room, "the completion queue overflows");
            completions.entries.push_back((entry, number, index + 1));
            if std::mem::take(&mut completions.armed) {
                // SAFETY: the channel's file, which is open as long as its completion queue.
                let file = unsafe { std::os::fd::BorrowedFd::borrow_raw(completions.signal) };
                rustix::io::write(file, &1_u64.to_ne_bytes()).unwrap();
            }
        }
    }
}

#[repr(C)]
struct FakeContext {
    public: ibv_context,
    state: Shared,
    events: OwnedFd,
}

#[repr(C)]
struct FakeChannel {
    public: ibv_comp_channel,
    state: Shared,
    signal: OwnedFd,
}

struct FakeDevice {
    name: CString,
    state: Shared,
}

/// The state behind a context.
fn state_of(context: *mut ibv_context) -> Shared {
    // SAFETY: contexts are made by `open_device`.
    unsafe { Arc::clone(&(*context.cast::<FakeContext>()).state) }
}

/// Moves an object to C, and counts it.
fn give<T>(state: &mut State, object: T) -> *mut T {
    state.objects += 1;
    Box::into_raw(Box::new(object))
}

/// Takes an object back from C.
unsafe fn take<T>(state: &mut State, object: *mut T) {
    state.objects -= 1;
    // SAFETY: made by `give`.
    drop(unsafe { Box::from_raw(object) });
}

unsafe extern "C" fn get_device_list(number: *mut c_int) -> *mut *mut ibv_device {
    let state = LISTED.with_borrow(Clone::clone).unwrap();
    if state.lock().unwrap().error("get_device_list").is_some() {
        return ptr::null_mut();
    }
    let count = state.lock().unwrap().devices;
    let device =
        |n| FakeDevice { name: CString::new(format!("fake{n}")).unwrap(), state: Arc::clone(&state) };
    let mut list: Vec<*mut ibv_device> =
        (0..count).map(|n| Box::into_raw(Box::new(device(n))).cast()).collect();
    list.push(ptr::null_mut());
    // SAFETY: the caller's number.
    unsafe { *number = count as c_int };
    Box::into_raw(list.into_boxed_slice()).cast()
}

unsafe extern "C" fn free_device_list(list: *mut *mut ibv_device) {
    let mut len = 0;
    loop {
        // SAFETY: the list ends with NULL.
        let place = unsafe { list.add(len) };
        len += 1;
        // SAFETY: as above.
        let device = unsafe { *place };
        if device.is_null() {
            break;
        }
        // SAFETY: made by `get_device_list`.
        drop(unsafe { Box::from_raw(device.cast::<FakeDevice>()) });
    }
    // SAFETY: as above.
    drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(list, len)) });
}

unsafe extern "C" fn get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: made by `get_device_list`.
    unsafe { (*device.cast::<FakeDevice>()).name.as_ptr() }
}

unsafe extern "C" fn open_device(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: made by `get_device_list`.
    let state = unsafe { Arc::clone(&(*device.cast::<FakeDevice>()).state) };
    let mut locked = state.lock().unwrap();
    if locked.error("open_device").is_some() {
        return ptr::null_mut();
    }
    let events = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let ops = ibv_context_ops {
        before: [ptr::null(); 11],
        poll_cq: Some(poll_cq),
        req_notify_cq: Some(req_notify_cq),
        between: [ptr::null(); 12],
        post_send: Some(post_send),
        behind: [ptr::null(); 6],
    };
    let public = ibv_context { device, ops, cmd_fd: -1, async_fd: events.as_raw_fd() };
    let state = Arc::clone(&state);
    give(&mut locked, FakeContext { public, state, events }).cast()
}

unsafe extern "C" fn close_device(context: *mut ibv_context) -> c_int {
    let state = state_of(context);
    let context = context.cast::<FakeContext>();
    // SAFETY: made by `open_device`.
    assert_eq!(unsafe { (*context).events.as_raw_fd() }, unsafe { (*context).public.async_fd });
    // SAFETY: as above.
    unsafe { take(&mut state.lock().unwrap(), context) };
    0
}

unsafe extern "C" fn query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int {
    let state = state_of(context);
    let state = state.lock().unwrap();
    // SAFETY: the caller's properties, all numbers.
    let attr = unsafe { &mut *attr };
    attr.fw_ver[0] = b'7' as c_char;
    attr.vendor_id = state.vendor_id;
    attr.max_mr_size = 1 << 40;
    attr.max_qp = 64;
    attr.max_qp_wr = state.max_qp_wr;
    attr.max_cqe = 1000;
    attr.max_qp_rd_atom = 16;
    attr.max_qp_init_rd_atom = 16;
    attr.phys_port_cnt = 1;
    0
}

unsafe extern "C" fn query_port(context: *mut ibv_context, port: u8, attr: *mut ibv_port_attr) -> c_int {
    let state = state_of(context);
    let state = state.lock().unwrap();
    if port != 1 {
        return libc::EINVAL;
    }
    let found = ibv_port_attr {
        state: if state.port_down { 1 } else { PORT_ACTIVE },
        max_mtu: 4,
        active_mtu: 3,
        gid_tbl_len: 3,
        max_msg_sz: state.max_msg_sz,
        lid: 5,
        link_layer: state.link_layer,
        ..ibv_port_attr::default()
    };
    // SAFETY: the caller's properties.
    unsafe { *attr = found };
    0
}

/// The only GID, at index 1.
const GID: ibv_gid = ibv_gid { raw: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1] };

unsafe extern "C" fn query_gid(
    context: *mut ibv_context,
    _port: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    let set = state_of(context).lock().unwrap().has_gid && index == 1;
    // SAFETY: the caller's GID.
    unsafe { *gid = if set { GID } else { ibv_gid::default() } };
    if index < 3 { 0 } else { -1 }
}

unsafe extern "C" fn get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int {
    let Some(event_type) = state_of(context).lock().unwrap().events.pop_front() else { return -1 };
    // SAFETY: the caller's event.
    unsafe { (*event).event_type = event_type };
    0
}

unsafe extern "C" fn ack_async_event(_event: *mut ibv_async_event) {}

/// A protection domain is a pointer to its context.
unsafe extern "C" fn alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    let state = state_of(context);
    let mut state = state.lock().unwrap();
    if state.error("alloc_pd").is_some() {
        return ptr::null_mut();
    }
    give(&mut state, context).cast()
}

fn context_of(pd: *mut ibv_pd) -> *mut ibv_context {
    // SAFETY: made by `alloc_pd`.
    unsafe { *pd.cast() }
}

unsafe extern "C" fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    let state = state_of(context_of(pd));
    let mut state = state.lock().unwrap();
    let addr = pd.addr();
    if state.regions.values().any(|region| region.pd == addr) || state.queues.values().any(|q| q.pd == addr) {
        return libc::EBUSY;
    }
    // SAFETY: made by `alloc_pd`.
    unsafe { take(&mut state, pd.cast::<*mut ibv_context>()) };
    0
}

unsafe extern "C" fn reg_mr(pd: *mut ibv_pd, addr: *mut c_void, len: usize, access: c_int) -> *mut ibv_mr {
    let state = state_of(context_of(pd));
    let mut state = state.lock().unwrap();
    if state.error("reg_mr").is_some() {
        return ptr::null_mut();
    }
    registered(&mut state, pd, (addr as u64, addr.cast()), len, access, None)
}

fn registered(
    state: &mut State,
    pd: *mut ibv_pd,
    (base, bytes): (u64, *mut u8),
    len: usize,
    access: c_int,
    mapping: Option<(*mut c_void, usize)>,
) -> *mut ibv_mr {
    state.keys += 2;
    let (lkey, rkey) = (state.keys, state.keys + 1);
    assert!(access & access::REMOTE_WRITE == 0 || access & access::LOCAL_WRITE != 0, "C's call refuses that");
    let remote = access::REMOTE_READ | access::REMOTE_WRITE;
    for (key, rights) in [(lkey, access & access::LOCAL_WRITE), (rkey, access & remote)] {
        let region = Region { base, bytes, mapping, len: len as u64, rights, pd: pd.addr() };
        state.regions.insert(key, region);
    }
    let (context, addr) = (context_of(pd), ptr::without_provenance_mut(base as usize));
    give(state, ibv_mr { context, pd, addr, length: len, handle: 0, lkey, rkey })
}

/// Maps the file that stands for a dma-buf. The process has nothing at the addresses by which it is named.
unsafe extern "C" fn reg_dmabuf_mr(
    pd: *mut ibv_pd,
    offset: u64,
    len: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> *mut ibv_mr {
    let state = state_of(context_of(pd));
    let mut state = state.lock().unwrap();
    let refused = |code| {
        // SAFETY: takes nothing.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: this thread's number.
        unsafe { *errno = code };
        ptr::null_mut()
    };
    if !state.takes_dmabufs {
        return refused(libc::EOPNOTSUPP);
    }
    if fd < 0 {
        return refused(libc::EBADF);
    }
    // Devices map whole pages, so an address and its byte have the same place in a page.
    let page = rustix::param::page_size();
    let skip = offset as usize % page;
    // SAFETY: takes numbers, and says if the descriptor is not open.
    let size = unsafe { libc::lseek(fd, 0, libc::SEEK_END) };
    if iova as usize % page != skip || u64::try_from(size).is_ok_and(|size| offset + len as u64 > size) {
        return refused(libc::EINVAL);
    }
    let (mapped, rights) = (len + skip, libc::PROT_READ | libc::PROT_WRITE);
    let at = offset - skip as u64;
    // SAFETY: a new mapping, where the kernel chooses.
    let start = unsafe { libc::mmap(ptr::null_mut(), mapped, rights, libc::MAP_SHARED, fd, at as i64) };
    if start == libc::MAP_FAILED {
        return refused(libc::EINVAL);
    }
    let bytes = start.cast::<u8>().wrapping_add(skip);
    registered(&mut state, pd, (iova, bytes), len, access, Some((start, mapped)))
}

unsafe extern "C" fn dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: made by `reg_mr`.
    let &ibv_mr { context, lkey, rkey, .. } = unsafe { &*mr };
    let state = state_of(context);
    let mut state = state.lock().unwrap();
    if let Some(code) = state.error("dereg_mr") {
        return code;
    }
    state.regions.remove(&lkey);
    if let Some((start, len)) = state.regions.remove(&rkey).and_then(|region| region.mapping) {
        // SAFETY: mapped by `reg_dmabuf_mr`, and no region has it any more.
        unsafe { libc::munmap(start, len) };
    }
    // SAFETY: as above.
    unsafe { take(&mut state, mr) };
    0
}

unsafe extern "C" fn create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    let state = state_of(context);
    let mut locked = state.lock().unwrap();
    if locked.error("create_comp_channel").is_some() {
        return ptr::null_mut();
    }
    let signal = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE).unwrap();
    let public = ibv_comp_channel { context, fd: signal.as_raw_fd() };
    let state = Arc::clone(&state);
    give(&mut locked, FakeChannel { public, state, signal }).cast()
}

unsafe extern "C" fn destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    let channel = channel.cast::<FakeChannel>();
    // SAFETY: made by `create_comp_channel`.
    let FakeChannel { public, state, .. } = unsafe { &*channel };
    let (fd, state) = (public.fd, Arc::clone(state));
    let mut state = state.lock().unwrap();
    assert!(state.completions.values().all(|c| c.signal != fd), "a completion queue uses it");
    // SAFETY: as above.
    unsafe { take(&mut state, channel) };
    0
}

unsafe extern "C" fn create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    _vector: c_int,
) -> *mut ibv_cq {
    let state = state_of(context);
    let mut state = state.lock().unwrap();
    if state.error("create_cq").is_some() {
        return ptr::null_mut();
    }
    state.keys += 2;
    let handle = state.keys;
    // SAFETY: NULL, or made by `create_comp_channel`.
    let signal = unsafe { channel.as_ref() }.map_or(-1, |channel| channel.fd);
    let (room, entries) = (cqe as usize, VecDeque::with_capacity(cqe as usize));
    state.completions.insert(handle, Completions { room, armed: false, events: 0, signal, entries });
    give(&mut state, ibv_cq { context, channel, cq_context, handle, cqe })
}

/// The state and the number of a completion queue.
fn cq_of(cq: *mut ibv_cq) -> (Shared, u32) {
    // SAFETY: made by `create_cq`.
    let cq = unsafe { &*cq };
    (state_of(cq.context), cq.handle)
}

unsafe extern "C" fn destroy_cq(cq: *mut ibv_cq) -> c_int {
    let (state, handle) = cq_of(cq);
    let mut state = state.lock().unwrap();
    assert!(state.queues.values().all(|queue| queue.cq != handle), "a queue pair uses it");
    let completions = state.completions.remove(&handle).unwrap();
    assert_eq!(completions.events, 0, "C's call would wait for acknowledgements");
    // SAFETY: made by `create_cq`.
    unsafe { take(&mut state, cq) };
    0
}

unsafe extern "C" fn get_cq_event(
    channel: *mut ibv_comp_channel,
    _cq: *mut *mut ibv_cq,
    _context: *mut *mut c_void,
) -> c_int {
    // SAFETY: made by `create_comp_channel`.
    let channel = unsafe { &*channel.cast::<FakeChannel>() };
    // Blocks unless the file was told not to, as C's call does.
    if rustix::io::read(&channel.signal, &mut [0; 8]).is_err() {
        return -1;
    }
    let mut state = channel.state.lock().unwrap();
    let fd = channel.public.fd;
    state.completions.values_mut().filter(|cq| cq.signal == fd).for_each(|cq| cq.events += 1);
    0
}

unsafe extern "C" fn ack_cq_events(cq: *mut ibv_cq, number: c_uint) {
    let (state, handle) = cq_of(cq);
    let mut state = state.lock().unwrap();
    let completions = state.completions.get_mut(&handle).unwrap();
    completions.events = completions.events.checked_sub(number).expect("events that were taken");
}

unsafe extern "C" fn create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    let context = context_of(pd);
    let state = state_of(context);
    let mut state = state.lock().unwrap();
    if state.error("create_qp").is_some() {
        return ptr::null_mut();
    }
    // SAFETY: the caller's attributes.
    let attr = unsafe { *attr };
    assert!(attr.cap.max_send_wr <= state.max_qp_wr as u32 && attr.qp_type == QPT_RC && attr.sq_sig_all == 0);
    state.keys += 2;
    let qp_num = state.keys;
    // SAFETY: made by `create_cq`.
    let cq = unsafe { (*attr.send_cq).handle };
    let depth = u64::from(attr.cap.max_send_wr);
    let waiting = VecDeque::with_capacity(depth as usize);
    let (reset, pd_addr) = (qp_state::RESET, pd.addr());
    let queue =
        Queue { state: reset, pd: pd_addr, access: 0, peer: 0, cq, depth, posted: 0, retired: 0, waiting };
    state.queues.insert(qp_num, queue);
    let ibv_qp_init_attr { send_cq, recv_cq, srq, qp_context, .. } = attr;
    give(&mut state, ibv_qp { context, qp_context, pd, send_cq, recv_cq, srq, handle: 0, qp_num })
}

/// The state and the number of a queue pair.
fn qp_of(qp: *mut ibv_qp) -> (Shared, u32) {
    // SAFETY: made by `create_qp`.
    let qp = unsafe { &*qp };
    (state_of(qp.context), qp.qp_num)
}

unsafe extern "C" fn modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    use qp_mask as m;
    let (state, number) = qp_of(qp);
    let mut state = state.lock().unwrap();
    if let Some(code) = state.error("modify_qp") {
        return code;
    }
    // SAFETY: the caller's attributes.
    let attr = unsafe { &*attr };
    let global = state.link_layer == LINK_LAYER_ETHERNET;
    let queue = state.queues.get_mut(&number).unwrap();
    // ibv_modify_qp(3) lists what each step needs.
    let (from, needs) = match attr.qp_state {
        qp_state::RESET => (queue.state, m::STATE),
        qp_state::INIT => (qp_state::RESET, m::STATE | m::PKEY_INDEX | m::PORT | m::ACCESS_FLAGS),
        qp_state::RTR => {
            let path = attr.ah_attr.port_num == 1
                && (!global || (attr.ah_attr.is_global == 1 && attr.ah_attr.grh.dgid == GID))
                && (1..=4).contains(&attr.path_mtu)
                && attr.dest_qp_num != 0;
            if !path || attr.max_dest_rd_atomic == 0 {
                return libc::EINVAL;
            }
            let path = m::AV | m::PATH_MTU | m::DEST_QPN | m::RQ_PSN;
            (qp_state::INIT, m::STATE | path | m::MAX_DEST_RD_ATOMIC | m::MIN_RNR_TIMER)
        }
        qp_state::RTS => {
            let retries = m::TIMEOUT | m::RETRY_CNT | m::RNR_RETRY;
            (qp_state::RTR, m::STATE | retries | m::SQ_PSN | m::MAX_QP_RD_ATOMIC)
        }
        _ => return libc::EINVAL,
    };
    if queue.state != from || mask != needs {
        return libc::EINVAL;
    }
    queue.state = attr.qp_state;
    match attr.qp_state {
        qp_state::INIT => queue.access = attr.qp_access_flags,
        qp_state::RTR => queue.peer = attr.dest_qp_num,
        _ => {}
    }
    if attr.qp_state == qp_state::RESET {
        queue.waiting.clear();
        queue.retired = queue.posted;
    }
    0
}

unsafe extern "C" fn destroy_qp(qp: *mut ibv_qp) -> c_int {
    let (state, number) = qp_of(qp);
    let mut state = state.lock().unwrap();
    if let Some(code) = state.error("destroy_qp") {
        return code;
    }
    state.queues.remove(&number).unwrap();
    // SAFETY: made by `create_qp`.
    unsafe { take(&mut state, qp) };
    0
}

unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    let (state, number) = qp_of(qp);
    let mut state = state.lock().unwrap();
    let refuse_after = state.refuse_after.take();
    let (mut taken, mut next) = (0, first);
    let mut code = 0;
    while !next.is_null() {
        // SAFETY: the caller's chain.
        let wr = unsafe { *next };
        assert!(matches!(wr.opcode, WR_RDMA_READ | WR_RDMA_WRITE) && wr.num_sge == 1);
        // SAFETY: as above, one piece.
        let sge = unsafe { *wr.sg_list };
        assert!(wr.next.is_null() || sge.length > 0);
        let queue = state.queues.get_mut(&number).unwrap();
        let full = queue.posted - queue.retired >= queue.depth;
        if full || refuse_after == Some(taken) || queue.state < qp_state::RTS {
            code = if full { libc::ENOMEM } else { libc::EINVAL };
            // SAFETY: the caller's place.
            unsafe { *bad = next };
            break;
        }
        queue.waiting.push_back((queue.posted, wr, sge));
        queue.posted += 1;
        state.flags.push(wr.send_flags);
        taken += 1;
        next = wr.next;
    }
    state.chains.push(taken);
    // SAFETY: made by `create_qp`.
    let (_, cq) = cq_of(unsafe { (*qp).send_cq });
    if state.completions.get(&cq).is_some_and(|completions| completions.armed) {
        state.run(cq, u64::MAX);
    }
    code
}

unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, most: c_int, into: *mut ibv_wc) -> c_int {
    let (state, handle) = cq_of(cq);
    let mut state = state.lock().unwrap();
    if state.error("poll_cq").is_some() {
        return -1;
    }
    let work = state.random() % 40;
    state.run(handle, work);
    let mut number = 0;
    while number < most {
        let completions = state.completions.get_mut(&handle).unwrap();
        let Some((entry, qp, retires)) = completions.entries.pop_front() else { break };
        if let Some(queue) = state.queues.get_mut(&qp) {
            queue.retired = queue.retired.max(retires.min(queue.posted));
        }
        // SAFETY: the caller has room for `most`.
        let place = unsafe { into.add(number as usize) };
        // SAFETY: as above.
        unsafe { *place = entry };
        number += 1;
    }
    number
}

unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, _solicited: c_int) -> c_int {
    let (state, handle) = cq_of(cq);
    let mut state = state.lock().unwrap();
    state.completions.get_mut(&handle).unwrap().armed = true;
    state.run(handle, u64::MAX);
    0
}

const TABLE: Verbs = Verbs {
    ibv_get_device_list: get_device_list,
    ibv_free_device_list: free_device_list,
    ibv_get_device_name: get_device_name,
    ibv_open_device: open_device,
    ibv_close_device: close_device,
    ibv_query_device: query_device,
    ibv_query_port: query_port,
    ibv_query_gid: query_gid,
    ibv_get_async_event: get_async_event,
    ibv_ack_async_event: ack_async_event,
    ibv_alloc_pd: alloc_pd,
    ibv_dealloc_pd: dealloc_pd,
    ibv_reg_mr: reg_mr,
    ibv_dereg_mr: dereg_mr,
    ibv_create_comp_channel: create_comp_channel,
    ibv_destroy_comp_channel: destroy_comp_channel,
    ibv_create_cq: create_cq,
    ibv_destroy_cq: destroy_cq,
    ibv_get_cq_event: get_cq_event,
    ibv_ack_cq_events: ack_cq_events,
    ibv_create_qp: create_qp,
    ibv_modify_qp: modify_qp,
    ibv_destroy_qp: destroy_qp,
    ibv_is_fork_initialized: None,
    ibv_reg_dmabuf_mr: Some(reg_dmabuf_mr),
};
