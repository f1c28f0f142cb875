//! The C boundary: exported functions, and checked types for the pointers that C passes.
//!
//! Exported functions take [`Handle`], [`In`], [`Out`] and [`Text`] where C has pointers. These types have
//! the representation of a pointer. Their methods check the pointer, so NULL or a destroyed handle is an
//! error. [`c_calls!`] declares all exported functions.
//!
//! # Safety
//!
//! Every exported function is an `unsafe extern "C" fn`. Its caller obeys the requirements of DOCA's
//! reference. A handle is NULL, or came from this library and was not destroyed, and is used on the thread
//! that owns it. Other pointers are NULL or valid for the declared type, as long as the call, task or object
//! needs them. Strings end in NUL. Safe code cannot make an `In`, `Out` or `Text` from an address: they come
//! only from such a call. A `Handle` comes from such a call, from an owned object, or from the unsafe `of`.
//! So reading and writing through them relies on the promise of C's caller. A length that C passes beside a
//! pointer is not part of the type, and the methods that take one are unsafe.
#![expect(unsafe_code, reason = "pointers from C are dereferenced here, and almost nowhere else")]

use std::ffi::{CStr, c_char};
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) use doca_sys::bindings as c;

pub(crate) type Code = c::doca_error_t;
/// Result of internal functions. The code in `Err` is never `DOCA_SUCCESS`.
pub(crate) type Outcome<T = ()> = Result<T, Code>;

/// `Err(DOCA_ERROR_INVALID_VALUE)`, the result for most bad arguments.
pub(crate) const INVALID: Code = c::DOCA_ERROR_INVALID_VALUE;

