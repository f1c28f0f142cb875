//! Strings.
#![expect(unsafe_code, reason = "the names are C's; calls of the C library")]

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_longlong};

use crate::c_abi::{Ptr, Text, c_calls, put_text, to_malloc};

/// Overwrites a string with one that is not longer.
///
/// # Safety
///
/// `to` is a string at least as long as `bytes`, and not NULL.
unsafe fn overwrite(to: Ptr<c_char>, bytes: &[u8]) {
    for (i, byte) in bytes.iter().chain(&[0]).enumerate() {
        // SAFETY: the caller's promise.
        unsafe { to.write(i, *byte as c_char) };
    }
}

/// # Safety
///
/// It is NULL, or a string.
unsafe fn bytes_of(text: Ptr<c_char>) -> Vec<u8> {
    // SAFETY: the caller's promise.
    let text = unsafe { Text::new(text.raw()) };
    text.get().map_or_else(Vec::new, |text| text.to_bytes().to_vec())
}

c_calls! {
    fn spdk_strlwr(s: Ptr<c_char>) -> Ptr<c_char> {
        if !s.is_null() {
            // SAFETY: a string of C's, which it may change.
            let bytes = unsafe { bytes_of(s) };
            // SAFETY: not longer than it was.
            unsafe { overwrite(s, &bytes.to_ascii_lowercase()) };
        }
        s
    }

    fn spdk_str_trim(s: Ptr<c_char>) -> Ptr<c_char> {
        if !s.is_null() {
            // SAFETY: a string of C's, which it may change.
            let bytes = unsafe { bytes_of(s) };
            // SAFETY: not longer than it was.
            unsafe { overwrite(s, bytes.trim_ascii()) };
        }
        s
    }

    /// Removes line ends from the end. Returns their number.
    fn spdk_str_chomp(s: Ptr<c_char>) -> usize {
        // SAFETY: C's promise.
        let bytes = unsafe { bytes_of(s) };
        let kept = bytes.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |last| last + 1);
        if kept < bytes.len() {
            // SAFETY: within the string.
            unsafe { s.write(kept, 0) };
        }
        bytes.len() - kept
    }

    /// Splits off the next part of a string at separators. Quotes and backslashes escape separators, and are
    /// removed.
    fn spdk_strsepq(stringp: Ptr<Ptr<c_char>>, delim: Text) -> Ptr<c_char> {
        let Some(start) = stringp.get().copied().filter(|start| !start.is_null()) else { return Ptr::NULL };
        // SAFETY: C's promise.
        let bytes = unsafe { bytes_of(start) };
        let separators = delim.get().map_or(&[][..], CStr::to_bytes);
        let (mut part, mut quote, mut at) = (Vec::new(), None, 0);
        let mut ended = false;
        while let Some(&byte) = bytes.get(at).filter(|byte| **byte != b'\n') {
            at += 1;
            match (quote, byte) {
                (None | Some(b'"'), b'\\') => {
                    part.extend(bytes.get(at));
                    at += 1;
                }
                (Some(open), _) if open == byte => quote = None,
                (None, b'"' | b'\'') => quote = Some(byte),
                (None, _) if separators.contains(&byte) => {
                    ended = true;
                    break;
                }
                _ => part.push(byte),
            }
        }
        while bytes.get(at).is_some_and(|byte| separators.contains(byte)) {
            at += 1;
        }
        let more = ended && at < bytes.len();
        // SAFETY: not longer than it was.
        unsafe { overwrite(start, &part) };
        // SAFETY: within the string.
        let rest = unsafe { Ptr::new(start.raw().wrapping_add(at)) };
        stringp.put(if more { rest } else { Ptr::NULL });
        start
    }

    fn spdk_strcpy_pad(dst: Ptr<u8>, src: Text, size: usize, pad: c_int) {
        let text = src.get().unwrap_or_default().to_bytes();
        for (i, byte) in text.iter().copied().chain(std::iter::repeat(pad as u8)).take(size).enumerate() {
            // SAFETY: C has room for `size` bytes.
            unsafe { dst.write(i, byte) };
        }
    }

    fn spdk_strlen_pad(str: Ptr<u8>, size: usize, pad: c_int) -> usize {
        // SAFETY: C passes `size` bytes.
        unsafe { str.slice(size) }.iter().rposition(|byte| *byte != pad as u8).map_or(0, |last| last + 1)
    }

    fn spdk_strcpy_replace(dst: Ptr<c_char>, size: usize, src: Text, search: Text, replace: Text) -> c_int {
        let (Some(src), Some(search), Some(replace)) = (src.str(), search.str(), replace.str()) else {
            return -libc::EINVAL;
        };
        let new = if search.is_empty() { src.to_owned() } else { src.replace(search, replace) };
        // SAFETY: C has room for `size` bytes.
        if new.len() >= size || !unsafe { put_text(dst, size, &new) } { -libc::EINVAL } else { 0 }
    }
}

