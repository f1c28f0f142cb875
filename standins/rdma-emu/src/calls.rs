//! The library's calls, under their C names.
#![expect(unsafe_code, reason = "implements calls of C on objects that callers pass by address")]

use std::collections::VecDeque;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::event::{EventfdFlags, eventfd};
use verbs_sys::*;

use crate::abi::{self, init_mask};
use crate::config::configured;
use crate::device;
use crate::device::{
    Armed, Completions, GID, LISTED, Nic, Queue, Region, Shared, SharedReceives, State, lock, set_errno,
};
use crate::network::Node;
use crate::requests::{Built, poll_cq, post_recv, post_send, post_srq_recv, req_notify_cq, writers};

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
    public: abi::verbs_context,
    device: Arc<EmuDevice>,
    events: OwnedFd,
}

#[repr(C)]
struct EmuChannel {
    public: ibv_comp_channel,
    /// The field of C's structure that only rdma-core uses.
    _references: c_int,
    state: Shared,
    signal: OwnedFd,
}

#[repr(C)]
struct EmuDevice {
    public: abi::ibv_device,
    number: u8,
    state: Shared,
}

/// A completion queue, with the fields of C's structure that only rdma-core uses.
#[repr(C)]
struct EmuCq {
    public: ibv_cq,
    waiters: abi::Waiters,
    events_completed: [u32; 2],
}

#[repr(C)]
pub(crate) struct EmuQp {
    pub(crate) public: abi::ibv_qp_ex,
    /// True if the program may use the calls that build requests in place.
    builds: bool,
    /// True from `wr_start` to `wr_complete` or `wr_abort`.
    pub(crate) is_building: AtomicBool,
    pub(crate) built: Vec<Built>,
}

/// Limits of a queue pair and of a shared receive queue.
const MAX_SGE: u32 = device::MAX_SGE as u32;
pub(crate) const MAX_INLINE: u32 = 1024;
const MAX_SRQ_WR: u32 = 1 << 15;
const MAX_CQE: c_int = 1 << 16;
/// Number of entries of the table of GIDs.
const GIDS: u32 = 3;

/// Returns the context that a device's structure belongs to.
const fn emu_context(context: *mut ibv_context) -> *mut EmuContext {
    context.wrapping_byte_sub(offset_of!(abi::verbs_context, context)).cast()
}

/// Returns the device of a context.
unsafe fn device_of<'a>(context: *mut ibv_context) -> &'a EmuDevice {
    // SAFETY: the caller passes a context that `ibv_open_device` made, and that keeps the device.
    unsafe { &(*emu_context(context)).device }
}

/// Returns the state of a context.
pub(crate) fn state_of(context: *mut ibv_context) -> Shared {
    // SAFETY: `ibv_open_device` made the context.
    unsafe { Arc::clone(&device_of(context).state) }
}

/// Copies text to a field of C's, with a NUL at its end.
fn set_text<const N: usize>(field: &mut [c_char; N], text: &str) {
    for (place, byte) in field.iter_mut().zip(text.bytes().take(N - 1)) {
        *place = byte as c_char;
    }
}

/// Returns NULL, with the thread's error number set to `code`.
pub(crate) fn refused<T>(code: c_int) -> *mut T {
    set_errno(code);
    ptr::null_mut()
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
    let device = |number: usize| {
        let mut public = abi::ibv_device {
            ops: [0; 2],
            node_type: abi::NODE_CA,
            transport_type: 0,
            name: [0; 64],
            dev_name: [0; 64],
            dev_path: [0; 256],
            ibdev_path: [0; 256],
            private: [0; 8],
        };
        set_text(&mut public.name, &format!("emu{number}"));
        set_text(&mut public.dev_name, &format!("uverbs{number}"));
        set_text(&mut public.dev_path, &format!("/sys/class/infiniband_verbs/uverbs{number}"));
        set_text(&mut public.ibdev_path, &format!("/sys/class/infiniband/emu{number}"));
        Arc::new(EmuDevice { public, number: number as u8, state: Arc::clone(&state) })
    };
    let mut list: Vec<*mut ibv_device> =
        (0..count).map(|number| Arc::into_raw(device(number)).cast_mut().cast()).collect();
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
        // SAFETY: the object was made by `ibv_get_device_list`. Contexts keep the devices that are open.
        drop(unsafe { Arc::from_raw(device.cast_const().cast::<EmuDevice>()) });
    }
    // SAFETY: the object was made by `ibv_get_device_list`, of this length.
    drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(list, len)) });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: the object was made by `ibv_get_device_list`.
    unsafe { (*device.cast::<EmuDevice>()).public.name.as_ptr() }
}

