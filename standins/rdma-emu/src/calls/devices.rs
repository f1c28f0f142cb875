//! Devices, contexts, ports, and asynchronous events.
#![expect(unsafe_code, reason = "implements calls of C on objects that callers pass by address")]

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::Arc;

use dma_standin::c_abi::require;
use rustix::event::EventfdFlags;
use verbs_sys::*;

use super::objects::{
    EmuContext, EmuDevice, MAX_CQE, MAX_SGE, MAX_SRQ_WR, device_of, emu_context, give, new_eventfd, set_text,
    state_of, take,
};
use super::queue_pairs::create_qp_ex;
use crate::abi;
use crate::config::configured;
use crate::device::{GID, LISTED, Nic, lock, set_errno};
use crate::requests::{poll_cq, post_recv, post_send, post_srq_recv, req_notify_cq};

/// Number of entries of the table of GIDs.
const GIDS: u32 = 3;

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn ibv_get_device_list(number: *mut c_int) -> *mut *mut ibv_device {
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
pub(super) unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
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
pub(super) unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
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
pub(super) unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
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
pub(super) unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
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
pub(super) unsafe extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
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
    require(port == 1, libc::EINVAL)?;
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
pub(super) unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
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
pub(super) unsafe extern "C" fn ibv_query_gid(
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
pub(super) unsafe extern "C" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
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
pub(super) unsafe extern "C" fn ibv_ack_async_event(_event: *mut ibv_async_event) {}

/// There is nothing to prepare: the device reads and writes the process's own memory.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_fork_init() -> c_int {
    0
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn ibv_is_fork_initialized() -> c_int {
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
