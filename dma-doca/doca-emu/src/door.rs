//! The border to C: what its pointers become before anything looks at them.
//!
//! Functions of the C interface take [`Handle`], [`Out`] and [`Text`] where C has pointers: the same bits, which can only be used
//! through checks. So a NULL or a destroyed handle is an error and the functions themselves are safe code.
#![expect(unsafe_code, reason = "pointers from C are followed here, and almost only here")]

use std::ffi::{CStr, c_char};
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) use doca_sys::bindings as c;

/// A result of DOCA's.
pub(crate) type Code = c::doca_error_t;
/// What functions return inside: `Err` is never `DOCA_SUCCESS`.
pub(crate) type Outcome<T = ()> = Result<T, Code>;

/// `Err(DOCA_ERROR_INVALID_VALUE)`, the answer to most bad arguments.
pub(crate) const INVALID: Code = c::DOCA_ERROR_INVALID_VALUE;

/// What C gets to see of an outcome.
#[inline]
pub(crate) fn answer(run: impl FnOnce() -> Outcome) -> Code {
    match run() {
        Ok(()) => c::DOCA_SUCCESS,
        Err(code) => code,
    }
}

/// Fails with `code` unless `held`.
#[inline]
pub(crate) fn require(held: bool, code: Code) -> Outcome {
    if held { Ok(()) } else { Err(code) }
}

/// Tells an object that lives from one that was destroyed, as far as that can be told.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Mark(AtomicU32);

impl Mark {
    pub(crate) const fn new(value: u32) -> Self {
        Self(AtomicU32::new(value))
    }

    #[inline]
    pub(crate) fn is(&self, value: u32) -> bool {
        self.0.load(Ordering::Relaxed) == value
    }