/// The GUID of a device, in network order: a local address, and the device's number.
const fn guid(number: u8) -> u64 {
    u64::from_ne_bytes([2, 0, 0, 0xff, 0xfe, 0, 0, number])
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> u64 {
    // SAFETY: the object was made by `ibv_get_device_list`.
    guid(unsafe { (*device.cast::<EmuDevice>()).number })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_index(device: *mut ibv_device) -> c_int {
    // SAFETY: the object was made by `ibv_get_device_list`.
    unsafe { (*device.cast::<EmuDevice>()).number.into() }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    let opened = device.cast_const().cast::<EmuDevice>();
    // SAFETY: the object was made by `ibv_get_device_list`.
    unsafe { Arc::increment_strong_count(opened) };
    // SAFETY: the reference was added above.
    let opened = unsafe { Arc::from_raw(opened) };
    let state = Arc::clone(&opened.state);
    let mut locked = lock(&state);
    if locked.error("open_device").is_some() {
        return ptr::null_mut();
    }
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE;
    let Some(events) = new_eventfd(flags) else { return ptr::null_mut() };
    let ops = ibv_context_ops {
        before: [ptr::null(); 11],
        poll_cq: Some(poll_cq),
        req_notify_cq: Some(req_notify_cq),
        unused_13: [ptr::null(); 7],
        post_srq_recv: Some(post_srq_recv),
        unused_21: [ptr::null(); 4],
        post_send: Some(post_send),
        post_recv: Some(post_recv),
        behind: [ptr::null(); 5],
    };
    let async_fd = events.as_raw_fd();
    locked.event_files.push(async_fd);
    let public = abi::verbs_context {
        query_port,
        unused_1: [0; 32],
        create_qp_ex,
        unused_34: [0; 5],
        sz: size_of::<abi::verbs_context>(),
        context: ibv_context { device, ops, cmd_fd: -1, async_fd },
        num_comp_vectors: 1,
        mutex: MaybeUninit::zeroed(),
        abi_compat: abi::EXTENDED,
    };
    let context = give(&mut locked, EmuContext { public, device: opened, events });
    // SAFETY: the object was just made.
    unsafe { &raw mut (*context).public.context }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    let state = state_of(context);
    let context = emu_context(context);
    let mut state = lock(&state);
    // SAFETY: the object was made by `ibv_open_device`.
    let file = unsafe { (*context).public.context.async_fd };
    state.event_files.retain(|other| *other != file);
    // SAFETY: the object was made by `ibv_open_device`, and is closed once.
    unsafe { take(&mut state, context) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int {
    let state = state_of(context);
    let state = lock(&state);
    // SAFETY: the object was made by `ibv_open_device`.
    let guid = guid(unsafe { device_of(context).number });
    // SAFETY: the caller passes a pointer to properties that can be written. All fields are numbers.
    unsafe { attr.write_bytes(0, 1) };
    // SAFETY: the properties were set to zero above, which is valid for numbers.
    let attr = unsafe { &mut *attr };
    set_text(&mut attr.fw_ver, "7");
    (attr.node_guid, attr.sys_image_guid) = (guid, guid);
    attr.max_mr_size = 1 << 40;
    attr.page_size_cap = !0xfff;
    attr.vendor_id = state.vendor_id;
    attr.max_qp = 64;
    attr.max_qp_wr = state.max_qp_wr;
    (attr.max_sge, attr.max_sge_rd) = (MAX_SGE as c_int, MAX_SGE as c_int);
    (attr.max_cq, attr.max_cqe) = (1 << 16, MAX_CQE);
    (attr.max_mr, attr.max_pd) = (1 << 20, 1 << 16);
    attr.max_qp_rd_atom = 16;
    attr.max_res_rd_atom = 1 << 10;
    attr.max_qp_init_rd_atom = 16;
    // Atomic operations are atomic to the program's own, too.
    attr.atomic_cap = 2;
    (attr.max_srq, attr.max_srq_wr, attr.max_srq_sge) = (1 << 12, MAX_SRQ_WR as c_int, MAX_SGE as c_int);
    attr.max_ah = 1 << 16;
    attr.max_pkeys = 1;
    attr.phys_port_cnt = 1;
    0
}

/// Returns the properties of the port, or an error number.
fn port_attr(context: *mut ibv_context, port: u8) -> Result<ibv_port_attr, c_int> {
    let state = state_of(context);
    let state = lock(&state);
    if port != 1 {
        return Err(libc::EINVAL);
    }
    Ok(ibv_port_attr {
        state: if state.port_down { 1 } else { PORT_ACTIVE },
        max_mtu: 4,
        active_mtu: 3,
        gid_tbl_len: GIDS as c_int,
        max_msg_sz: state.max_msg_sz,
        pkey_tbl_len: 1,
        lid: 5,
        sm_lid: 5,
        max_vl_num: 1,
        // 4 lanes of 10 Gbit/s; the physical state is up, or down.
        active_width: 2,
        active_speed: 4,
        phys_state: if state.port_down { 3 } else { 5 },
        link_layer: state.link_layer,
        ..ibv_port_attr::default()
    })
}

/// Writes the first `len` bytes of the port's properties.
unsafe fn write_port(context: *mut ibv_context, port: u8, attr: *mut ibv_port_attr, len: usize) -> c_int {
    let found = match port_attr(context, port) {
        Ok(found) => found,
        Err(code) => return code,
    };
    // SAFETY: the caller passes a pointer to `len` bytes that can be written.
    unsafe { attr.cast::<u8>().write_bytes(0, len) };
    let len = len.min(size_of_val(&found));
    // SAFETY: the caller passes a pointer to `len` bytes that can be written.
    unsafe { ptr::copy_nonoverlapping((&raw const found).cast::<u8>(), attr.cast(), len) };
    0
}

/// Programs of earlier headers than that of rdma-core 22 pass a structure without the last field,
/// `port_cap_flags2`. Later headers replace this call by the context's, which has the length as an argument.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_port(context: *mut ibv_context, port: u8, attr: *mut ibv_port_attr) -> c_int {
    // SAFETY: the caller passes a pointer to properties that can be written.
    unsafe { write_port(context, port, attr, offset_of!(ibv_port_attr, port_cap_flags2)) }
}

unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    len: usize,
) -> c_int {
    // SAFETY: the caller passes a pointer to properties of this length that can be written.
    unsafe { write_port(context, port, attr, len) }
}

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
    if index < GIDS as c_int { 0 } else { -1 }
}

/// `IBV_GID_TYPE_ROCE_V2`. InfiniBand's is 0.
const ROCE_V2: u32 = 2;

/// Returns the entry of the port's GID, if there is one.
fn gid_entry(context: *mut ibv_context) -> Option<abi::ibv_gid_entry> {
    let state = state_of(context);
    let state = lock(&state);
    let gid_type = if state.link_layer == LINK_LAYER_ETHERNET { ROCE_V2 } else { 0 };
    let entry = abi::ibv_gid_entry { gid: GID, gid_index: 1, port_num: 1, gid_type, ndev_ifindex: 0 };
    state.has_gid.then_some(entry)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    entry: *mut abi::ibv_gid_entry,
    flags: u32,
    len: usize,
) -> c_int {
    if port != 1 || index >= GIDS || flags != 0 || len < size_of::<abi::ibv_gid_entry>() {
        return libc::EINVAL;
    }
    let Some(found) = gid_entry(context).filter(|found| found.gid_index == index) else {
        return libc::ENODATA;
    };
    // SAFETY: the caller passes a pointer to which an entry of this length can be written.
    unsafe { *entry = found };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    entries: *mut abi::ibv_gid_entry,
    most: usize,
    flags: u32,
    len: usize,
) -> isize {
    if flags != 0 || len != size_of::<abi::ibv_gid_entry>() {
        return -libc::EINVAL as isize;
    }
    match gid_entry(context) {
        None => 0,
        Some(_) if most == 0 => -libc::EINVAL as isize,
        Some(found) => {
            // SAFETY: the caller passes a pointer to which `most` entries of this length can be written.
            unsafe { *entries = found };
            1
        }
    }
}

/// A call of libibverbs that is not in its header, but that `ibv_devinfo` uses.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_gid_type(
    context: *mut ibv_context,
    _port: u8,
    index: c_uint,
    gid_type: *mut c_int,
) -> c_int {
    let found = gid_entry(context).filter(|found| found.gid_index == index);
    // The call knows two types only: InfiniBand and RoCE 1 (0), and RoCE 2 (1).
    let found = found.is_some_and(|found| found.gid_type == ROCE_V2);
    // SAFETY: the caller passes a pointer to which the type can be written.
    unsafe { *gid_type = found.into() };
    if index < GIDS { 0 } else { -1 }
}

