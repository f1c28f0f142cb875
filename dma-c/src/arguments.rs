//! Pointers from C, with the checks that are possible: NULL, alignment, lengths, and sizes of structs.
#![expect(unsafe_code, reason = "follows pointers from C")]

use std::ffi::{CStr, c_char};
use std::fmt::Debug;
use std::ptr::NonNull;

use dma::{Error, ErrorKind, Result};

use crate::header::*;

/// Greatest size of a struct that grows, in bytes: greater ones are not a size.
const MAX_SIZE: usize = 64 << 10;

/// Makes the error of an invalid argument.
#[cold]
pub(crate) fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}

/// Checks that a pointer may lead to a value of its type.
#[inline]
fn check<T>(what: &'static str, ptr: *const T) -> Result<NonNull<T>> {
    match NonNull::new(ptr.cast_mut()) {
        Some(place) if ptr.is_aligned() => Ok(place),
        Some(_) => Err(invalid(format!("{what} is at {ptr:p}, which is not aligned for its type"))),
        None => Err(invalid(format!("{what} is NULL"))),
    }
}

/// Returns the value behind a pointer.
///
/// # Safety
///
/// `ptr` is NULL, or leads to a value that does not change during `'a`.
#[inline]
pub(crate) unsafe fn reference<'a, T>(what: &'static str, ptr: *const T) -> Result<&'a T> {
    // SAFETY: not NULL and aligned, and the caller ensures the rest.
    check(what, ptr).map(|place| unsafe { place.as_ref() })
}

/// Returns `count` values from `ptr` on. `ptr` may be NULL if `count` is 0.
///
/// # Safety
///
/// `ptr` is NULL, or leads to `count` values that do not change during `'a`.
#[inline]
pub(crate) unsafe fn slice<'a, T>(what: &'static str, ptr: *const T, count: usize) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    let place = check(what, ptr)?;
    check_len::<T>(what, count)?;
    // SAFETY: not NULL, aligned, and not too long; the caller ensures the rest.
    Ok(unsafe { std::slice::from_raw_parts(place.as_ptr(), count) })
}

#[inline]
fn check_len<T>(what: &'static str, count: usize) -> Result<()> {
    if count > isize::MAX as usize / size_of::<T>() {
        let message = format!("{what} has {count} entries, more than an address space holds");
        return Err(Error::new(ErrorKind::OutOfRange, message)
            .with_numbers(count as u64, (isize::MAX as usize / size_of::<T>()) as u64));
    }
    Ok(())
}

/// A place for an output, which is known to be valid before the function does anything.
pub(crate) struct Out<T>(NonNull<T>);

impl<T> Out<T> {
    /// # Safety
    ///
    /// `ptr` is NULL, or a place that this call may write.
    #[inline]
    pub(crate) unsafe fn new(what: &'static str, ptr: *mut T) -> Result<Self> {
        check(what, ptr).map(Self)
    }

    /// As [`new`](Self::new), for an output that may be NULL.
    ///
    /// # Safety
    ///
    /// See [`new`](Self::new).
    #[inline]
    pub(crate) unsafe fn optional(what: &'static str, ptr: *mut T) -> Result<Option<Self>> {
        if ptr.is_null() {
            return Ok(None);
        }
        // SAFETY: the caller ensures the requirements of `new`.
        unsafe { Self::new(what, ptr) }.map(Some)
    }

    #[inline]
    pub(crate) fn write(&self, value: T) {
        // SAFETY: `new` has checked the pointer, and its caller ensures that the place may be written.
        unsafe { self.0.write(value) };
    }
}

/// Places for outputs, one after the other.
pub(crate) struct OutArray<T> {
    next: *mut T,
    capacity: usize,
    written: usize,
}

impl<T> OutArray<T> {
    /// # Safety
    ///
    /// `ptr` is NULL, or leads to `capacity` places that this call may write.
    #[inline]
    pub(crate) unsafe fn new(what: &'static str, ptr: *mut T, capacity: usize) -> Result<Self> {
        if capacity > 0 {
            check(what, ptr)?;
            check_len::<T>(what, capacity)?;
        }
        Ok(Self { next: ptr, capacity, written: 0 })
    }

    #[inline]
    pub(crate) const fn is_full(&self) -> bool {
        self.written == self.capacity
    }

    #[inline]
    pub(crate) const fn written(&self) -> usize {
        self.written
    }

    /// Writes the next value, if there is a place left.
    #[inline]
    pub(crate) fn push(&mut self, value: T) {
        if !self.is_full() {
            // SAFETY: fewer than `capacity` were written, and `new` has checked the pointer. Its caller
            // ensures that the places may be written.
            unsafe { self.next.write(value) };
            self.next = self.next.wrapping_add(1);
            self.written += 1;
        }
    }
}

