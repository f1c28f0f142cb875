//! Pointers from C, and the possible checks: NULL, alignment, lengths, and sizes of structs.
#![expect(unsafe_code, reason = "follows pointers from C")]

use std::ffi::{CStr, c_char, c_void};
use std::fmt::Debug;
use std::ptr::NonNull;

use dma::{Error, ErrorKind, Result};

use crate::header::*;

/// Maximum size of a struct that may grow, in bytes. A greater number is not a plausible size.
const MAX_SIZE: usize = 64 << 10;

/// Returns the error for an invalid argument.
#[cold]
pub(crate) fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}

/// Checks that the field `reserved` of the struct `of` is 0, so that a later version can use it.
pub(crate) fn check_reserved(of: &str, reserved: u32) -> Result<()> {
    if reserved == 0 {
        return Ok(());
    }
    Err(invalid(format!("the field reserved of {of} is {reserved:#x}"))
        .with_hint("set it to 0, for example by initializing the struct with {.size = sizeof(...)}"))
}

/// Checks that a pointer is not NULL and aligned for its type.
#[inline(always)]
fn check<T>(what: &'static str, ptr: *const T) -> Result<NonNull<T>> {
    match NonNull::new(ptr.cast_mut()) {
        Some(place) if ptr.is_aligned() => Ok(place),
        _ => Err(bad_pointer(what, ptr.cast())),
    }
}

#[cold]
fn bad_pointer(what: &'static str, ptr: *const c_void) -> Error {
    if ptr.is_null() {
        return invalid(format!("{what} is NULL"));
    }
    invalid(format!("{what} is at {ptr:p}, which is not aligned for its type"))
}

/// Returns a reference to the value that a pointer leads to.
///
/// # Safety
///
/// `ptr` is NULL, or leads to a value that does not change during `'a`.
#[inline]
pub(crate) unsafe fn reference<'a, T>(what: &'static str, ptr: *const T) -> Result<&'a T> {
    // SAFETY: the pointer is not NULL and aligned, and the caller ensures that it leads to a value that does
    // not change.
    check(what, ptr).map(|place| unsafe { place.as_ref() })
}

/// Returns the `count` values at `ptr` as a slice. `ptr` may be NULL if `count` is 0.
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
    // SAFETY: the pointer is not NULL and aligned, the length is valid, and the caller ensures that the
    // values do not change.
    Ok(unsafe { std::slice::from_raw_parts(place.as_ptr(), count) })
}

#[inline]
fn check_len<T>(what: &'static str, count: usize) -> Result<()> {
    let limit = isize::MAX as usize / size_of::<T>();
    if count > limit { Err(too_long(what, count, limit)) } else { Ok(()) }
}

#[cold]
fn too_long(what: &'static str, count: usize, limit: usize) -> Error {
    let message = format!("{what} has {count} entries, more than an address space holds");
    Error::new(ErrorKind::OutOfRange, message).with_numbers(count as u64, limit as u64)
}

/// A place for an output. Its pointer is checked before the function has any effect.
pub(crate) struct Out<T>(NonNull<T>);

impl<T> Out<T> {
    /// # Safety
    ///
    /// `ptr` is NULL, or a place that this call may write.
    #[inline]
    pub(crate) unsafe fn new(what: &'static str, ptr: *mut T) -> Result<Self> {
        check(what, ptr).map(Self)
    }

    /// Does the same as [`new`](Self::new) for an output that may be NULL.
    ///
    /// # Safety
    ///
    /// See [`new`](Self::new).
    #[inline]
    pub(crate) unsafe fn optional(what: &'static str, ptr: *mut T) -> Result<Option<Self>> {
        if ptr.is_null() {
            return Ok(None);
        }
        // SAFETY: the caller meets the requirements of `new`.
        unsafe { Self::new(what, ptr) }.map(Some)
    }

    #[inline]
    pub(crate) fn write(&self, value: T) {
        // SAFETY: `new` has checked the pointer, and its caller ensures that the place may be written.
        unsafe { self.0.write(value) };
    }
}

/// Consecutive places for outputs.
pub(crate) struct OutArray<T> {
    next: *mut T,
    capacity: usize,
    written: usize,
}

impl<T> OutArray<T> {
    /// # Safety
    ///
    /// `ptr` is NULL, or leads to `capacity` places that this call may write.
    #[inline(always)]
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

    /// Returns the number of free places.
    #[inline]
    pub(crate) const fn left(&self) -> usize {
        self.capacity - self.written
    }

    #[inline]
    pub(crate) const fn written(&self) -> usize {
        self.written
    }

    /// Writes the next value, if a place is free.
    #[inline]
    pub(crate) fn push(&mut self, value: T) {
        if !self.is_full() {
            // SAFETY: fewer than `capacity` values were written, so `next` leads to a place. `new` has
            // checked the pointer, and its caller ensures that the places may be written.
            unsafe { self.next.write(value) };
            self.next = self.next.wrapping_add(1);
            self.written += 1;
        }
    }
}