/// Exports functions under their C names, all `unsafe extern "C"`. A function without a return type returns
/// the [`Code`] of its body's [`Outcome`]. Keep the functions in the order of the header. rustfmt does not
/// format them.
///
/// ```text
/// c_calls! {
///     fn doca_buf_get_len(buf: Handle<Buf>, len: Out<usize>) { len.put(buf.get()?.len()) }
/// }
/// ```
///
/// Names after a `|` are the function's names in earlier versions. A library exports each name that its
/// headers declare. Calls that DOCA 1.5 to 2.2 has with other arguments are left out of its build, by
/// `cfg(workq)`.
macro_rules! c_calls {
    ($(
        $(#[$doc:meta])* fn $name:ident $(| $old:ident)* ($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)?
        $body:block
    )*) => {
        $(
            $crate::c_abi::c_call! {
                $(#[$doc])* #[unsafe(no_mangle)] (pub(crate)) $name ($($arg: $type),*) ($($result)?) $body
            }
            $crate::c_abi::older_names! { [$($old)*] $name ($($arg: $type),*) ($($result)?) }
        )*
    };
}
pub(crate) use c_calls;

macro_rules! older_names {
    ([] $($call:tt)*) => {};
    ($old:tt $name:ident $args:tt ()) => {
        $crate::c_abi::older_names! { $old $name $args ($crate::c_abi::Code) }
    };
    ([$old:ident $($more:ident)*] $name:ident ($($arg:ident: $type:ty),*) ($result:ty)) => {
        $crate::c_abi::c_call! {
            #[unsafe(no_mangle)] () $old ($($arg: $type),*) ($result) {
                // SAFETY: both names have the same signature, and this function's caller made the promise
                // that the called function requires.
                unsafe { $name($($arg),*) }
            }
        }
        $crate::c_abi::older_names! { [$($more)*] $name ($($arg: $type),*) ($result) }
    };
}
pub(crate) use older_names;

macro_rules! c_call {
    ($(#[$doc:meta])* ($($public:tt)*) $name:ident ($($arg:ident: $type:ty),*) () $body:block) => {
        $(#[$doc])*
        $($public)* unsafe extern "C" fn $name($($arg: $type),*) -> $crate::c_abi::Code {
            $crate::c_abi::answer(|| $body)
        }
    };
    ($(#[$doc:meta])* ($($public:tt)*) $name:ident ($($arg:ident: $type:ty),*) ($result:ty) $body:block) => {
        $(#[$doc])*
        $($public)* unsafe extern "C" fn $name($($arg: $type),*) -> $result $body
    };
}
pub(crate) use c_call;

/// Exports functions that write a property of an object to their last argument.
///
/// ```text
/// getters! {
///     doca_buf_get_len(buf: Buf) -> usize { buf.len() }
/// }
/// ```
macro_rules! getters {
    ($($(#[$doc:meta])* $name:ident $(| $old:ident)*($object:ident: $type:ty) -> $value:ty { $get:expr })*) => {
        $crate::c_abi::c_calls! {
            $(
                $(#[$doc])*
                fn $name $(| $old)*($object: $crate::c_abi::Handle<$type>, out: $crate::c_abi::Out<$value>) {
                    out.make(|| {
                        let $object = $object.get()?;
                        Ok($get)
                    })
                }
            )*
        }
    };
}
pub(crate) use getters;

/// Converts an outcome to the code that C gets.
#[inline]
pub(crate) fn answer(run: impl FnOnce() -> Outcome) -> Code {
    match run() {
        Ok(()) => c::DOCA_SUCCESS,
        Err(code) => code,
    }
}

#[inline]
pub(crate) fn require(held: bool, code: Code) -> Outcome {
    if held { Ok(()) } else { Err(code) }
}

/// Distinguishes live objects from destroyed objects, as long as the memory is not reused.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Mark(AtomicU32);

impl Mark {
    pub(crate) const fn of<T: Object>() -> Self {
        Self::new(T::MARK)
    }

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

/// An object that C holds a pointer to. Its mutable fields are cells, atomics or locks, because a callback of
/// the program may use the object while a function that uses it is still running.
pub(crate) trait Object {
    const MARK: u32;

    fn mark(&self) -> &Mark;
}

/// Implements [`Object`] for a type with a field `mark`.
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
pub(crate) use object;

pub(crate) const NO_DATA: c::doca_data = c::doca_data { u64_: 0 };

/// A pointer to an object of this library, as C passes it.
#[repr(transparent)]
pub(crate) struct Handle<T>(*const T);

impl<T> Default for Handle<T> {
    fn default() -> Self {
        Self::null()
    }
}

impl<T> Handle<T> {
    /// Makes a handle of `object`.
    ///
    /// # Safety
    ///
    /// The object exists and does not move as long as the handle is used.
    pub(crate) unsafe fn of(object: &T) -> Self {
        Self(object)
    }

    pub(crate) const fn null() -> Self {
        Self(ptr::null())
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Returns the pointer as another C type, for the object or for its first field.
    pub(crate) fn cast<U>(self) -> *mut U {
        self.0.cast::<U>().cast_mut()
    }
}

/// Returns the pointer to pass to C for `object`, as C's type for the object or for its first field.
pub(crate) fn pointer_to<T, U>(object: &T) -> *mut U {
    ptr::from_ref(object).cast::<U>().cast_mut()
}

impl<T: Object> Handle<T> {
    #[inline]
    pub(crate) fn get(&self) -> Outcome<&T> {
        // SAFETY: C passes NULL, or a pointer that it got from this library, whose object was not destroyed.
        let object = unsafe { self.0.as_ref() }.ok_or(INVALID)?;
        if object.mark().is(T::MARK) { Ok(object) } else { Err(INVALID) }
    }

    /// Returns the object without checking its mark.
    #[inline]
    pub(crate) fn get_unmarked(&self) -> Option<&T> {
        // SAFETY: C passes NULL, or a pointer that this library returned. The caller uses this only for an
        // object that exists, such as a pinned buffer.
        unsafe { self.0.as_ref() }
    }

    /// Passes ownership of a new object to C.
    pub(crate) fn new_rc(object: T) -> Self {
        Self::give_rc(Rc::new(object))
    }

    pub(crate) fn give_rc(object: Rc<T>) -> Self {
        Self(Rc::into_raw(object))
    }

    /// Returns the object as a new `Rc`, which keeps the object alive while callbacks run.
    pub(crate) fn rc(&self) -> Outcome<Rc<T>> {
        self.get()?;
        // SAFETY: the pointer is from `give_rc`, because all handles of this type are, and C holds a count
        // of the object.
        unsafe { Rc::increment_strong_count(self.0) };
        // SAFETY: the mark was checked, so the pointer is from `Rc::into_raw`. The new `Rc` owns the count
        // that was added above.
        Ok(unsafe { Rc::from_raw(self.0) })
    }

    /// Wipes the mark of the object, and takes over C's count of it.
    pub(crate) fn take_rc(self) -> Outcome<Rc<T>> {
        self.get()?.mark().wipe();
        // SAFETY: the pointer is from `give_rc`. The mark is now wiped, so no later call releases the same
        // count again.
        Ok(unsafe { Rc::from_raw(self.0) })
    }

    /// Passes ownership of an object to C. Several threads may use the object.
    pub(crate) fn give_arc(object: Arc<T>) -> Self {
        Self(Arc::into_raw(object))
    }

    pub(crate) fn arc(&self) -> Outcome<Arc<T>> {
        self.get()?;
        // SAFETY: a pointer of this type came from an `Arc`, whose count includes C or the list that has the
        // pointer.
        unsafe { Arc::increment_strong_count(self.0) };
        // SAFETY: the mark was checked, so the pointer is from `Arc::into_raw`. The new `Arc` owns the count
        // that was added above.
        Ok(unsafe { Arc::from_raw(self.0) })
    }

    /// Wipes the mark of the object, and takes over C's count of it.
    pub(crate) fn take_arc(self) -> Outcome<Arc<T>> {
        self.get()?.mark().wipe();
        // SAFETY: the pointer is from `give_arc`, and its count is released only here, and only once,
        // because the mark is now wiped.
        Ok(unsafe { Arc::from_raw(self.0) })
    }
}

/// Makes the pointer types `Copy`, even if the type that they point to is not.
macro_rules! copied {
    ($($pointer:ident)*) => {
        $(
            impl<T> Clone for $pointer<T> {
                fn clone(&self) -> Self {
                    *self
                }
            }

            impl<T> Copy for $pointer<T> {}
        )*
    };
}

copied! { Handle In Out }

/// An address to which C wants a result to be written.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Default for Out<T> {
    fn default() -> Self {
        Self(ptr::null_mut())
    }
}

impl<T> Out<T> {
    #[inline]
    pub(crate) fn check(&self) -> Outcome {
        require(!self.0.is_null(), INVALID)
    }

    /// Writes the value that `make` returns. Calls `make` only if C passed an address.
    #[inline]
    pub(crate) fn make(&self, make: impl FnOnce() -> Outcome<T>) -> Outcome {
        self.check()?;
        self.put_if(make()?);
        Ok(())
    }

    #[inline]
    pub(crate) fn put(&self, value: T) -> Outcome {
        self.check()?;
        self.put_if(value);
        Ok(())
    }

    /// Writes `value`, or does nothing if C passed NULL.
    #[inline]
    pub(crate) fn put_if(&self, value: T) {
        if !self.0.is_null() {
            // SAFETY: C passes the address of a variable of this type, or NULL.
            unsafe { self.0.write(value) }
        }
    }
}

impl<T: Copy> Out<T> {
    /// Returns the present value of the variable, for calls that read it before they write it.
    pub(crate) fn before(&self) -> Option<T> {
        In(self.0.cast_const()).get()
    }

    /// Copies `values` to the array that C passed.
    ///
    /// # Safety
    ///
    /// C has promised room for `room` values. The memory does not belong to this library.
    pub(crate) unsafe fn fill(&self, values: &[T], room: usize) -> Outcome {
        self.check()?;
        require(values.len() <= room, INVALID)?;
        // SAFETY: the caller guarantees the room, and the values fit into it.
        unsafe { self.0.copy_from_nonoverlapping(values.as_ptr(), values.len()) };
        Ok(())
    }
}

impl Out<c_char> {
    /// Writes a string and its NUL.
    ///
    /// # Safety
    ///
    /// C has promised room for `room` bytes. The memory does not belong to this library.
    pub(crate) unsafe fn text(&self, text: &str, room: usize) -> Outcome {
        self.check()?;
        let bytes: Vec<_> = text.bytes().chain([0]).map(|byte| byte as c_char).collect();
        // SAFETY: this function's caller makes the promise that `fill` requires.
        unsafe { self.fill(&bytes, room) }
    }
}

/// A value that C passes by its address.
#[repr(transparent)]
pub(crate) struct In<T>(*const T);

impl<T> In<T> {
    /// Returns the address as that of a larger struct whose first field is this value.
    #[cfg(workq)]
    pub(crate) fn cast<U>(self) -> In<U> {
        In(self.0.cast())
    }
}

impl<T: Copy> In<T> {
    pub(crate) fn get(&self) -> Option<T> {
        // SAFETY: C passes the address of a variable of this type, or NULL. The value is copied here.
        unsafe { self.0.as_ref() }.copied()
    }

    /// Returns the `len` consecutive values at this address.
    ///
    /// # Safety
    ///
    /// C promised `len` valid values, which do not change while the slice is used.
    pub(crate) unsafe fn slice(&self, len: usize) -> Outcome<&[T]> {
        require(!self.0.is_null() && len <= isize::MAX as usize / size_of::<T>().max(1), INVALID)?;
        // SAFETY: the pointer is not null, the length does not overflow, and the caller guarantees `len`
        // valid values that do not change.
        Ok(unsafe { std::slice::from_raw_parts(self.0, len) })
    }
}

/// Bytes of the program that do not change until their task ends.
#[derive(Clone, Copy)]
pub(crate) struct TaskBytes {
    first: In<u8>,
    len: usize,
}

impl TaskBytes {
    pub(crate) const EMPTY: Self = Self { first: In(ptr::null()), len: 0 };

    /// # Safety
    ///
    /// C promised `len` bytes, which do not change until the task ends.
    pub(crate) unsafe fn new(first: In<u8>, len: usize) -> Self {
        Self { first, len }
    }

    pub(crate) fn is_null(self) -> bool {
        self.first.0.is_null()
    }

    pub(crate) fn len(self) -> usize {
        self.len
    }

    /// Returns the bytes. Call it only before the task has ended.
    pub(crate) fn get(&self) -> Outcome<&[u8]> {
        // SAFETY: the caller of `new` has promised that these bytes do not change until the task ends, and
        // this function is called before that.
        unsafe { self.first.slice(self.len) }
    }
}

#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Text(*const c_char);

impl Text {
    pub(crate) fn get(&self) -> Outcome<&CStr> {
        require(!self.0.is_null(), INVALID)?;
        // SAFETY: C passes a string that ends in NUL, and does not change it during the call.
        Ok(unsafe { CStr::from_ptr(self.0) })
    }

    /// Returns the string. `INVALID_VALUE` if it is not UTF-8.
    pub(crate) fn str(&self) -> Outcome<&str> {
        self.get()?.to_str().map_err(|_| INVALID)
    }
}
