//! Calls from the limit on, and calls before the library has started.
#![expect(unsafe_code, reason = "executes the C library's functions")]

use core::arch::asm;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering::Relaxed};

use super::{Operation, cell, dsa, system};
use crate::learner::{Method, Methods, margin};
use crate::options::MIN_LEN;
use crate::stream;

type Copy = unsafe extern "C" fn(*mut u8, *const u8, usize) -> *mut c_void;
type CheckedCopy = unsafe extern "C" fn(*mut u8, *const u8, usize, usize) -> *mut c_void;
type Fill = unsafe extern "C" fn(*mut u8, c_int, usize) -> *mut c_void;
type CheckedFill = unsafe extern "C" fn(*mut u8, c_int, usize, usize) -> *mut c_void;
type Compare = unsafe extern "C" fn(*const u8, *const u8, usize) -> c_int;

/// The addresses of the C library's functions. NULL until the library has started.
#[derive(Default)]
pub(super) struct Real {
    /// Also executes `memcpy`: on x86-64 both are the same code, and old programs call a `memcpy` whose
    /// ranges may overlap.
    pub(super) memmove: AtomicPtr<c_void>,
    pub(super) memset: AtomicPtr<c_void>,
    /// Also executes `bcmp`.
    pub(super) memcmp: AtomicPtr<c_void>,
    pub(super) memcpy_chk: AtomicPtr<c_void>,
    pub(super) memmove_chk: AtomicPtr<c_void>,
    pub(super) memset_chk: AtomicPtr<c_void>,
}

pub(super) static REAL: Real = Real {
    memmove: AtomicPtr::new(core::ptr::null_mut()),
    memset: AtomicPtr::new(core::ptr::null_mut()),
    memcmp: AtomicPtr::new(core::ptr::null_mut()),
    memcpy_chk: AtomicPtr::new(core::ptr::null_mut()),
    memmove_chk: AtomicPtr::new(core::ptr::null_mut()),
    memset_chk: AtomicPtr::new(core::ptr::null_mut()),
};

/// The policy of the options, which never changes after the start.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Policy {
    /// The C library executes all calls.
    Off,
    /// The learner chooses.
    Learn,
    /// All calls are streamed, except comparisons.
    Stream,
    /// All calls go to the device. While it is busy or lost, they are streamed.
    Device,
}

static POLICY: AtomicU8 = AtomicU8::new(Policy::Off as u8);
static OWN_CACHE: AtomicUsize = AtomicUsize::new(0);

/// Sets what calls do from now on.
pub(super) fn set_policy(policy: Policy, own_cache: usize) {
    OWN_CACHE.store(own_cache, Relaxed);
    POLICY.store(policy as u8, Relaxed);
}

/// Returns the C library's function, or `None` before the start. `F` is the function's type.
///
/// # Safety
///
/// The address in `real` is that of a function of type `F`, which is a function pointer, or NULL.
unsafe fn function<F>(real: &AtomicPtr<c_void>) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    let address = real.load(Relaxed);
    // SAFETY: see the function's requirements.
    (!address.is_null()).then(|| unsafe { core::mem::transmute_copy(&address) })
}

/// Chooses the method of a call of at least [`MIN_LEN`] bytes.
fn pick(operation: Operation, len: usize) -> (Method, bool) {
    let device = dsa::is_usable();
    let stream = !matches!(operation, Operation::Compare);
    let policy = POLICY.load(Relaxed);
    if policy == Policy::Learn as u8 {
        let mut methods = Methods::LIBRARY;
        if stream {
            methods = methods.with(Method::Stream);
        }
        if device {
            methods = methods.with(Method::Device);
        }
        return (cell(operation, len).pick(methods), true);
    }
    let method = if policy == Policy::Device as u8 && device {
        Method::Device
    } else if stream && policy != Policy::Off as u8 {
        Method::Stream
    } else {
        Method::Library
    };
    (method, false)
}