/// The only partition key: the default partition, with full membership.
const PKEY: u16 = 0xffff;

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_pkey(
    _context: *mut ibv_context,
    port: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    if port != 1 || index != 0 {
        set_errno(libc::EINVAL);
        return -1;
    }
    // SAFETY: the caller passes a pointer to which the key can be written.
    unsafe { *pkey = PKEY };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_pkey_index(_context: *mut ibv_context, port: u8, pkey: u16) -> c_int {
    if port == 1 && pkey == PKEY { 0 } else { -1 }
}

/// Takes the next event. Blocks until there is one, unless the context's file has O_NONBLOCK.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int {
    let state = state_of(context);
    // SAFETY: `ibv_open_device` made the context.
    let file = unsafe { (*context).async_fd };
    // SAFETY: the context, which owns the file, stays open during the call.
    let file = unsafe { BorrowedFd::borrow_raw(file) };
    // The loop continues if another context of the device has taken the event.
    loop {
        if let Err(errno) = rustix::io::read(file, &mut [0; 8]) {
            set_errno(errno.raw_os_error());
            return -1;
        }
        if let Some((event_type, public)) = lock(&state).events.pop_front() {
            let element = ptr::with_exposed_provenance_mut(public);
            // SAFETY: the caller passes a pointer to which the event can be written.
            unsafe { *event = ibv_async_event { element, event_type } };
            return 0;
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_async_event(_event: *mut ibv_async_event) {}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    let state = state_of(context);
    let mut state = lock(&state);
    if state.error("alloc_pd").is_some() {
        return ptr::null_mut();
    }
    state.keys += 2;
    let handle = state.keys;
    give(&mut state, abi::ibv_pd { context, handle }).cast()
}

fn context_of(pd: *mut ibv_pd) -> *mut ibv_context {
    // SAFETY: the object was made by `ibv_alloc_pd`.
    unsafe { (*pd.cast::<abi::ibv_pd>()).context }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    let state = state_of(context_of(pd));
    let mut state = lock(&state);
    let addr = pd.addr();
    if state.regions.values().any(|region| region.pd == addr)
        || state.queues.values().any(|queue| queue.pd == addr)
        || state.shared_receives.values().any(|srq| srq.pd == addr)
    {
        return libc::EBUSY;
    }
    // SAFETY: the object was made by `ibv_alloc_pd`.
    unsafe { take(&mut state, pd.cast::<abi::ibv_pd>()) };
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

/// Registers memory that requests name by other addresses, from `iova` on.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    len: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    let state = state_of(context_of(pd));
    let mut state = lock(&state);
    if state.error("reg_mr").is_some() {
        return ptr::null_mut();
    }
    let mr = registered(&mut state, pd, (iova, addr.cast()), len, access as c_int, None);
    // SAFETY: the object was made above, if the pointer is not NULL.
    if let Some(mr) = unsafe { mr.as_mut() } {
        mr.addr = addr;
    }
    mr
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    len: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller keeps the promises of this call, which are the same.
    unsafe { ibv_reg_mr_iova2(pd, addr, len, iova, access as c_uint) }
}

/// Access flags that the device refuses: memory windows, regions whose addresses begin at zero, memory on
/// demand. It ignores flags for huge pages and those of the optional range.
const UNKNOWN_ACCESS: c_int = 1 << 4 | 1 << 5 | 1 << 6;

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
    let writes = access & (access::REMOTE_WRITE | access::REMOTE_ATOMIC) != 0;
    let wraps = base.checked_add(len as u64).is_none() || bytes.addr().checked_add(len).is_none();
    if (writes && access & access::LOCAL_WRITE == 0) || wraps || access & UNKNOWN_ACCESS != 0 {
        return refused(libc::EINVAL);
    }
    let remote = access::REMOTE_READ | access::REMOTE_WRITE | access::REMOTE_ATOMIC;
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
    // The caller must not make the file shorter. A dma-buf of the kernel cannot become shorter.
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
    give(&mut locked, EmuChannel { public, _references: 0, state, signal }).cast()
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
    if !(1..=MAX_CQE).contains(&cqe) {
        return refused(libc::EINVAL);
    }
    state.keys += 2;
    let handle = state.keys;
    // SAFETY: the pointer is NULL, or `ibv_create_comp_channel` made the object.
    let signal = unsafe { channel.as_ref() }.map_or(-1, |channel| channel.fd);
    let public = ibv_cq { context, channel, cq_context, handle, cqe };
    let cq = give(&mut state, EmuCq { public, waiters: abi::Waiters::UNUSED, events_completed: [0; 2] });
    let completions = Completions {
        public: cq.expose_provenance(),
        room: cqe as usize,
        armed: Armed::No,
        pending: 0,
        events: 0,
        signal,
        entries: VecDeque::with_capacity(cqe as usize),
    };
    state.completions.insert(handle, completions);
    cq.cast()
}

/// Changes the number of places for completions.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    let (state, handle) = cq_of(cq);
    let mut state = lock(&state);
    let Some(completions) = state.completions.get_mut(&handle) else { return libc::EINVAL };
    if !(1..=MAX_CQE).contains(&cqe) || completions.entries.len() > cqe as usize {
        return libc::EINVAL;
    }
    completions.room = cqe as usize;
    // SAFETY: the object was made by `ibv_create_cq`.
    unsafe { (*cq).cqe = cqe };
    0
}