/// Writes `text`, cut to `capacity` bytes with its NUL, and its whole length to `len`.
///
/// # Safety
///
/// `text` is NULL or leads to `capacity` places, and `len` is NULL or a place, which this call may write.
pub(crate) unsafe fn write_text(
    from: &str,
    text: *mut c_char,
    capacity: usize,
    len: *mut usize,
) -> Result<()> {
    // SAFETY: the caller ensures it.
    let len = unsafe { Out::new("len", len) }?;
    // SAFETY: the caller ensures it.
    let mut to = unsafe { OutArray::new("text", text, capacity) }?;
    from.bytes().take(capacity.saturating_sub(1)).chain([0]).for_each(|byte| to.push(byte as c_char));
    len.write(from.len());
    Ok(())
}

/// Returns a string.
///
/// # Safety
///
/// `text` is NULL, or leads to bytes that end in NUL and do not change during `'a`.
pub(crate) unsafe fn text<'a>(what: &'static str, text: *const c_char) -> Result<&'a str> {
    check(what, text)?;
    // SAFETY: not NULL, and the caller ensures the rest.
    let bytes = unsafe { CStr::from_ptr(text) };
    bytes.to_str().map_err(|_| invalid(format!("{what} is no UTF-8: {bytes:?}")))
}

/// A struct of the header that begins with its size, in bytes.
///
/// # Safety
///
/// The first field is `size: usize`. All bytes of zero are a value.
pub(crate) unsafe trait Growing: Copy + Debug {}

macro_rules! growing {
    ($($name:ident),+) => {
        $(
            // SAFETY: the struct begins with `size`, and consists of numbers and pointers.
            unsafe impl Growing for $name {}
            const _: () = assert!(std::mem::offset_of!($name, size) == 0);
        )+
    };
}
growing!(
    dma_error,
    dma_engine_info,
    dma_report_entry,
    dma_memory_options,
    dma_region_info,
    dma_queue_options,
    dma_counters
);

/// Reads and checks the size of a struct.
///
/// # Safety
///
/// `ptr` is not NULL, aligned, and leads to a size.
unsafe fn size<T: Growing>(what: &'static str, ptr: *const T) -> Result<usize> {
    // SAFETY: the caller ensures it; the struct begins with the size.
    let size = unsafe { ptr.cast::<usize>().read() };
    if (size_of::<T>()..=MAX_SIZE).contains(&size) {
        return Ok(size);
    }
    let message = format!("the size of {what} is {size}");
    Err(invalid(message)
        .with_numbers(size as u64, size_of::<T>() as u64)
        .with_hint("set `size` to the sizeof of the struct"))
}

/// Reads options. Returns zeros for NULL. Refuses options that this version does not know.
///
/// # Safety
///
/// `ptr` is NULL, or leads to the number of bytes that its first field says, which do not change during the
/// call.
pub(crate) unsafe fn options<T: Growing>(what: &'static str, ptr: *const T) -> Result<T> {
    if ptr.is_null() {
        // SAFETY: `Growing` promises that zeros are a value.
        return Ok(unsafe { std::mem::zeroed() });
    }
    check(what, ptr)?;
    // SAFETY: not NULL and aligned, and the caller ensures that it leads to a size.
    let size = unsafe { size(what, ptr) }?;
    // SAFETY: the struct has this many bytes.
    let bytes = unsafe { std::slice::from_raw_parts(ptr.cast::<u8>(), size) };
    if bytes[size_of::<T>()..].iter().any(|byte| *byte != 0) {
        let message = format!("{what} has options of a later version of the header");
        return Err(Error::new(ErrorKind::Unsupported, message)
            .with_numbers(size as u64, size_of::<T>() as u64)
            .with_hint("install a later version of the library, or leave these options 0"));
    }
    // SAFETY: the struct has at least the size of a `T`, and any bytes are one.
    Ok(unsafe { ptr.read() })
}

/// The place of a struct that begins with its size.
pub(crate) struct OutStruct<T>(NonNull<T>, usize);

impl<T: Growing> OutStruct<T> {
    /// # Safety
    ///
    /// `ptr` is NULL, or leads to the number of bytes that its first field says, which this call may write.
    pub(crate) unsafe fn new(what: &'static str, ptr: *mut T) -> Result<Self> {
        let place = check(what, ptr)?;
        // SAFETY: not NULL and aligned, and the caller ensures that it leads to a size.
        let size = unsafe { size(what, ptr) }?;
        Ok(Self(place, size))
    }

    /// Writes everything but the size. Fields of later versions become 0.
    pub(crate) fn write(&self, value: T) {
        let Self(place, size) = *self;
        // SAFETY: `new` has checked pointer and size, and its caller ensures that these bytes may be written.
        unsafe { place.cast::<u8>().write_bytes(0, size) };
        // SAFETY: as above; the struct has at least the size of a `T`.
        unsafe { place.write(value) };
        // SAFETY: as above; the struct begins with its size.
        unsafe { place.cast::<usize>().write(size) };
    }
}
