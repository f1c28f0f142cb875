//! Protection domains and registered memory.
#![expect(unsafe_code, reason = "implements calls of C on objects that callers pass by address")]

use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::BorrowedFd;
use std::ptr;

use dma_standin::dmabuf_range;
use verbs_sys::*;

use super::objects::{context_of, give, refused, state_of, take};
use crate::abi;
use crate::device::{Region, State, lock};

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    let state = state_of(context);
    let mut state = lock(&state);
    if state.error("alloc_pd").is_some() {
        return ptr::null_mut();
    }
    state.keys += 2;
    let handle = state.keys;
    give(&mut state, abi::ibv_pd { context, handle }).cast()
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
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
pub(super) unsafe extern "C" fn ibv_reg_mr(
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
pub(super) unsafe extern "C" fn ibv_reg_dmabuf_mr(
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
    // SAFETY: the caller keeps the file open during the call. If it is not open, the call below fails.
    let Ok((start, size)) = dmabuf_range(unsafe { BorrowedFd::borrow_raw(fd) }) else {
        return refused(libc::EBADF);
    };
    let end = offset.checked_add(len as u64);
    if iova as usize % page != skip || end.is_none_or(|end| end > size) {
        return refused(libc::EINVAL);
    }
    let (mapped, rights) = (len + skip, libc::PROT_READ | libc::PROT_WRITE);
    let at = start + offset - skip as u64;
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
pub(super) unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
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
