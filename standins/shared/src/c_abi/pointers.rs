//! [`Addr`] and [`Ptr`]: pointers without a result code.
#![expect(unsafe_code, reason = "pointers from C are dereferenced here")]

use std::ffi::{c_char, c_void};
use std::ptr::{self, NonNull};

/// C's `void *`: an address that can be compared and passed on. Dereferencing it is unsafe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Addr(*mut c_void);

// SAFETY: this value is only an address, and dereferencing it is unsafe.
unsafe impl Send for Addr {}

// SAFETY: comparing and copying a shared address accesses no memory.
unsafe impl Sync for Addr {}

impl Addr {
    /// NULL.
    pub const NULL: Self = Self(ptr::null_mut());

    /// Wraps a pointer.
    #[inline]
    pub fn new(ptr: *mut c_void) -> Self {
        Self(ptr)
    }

    /// Wraps a number.
    #[inline]
    pub fn at(addr: u64) -> Self {
        Self(ptr::with_exposed_provenance_mut(addr as usize))
    }

    /// Returns the pointer.
    #[inline]
    pub fn raw(self) -> *mut c_void {
        self.0
    }

    /// Returns the number.
    #[inline]
    pub fn addr(self) -> u64 {
        self.0.expose_provenance() as u64
    }

    /// Returns whether the address is NULL.
    #[inline]
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Converts the address to a pointer to values of a type.
    ///
    /// # Safety
    ///
    /// See [`Ptr::new`].
    #[inline]
    pub unsafe fn to<T>(self) -> Ptr<T> {
        // SAFETY: the caller meets the requirements of `Ptr::new`, which are this function's.
        unsafe { Ptr::new(self.0.cast()) }
    }

    /// Writes `len` zeros.
    ///
    /// # Safety
    ///
    /// The address has `len` writable bytes, which no other code uses during the call.
    pub unsafe fn zero(self, len: usize) {
        // SAFETY: the caller guarantees `len` writable bytes that no other code uses during the call.
        unsafe { self.0.cast::<u8>().write_bytes(0, len) }
    }

    /// Copies `len` bytes. The ranges may overlap.
    ///
    /// # Safety
    ///
    /// Both ranges have `len` bytes, of which the second is writable, and no other code uses them during the
    /// call.
    pub unsafe fn copy_to(self, to: Self, len: usize) {
        // SAFETY: the caller guarantees `len` bytes at both addresses; `copy_to` allows an overlap.
        unsafe { self.0.cast::<u8>().copy_to(to.0.cast(), len) }
    }
}

/// A pointer from C: NULL, or valid for reads and writes of a value of its type for as long as it is used.
#[derive(Debug)]
#[repr(transparent)]
pub struct Ptr<T>(pub(super) *mut T);

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
    /// NULL.
    pub const NULL: Self = Self(ptr::null_mut());

    /// Wraps a pointer from C.
    ///
    /// # Safety
    ///
    /// The pointer is NULL, or valid for reads and writes of a value of this type for as long as the result
    /// is used.
    #[inline]
    pub const unsafe fn new(ptr: *mut T) -> Self {
        Self(ptr)
    }

    /// Returns the pointer to pass to C for an object, which must not move.
    ///
    /// # Safety
    ///
    /// The object exists as long as the pointer is used. C writes through the pointer only to parts of the
    /// object that permit it, and Rust code never does.
    pub unsafe fn of(object: &T) -> Self {
        Self(ptr::from_ref(object).cast_mut())
    }

    /// Passes ownership of an object to C, until [`take`](Self::take).
    ///
    /// # Safety
    ///
    /// Nothing writes the object by [`put`](Self::put) while a reference from [`get`](Self::get) is used.
    pub unsafe fn give(object: Box<T>) -> Self
    where
        T: Send + Sync,
    {
        Self(Box::into_raw(object))
    }

    /// Returns the pointer.
    #[inline]
    pub fn raw(self) -> *mut T {
        self.0
    }

    /// Returns whether the pointer is NULL.
    #[inline]
    pub const fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Returns the pointer's address.
    #[inline]
    pub fn void(self) -> Addr {
        Addr(self.0.cast())
    }

    /// Returns the object, unless C passed NULL.
    #[inline]
    pub fn get<'a>(self) -> Option<&'a T> {
        // SAFETY: the pointer is NULL, or valid as long as the result is used, as C or the caller of `new`
        // promised.
        unsafe { self.0.as_ref() }
    }

    /// Writes a value, unless C passed NULL.
    #[inline]
    pub fn put(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: the pointer is not NULL, and can be written, as C or the caller of `new` promised. The
            // write needs no alignment.
            unsafe { self.0.write_unaligned(value) }
        }
    }

    /// Returns the object that was passed to [`give`](Self::give).
    ///
    /// # Safety
    ///
    /// The pointer is from `give`, or NULL, and the object is not used any more.
    pub unsafe fn take(self) -> Option<Box<T>> {
        let object = NonNull::new(self.0)?;
        // SAFETY: a pointer that is not NULL is from `give`, which leaked a box. The caller promises that
        // the object is not used any more.
        Some(unsafe { Box::from_raw(object.as_ptr()) })
    }
}