/// Returns the state and the number of a completion queue.
pub(crate) fn cq_of(cq: *mut ibv_cq) -> (Shared, u32) {
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
    if unacknowledged || state.queues.values().any(|queue| queue.send_cq == handle || queue.recv_cq == handle)
    {
        return libc::EBUSY;
    }
    state.completions.remove(&handle);
    // SAFETY: the object was made by `ibv_create_cq`.
    unsafe { take(&mut state, cq.cast::<EmuCq>()) };
    0
}

/// Takes the next event. Blocks until there is one, unless the channel's file has O_NONBLOCK.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the object was made by `ibv_create_comp_channel`.
    let channel = unsafe { &*channel.cast::<EmuChannel>() };
    let fd = channel.public.fd;
    // The loop continues if the completion queue of the event was destroyed.
    loop {
        if let Err(errno) = rustix::io::read(&channel.signal, &mut [0; 8]) {
            set_errno(errno.raw_os_error());
            return -1;
        }
        let mut state = lock(&channel.state);
        let mut of_channel = state.completions.values_mut().filter(|cq| cq.signal == fd && cq.pending > 0);
        if let Some(completions) = of_channel.next() {
            completions.pending -= 1;
            completions.events += 1;
            let found = ptr::with_exposed_provenance_mut::<ibv_cq>(completions.public);
            // SAFETY: the object was made by `ibv_create_cq`, and exists as long as the entry in the table.
            let found_context = unsafe { (*found).cq_context };
            // SAFETY: the caller passes a pointer to which the completion queue can be written.
            unsafe { *cq = found };
            // SAFETY: the caller passes a pointer to which its own pointer can be written.
            unsafe { *context = found_context };
            return 0;
        }
    }
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
pub(crate) unsafe extern "C" fn ibv_create_srq(
    pd: *mut ibv_pd,
    init: *mut abi::ibv_srq_init_attr,
) -> *mut abi::ibv_srq {
    let context = context_of(pd);
    let state = state_of(context);
    let mut state = lock(&state);
    if state.error("create_srq").is_some() {
        return ptr::null_mut();
    }
    // SAFETY: the caller passes valid attributes, which can be written.
    let init = unsafe { &mut *init };
    let abi::ibv_srq_attr { max_wr, max_sge, .. } = init.attr;
    if !(1..=MAX_SRQ_WR).contains(&max_wr) || max_sge > MAX_SGE {
        return refused(libc::EINVAL);
    }
    let max_sge = max_sge.max(1);
    (init.attr.max_sge, init.attr.srq_limit) = (max_sge, 0);
    state.keys += 2;
    let handle = state.keys;
    let (srq_context, waiters) = (init.srq_context, abi::Waiters::UNUSED);
    let srq = abi::ibv_srq { context, srq_context, pd, handle, waiters, events_completed: 0 };
    let srq = give(&mut state, srq);
    let (public, receives) = (srq.expose_provenance(), VecDeque::new());
    let shared = SharedReceives { public, pd: pd.addr(), max_wr, max_sge, limit: 0, receives };
    state.shared_receives.insert(handle, shared);
    srq
}

