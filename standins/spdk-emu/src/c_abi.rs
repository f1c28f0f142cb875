//! The C boundary: exported functions, and checked types for the pointers that C passes.
//!
//! Exported functions take [`Ptr`], [`Text`] and [`Addr`] where C has pointers. These types have the
//! representation of a pointer. Their methods check for NULL, which is an error or stands for a default.
//! [`c_calls!`] declares all exported functions.
//!
//! # Safety
//!
//! Every exported function that takes a pointer is an `unsafe extern "C" fn`. Its caller obeys the
//! requirements of SPDK's headers. An object is NULL, or came from this library and was not freed. Other
//! pointers are NULL or valid for reads and writes of the declared type, as long as the call or a
//! registered callback needs them. Strings end in NUL. Safe code cannot make a `Ptr` or a `Text` from an
//! address, so reading and writing one value through them relies on this promise. The pointer types do not
//! contain a length, and a `void *` does not contain a type, so the methods that take a length or a type
//! are unsafe. An [`Addr`] is only a number.
#![expect(unsafe_code, reason = "pointers from C are dereferenced here, and almost nowhere else")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;

pub(crate) use spdk_sys::bindings as c;

/// A negative `errno`, as SPDK's calls return it.
pub(crate) type Errno = c_int;
/// Result of internal functions.
pub(crate) type Outcome<T = ()> = Result<T, Errno>;

/// Exports functions under their C names, all `unsafe extern "C"`. rustfmt does not format them.
macro_rules! c_calls {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block)*) => {
        $(
            $(#[$doc])*
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($arg: $type),*) $(-> $result)? $body
        )*
    };
}
pub(crate) use c_calls;

/// Converts an outcome to the code that C gets.
#[inline]
pub(crate) fn answer(outcome: Outcome) -> c_int {
    match outcome {
        Ok(()) => 0,
        Err(errno) => errno,
    }
}

/// C's `void *`: an address that can be compared and passed on. Dereferencing it is unsafe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Addr(*mut c_void);

// SAFETY: this value is only an address, and dereferencing it is unsafe.
unsafe impl Send for Addr {}
// SAFETY: comparing and copying a shared address accesses no memory.
unsafe impl Sync for Addr {}

impl Addr {
    pub(crate) const NULL: Self = Self(std::ptr::null_mut());

    #[inline]
    pub(crate) fn new(ptr: *mut c_void) -> Self {
        Self(ptr)
    }

    #[inline]
    pub(crate) fn at(addr: u64) -> Self {
        Self(std::ptr::with_exposed_provenance_mut(addr as usize))
    }

    #[inline]
    pub(crate) fn raw(self) -> *mut c_void {
        self.0
    }

    #[inline]
    pub(crate) fn addr(self) -> u64 {
        self.0.expose_provenance() as u64
    }

    #[inline]
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Converts the address to a pointer to values of a type.
    ///
    /// # Safety
    ///
    /// See [`Ptr::new`].
    #[inline]
    pub(crate) unsafe fn to<T>(self) -> Ptr<T> {
        // SAFETY: the caller meets the requirements of `Ptr::new`, which are this function's.
        unsafe { Ptr::new(self.0.cast()) }
    }

    /// Writes `len` zeros.
    ///
    /// # Safety
    ///
    /// The address has `len` writable bytes, which no other code uses during the call.
    pub(crate) unsafe fn zero(self, len: usize) {
        // SAFETY: the caller guarantees `len` writable bytes that no other code uses during the call.
        unsafe { self.0.cast::<u8>().write_bytes(0, len) }
    }

    /// Copies `len` bytes. The ranges may overlap.
    ///
    /// # Safety
    ///
    /// Both ranges have `len` bytes, of which the second is writable, and no other code uses them during the
    /// call.
    pub(crate) unsafe fn copy_to(self, to: Self, len: usize) {
        // SAFETY: the caller guarantees `len` bytes at both addresses; `copy_to` allows an overlap.
        unsafe { self.0.cast::<u8>().copy_to(to.0.cast(), len) }
    }
}

/// A pointer from C: NULL, or valid for reads and writes of a value of its type for as long as it is used.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Ptr<T>(*mut T);

impl<T> Clone for Ptr<T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Ptr<T> {}

// SAFETY: the value is only an address. The caller of `new` is responsible for every use of it, on any
// thread.
unsafe impl<T> Send for Ptr<T> {}
// SAFETY: sharing the address accesses no memory. The caller of `new` is responsible for every use, on any
// thread.
unsafe impl<T> Sync for Ptr<T> {}

impl<T> Ptr<T> {
    pub(crate) const NULL: Self = Self(std::ptr::null_mut());

    /// Wraps a pointer from C.
    ///
    /// # Safety
    ///
    /// The pointer is NULL, or valid for reads and writes of a value of this type for as long as the result
    /// is used.
    #[inline]
    pub(crate) const unsafe fn new(ptr: *mut T) -> Self {
        Self(ptr)
    }

