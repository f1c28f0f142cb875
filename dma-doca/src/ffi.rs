//! Helpers for calls of the SDK.
#![expect(unsafe_code, reason = "calls C")]

use std::ffi::{CStr, c_char};
use std::sync::{Arc, MutexGuard};

use dma_core::Result;
use dma_process::ForkLock;
use doca_sys::Library;
use doca_sys::bindings::{DOCA_SUCCESS, doca_error_t};

use crate::error::check;

/// The SDK's calls, shared by the objects of an engine.
pub(crate) type Sdk = Arc<Library>;

/// Locks the creation and destruction of devices, contexts and progress engines, because real libraries
/// return `NO_MEMORY` if several threads create contexts at once.
pub(crate) fn creation() -> MutexGuard<'static, ()> {
    static CREATION: ForkLock<()> = ForkLock::new(|| ());
    CREATION.lock()
}

/// Returns the value that `call` writes through its pointer, if `call` succeeds.
pub(crate) fn out<T>(
    sdk: &Library,
    name: &'static str,
    initial: T,
    call: impl FnOnce(*mut T) -> doca_error_t,
) -> Result<T> {
    let mut value = initial;
    let code = call(&raw mut value);
    check(sdk, name, code).map(|()| value)
}

/// Returns the text that `call` writes into a buffer of `N` bytes, or `None` if `call` fails.
pub(crate) fn text<const N: usize>(call: impl FnOnce(*mut c_char) -> doca_error_t) -> Option<String> {
    // The buffer has one byte more than the call may write, so that the text always has a NUL.
    let mut buffer = vec![0_u8; N + 1];
    if call(buffer.as_mut_ptr().cast()) != DOCA_SUCCESS {
        return None;
    }
    buffer[N] = 0;
    let text = CStr::from_bytes_until_nul(&buffer).ok()?;
    Some(text.to_string_lossy().into_owned())
}

/// Like [`text`], for a call that takes the buffer's size. `None` if the library lacks the call.
///
/// # Safety
///
/// `object` is a valid argument of `call`.
pub(crate) unsafe fn text_of<const N: usize, T>(
    call: Option<unsafe extern "C" fn(*const T, *mut c_char, u32) -> doca_error_t>,
    object: *const T,
) -> Option<String> {
    let call = call?;
    // SAFETY: the caller promises that `object` is a valid argument of `call`, and the buffer has the stated
    // size.
    text::<N>(|buffer| unsafe { call(object, buffer, N as u32) }).filter(|text| !text.is_empty())
}

/// Copies a C list of `count` pointers.
///
/// # Safety
///
/// `list` points to `count` pointers, or `count` is 0.
pub(crate) unsafe fn pointers<T>(list: *mut *mut T, count: u32) -> Vec<*mut T> {
    if list.is_null() || count == 0 {
        return Vec::new();
    }
    // SAFETY: the caller promises that `list` points to `count` pointers.
    unsafe { std::slice::from_raw_parts(list, count as usize) }.to_vec()
}
