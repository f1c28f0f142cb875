//! The library's calls, under their C names.
#![expect(unsafe_code, reason = "implements calls of C on objects that callers pass by address")]

use std::collections::VecDeque;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use verbs_sys::*;

use crate::config::configured;
use crate::device::{Completions, LISTED, Nic, Queue, Region, Shared, State, lock, set_errno};
use crate::network::{Node, patience};

/// Identifies the stand-in. Returns its name.
#[unsafe(no_mangle)]
extern "C" fn rdma_emu_model() -> *const c_char {
    c"rdma-emu".as_ptr()
}

/// Creates an eventfd for events. If the system refuses it, sets the thread's error number.
fn new_eventfd(flags: EventfdFlags) -> Option<OwnedFd> {
    eventfd(0, flags).map_err(|errno| set_errno(errno.raw_os_error())).ok()
}

#[repr(C)]
struct EmuContext {
    public: ibv_context,
    /// The other fields of C's structure, which the header's inline functions read: completion vectors, a
    /// mutex, and a flag for further calls. This context has no further calls.
    rest: [u64; 7],
    state: Shared,
    _events: OwnedFd,
}

#[repr(C)]
struct EmuChannel {
    public: ibv_comp_channel,
    state: Shared,
    signal: OwnedFd,
}

struct EmuDevice {
    name: CString,
    state: Shared,
}

/// Returns the state of a context.
fn state_of(context: *mut ibv_context) -> Shared {
    // SAFETY: `ibv_open_device` made the context.
    unsafe { Arc::clone(&(*context.cast::<EmuContext>()).state) }
}

/// Passes the ownership of an object to C, and counts it.
fn give<T>(state: &mut State, object: T) -> *mut T {
    state.objects += 1;
    Box::into_raw(Box::new(object))
}