    /// Returns the pointer to pass to C for an object, which must not move.
    ///
    /// # Safety
    ///
    /// C writes through the pointer only to parts of the object that permit it.
    pub(crate) unsafe fn of(object: &T) -> Self {
        Self(std::ptr::from_ref(object).cast_mut())
    }

    /// Passes ownership of an object to C, until [`take`](Self::take).
    pub(crate) fn give(object: Box<T>) -> Self {
        Self(Box::into_raw(object))
    }

    #[inline]
    pub(crate) fn raw(self) -> *mut T {
        self.0
    }

    #[inline]
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    #[inline]
    pub(crate) fn void(self) -> Addr {
        Addr(self.0.cast())
    }

    /// Returns the object, unless C passed NULL.
    #[inline]
    pub(crate) fn get<'a>(self) -> Option<&'a T> {
        // SAFETY: the pointer is NULL, or valid as long as the result is used, as C or the caller of `new`
        // promised.
        unsafe { self.0.as_ref() }
    }

    /// Writes a value, unless C passed NULL.
    #[inline]
    pub(crate) fn put(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: the pointer is not NULL, and can be written, as C or the caller of `new` promised.
            unsafe { self.0.write(value) }
        }
    }

    /// Returns the object that was passed to [`give`](Self::give).
    ///
    /// # Safety
    ///
    /// The pointer is from `give`, or NULL, and the object is not used any more.
    pub(crate) unsafe fn take(self) -> Option<Box<T>> {
        let object = NonNull::new(self.0)?;
        // SAFETY: a pointer that is not NULL is from `give`, which leaked a box. The caller promises that
        // the object is not used any more.
        Some(unsafe { Box::from_raw(object.as_ptr()) })
    }
}

impl<T: Copy> Ptr<T> {
    /// Returns the array of `n` values. The array is empty if C passed NULL.
    ///
    /// # Safety
    ///
    /// The array has `n` values, which do not change while the result is used.
    pub(crate) unsafe fn slice<'a>(self, n: usize) -> &'a [T] {
        if self.0.is_null() || n > isize::MAX as usize / size_of::<T>().max(1) {
            return &[];
        }
        // SAFETY: the array has `n` values, which nothing changes while the slice is used, and their size
        // does not overflow.
        unsafe { std::slice::from_raw_parts(self.0, n) }
    }

    /// Returns the element `i` of an array.
    ///
    /// # Safety
    ///
    /// The pointer is not NULL, and the array has more than `i` elements.
    pub(crate) unsafe fn read(self, i: usize) -> T {
        // SAFETY: the array has more than `i` elements, as the caller guarantees. The read needs no
        // alignment.
        unsafe { self.0.wrapping_add(i).read_unaligned() }
    }

    /// Writes the element `i` of an array.
    ///
    /// # Safety
    ///
    /// The pointer is not NULL, the array has more than `i` elements, and no other code uses the element
    /// during the call.
    pub(crate) unsafe fn write(self, i: usize, value: T) {
        // SAFETY: the array has more than `i` elements, as the caller guarantees. The write needs no
        // alignment.
        unsafe { self.0.wrapping_add(i).write_unaligned(value) }
    }
}

/// A string from C, or NULL.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Text(*const c_char);

impl Text {
    /// Wraps a string that is a field of a struct.
    ///
    /// # Safety
    ///
    /// The pointer is NULL, or a string that ends in NUL and does not change while the result is used.
    pub(crate) unsafe fn new(ptr: *const c_char) -> Self {
        Self(ptr)
    }

    pub(crate) fn get<'a>(self) -> Option<&'a CStr> {
        // SAFETY: the pointer is not null, so it is to a string, as C or the caller of `new` promised.
        NonNull::new(self.0.cast_mut()).map(|ptr| unsafe { CStr::from_ptr(ptr.as_ptr()) })
    }

    /// Returns the string, if C passed one and it is UTF-8.
    pub(crate) fn str<'a>(self) -> Option<&'a str> {
        self.get().and_then(|text| text.to_str().ok())
    }
}

/// Writes a string and its NUL, truncated to `room` bytes. Returns true if all of it fitted.
///
/// # Safety
///
/// The buffer has `room` bytes, which no other code uses during the call, or the pointer is NULL.
pub(crate) unsafe fn put_text(to: Ptr<c_char>, room: usize, text: &str) -> bool {
    if to.is_null() || room == 0 {
        return false;
    }
    let kept = text.len().min(room - 1);
    for (i, byte) in text.bytes().take(kept).chain([0]).enumerate() {
        // SAFETY: `i` is less than `room`, and the caller promises `room` bytes.
        unsafe { to.write(i, byte as c_char) };
    }
    kept == text.len()
}
