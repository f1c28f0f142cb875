//! Objects that C holds pointers to.
#![expect(unsafe_code, reason = "counts references that C holds")]

use std::marker::PhantomData;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Abi, Handle, Outcome, Ptr};

/// Distinguishes live objects from destroyed objects, as long as the memory is not reused.
#[derive(Debug)]
#[repr(transparent)]
pub struct Mark(AtomicU32);

impl Mark {
    /// Returns the mark of a live object.
    #[must_use]
    pub const fn of<T: Object>() -> Self {
        Self::new(T::MARK)
    }

    /// Returns the mark with this value.
    #[must_use]
    pub const fn new(value: u32) -> Self {
        Self(AtomicU32::new(value))
    }

    /// Returns whether the mark has this value.
    #[inline]
    pub fn is(&self, value: u32) -> bool {
        self.0.load(Ordering::Relaxed) == value
    }

    /// Sets the value.
    pub fn set(&self, value: u32) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Marks the object as destroyed.
    pub fn wipe(&self) {
        self.set(0);
    }
}

/// An object that C holds a pointer to. Its mutable fields are cells, atomics or locks, because a callback of
/// the program may use the object while a function that uses it is still running.
pub trait Object {
    /// The value of a live object's mark.
    const MARK: u32;

    /// Returns the object's mark.
    fn mark(&self) -> &Mark;
}

/// Implements [`Object`] for a type with a field `mark`.
#[macro_export]
macro_rules! object {
    ($type:ty, $mark:literal) => {
        impl $crate::c_abi::Object for $type {
            const MARK: u32 = $mark;

            fn mark(&self) -> &$crate::c_abi::Mark {
                &self.mark
            }
        }
    };
}

pub use crate::object;

/// Returns the pointer to pass to C for `object`, as C's type for the object or for its first field.
pub fn pointer_to<T, U>(object: &T) -> *mut U {
    ptr::from_ref(object).cast::<U>().cast_mut()
}

impl<T, A: Abi> Handle<T, A> {
    /// Makes a handle of `object`.
    ///
    /// # Safety
    ///
    /// The object exists and does not move as long as the handle is used.
    pub unsafe fn of(object: &T) -> Self {
        Self::from_raw(object)
    }

    fn from_raw(object: *const T) -> Self {
        Self(Ptr(object.cast_mut()), PhantomData)
    }

    /// Returns the pointer as another C type, for the object or for its first field.
    pub fn cast<U>(self) -> *mut U {
        self.0.0.cast()
    }

    fn raw(self) -> *const T {
        self.0.0
    }
}

impl<T: Object, A: Abi> Handle<T, A> {
    /// Returns the object.
    ///
    /// # Errors
    ///
    /// [`Abi::INVALID`] for NULL, and for an object that was destroyed or is of another type.
    #[inline]
    pub fn get(&self) -> Outcome<A, &T> {
        let object = self.0.get().ok_or(A::INVALID)?;
        if object.mark().is(T::MARK) { Ok(object) } else { Err(A::INVALID) }
    }

    /// Returns the object without checking its mark. Use this only for an object that exists, such as a
    /// pinned buffer.
    #[inline]
    pub fn get_unmarked(&self) -> Option<&T> {
        self.0.get()
    }

    /// Passes ownership of a new object to C.
    pub fn new_rc(object: T) -> Self {
        Self::give_rc(Rc::new(object))
    }

    /// Passes ownership of an object to C.
    pub fn give_rc(object: Rc<T>) -> Self {
        Self::from_raw(Rc::into_raw(object))
    }

    /// Returns the object as a new `Rc`, which keeps the object alive while callbacks run.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Self::get).
    pub fn rc(&self) -> Outcome<A, Rc<T>> {
        self.get()?;
        // SAFETY: the pointer is from `give_rc`, because all handles of this type are, and C holds a count
        // of the object.
        unsafe { Rc::increment_strong_count(self.raw()) };
        // SAFETY: the mark was checked, so the pointer is from `Rc::into_raw`. The new `Rc` owns the count
        // that was added above.
        Ok(unsafe { Rc::from_raw(self.raw()) })
    }

    /// Wipes the mark of the object, and takes over C's count of it.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Self::get).
    pub fn take_rc(self) -> Outcome<A, Rc<T>> {
        self.get()?.mark().wipe();
        // SAFETY: the pointer is from `give_rc`. The mark is now wiped, so no later call releases the same
        // count again.
        Ok(unsafe { Rc::from_raw(self.raw()) })
    }

    /// Passes ownership of an object to C. Several threads may use the object.
    pub fn give_arc(object: Arc<T>) -> Self {
        Self::from_raw(Arc::into_raw(object))
    }

    /// Returns the object as a new `Arc`.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Self::get).
    pub fn arc(&self) -> Outcome<A, Arc<T>> {
        self.get()?;
        // SAFETY: a pointer of this type came from an `Arc`, whose count includes C or the list that has the
        // pointer.
        unsafe { Arc::increment_strong_count(self.raw()) };
        // SAFETY: the mark was checked, so the pointer is from `Arc::into_raw`. The new `Arc` owns the count
        // that was added above.
        Ok(unsafe { Arc::from_raw(self.raw()) })
    }

    /// Wipes the mark of the object, and takes over C's count of it.
    ///
    /// # Errors
    ///
    /// Those of [`get`](Self::get).
    pub fn take_arc(self) -> Outcome<A, Arc<T>> {
        self.get()?.mark().wipe();
        // SAFETY: the pointer is from `give_arc`, and its count is released only here, and only once,
        // because the mark is now wiped.
        Ok(unsafe { Arc::from_raw(self.raw()) })
    }
}