/// Executes a call by the method that is chosen for it, and records its time. `device` returns `None` if the
/// device is busy; then `library` executes the call.
#[inline(always)]
fn execute<T>(
    operation: Operation,
    len: usize,
    library: impl Fn() -> T,
    stream: impl Fn() -> T,
    device: impl Fn() -> Option<T>,
) -> T {
    let (mut method, learns) = pick(operation, len);
    let start = if learns { system::ticks() } else { 0 };
    let result = match method {
        Method::Library => library(),
        Method::Stream => stream(),
        Method::Device => device().unwrap_or_else(|| {
            method = Method::Library;
            library()
        }),
    };
    let cell = cell(operation, len);
    cell.count(method, len);
    if learns {
        let ticks = system::ticks().saturating_sub(start);
        let fills = matches!(operation, Operation::Fill);
        cell.record(method, ticks, len, margin(fills, len, OWN_CACHE.load(Relaxed)));
    }
    result
}

/// Returns true if the ranges overlap, or if one does not fit the address space.
fn overlap(dst: *mut u8, src: *const u8, len: usize) -> bool {
    let (dst, src) = (dst.addr(), src.addr());
    match (dst.checked_add(len), src.checked_add(len)) {
        (Some(dst_end), Some(src_end)) => dst < src_end && src < dst_end,
        _ => true,
    }
}

pub(super) unsafe extern "C" fn copy(dst: *mut u8, src: *const u8, len: usize) -> *mut c_void {
    // SAFETY: the field has the address of this function.
    let Some(memmove) = (unsafe { function::<Copy>(&REAL.memmove) }) else {
        // SAFETY: the caller meets the requirements of `memmove`.
        return unsafe { early_copy(dst, src, len) };
    };
    // SAFETY: the caller meets the requirements of `memmove`.
    let library = || unsafe { memmove(dst, src, len) };
    if len < MIN_LEN || overlap(dst, src, len) {
        return library();
    }
    let stream = || {
        // SAFETY: the caller meets the requirements of `memmove`, and the ranges do not overlap.
        unsafe { stream::copy(dst, src, len) };
        dst.cast()
    };
    // SAFETY: the caller meets the requirements of `memmove`, and the ranges do not overlap.
    let device = || unsafe { dsa::copy(dst, src, len) }.then_some(dst.cast());
    execute(Operation::Copy, len, library, stream, device)
}

pub(super) unsafe extern "C" fn fill(dst: *mut u8, byte: c_int, len: usize) -> *mut c_void {
    // SAFETY: the field has the address of this function.
    let Some(memset) = (unsafe { function::<Fill>(&REAL.memset) }) else {
        // SAFETY: the caller meets the requirements of `memset`.
        unsafe { stream::fill_bytes(dst, byte as u8, len) };
        return dst.cast();
    };
    // SAFETY: the caller meets the requirements of `memset`.
    let library = || unsafe { memset(dst, byte, len) };
    if len < MIN_LEN || dst.addr().checked_add(len).is_none() {
        return library();
    }
    let stream = || {
        // SAFETY: the caller meets the requirements of `memset`.
        unsafe { stream::fill(dst, byte as u8, len) };
        dst.cast()
    };
    // SAFETY: the caller meets the requirements of `memset`.
    let device = || unsafe { dsa::fill(dst, byte as u8, len) }.then_some(dst.cast());
    execute(Operation::Fill, len, library, stream, device)
}

pub(super) unsafe extern "C" fn compare(a: *const u8, b: *const u8, len: usize) -> c_int {
    // SAFETY: the field has the address of this function.
    let Some(memcmp) = (unsafe { function::<Compare>(&REAL.memcmp) }) else {
        // SAFETY: the caller meets the requirements of `memcmp`.
        return unsafe { early_compare(a, b, len) };
    };
    // SAFETY: the caller meets the requirements of `memcmp`.
    let library = || unsafe { memcmp(a, b, len) };
    if len < MIN_LEN || a.addr().checked_add(len).is_none() || b.addr().checked_add(len).is_none() {
        return library();
    }
    let device = || {
        // SAFETY: the caller meets the requirements of `memcmp`.
        let equal = unsafe { dsa::compare(a, b, len) }?;
        // SAFETY: the first `equal` bytes are equal, so the result is that of the remaining ones.
        Some(unsafe { memcmp(a.wrapping_add(equal), b.wrapping_add(equal), len - equal) })
    };
    execute(Operation::Compare, len, library, library, device)
}