/// Takes the ownership of an object back from C, and drops it.
unsafe fn take<T>(state: &mut State, object: *mut T) {
    state.objects -= 1;
    // SAFETY: the object was made by `give`.
    drop(unsafe { Box::from_raw(object) });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_list(number: *mut c_int) -> *mut *mut ibv_device {
    let Some(Nic(state)) = LISTED.with_borrow(Clone::clone).or_else(configured) else {
        set_errno(libc::EINVAL);
        return ptr::null_mut();
    };
    if lock(&state).error("get_device_list").is_some() {
        return ptr::null_mut();
    }
    let count = lock(&state).devices;
    let device = |n| EmuDevice {
        name: CString::new(format!("emu{n}")).unwrap_or_default(),
        state: Arc::clone(&state),
    };
    let mut list: Vec<*mut ibv_device> =
        (0..count).map(|n| Box::into_raw(Box::new(device(n))).cast()).collect();
    list.push(ptr::null_mut());
    // SAFETY: the pointer is NULL or the caller's, and then valid for the write.
    if let Some(number) = unsafe { number.as_mut() } {
        *number = count as c_int;
    }
    Box::into_raw(list.into_boxed_slice()).cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    let mut len = 0;
    loop {
        // SAFETY: the list ends with NULL.
        let place = unsafe { list.add(len) };
        len += 1;
        // SAFETY: the entry is within the list, before its end.
        let device = unsafe { *place };
        if device.is_null() {
            break;
        }
        // SAFETY: the object was made by `ibv_get_device_list`.
        drop(unsafe { Box::from_raw(device.cast::<EmuDevice>()) });
    }
    // SAFETY: the object was made by `ibv_get_device_list`, of this length.
    drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(list, len)) });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: the object was made by `ibv_get_device_list`.
    unsafe { (*device.cast::<EmuDevice>()).name.as_ptr() }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: the object was made by `ibv_get_device_list`.
    let state = unsafe { Arc::clone(&(*device.cast::<EmuDevice>()).state) };
    let mut locked = lock(&state);
    if locked.error("open_device").is_some() {
        return ptr::null_mut();
    }
    let Some(events) = new_eventfd(EventfdFlags::CLOEXEC) else { return ptr::null_mut() };
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
    give(&mut locked, EmuContext { public, rest: [0; 7], state, _events: events }).cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    let state = state_of(context);
    let context = context.cast::<EmuContext>();
    // SAFETY: the object was made by `ibv_open_device`, and is closed once.
    unsafe { take(&mut lock(&state), context) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int {
    let state = state_of(context);
    let state = lock(&state);
    // SAFETY: the caller passes a pointer to properties that can be written. All fields are numbers.
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

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_port(context: *mut ibv_context, port: u8, attr: *mut ibv_port_attr) -> c_int {
    let state = state_of(context);
    let state = lock(&state);
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
    // SAFETY: the caller passes a pointer to properties that can be written.
    unsafe { *attr = found };
    0
}

/// The only GID, at index 1.
const GID: ibv_gid = ibv_gid { raw: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1] };

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_gid(
    context: *mut ibv_context,
    _port: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    let set = lock(&state_of(context)).has_gid && index == 1;
    // SAFETY: the caller passes a pointer to which the GID can be written.
    unsafe { *gid = if set { GID } else { ibv_gid::default() } };
    if index < 3 { 0 } else { -1 }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int {
    let Some(event_type) = lock(&state_of(context)).events.pop_front() else { return -1 };
    // SAFETY: the caller passes a pointer to which the event can be written.
    unsafe { (*event).event_type = event_type };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_async_event(_event: *mut ibv_async_event) {}

/// Allocates a protection domain, which is only a pointer to its context.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    let state = state_of(context);
    let mut state = lock(&state);
    if state.error("alloc_pd").is_some() {
        return ptr::null_mut();
    }
    give(&mut state, context).cast()
}

fn context_of(pd: *mut ibv_pd) -> *mut ibv_context {
    // SAFETY: the object was made by `ibv_alloc_pd`.
    unsafe { *pd.cast() }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    let state = state_of(context_of(pd));
    let mut state = lock(&state);
    let addr = pd.addr();
    if state.regions.values().any(|region| region.pd == addr) || state.queues.values().any(|q| q.pd == addr) {
        return libc::EBUSY;
    }
    // SAFETY: the object was made by `ibv_alloc_pd`.
    unsafe { take(&mut state, pd.cast::<*mut ibv_context>()) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    len: usize,
    access: c_int,
) -> *mut ibv_mr {
    let state = state_of(context_of(pd));
    let mut state = lock(&state);
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
    if access & access::REMOTE_WRITE != 0 && access & access::LOCAL_WRITE == 0 {
        set_errno(libc::EINVAL);
        return ptr::null_mut();
    }
    let remote = access::REMOTE_READ | access::REMOTE_WRITE;
    for (key, rights) in [(lkey, access & access::LOCAL_WRITE), (rkey, access & remote)] {
        let region = Region { base, bytes, mapping, len: len as u64, rights, pd: pd.addr() };
        state.regions.insert(key, region);
    }
    let (context, addr) = (context_of(pd), ptr::without_provenance_mut(base as usize));
    give(state, ibv_mr { context, pd, addr, length: len, handle: 0, lkey, rkey })
}

/// Maps the file that represents a dma-buf. Nothing is mapped at the addresses by which requests name the
/// dma-buf.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_dmabuf_mr(
    pd: *mut ibv_pd,
    offset: u64,
    len: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> *mut ibv_mr {
    let state = state_of(context_of(pd));
    let mut state = lock(&state);
    let refused = |code| {
        set_errno(code);
        ptr::null_mut()
    };
    if !state.takes_dmabufs {
        return refused(libc::EOPNOTSUPP);
    }
    if fd < 0 {
        return refused(libc::EBADF);
    }
    // Devices map whole pages, so an address and its byte have the same offset in a page.
    let page = rustix::param::page_size();
    let skip = offset as usize % page;
    // SAFETY: the call only takes numbers, and fails if the descriptor is not open.
    let size = unsafe { libc::lseek(fd, 0, libc::SEEK_END) };
    if iova as usize % page != skip || u64::try_from(size).is_ok_and(|size| offset + len as u64 > size) {
        return refused(libc::EINVAL);
    }
    let (mapped, rights) = (len + skip, libc::PROT_READ | libc::PROT_WRITE);
    let at = offset - skip as u64;
    // SAFETY: the kernel chooses unused addresses for the new mapping.
    let start = unsafe { libc::mmap(ptr::null_mut(), mapped, rights, libc::MAP_SHARED, fd, at as i64) };
    if start == libc::MAP_FAILED {
        return refused(libc::EINVAL);
    }
    let bytes = start.cast::<u8>().wrapping_add(skip);
    registered(&mut state, pd, (iova, bytes), len, access, Some((start, mapped)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: the object was made by `ibv_reg_mr`.
    let &ibv_mr { context, lkey, rkey, .. } = unsafe { &*mr };
    let state = state_of(context);
    let mut state = lock(&state);
    if let Some(code) = state.error("dereg_mr") {
        return code;
    }
    state.regions.remove(&lkey);
    if let Some((start, len)) = state.regions.remove(&rkey).and_then(|region| region.mapping) {
        // SAFETY: `ibv_reg_dmabuf_mr` made the mapping, and no region uses it any more.
        unsafe { libc::munmap(start, len) };
    }
    // SAFETY: the object was made by `ibv_reg_mr` or `ibv_reg_dmabuf_mr`, and is deregistered once.
    unsafe { take(&mut state, mr) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    let state = state_of(context);
    let mut locked = lock(&state);
    if locked.error("create_comp_channel").is_some() {
        return ptr::null_mut();
    }
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE;
    let Some(signal) = new_eventfd(flags) else { return ptr::null_mut() };
    let public = ibv_comp_channel { context, fd: signal.as_raw_fd() };
    let state = Arc::clone(&state);
    give(&mut locked, EmuChannel { public, state, signal }).cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    let channel = channel.cast::<EmuChannel>();
    // SAFETY: the object was made by `ibv_create_comp_channel`.
    let EmuChannel { public, state, .. } = unsafe { &*channel };
    let (fd, state) = (public.fd, Arc::clone(state));
    let mut state = lock(&state);
    if state.completions.values().any(|completions| completions.signal == fd) {
        return libc::EBUSY;
    }
    // SAFETY: the object was made by `ibv_create_comp_channel`, and is destroyed once.
    unsafe { take(&mut state, channel) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    _vector: c_int,
) -> *mut ibv_cq {
    let state = state_of(context);
    let mut state = lock(&state);
    if state.error("create_cq").is_some() {
        return ptr::null_mut();
    }
    state.keys += 2;
    let handle = state.keys;
    // SAFETY: the pointer is NULL, or `ibv_create_comp_channel` made the object.
    let signal = unsafe { channel.as_ref() }.map_or(-1, |channel| channel.fd);
    let (room, entries) = (cqe as usize, VecDeque::with_capacity(cqe as usize));
    state.completions.insert(handle, Completions { room, armed: false, events: 0, signal, entries });
    give(&mut state, ibv_cq { context, channel, cq_context, handle, cqe })
}

/// Returns the state and the number of a completion queue.
fn cq_of(cq: *mut ibv_cq) -> (Shared, u32) {
    // SAFETY: the object was made by `ibv_create_cq`.
    let cq = unsafe { &*cq };
    (state_of(cq.context), cq.handle)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    let (state, handle) = cq_of(cq);
    let mut state = lock(&state);
    // rdma-core waits for acknowledgements, possibly forever. Here, missing acknowledgements are an error.
    let unacknowledged = state.completions.get(&handle).is_none_or(|completions| completions.events != 0);
    if unacknowledged || state.queues.values().any(|queue| queue.cq == handle) {
        return libc::EBUSY;
    }
    state.completions.remove(&handle);
    // SAFETY: the object was made by `ibv_create_cq`.
    unsafe { take(&mut state, cq) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    _cq: *mut *mut ibv_cq,
    _context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the object was made by `ibv_create_comp_channel`.
    let channel = unsafe { &*channel.cast::<EmuChannel>() };
    // Blocks unless the file has O_NONBLOCK, like C's call.
    if rustix::io::read(&channel.signal, &mut [0; 8]).is_err() {
        return -1;
    }
    let mut state = lock(&channel.state);
    let fd = channel.public.fd;
    state.completions.values_mut().filter(|cq| cq.signal == fd).for_each(|cq| cq.events += 1);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, number: c_uint) {
    let (state, handle) = cq_of(cq);
    let mut state = lock(&state);
    if let Some(completions) = state.completions.get_mut(&handle) {
        completions.events = completions.events.saturating_sub(number);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    let context = context_of(pd);
    let shared = state_of(context);
    let mut state = lock(&shared);
    if state.error("create_qp").is_some() {
        return ptr::null_mut();
    }
    // SAFETY: the caller passes valid attributes.
    let attr = unsafe { *attr };
    if attr.cap.max_send_wr > state.max_qp_wr as u32 || attr.qp_type != QPT_RC || attr.sq_sig_all != 0 {
        set_errno(libc::EINVAL);
        return ptr::null_mut();
    }
    let Some(qp_num) = number_of_new(&shared, &mut state) else {
        set_errno(libc::ENOMEM);
        return ptr::null_mut();
    };
    // SAFETY: the object was made by `ibv_create_cq`.
    let cq = unsafe { (*attr.send_cq).handle };
    let depth = u64::from(attr.cap.max_send_wr);
    let waiting = VecDeque::with_capacity(depth as usize);
    let (reset, pd_addr) = (qp_state::RESET, pd.addr());
    let queue = Queue {
        state: reset,
        pd: pd_addr,
        access: 0,
        peer: 0,
        cq,
        depth,
        posted: 0,
        retired: 0,
        patience: patience(0),
        resets: 0,
        is_asking: false,
        waiting,
    };
    state.queues.insert(qp_num, queue);
    let ibv_qp_init_attr { send_cq, recv_cq, srq, qp_context, .. } = attr;
    give(&mut state, ibv_qp { context, qp_context, pd, send_cq, recv_cq, srq, handle: 0, qp_num })
}

/// Returns the number of a new queue pair.
fn number_of_new(shared: &Shared, state: &mut State) -> Option<u32> {
    if !state.is_networked {
        state.keys += 2;
        return Some(state.keys);
    }
    if !state.node.as_ref().is_some_and(Node::is_of_this_process) {
        // The entry of the process before the fork must not be dropped, because the drop would end it in that
        // process.
        std::mem::forget(state.node.take());
        state.node = Node::new(Arc::downgrade(shared)).ok();
    }
    let State { node, queues, .. } = state;
    node.as_mut()?.number(|number| queues.contains_key(&number))
}

/// Returns the state and the number of a queue pair.
fn qp_of(qp: *mut ibv_qp) -> (Shared, u32) {
    // SAFETY: the object was made by `ibv_create_qp`.
    let qp = unsafe { &*qp };
    (state_of(qp.context), qp.qp_num)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    use qp_mask as m;
    let (state, number) = qp_of(qp);
    let mut state = lock(&state);
    if let Some(code) = state.error("modify_qp") {
        return code;
    }
    // SAFETY: the caller passes valid attributes.
    let attr = unsafe { &*attr };
    let global = state.link_layer == LINK_LAYER_ETHERNET;
    let State { queues, node, .. } = &mut *state;
    let Some(queue) = queues.get_mut(&number) else { return libc::EINVAL };
    // ibv_modify_qp(3) lists the attributes that each step needs.
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
        qp_state::RTS => queue.patience = patience(attr.timeout),
        _ => {}
    }
    if attr.qp_state == qp_state::RESET {
        queue.waiting.clear();
        queue.retired = queue.posted;
        // An answer that arrives after this is ignored.
        queue.resets += 1;
        queue.is_asking = false;
    }
    if attr.qp_state == qp_state::RTR
        && let Some(node) = node.as_mut().filter(|node| node.is_foreign(attr.dest_qp_num))
        && node.serve().is_err()
    {
        return libc::ENOMEM;
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    let (state, number) = qp_of(qp);
    let mut state = lock(&state);
    if let Some(code) = state.error("destroy_qp") {
        return code;
    }
    state.queues.remove(&number);
    // SAFETY: the object was made by `ibv_create_qp`.
    unsafe { take(&mut state, qp) };
    0
}

unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    let (state, number) = qp_of(qp);
    let mut state = lock(&state);
    let refuse_after = state.refuse_after.take();
    let (mut taken, mut next) = (0, first);
    let mut code = 0;
    while !next.is_null() {
        // SAFETY: the caller passes a chain of valid requests.
        let wr = unsafe { *next };
        let known = matches!(wr.opcode, WR_RDMA_READ | WR_RDMA_WRITE) && wr.num_sge == 1;
        // SAFETY: the list has one piece, if it is not empty.
        let sge = unsafe { wr.sg_list.as_ref() }.copied().filter(|_| known);
        let queue = state.queues.get_mut(&number);
        let (Some(queue), Some(sge)) = (queue, sge) else {
            // SAFETY: the caller passes a pointer to which the refused request can be written.
            unsafe { *bad = next };
            code = libc::EINVAL;
            break;
        };
        let full = queue.posted - queue.retired >= queue.depth;
        if full || refuse_after == Some(taken) || queue.state < qp_state::RTS {
            code = if full { libc::ENOMEM } else { libc::EINVAL };
            // SAFETY: the caller passes a pointer that can be written.
            unsafe { *bad = next };
            break;
        }
        queue.waiting.push_back((queue.posted, wr, sge));
        queue.posted += 1;
        if state.records {
            state.flags.push(wr.send_flags);
        }
        taken += 1;
        next = wr.next;
    }
    if state.records {
        state.chains.push(taken);
    }
    // SAFETY: the object was made by `ibv_create_qp`.
    let (_, cq) = cq_of(unsafe { (*qp).send_cq });
    if state.completions.get(&cq).is_some_and(|completions| completions.armed) {
        state.run(cq, u64::MAX);
    }
    code
}

unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, most: c_int, into: *mut ibv_wc) -> c_int {
    let (state, handle) = cq_of(cq);
    let mut state = lock(&state);
    if state.error("poll_cq").is_some() {
        return -1;
    }
    let work = state.random() % 40;
    state.run(handle, work);
    let mut number = 0;
    while number < most {
        let Some(completions) = state.completions.get_mut(&handle) else { return -1 };
        let Some((entry, qp, retires)) = completions.entries.pop_front() else { break };
        if let Some(queue) = state.queues.get_mut(&qp) {
            queue.retired = queue.retired.max(retires.min(queue.posted));
        }
        // SAFETY: the caller has room for `most` completions.
        let place = unsafe { into.add(number as usize) };
        // SAFETY: the index is within the caller's room for `most` completions.
        unsafe { *place = entry };
        number += 1;
    }
    number
}

unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, _solicited: c_int) -> c_int {
    let (state, handle) = cq_of(cq);
    let mut state = lock(&state);
    let Some(completions) = state.completions.get_mut(&handle) else { return libc::EINVAL };
    completions.armed = true;
    state.run(handle, u64::MAX);
    0
}

/// The table of the calls.
pub(crate) const TABLE: Verbs = Verbs {
    ibv_get_device_list,
    ibv_free_device_list,
    ibv_get_device_name,
    ibv_open_device,
    ibv_close_device,
    ibv_query_device,
    ibv_query_port,
    ibv_query_gid,
    ibv_get_async_event,
    ibv_ack_async_event,
    ibv_alloc_pd,
    ibv_dealloc_pd,
    ibv_reg_mr,
    ibv_dereg_mr,
    ibv_create_comp_channel,
    ibv_destroy_comp_channel,
    ibv_create_cq,
    ibv_destroy_cq,
    ibv_get_cq_event,
    ibv_ack_cq_events,
    ibv_create_qp,
    ibv_modify_qp,
    ibv_destroy_qp,
    ibv_is_fork_initialized: None,
    rdma_emu_model: Some(rdma_emu_model),
    ibv_reg_dmabuf_mr: Some(ibv_reg_dmabuf_mr),
};
