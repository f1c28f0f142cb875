//! The C boundary: exported functions, and checked types for the pointers that C passes.
//!
//! # Safety
//!
//! Every exported function is an `unsafe extern "C" fn`. The caller of such a function meets the requirements
//! of the driver API: a pointer to a result is NULL or valid for a write of its type; an array has the length
//! that the call states; a string ends in NUL. Safe code cannot make an [`Out`], [`In`] or [`Text`], so every
//! access through them relies on that promise. Methods that take a length, a type or an address are unsafe.
//! Handles are numbers, which are looked up in tables.
#![expect(unsafe_code, reason = "dereferences pointers from C")]

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::codes::{Code, Outcome};

/// Exports functions under their C names, and defines `find`, which returns their addresses by name. The body
/// of a function returns an [`Outcome`].
macro_rules! c_calls {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block)*) => {
        $(
            $(#[$doc])*
            #[unsafe(no_mangle)]
            pub(super) unsafe extern "C" fn $name($($arg: $type),*) -> std::ffi::c_int {
                $crate::c_abi::answer(move || $body)
            }
        )*

        /// Returns the address of the call with this name.
        pub(crate) fn find(name: &str) -> Option<*const std::ffi::c_void> {
            $(
                if name == stringify!($name) {
                    return Some($name as *const std::ffi::c_void);
                }
            )*
            None
        }
    };
}
pub(crate) use c_calls;

/// Runs a call. Refuses it within a host function, and in a child of the process that initialized the driver.
#[inline]
pub(crate) fn answer(call: impl FnOnce() -> Outcome) -> c_int {
    match crate::driver::permit().and_then(|()| call()) {
        Ok(()) => 0,
        Err(Code(code)) => code,
    }
}

/// A pointer to a result, or NULL.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Fails if C passed NULL. For calls that must not act if they cannot return their result.
    pub(crate) fn require(&self) -> Outcome {
        if self.0.is_null() { Err(Code::INVALID_VALUE) } else { Ok(()) }
    }

    /// Writes the result. NULL is an invalid value.
    #[inline]
    pub(crate) fn put(self, value: T) -> Outcome {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: C passes a pointer that is valid for a write of this type.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Writes the result, unless C passed NULL.
    pub(crate) fn put_if_wanted(self, value: T) {
        // NULL means that the caller does not want the value.
        let _ = self.put(value);
    }
}

impl Out<c_void> {
    /// Makes a pointer to a result from an element of an array of pointers that C passed.
    ///
    /// # Safety
    ///
    /// The address is 0, or valid for a write of the result.
    pub(crate) unsafe fn from_array(addr: u64) -> Self {
        Self(std::ptr::with_exposed_provenance_mut(addr as usize))
    }

    /// Writes a value of another type.
    ///
    /// # Safety
    ///
    /// C passes a pointer to a value of this type, or NULL.
    pub(crate) unsafe fn put_as<T>(self, value: T) -> Outcome {
        Out(self.0.cast::<T>()).put(value)
    }
}

impl Out<c_char> {
    /// Writes a string and its NUL, truncated to `room` bytes.
    ///
    /// # Safety
    ///
    /// C passes a buffer of `room` bytes, or NULL.
    pub(crate) unsafe fn put_text(self, room: c_int, text: &str) -> Outcome {
        let room = usize::try_from(room).ok().filter(|room| *room > 0 && !self.0.is_null());
        let kept = text.len().min(room.ok_or(Code::INVALID_VALUE)? - 1);
        for (i, byte) in text.bytes().take(kept).chain([0]).enumerate() {
            // SAFETY: C passes a buffer of `room` bytes, and at most `room` bytes are written.
            unsafe { self.0.wrapping_add(i).write(byte as c_char) };
        }
        Ok(())
    }
}

/// A pointer to values, or NULL.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct In<T>(*const T);

impl<T> In<T> {
    pub(crate) const fn is_null(&self) -> bool {
        self.0.is_null()
    }
}

impl<T: Copy> In<T> {
    /// Reads the value. NULL is an invalid value.
    pub(crate) fn get(&self) -> Outcome<T> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: C passes a pointer to a value of this type.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// Returns the array of `n` values. NULL is an invalid value.
    ///
    /// # Safety
    ///
    /// C passes an array of `n` values, or NULL, and does not change it while the result is used.
    #[inline]
    pub(crate) unsafe fn array<'a>(&self, n: usize) -> Outcome<&'a [T]> {
        if self.0.is_null() || !self.0.is_aligned() || n > isize::MAX as usize / size_of::<T>().max(1) {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: C passes an array of `n` values, and does not access it during the call.
        Ok(unsafe { std::slice::from_raw_parts(self.0, n) })
    }
}

impl In<c_void> {
    /// Reads a value of another type. NULL is an invalid value.
    ///
    /// # Safety
    ///
    /// C passes a pointer to a value of this type, or NULL.
    pub(crate) unsafe fn get_as<T: Copy>(&self) -> Outcome<T> {
        In(self.0.cast::<T>()).get()
    }
}

/// A string, or NULL.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Text(*const c_char);

impl Text {
    pub(crate) fn str<'a>(&self) -> Outcome<&'a str> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: C passes strings that end in NUL.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map_err(|_| Code::INVALID_VALUE)
    }
}