/// Returns the state and the number of a shared receive queue.
pub(crate) fn srq_of(srq: *mut abi::ibv_srq) -> (Shared, u32) {
    // SAFETY: the object was made by `ibv_create_srq`.
    let srq = unsafe { &*srq };
    (state_of(srq.context), srq.handle)
}

/// Sets the limit below which an event is reported (bit 1 of `mask`). Changing the length (bit 0) is refused.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_modify_srq(
    srq: *mut abi::ibv_srq,
    attr: *mut abi::ibv_srq_attr,
    mask: c_int,
) -> c_int {
    let (state, handle) = srq_of(srq);
    let mut state = lock(&state);
    let Some(shared) = state.shared_receives.get_mut(&handle) else { return libc::EINVAL };
    // SAFETY: the caller passes valid attributes.
    let limit = unsafe { (*attr).srq_limit };
    if mask != 1 << 1 || limit > shared.max_wr {
        return libc::EINVAL;
    }
    shared.limit = limit;
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_srq(srq: *mut abi::ibv_srq, attr: *mut abi::ibv_srq_attr) -> c_int {
    let (state, handle) = srq_of(srq);
    let state = lock(&state);
    let Some(shared) = state.shared_receives.get(&handle) else { return libc::EINVAL };
    let &SharedReceives { max_wr, max_sge, limit: srq_limit, .. } = shared;
    // SAFETY: the caller passes a pointer to which the attributes can be written.
    unsafe { *attr = abi::ibv_srq_attr { max_wr, max_sge, srq_limit } };
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_srq(srq: *mut abi::ibv_srq) -> c_int {
    let (state, handle) = srq_of(srq);
    let mut state = lock(&state);
    if state.queues.values().any(|queue| queue.srq == Some(handle)) {
        return libc::EBUSY;
    }
    state.shared_receives.remove(&handle);
    // SAFETY: the object was made by `ibv_create_srq`, and is destroyed once.
    unsafe { take(&mut state, srq) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    // SAFETY: the caller passes valid attributes, which can be written.
    new_qp(pd, unsafe { &mut *attr }, false)
}

/// `IBV_QP_EX_WITH_*` of the requests that a queue pair can build in place: writes, sends, both with
/// immediate data, reads, atomic operations.
const SEND_OPS: u64 = 0x7f;

unsafe extern "C" fn create_qp_ex(
    _context: *mut ibv_context,
    attr: *mut abi::ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: the caller passes valid attributes, which can be written.
    let attr = unsafe { &mut *attr };
    let has_flags = attr.comp_mask & init_mask::SEND_OPS_FLAGS != 0;
    if attr.comp_mask & !(init_mask::PD | init_mask::SEND_OPS_FLAGS) != 0
        || attr.comp_mask & init_mask::PD == 0
        || (has_flags && attr.send_ops_flags & !SEND_OPS != 0)
    {
        return refused(libc::EOPNOTSUPP);
    }
    let &mut abi::ibv_qp_init_attr_ex { qp_context, send_cq, recv_cq, srq, cap, qp_type, .. } = attr;
    let sq_sig_all = attr.sq_sig_all;
    let mut plain = ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all };
    let qp = new_qp(attr.pd, &mut plain, has_flags);
    attr.cap = plain.cap;
    qp
}

fn new_qp(pd: *mut ibv_pd, init: &mut ibv_qp_init_attr, builds: bool) -> *mut ibv_qp {
    let context = context_of(pd);
    let shared = state_of(context);
    let mut state = lock(&shared);
    if state.error("create_qp").is_some() {
        return ptr::null_mut();
    }
    let ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, qp_type, sq_sig_all, .. } = *init;
    let cap = &mut init.cap;
    let most = state.max_qp_wr as u32;
    if !(QPT_RC..=QPT_UD).contains(&qp_type) {
        return refused(libc::EOPNOTSUPP);
    }
    let receives = if srq.is_null() { (cap.max_recv_wr, cap.max_recv_sge) } else { (0, 0) };
    if cap.max_send_wr > most
        || receives.0 > most
        || cap.max_send_sge.max(receives.1) > MAX_SGE
        || cap.max_inline_data > MAX_INLINE
        || send_cq.is_null()
        || recv_cq.is_null()
    {
        return refused(libc::EINVAL);
    }
    (cap.max_recv_wr, cap.max_recv_sge) = receives;
    let Some(qp_num) = number_of_new(&shared, &mut state) else {
        return refused(libc::ENOMEM);
    };
    let base = ibv_qp { context, qp_context, pd, send_cq, recv_cq, srq, handle: qp_num, qp_num };
    let qp = give(
        &mut state,
        EmuQp {
            public: writers(base, qp_type),
            builds,
            is_building: AtomicBool::new(false),
            built: Vec::new(),
        },
    );
    let (_, send_cq) = cq_of(send_cq);
    let (_, recv_cq) = cq_of(recv_cq);
    let queue = Queue {
        pd: pd.addr(),
        qp_type,
        attr: ibv_qp_attr { cap: *cap, ..ibv_qp_attr::default() },
        send_cq,
        recv_cq,
        srq: (!srq.is_null()).then(|| srq_of(srq.cast()).1),
        signals_all: sq_sig_all != 0,
        posted: 0,
        retired: 0,
        resets: 0,
        is_asking: false,
        waiting: VecDeque::new(),
        receives: VecDeque::new(),
    };
    state.queues.insert(qp_num, queue);
    qp.cast()
}

/// Returns the queue pair with the calls that build requests in place, if it was made for them.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut abi::ibv_qp_ex {
    // SAFETY: the object was made by `new_qp`.
    if unsafe { (*qp.cast::<EmuQp>()).builds } { qp.cast() } else { ptr::null_mut() }
}