/// The C library's description of an error.
fn describe(errnum: c_int) -> CString {
    // SAFETY: a number.
    let text = unsafe { libc::strerror(errnum) };
    // SAFETY: the string is copied before another call can change it.
    let text = unsafe { Text::new(text) };
    text.get().unwrap_or_default().to_owned()
}

c_calls! {
    fn spdk_strerror_r(errnum: c_int, buf: Ptr<c_char>, buflen: usize) {
        // SAFETY: C has room for `buflen` bytes.
        unsafe { put_text(buf, buflen, &describe(errnum).to_string_lossy()) };
    }

    /// The string is valid until the next call on this thread.
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
    // SAFETY: a string, and a place for where the number ends in it.
    let value = unsafe { strtoll(text.as_ptr(), &raw mut end, base) };
    // SAFETY: within the string.
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
    // SAFETY: a call of the C library.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: valid as long as the thread runs.
    unsafe { Ptr::new(place) }
}

c_calls! {
    fn spdk_strtol(nptr: Text, base: c_int) -> c_long {
        number(nptr, base).unwrap_or_else(c_longlong::from) as c_long
    }

    fn spdk_strtoll(nptr: Text, base: c_int) -> c_longlong {
        number(nptr, base).unwrap_or_else(c_longlong::from)
    }

    /// Splits `host`, `host:port`, `[host]` or `[host]:port` in place.
    fn spdk_parse_ip_addr(ip: Ptr<c_char>, host: Ptr<Ptr<c_char>>, port: Ptr<Ptr<c_char>>) -> c_int {
        if ip.is_null() || host.is_null() || port.is_null() {
            return -libc::EINVAL;
        }
        // SAFETY: C's promise.
        let bytes = unsafe { bytes_of(ip) };
        // SAFETY: the places below are within the string.
        let at = |place: usize| unsafe { Ptr::new(ip.raw().wrapping_add(place)) };
        let (start, end) = match bytes.first() {
            Some(b'[') => match bytes.iter().position(|byte| *byte == b']') {
                Some(end) => (1, end),
                None => return -libc::EINVAL,
            },
            _ => (0, bytes.iter().position(|byte| *byte == b':').unwrap_or(bytes.len())),
        };
        let colon = end + start;
        if colon < bytes.len() && bytes[colon] != b':' {
            return -libc::EINVAL;
        }
        host.put(at(start));
        port.put(if colon + 1 < bytes.len() { at(colon + 1) } else { Ptr::NULL });
        if end < bytes.len() {
            // SAFETY: within the string.
            unsafe { ip.write(end, 0) };
        }
        0
    }

    /// Reads `4096`, `4K`, `4M` or `4G`.
    fn spdk_parse_capacity(cap_str: Text, cap: Ptr<u64>, has_prefix: Ptr<bool>) -> c_int {
        let Some(text) = cap_str.str() else { return -libc::EINVAL };
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
        // SAFETY: C passes `size` bytes.
        unsafe { data.slice(size) }.iter().all(|byte| *byte == 0)
    }
}

/// An array of strings that ends with NULL, in memory of `malloc`.
fn array(texts: &[&[u8]]) -> Ptr<Ptr<c_char>> {
    // SAFETY: a call of the C library.
    let array = unsafe { libc::calloc(texts.len() + 1, size_of::<Ptr<c_char>>()) };
    // SAFETY: NULL, or zeroed memory for as many pointers.
    let array = unsafe { Ptr::<Ptr<c_char>>::new(array.cast()) };
    for (i, text) in texts.iter().enumerate().filter(|_| !array.is_null()) {
        // SAFETY: within what was allocated.
        unsafe { array.write(i, to_malloc(text)) };
    }
    array
}

c_calls! {
    fn spdk_strarray_from_string(text: Text, delim: Text) -> Ptr<Ptr<c_char>> {
        let (Some(text), Some(delim)) = (text.get(), delim.get()) else { return Ptr::NULL };
        let parts: Vec<_> = text.to_bytes().split(|byte| delim.to_bytes().contains(byte)).collect();
        array(&parts)
    }

    fn spdk_strarray_dup(strarray: Ptr<Text>) -> Ptr<Ptr<c_char>> {
        if strarray.is_null() {
            return Ptr::NULL;
        }
        // SAFETY: a NULL ends the array.
        let read = |i| unsafe { strarray.read(i) };
        let texts: Vec<_> = (0..).map_while(|i| read(i).get()).map(CStr::to_bytes).collect();
        array(&texts)
    }

    fn spdk_strarray_free(strarray: Ptr<Ptr<c_char>>) {
        if strarray.is_null() {
            return;
        }
        // SAFETY: a NULL ends the array.
        let read = |i| unsafe { strarray.read(i) };
        for text in (0..).map(read).take_while(|text| !text.is_null()) {
            // SAFETY: from `malloc`, as the array's strings are.
            unsafe { libc::free(text.raw().cast()) };
        }
        // SAFETY: from `calloc`, as arrays are.
        unsafe { libc::free(strarray.raw().cast()) };
    }
}
