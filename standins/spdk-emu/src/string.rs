//! Strings.
#![expect(unsafe_code, reason = "the names are C's; calls of the C library")]

use std::ffi::{CString, c_char, c_int, c_long, c_longlong};

use crate::c_abi::{Ptr, Text, c_calls};

/// Returns the C library's description of an error.
fn describe(errnum: c_int) -> CString {
    // SAFETY: the call accepts any number.
    let text = unsafe { libc::strerror(errnum) };
    // SAFETY: the call returns a string that ends in NUL. It is copied before another call on this thread can
    // change it.
    let text = unsafe { Text::new(text) };
    text.get().unwrap_or_default().to_owned()
}

c_calls! {
    fn spdk_strerror_r(errnum: c_int, buf: Ptr<c_char>, buflen: usize) {
        // SAFETY: C promises room for `buflen` bytes.
        unsafe { buf.put_text(buflen, &describe(errnum).to_string_lossy()) };
    }

    /// Returns the description of an error. The string is valid until the next call on this thread.
    fn spdk_strerror(errnum: c_int) -> *const c_char {
        thread_local! {
            static LAST: std::cell::RefCell<CString> = std::cell::RefCell::default();
        }
        LAST.with_borrow_mut(|last| {
            *last = describe(errnum);
            last.as_ptr()
        })
    }
}

/// Parses the whole string as a number that is not negative.
fn number(text: Text, base: c_int) -> Result<c_longlong, c_int> {
    let text = text.get().ok_or(-libc::EINVAL)?;
    let mut end = std::ptr::null_mut();
    let errno = errno_location();
    errno.put(0);
    // SAFETY: the text is a string that ends in NUL, and `end` can be written.
    let value = unsafe { strtoll(text.as_ptr(), &raw mut end, base) };
    // SAFETY: `end` is null, or within the string or at its NUL. So the rest is a string too.
    let rest = unsafe { Text::new(end) };
    let stopped = rest.get().is_some_and(|rest| !rest.is_empty());
    match errno.get().copied().unwrap_or(0) {
        0 if stopped => Err(-libc::EINVAL),
        0 if value < 0 => Err(-libc::ERANGE),
        0 => Ok(value),
        errno => Err(-errno),
    }
}

unsafe extern "C" {
    fn strtoll(text: *const c_char, end: *mut *mut c_char, base: c_int) -> c_longlong;
}

fn errno_location() -> Ptr<c_int> {
    // SAFETY: the call takes no arguments and has no requirements.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the address is that of this thread's `errno`, which is valid as long as this thread runs.
    unsafe { Ptr::new(place) }
}

c_calls! {
    fn spdk_strtol(nptr: Text, base: c_int) -> c_long {
        number(nptr, base).unwrap_or_else(c_longlong::from) as c_long
    }

    fn spdk_strtoll(nptr: Text, base: c_int) -> c_longlong {
        number(nptr, base).unwrap_or_else(c_longlong::from)
    }

    /// Parses a number of bytes such as `4096`, `4K`, `4M` or `4G`.
    fn spdk_parse_capacity(cap_str: Text, cap: Ptr<u64>, has_prefix: Ptr<bool>) -> c_int {
        let Some(text) = cap_str.utf8() else { return -libc::EINVAL };
        let text = text.trim_start();
        let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at(split);
        let scale = match unit.bytes().next().map(|unit| unit.to_ascii_lowercase()) {
            None => 1,
            Some(b'k') => 1 << 10,
            Some(b'm') => 1 << 20,
            Some(b'g') => 1 << 30,
            Some(_) => return -libc::EINVAL,
        };
        let Ok(number) = digits.parse::<u64>() else { return -libc::EINVAL };
        let Some(bytes) = number.checked_mul(scale) else { return -libc::ERANGE };
        cap.put(bytes);
        has_prefix.put(!unit.is_empty());
        0
    }

    fn spdk_mem_all_zero(data: Ptr<u8>, size: usize) -> bool {
        // SAFETY: C passes `size` bytes, and does not change them during the call.
        unsafe { data.slice(size) }.iter().all(|byte| *byte == 0)
    }
}