impl<T: Copy> Ptr<T> {
    /// Returns the value, unless C passed NULL.
    pub(super) fn value(self) -> Option<T> {
        // SAFETY: the pointer is not NULL, and valid for a read, as C or the caller of `new` promised. The
        // read needs no alignment.
        (!self.0.is_null()).then(|| unsafe { self.0.read_unaligned() })
    }

    /// Returns the array of `n` values, unless C passed NULL or an array that cannot exist.
    ///
    /// # Safety
    ///
    /// The array has `n` values, which do not change while the result is used.
    #[inline]
    pub(super) unsafe fn array<'a>(self, n: usize) -> Option<&'a [T]> {
        let can_exist =
            !self.0.is_null() && self.0.is_aligned() && n <= isize::MAX as usize / size_of::<T>().max(1);
        // SAFETY: the array has `n` values, which nothing changes while the slice is used, and their size
        // does not overflow.
        can_exist.then(|| unsafe { std::slice::from_raw_parts(self.0, n) })
    }

    /// Returns the array of `n` values. The array is empty if C passed NULL.
    ///
    /// # Safety
    ///
    /// The array has `n` values, which do not change while the result is used.
    pub unsafe fn slice<'a>(self, n: usize) -> &'a [T] {
        // SAFETY: this method and `array` have the same requirements, and the caller meets them.
        unsafe { self.array(n) }.unwrap_or_default()
    }

    /// Returns the element `i` of an array.
    ///
    /// # Safety
    ///
    /// The pointer is not NULL, and the array has more than `i` elements.
    pub unsafe fn read(self, i: usize) -> T {
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
    pub unsafe fn write(self, i: usize, value: T) {
        // SAFETY: the array has more than `i` elements, as the caller guarantees. The write needs no
        // alignment.
        unsafe { self.0.wrapping_add(i).write_unaligned(value) }
    }
}

impl Ptr<c_char> {
    /// Writes a string and its NUL, truncated to `room` bytes. Returns true if all of it fitted.
    ///
    /// # Safety
    ///
    /// The buffer has `room` bytes, which no other code uses during the call, or the pointer is NULL.
    pub unsafe fn put_text(self, room: usize, text: &str) -> bool {
        if self.is_null() || room == 0 {
            return false;
        }
        let kept = text.len().min(room - 1);
        for (i, byte) in text.bytes().take(kept).chain([0]).enumerate() {
            // SAFETY: `i` is less than `room`, and the caller promises `room` bytes.
            unsafe { self.write(i, byte as c_char) };
        }
        kept == text.len()
    }
}