/// Makes an address of a peer on this machine. It has no state: datagrams name the peer's queue pair.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut abi::ibv_ah {
    let context = context_of(pd);
    let state = state_of(context);
    let mut state = lock(&state);
    // SAFETY: the caller passes valid attributes.
    if !reaches(state.link_layer, unsafe { &*attr }) {
        return refused(libc::EINVAL);
    }
    state.keys += 2;
    let handle = state.keys;
    give(&mut state, abi::ibv_ah { context, pd, handle })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_ah(ah: *mut abi::ibv_ah) -> c_int {
    // SAFETY: the object was made by `ibv_create_ah`.
    let state = state_of(unsafe { (*ah).context });
    // SAFETY: the object was made by `ibv_create_ah`, and is destroyed once.
    unsafe { take(&mut lock(&state), ah) };
    0
}

/// Returns true if a path leads from this port to this machine's port.
fn reaches(link_layer: u8, path: &ibv_ah_attr) -> bool {
    let global = link_layer == LINK_LAYER_ETHERNET;
    path.port_num == 1 && (!global || (path.is_global == 1 && path.grh.dgid == GID))
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
pub(crate) fn qp_of(qp: *mut ibv_qp) -> (Shared, u32) {
    // SAFETY: the object was made by `ibv_create_qp`.
    let qp = unsafe { &*qp };
    (state_of(qp.context), qp.qp_num)
}

/// Returns the attributes that a step from one state to another needs, and those that it may have besides:
/// ibv_modify_qp(3) lists them. Returns `None` if there is no such step.
const fn step_masks(qp_type: c_int, from: c_int, to: c_int) -> Option<(c_int, c_int)> {
    use qp_mask as m;
    let own = if qp_type == QPT_UD { m::QKEY } else { m::ACCESS_FLAGS };
    let path = m::AV | m::PATH_MTU | m::DEST_QPN | m::RQ_PSN;
    let (path, receives, sends) = match qp_type {
        QPT_UD => (0, 0, 0),
        QPT_UC => (path, 0, 0),
        _ => (
            path,
            m::MAX_DEST_RD_ATOMIC | m::MIN_RNR_TIMER,
            m::TIMEOUT | m::RETRY_CNT | m::RNR_RETRY | m::MAX_QP_RD_ATOMIC,
        ),
    };
    Some(match (from, to) {
        (_, qp_state::RESET | qp_state::ERR) => (m::STATE, m::CUR_STATE),
        (qp_state::RESET, qp_state::INIT) => (m::STATE | m::PKEY_INDEX | m::PORT | own, 0),
        (qp_state::INIT, qp_state::INIT) => (0, m::STATE | m::PKEY_INDEX | m::PORT | own),
        (qp_state::INIT, qp_state::RTR) => (m::STATE | path | receives, m::PKEY_INDEX | own),
        (qp_state::RTR, qp_state::RTS) => {
            (m::STATE | m::SQ_PSN | sends, m::CUR_STATE | own | m::MIN_RNR_TIMER)
        }
        (qp_state::RTS, qp_state::RTS) => (0, m::STATE | m::CUR_STATE | own | m::MIN_RNR_TIMER),
        _ => return None,
    })
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
    let link_layer = state.link_layer;
    let State { queues, node, .. } = &mut *state;
    let Some(queue) = queues.get_mut(&number) else { return libc::EINVAL };
    let from = queue.attr.qp_state;
    let to = if mask & m::STATE != 0 { attr.qp_state } else { from };
    let Some((needs, may)) = step_masks(queue.qp_type, from, to) else { return libc::EINVAL };
    if mask & needs != needs
        || mask & !(needs | may) != 0
        || (mask & m::PORT != 0 && attr.port_num != 1)
        || (mask & m::PKEY_INDEX != 0 && attr.pkey_index != 0)
        || (mask & m::CUR_STATE != 0 && attr.cur_qp_state != from)
        || (mask & m::AV != 0 && !reaches(link_layer, &attr.ah_attr))
        || (mask & m::PATH_MTU != 0 && !(1..=4).contains(&attr.path_mtu))
        || (mask & m::DEST_QPN != 0 && attr.dest_qp_num == 0)
    {
        return libc::EINVAL;
    }
    macro_rules! set {
        ($($bit:ident $field:ident;)*) => {
            $(if mask & m::$bit != 0 {
                queue.attr.$field = attr.$field;
            })*
        };
    }
    set! {
        STATE qp_state; QKEY qkey; ACCESS_FLAGS qp_access_flags; PKEY_INDEX pkey_index; PORT port_num; AV ah_attr;
        PATH_MTU path_mtu; TIMEOUT timeout; RETRY_CNT retry_cnt; RNR_RETRY rnr_retry; RQ_PSN rq_psn;
        MAX_QP_RD_ATOMIC max_rd_atomic; MIN_RNR_TIMER min_rnr_timer; SQ_PSN sq_psn;
        MAX_DEST_RD_ATOMIC max_dest_rd_atomic; DEST_QPN dest_qp_num;
    }
    // SAFETY: the object was made by `new_qp`.
    unsafe { (*qp.cast::<EmuQp>()).public.state = to };
    match to {
        qp_state::RESET => {
            queue.waiting.clear();
            queue.receives.clear();
            queue.retired = queue.posted;
            // An answer that arrives after this is ignored.
            queue.resets += 1;
            queue.is_asking = false;
            queue.attr = ibv_qp_attr { cap: queue.attr.cap, ..ibv_qp_attr::default() };
        }
        qp_state::RTR => {
            let is_datagram = queue.qp_type == QPT_UD;
            if let Some(node) = node.as_mut().filter(|node| is_datagram || node.is_foreign(attr.dest_qp_num))
                && node.serve().is_err()
            {
                return libc::ENOMEM;
            }
        }
        qp_state::ERR => {
            state.fail(number);
            state.run_queue(number, u64::MAX);
        }
        _ => {}
    }
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    let (state, number) = qp_of(qp);
    let state = lock(&state);
    let Some(queue) = state.queues.get(&number) else { return libc::EINVAL };
    let current = ibv_qp_attr { cur_qp_state: queue.attr.qp_state, ..queue.attr };
    // SAFETY: the object was made by `new_qp`.
    let &ibv_qp { qp_context, send_cq, recv_cq, srq, .. } = unsafe { &*qp };
    let (cap, sq_sig_all) = (queue.attr.cap, queue.signals_all.into());
    // SAFETY: the caller passes a pointer to which the attributes can be written.
    unsafe { *attr = current };
    let qp_type = queue.qp_type;
    let made = ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all };
    // SAFETY: the caller passes a pointer to which the attributes can be written.
    unsafe { *init = made };
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
    // SAFETY: the object was made by `new_qp`, and is destroyed once.
    unsafe { take(&mut state, qp.cast::<EmuQp>()) };
    0
}

/// There is nothing to prepare: the device reads and writes the process's own memory.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_fork_init() -> c_int {
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_is_fork_initialized() -> c_int {
    FORK_UNNEEDED
}

/// The directory where Linux has the attributes of devices. The stand-in has none there.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    const PATH: &CStr = c"/sys";
    PATH.as_ptr()
}

/// Reads no file, because the devices have none.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_read_sysfs_file(
    _dir: *const c_char,
    _file: *const c_char,
    _text: *mut c_char,
    _len: usize,
) -> c_int {
    set_errno(libc::ENOENT);
    -1
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