    pub(crate) fn set(&self, value: u32) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn wipe(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Something that C holds a pointer to. All of its fields that change are cells, atomics or locks, as C may call back into a function
/// that is still running.
pub(crate) trait Object {
    /// Its kind's mark.
    const MARK: u32;

    fn mark(&self) -> &Mark;
}

/// A pointer to an object of ours, as C passes it.
#[repr(transparent)]
pub(crate) struct Handle<T>(*const T);

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

impl<T> Handle<T> {
    /// The pointer to hand to C for `object`, which must stay where it is until C gives the pointer back.
    pub(crate) fn of(object: &T) -> Self {
        Self(object)
    }

    pub(crate) const fn null() -> Self {
        Self(ptr::null())
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The same pointer, by another name that C has for the object or for its first field.
    pub(crate) fn cast<U>(self) -> *mut U {
        self.0.cast::<U>().cast_mut()
    }
}

impl<T: Object> Handle<T> {
    /// The object.
    #[inline]
    pub(crate) fn get(&self) -> Outcome<&T> {
        // SAFETY: C passes NULL, or a pointer that it got from us and did not give back; the interface asks that of it.
        let object = unsafe { self.0.as_ref() }.ok_or(INVALID)?;
        if object.mark().is(T::MARK) { Ok(object) } else { Err(INVALID) }
    }

    /// The object, whatever its mark says.
    #[inline]
    pub(crate) fn get_unmarked(&self) -> Option<&T> {
        // SAFETY: as for `get`; the callers know that the object is still there.
        unsafe { self.0.as_ref() }
    }

    /// Gives an object to C.
    pub(crate) fn give_rc(object: Rc<T>) -> Self {
        Self(Rc::into_raw(object))
    }

    /// The object, kept alive whatever callbacks do.
    pub(crate) fn rc(&self) -> Outcome<Rc<T>> {
        self.get()?;
        // SAFETY: the pointer is from `give_rc`, as all of this type are, and C holds a count of it.
        unsafe { Rc::increment_strong_count(self.0) };
        // SAFETY: as above; this takes the count that was just added.
        Ok(unsafe { Rc::from_raw(self.0) })
    }

    /// Takes the object back from C.
    pub(crate) fn take_rc(self) -> Outcome<Rc<T>> {
        self.get()?.mark().wipe();
        // SAFETY: the pointer is from `give_rc`, and the wiped mark makes this the only time that its count is taken.
        Ok(unsafe { Rc::from_raw(self.0) })
    }

    /// Gives an object to C that several threads may use.
    pub(crate) fn give_arc(object: Arc<T>) -> Self {
        Self(Arc::into_raw(object))
    }

    /// The object, kept alive.
    pub(crate) fn arc(&self) -> Outcome<Arc<T>> {
        self.get()?;
        // SAFETY: the pointer is of an `Arc`, as all of this type are, that C or the list it is from holds a count of.
        unsafe { Arc::increment_strong_count(self.0) };
        // SAFETY: as above; this takes the count that was just added.
        Ok(unsafe { Arc::from_raw(self.0) })
    }

    /// Takes the object back from C.
    pub(crate) fn take_arc(self) -> Outcome<Arc<T>> {
        self.get()?.mark().wipe();
        // SAFETY: the pointer is from `give_arc`, and the wiped mark makes this the only time that its count is taken.
        Ok(unsafe { Arc::from_raw(self.0) })
    }
}

/// Where C wants a result.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// An error if C passed NULL.
    #[inline]
    pub(crate) fn check(&self) -> Outcome {
        require(!self.0.is_null(), INVALID)
    }

    #[inline]
    pub(crate) fn put(&self, value: T) -> Outcome {
        self.check()?;
        self.put_if(value);
        Ok(())
    }

    /// Does nothing if C passed NULL.
    #[inline]
    pub(crate) fn put_if(&self, value: T) {
        if !self.0.is_null() {
            // SAFETY: C passes the address of a variable of this type, or NULL.
            unsafe { self.0.write(value) }
        }
    }
}

impl<T: Copy> Out<T> {
    /// Copies `values` to the array that C passed, which has room for `room` of them.
    pub(crate) fn fill(&self, values: &[T], room: usize) -> Outcome {
        self.check()?;
        require(values.len() <= room, INVALID)?;
        // SAFETY: C passes an array with room for that many, which is nothing of ours.
        unsafe { self.0.copy_from_nonoverlapping(values.as_ptr(), values.len()) };
        Ok(())
    }
}

impl Out<c_char> {
    /// Writes a string and its NUL.
    pub(crate) fn text(&self, text: &str, room: usize) -> Outcome {
        self.check()?;
        let bytes: Vec<_> = text.bytes().chain([0]).map(|byte| byte as c_char).collect();
        self.fill(&bytes, room)
    }
}

/// A value that C passes by its address.
#[repr(transparent)]
pub(crate) struct In<T>(*const T);

impl<T: Copy> In<T> {
    pub(crate) fn get(&self) -> Option<T> {
        // SAFETY: C passes the address of a variable of this type, or NULL.
        unsafe { self.0.as_ref() }.copied()
    }

    /// `len` values in a row.
    pub(crate) fn slice(&self, len: usize) -> Outcome<&[T]> {
        require(!self.0.is_null() && len <= isize::MAX as usize / size_of::<T>().max(1), INVALID)?;
        // SAFETY: C passes that many, and does not change them during the call.
        Ok(unsafe { std::slice::from_raw_parts(self.0, len) })
    }
}

/// A string from C.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Text(*const c_char);

impl Text {
    pub(crate) fn get(&self) -> Outcome<&CStr> {
        require(!self.0.is_null(), INVALID)?;
        // SAFETY: C passes a string that ends in NUL, and does not change it during the call.
        Ok(unsafe { CStr::from_ptr(self.0) })
    }

    /// The string, if it is UTF-8.
    pub(crate) fn str(&self) -> Outcome<&str> {
        self.get()?.to_str().map_err(|_| INVALID)
    }
}
