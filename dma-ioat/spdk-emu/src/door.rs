//! The border to C: what its pointers become before anything looks at them.
//!
//! Functions of the C interface take [`Ptr`] and [`Text`] where C has pointers: the same bits, which can only be used through
//! checks. So NULL is an error or a default and the functions themselves are safe code.
#![expect(unsafe_code, reason = "pointers from C are followed here, and almost only here")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;

pub(crate) use spdk_sys::bindings as c;

/// A negative `errno`, as SPDK's calls return it.
pub(crate) type Errno = c_int;
/// What functions return inside.
pub(crate) type Outcome<T = ()> = Result<T, Errno>;

/// What C gets to see of an outcome.
#[inline]
pub(crate) fn answer(outcome: Outcome) -> c_int {
    match outcome {
        Ok(()) => 0,
        Err(errno) => errno,
    }
}

/// A pointer from C to values of a type.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Ptr<T = c_void>(*mut T);

impl<T> Clone for Ptr<T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Ptr<T> {}

// SAFETY: only an address; whoever follows it says why it may.
unsafe impl<T> Send for Ptr<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Ptr<T> {}

impl<T> Ptr<T> {
    pub(crate) const NULL: Self = Self(std::ptr::null_mut());

    #[inline]
    pub(crate) fn new(ptr: *mut T) -> Self {
        Self(ptr)
    }

    /// The pointer to hand to C for something that stays where it is.
    pub(crate) fn of(object: &T) -> Self {
        Self(std::ptr::from_ref(object).cast_mut())
    }

    /// Gives an object to C, for good or until [`take`](Self::take).
    pub(crate) fn give(object: Box<T>) -> Self {
        Self(Box::into_raw(object))
    }

    /// Memory at an address that C knows.
    #[inline]
    pub(crate) fn at(addr: u64) -> Self {
        Self(std::ptr::with_exposed_provenance_mut(addr as usize))
    }

    #[inline]
    pub(crate) fn raw(self) -> *mut T {
        self.0
    }

    #[inline]
    pub(crate) fn addr(self) -> u64 {
        self.0.expose_provenance() as u64
    }

    /// The same, which is not NULL; somewhere if it is.
    pub(crate) fn non_null(self) -> NonNull<T> {
        NonNull::new(self.0).unwrap_or(NonNull::dangling())
    }

    #[inline]
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    #[inline]
    pub(crate) fn cast<U>(self) -> Ptr<U> {
        Ptr(self.0.cast())
    }

    /// The object, unless C passed NULL.
    #[inline]
    pub(crate) fn get<'a>(self) -> Option<&'a T> {
        // SAFETY: C passes NULL, or the address of an object of this type that lives as long as the call; the interface
        // asks that of it.
        unsafe { self.0.as_ref() }
    }

    /// Writes a value, unless C passed NULL.
    #[inline]
    pub(crate) fn put(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: C passes the address of a variable of this type, or NULL.
            unsafe { self.0.write(value) }
        }
    }

    /// Takes back what [`give`](Self::give) gave.
    pub(crate) fn take(self) -> Option<Box<T>> {
        let object = NonNull::new(self.0)?;
        // SAFETY: C passes what it got from `give`, once, or NULL; the interface asks that of it.
        Some(unsafe { Box::from_raw(object.as_ptr()) })
    }
}

impl<T: Copy> Ptr<T> {
    /// The `n` values from here on; none if C passed NULL.
    pub(crate) fn slice<'a>(self, n: usize) -> &'a [T] {
        if self.0.is_null() || n > isize::MAX as usize / size_of::<T>().max(1) {
            return &[];
        }
        // SAFETY: C passes an array of that many, and does not change it during the call.
        unsafe { std::slice::from_raw_parts(self.0, n) }
    }

    /// The value at place `i` of an array.
    pub(crate) fn read(self, i: usize) -> T {
        // SAFETY: the callers know that C's array reaches so far, and that it is not NULL.
        unsafe { self.0.wrapping_add(i).read_unaligned() }
    }

    /// Writes the value at place `i` of an array.
    pub(crate) fn write(self, i: usize, value: T) {
        // SAFETY: as for `read`.
        unsafe { self.0.wrapping_add(i).write_unaligned(value) }
    }
}

impl Ptr<c_void> {
    /// Writes zeros.
    pub(crate) fn zero(self, len: usize) {
        // SAFETY: the callers have allocated that many bytes there, or C says that they are its own.
        unsafe { self.0.cast::<u8>().write_bytes(0, len) }
    }

    /// Copies bytes that may overlap.
    pub(crate) fn copy_to(self, to: Self, len: usize) {
        // SAFETY: the callers have checked both, or C says that they are its own.
        unsafe { self.0.cast::<u8>().copy_to(to.0.cast(), len) }
    }
}

/// A string from C.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Text(*const c_char);

impl Text {
    /// One in a struct.
    pub(crate) fn new(ptr: *const c_char) -> Self {
        Self(ptr)
    }

    pub(crate) fn get<'a>(self) -> Option<&'a CStr> {
        // SAFETY: C passes a string that ends in NUL and does not change it during the call, or NULL.
        NonNull::new(self.0.cast_mut()).map(|ptr| unsafe { CStr::from_ptr(ptr.as_ptr()) })
    }

    /// The string, if there is one and it is UTF-8.
    pub(crate) fn str<'a>(self) -> Option<&'a str> {
        self.get().and_then(|text| text.to_str().ok())
    }
}

/// Writes a string and its NUL, cut to the room that there is; returns whether it fitted.
pub(crate) fn put_text(to: Ptr<c_char>, room: usize, text: &str) -> bool {
    if to.is_null() || room == 0 {
        return false;
    }
    let kept = text.len().min(room - 1);
    for (i, byte) in text.bytes().take(kept).chain([0]).enumerate() {
        to.write(i, byte as c_char);
    }
    kept == text.len()
}

/// A pointer to the string that C may keep and free by `free`.
pub(crate) fn to_malloc(text: &[u8]) -> Ptr<c_char> {
    // SAFETY: a call of the C library.
    let memory = Ptr::new(unsafe { libc::malloc(text.len() + 1) }.cast::<c_char>());
    if !memory.is_null() {
        for (i, byte) in text.iter().chain(&[0]).enumerate() {
            memory.write(i, *byte as c_char);
        }
    }
    memory
}