/// Writes `from` to `text`, truncated to `capacity` bytes with its NUL, and the whole length to `len`.
///
/// # Safety
///
/// `text` is NULL or leads to `capacity` bytes, and `len` is NULL or leads to a number. This call may write
/// both.
pub(crate) unsafe fn write_text(
    from: &str,
    text: *mut c_char,
    capacity: usize,
    len: *mut usize,
) -> Result<()> {
    // SAFETY: the caller meets the requirements of this function, which include those of `new`.
    let len = unsafe { Out::new("len", len) }?;
    // SAFETY: the caller meets the requirements of this function, which include those of `new`.
    let mut to = unsafe { OutArray::new("text", text, capacity) }?;
    from.bytes().take(capacity.saturating_sub(1)).chain([0]).for_each(|byte| to.push(byte as c_char));
    len.write(from.len());
    Ok(())
}

/// Returns a C string as `&str`.
///
/// # Safety
///
/// `text` is NULL, or leads to bytes that end in NUL and do not change during `'a`.
pub(crate) unsafe fn text<'a>(what: &'static str, text: *const c_char) -> Result<&'a str> {
    check(what, text)?;
    // SAFETY: the pointer is not NULL, and the caller ensures that it leads to a string that does not change.
    let bytes = unsafe { CStr::from_ptr(text) };
    let not_text =
        || invalid(format!("{what} is not valid UTF-8: {bytes:?}")).with_hint("pass a text in UTF-8");
    bytes.to_str().map_err(|_| not_text())
}

/// A struct of the header that begins with its size in bytes, and may grow.
///
/// # Safety
///
/// The first field is `size: usize`. Zero bytes are a valid value. The first bytes of a value, at least
/// `FIRST_SIZE`, followed by zeros, are also a valid value.
pub(crate) unsafe trait Growing: Copy + Debug {
    /// The struct's size in the first version of the header. It never changes, so that programs that were
    /// built with that version keep working when the struct grows.
    const FIRST_SIZE: usize;
}

/// Declares, for each struct, the last field of its first version, with the field's type.
macro_rules! growing {
    ($($name:ident: $last:ident as $type:ty),+ $(,)?) => {
        $(
            // SAFETY: the struct begins with `size`, and consists of numbers and pointers.
            unsafe impl Growing for $name {
                const FIRST_SIZE: usize = std::mem::offset_of!($name, $last) + size_of::<$type>();
            }
            const _: () = assert!(std::mem::offset_of!($name, size) == 0);
        )+
    };
}
growing! {
    dma_error: native_name as *const c_char,
    dma_engine_info: preferred_alignment as usize,
    dma_report_entry: usable as u32,
    dma_memory_options: reserved as u32,
    dma_region_info: reserved as u32,
    dma_queue_options: reserved as u32,
    dma_counters: resets as u64,
}

/// Reads and checks the size of a struct.
///
/// # Safety
///
/// `ptr` is not NULL, is aligned, and points to a struct that begins with its size.
unsafe fn size<T: Growing>(what: &'static str, ptr: *const T) -> Result<usize> {
    // SAFETY: the struct begins with its size, and the caller ensures that the pointer leads to a struct.
    let size = unsafe { ptr.cast::<usize>().read() };
    if (T::FIRST_SIZE..=MAX_SIZE).contains(&size) {
        return Ok(size);
    }
    let message = format!("the size of {what} is {size}");
    Err(invalid(message)
        .with_numbers(size as u64, T::FIRST_SIZE as u64)
        .with_hint("set `size` to the sizeof of the struct"))
}

/// Reads options. Returns zeros if `ptr` is NULL. Refuses options that this version does not know.
///
/// # Safety
///
/// `ptr` is NULL, or leads to a struct of the size in its first field, which does not change during the call.
pub(crate) unsafe fn options<T: Growing>(what: &'static str, ptr: *const T) -> Result<T> {
    if ptr.is_null() {
        // SAFETY: `Growing` promises that zero bytes are a valid value.
        return Ok(unsafe { std::mem::zeroed() });
    }
    check(what, ptr)?;
    // SAFETY: the pointer is not NULL and aligned, and the caller ensures that it points to a struct that
    // begins with its size.
    let size = unsafe { size(what, ptr) }?;
    // SAFETY: the caller ensures that the struct has `size` bytes, which do not change during the call.
    let bytes = unsafe { std::slice::from_raw_parts(ptr.cast::<u8>(), size) };
    let known = size.min(size_of::<T>());
    if bytes[known..].iter().any(|byte| *byte != 0) {
        let message = format!("{what} has options of a later version of the header");
        return Err(Error::new(ErrorKind::Unsupported, message)
            .with_numbers(size as u64, size_of::<T>() as u64)
            .with_hint("install a later version of the library, or leave these options 0"));
    }
    // Options that the program's version of the header lacks stay 0.
    let mut options = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: both have at least this number of bytes, and a local variable does not overlap the program's
    // memory.
    unsafe { options.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), known) };
    // SAFETY: `Growing` promises that the first bytes of a value, followed by zeros, are a valid value.
    Ok(unsafe { options.assume_init() })
}