pub(super) unsafe extern "C" fn copy_checked(
    dst: *mut u8,
    src: *const u8,
    len: usize,
    room: usize,
) -> *mut c_void {
    // SAFETY: the caller meets the requirements of `__memcpy_chk`, which is the function of the field.
    unsafe { checked(&REAL.memcpy_chk, dst, src, len, room) }
}

pub(super) unsafe extern "C" fn move_checked(
    dst: *mut u8,
    src: *const u8,
    len: usize,
    room: usize,
) -> *mut c_void {
    // SAFETY: the caller meets the requirements of `__memmove_chk`, which is the function of the field.
    unsafe { checked(&REAL.memmove_chk, dst, src, len, room) }
}

/// # Safety
///
/// `real` has the address of the C library's function, for which the arguments are.
unsafe fn checked(
    real: &AtomicPtr<c_void>,
    dst: *mut u8,
    src: *const u8,
    len: usize,
    room: usize,
) -> *mut c_void {
    if room >= len {
        // SAFETY: the caller meets the requirements of `memmove`.
        return unsafe { copy(dst, src, len) };
    }
    // SAFETY: the caller guarantees the type.
    let real = unsafe { function::<CheckedCopy>(real) }.unwrap_or_else(|| system::trap());
    // SAFETY: the C library reports the overflow, and ends the process.
    unsafe { real(dst, src, len, room) }
}

pub(super) unsafe extern "C" fn fill_checked(
    dst: *mut u8,
    byte: c_int,
    len: usize,
    room: usize,
) -> *mut c_void {
    if room >= len {
        // SAFETY: the caller meets the requirements of `memset`.
        return unsafe { fill(dst, byte, len) };
    }
    // SAFETY: the field has the address of this function.
    let real = unsafe { function::<CheckedFill>(&REAL.memset_chk) }.unwrap_or_else(|| system::trap());
    // SAFETY: the C library reports the overflow, and ends the process.
    unsafe { real(dst, byte, len, room) }
}

/// Copies before the start.
///
/// # Safety
///
/// As for `memmove`.
unsafe fn early_copy(dst: *mut u8, src: *const u8, len: usize) -> *mut c_void {
    if dst.addr().wrapping_sub(src.addr()) >= len {
        // SAFETY: the destination is below the source, or behind its end.
        unsafe { stream::bytes(dst, src, len) };
        return dst.cast();
    }
    // SAFETY: copies downwards. The calling convention requires that the direction flag is clear afterwards.
    unsafe {
        asm!("std", "rep movsb", "cld", inout("rdi") dst.wrapping_add(len).wrapping_sub(1) => _,
            inout("rsi") src.wrapping_add(len).wrapping_sub(1) => _, inout("rcx") len => _, options(nostack));
    }
    dst.cast()
}

/// Compares before the start.
///
/// # Safety
///
/// As for `memcmp`.
unsafe fn early_compare(a: *const u8, b: *const u8, len: usize) -> c_int {
    let (mut above, mut below): (u8, u8);
    // SAFETY: reads up to `len` bytes of each range. The comparison at the start makes both flags clear if
    // there are no bytes.
    unsafe {
        asm!("cmp rcx, rcx", "repe cmpsb", "seta {above}", "setb {below}", above = out(reg_byte) above,
            below = out(reg_byte) below, inout("rsi") a => _, inout("rdi") b => _, inout("rcx") len => _,
            options(nostack, readonly));
    }
    c_int::from(above) - c_int::from(below)
}