/// The place for an output struct that begins with its size.
pub(crate) struct OutStruct<T>(NonNull<T>, usize);

impl<T: Growing> OutStruct<T> {
    /// # Safety
    ///
    /// `ptr` is NULL, or leads to a struct of the size in its first field, which this call may write.
    pub(crate) unsafe fn new(what: &'static str, ptr: *mut T) -> Result<Self> {
        let place = check(what, ptr)?;
        // SAFETY: the pointer is not NULL and aligned, and the caller ensures that it points to a struct that
        // begins with its size.
        let size = unsafe { size(what, ptr) }?;
        Ok(Self(place, size))
    }

    /// Writes the fields that the program's version of the header has, except the size. Fields of later
    /// versions become 0.
    pub(crate) fn write(&self, value: T) {
        let Self(place, size) = *self;
        let known = size.min(size_of::<T>());
        let (to, from) = (place.cast::<u8>(), (&raw const value).cast::<u8>());
        // SAFETY: `new` has checked the pointer and the size, and its caller ensures that these bytes may be
        // written.
        unsafe { to.write_bytes(0, size) };
        // SAFETY: both have at least this number of bytes, and a local variable does not overlap the
        // program's memory.
        unsafe { to.as_ptr().copy_from_nonoverlapping(from, known) };
        // SAFETY: the struct begins with its size, and may be written.
        unsafe { place.cast::<usize>().write(size) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Versions of one struct: the first version, the current version, and a later version.
    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    #[repr(C)]
    struct First {
        size: usize,
        a: u64,
    }

    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    #[repr(C)]
    struct Now {
        size: usize,
        a: u64,
        b: u64,
    }

    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    #[repr(C)]
    struct Later {
        now: Now,
        c: u64,
    }

    // SAFETY: the struct begins with `size`, and consists of numbers.
    unsafe impl Growing for Now {
        const FIRST_SIZE: usize = size_of::<First>();
    }

    fn read<T>(from: &T) -> Result<Now> {
        // SAFETY: each struct begins with a size that is at most its own.
        unsafe { options("options", std::ptr::from_ref(from).cast::<Now>()) }
    }

    fn write<T>(to: &mut T) -> Result<()> {
        // SAFETY: each struct begins with a size that is at most its own, and may be written.
        let place = unsafe { OutStruct::new("info", std::ptr::from_mut(to).cast::<Now>()) }?;
        place.write(Now { size: 0, a: 1, b: 2 });
        Ok(())
    }

    #[test]
    fn options_of_every_version_are_read() {
        assert_eq!(read(&First { size: 16, a: 1 }).unwrap(), Now { size: 16, a: 1, b: 0 });
        assert_eq!(read(&Now { size: 24, a: 1, b: 2 }).unwrap(), Now { size: 24, a: 1, b: 2 });
        let mut later = Later { now: Now { size: 32, a: 1, b: 2 }, c: 0 };
        assert_eq!(read(&later).unwrap(), later.now);
        later.c = 3;
        assert_eq!(read(&later).unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn structs_of_every_version_are_filled() {
        let mut first = [First { size: 16, a: 0 }, First { size: 77, a: 78 }];
        write(&mut first).unwrap();
        assert_eq!(first, [First { size: 16, a: 1 }, First { size: 77, a: 78 }], "nothing behind it");
        let mut now = Now { size: 24, ..Now::default() };
        write(&mut now).unwrap();
        assert_eq!(now, Now { size: 24, a: 1, b: 2 });
        let mut later = Later { now: Now { size: 32, ..Now::default() }, c: 9 };
        write(&mut later).unwrap();
        assert_eq!(later, Later { now: Now { size: 32, a: 1, b: 2 }, c: 0 });
    }

    #[test]
    fn sizes_below_the_first_version_are_refused() {
        for size in [0, 8, 15, MAX_SIZE + 1, usize::MAX] {
            assert_eq!(read(&First { size, a: 1 }).unwrap_err().kind(), ErrorKind::InvalidArgument);
            let mut first = First { size, a: 1 };
            assert_eq!(write(&mut first).unwrap_err().kind(), ErrorKind::InvalidArgument);
            assert_eq!(first, First { size, a: 1 });
        }
    }

    /// A change of one of these numbers breaks existing programs: see `Growing::FIRST_SIZE`.
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn the_first_sizes_stay() {
        let sizes = [
            dma_error::FIRST_SIZE,
            dma_engine_info::FIRST_SIZE,
            dma_report_entry::FIRST_SIZE,
            dma_memory_options::FIRST_SIZE,
            dma_region_info::FIRST_SIZE,
            dma_queue_options::FIRST_SIZE,
            dma_counters::FIRST_SIZE,
        ];
        assert_eq!(sizes, [64, 104, 48, 40, 32, 32, 104]);
    }
}
