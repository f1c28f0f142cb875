//! The C boundary: checked types for the pointers that C passes.
//!
//! Exported functions take these types where C has pointers. The types have the representation of a pointer,
//! and their methods check the pointer, so that NULL or a destroyed object is an error or stands for a
//! default. [`Ptr`] is any pointer to a value or an object, and [`Addr`] is `void *`. [`In`], [`Out`],
//! [`Text`] and [`Handle`] fail with the code that the library has for an invalid argument: see [`Abi`].
//!
//! # Safety
//!
//! Every exported function is an `unsafe extern "C" fn`. Its caller obeys the requirements of the library's
//! reference. An object is NULL, or came from this library and was not destroyed, and is used on the thread
//! that owns it. Other pointers are NULL or valid for the declared type, as long as the call, task or object
//! needs them. Strings end in NUL. Safe code cannot make one of these types, except `Addr`, from an address:
//! they come only from such a call, from an owned object, or from an unsafe function. So reading and writing
//! one value through them relies on the promise of C's caller. The pointer types do not contain a length, and
//! a `void *` does not contain a type, so the methods that take a length or a type are unsafe. An `Addr` is
//! only a number.
#![expect(unsafe_code, reason = "pointers from C are dereferenced here")]

mod objects;
mod pointers;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::marker::PhantomData;

pub use objects::{Mark, Object, object, pointer_to};
pub use pointers::{Addr, Ptr};

/// The result codes of a library's calls.
pub trait Abi {
    /// The type of a code.
    type Code: Copy;
    /// The code for NULL and most other bad arguments.
    const INVALID: Self::Code;
}

/// The result of a function that may fail with a code of the library `A`.
type Outcome<A, T = ()> = Result<T, <A as Abi>::Code>;

/// Returns `code` unless the condition holds.
///
/// # Errors
///
/// `code`.
#[inline]
pub fn require<Code>(held: bool, code: Code) -> Result<(), Code> {
    if held { Ok(()) } else { Err(code) }
}

/// Declares pointers whose methods fail with a code of the library `A`. They stay on their thread, because
/// the pointer `*const A` does.
macro_rules! coded {
    ($($(#[$doc:meta])* $pointer:ident;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            #[repr(transparent)]
            pub struct $pointer<T, A>(Ptr<T>, PhantomData<*const A>);

            impl<T, A> Clone for $pointer<T, A> {
                #[inline]
                fn clone(&self) -> Self {
                    *self
                }
            }

            impl<T, A> Copy for $pointer<T, A> {}

            impl<T, A> Default for $pointer<T, A> {
                fn default() -> Self {
                    Self::NULL
                }
            }

            impl<T, A> $pointer<T, A> {
                /// NULL.
                pub const NULL: Self = Self(Ptr::NULL, PhantomData);

                /// Returns whether the pointer is NULL.
                pub const fn is_null(self) -> bool {
                    self.0.is_null()
                }
            }
        )*
    };
}

coded! {
    /// A value, or an array of values, that C passes by its address.
    In;
    /// An address to which C wants a result to be written.
    Out;
    /// A pointer to an object of this library, as C passes it.
    Handle;
}

impl<T, A> In<T, A> {
    /// Returns the address as that of a larger struct whose first field is this value.
    ///
    /// # Safety
    ///
    /// C passes a pointer to a struct of this type, or NULL.
    pub unsafe fn cast<U>(self) -> In<U, A> {
        In(Ptr(self.0.0.cast()), PhantomData)
    }
}

impl<T: Copy, A: Abi> In<T, A> {
    /// Returns the value, unless C passed NULL.
    pub fn get(self) -> Option<T> {
        self.0.value()
    }

    /// Returns the value.
    ///
    /// # Errors
    ///
    /// [`Abi::INVALID`] for NULL.
    pub fn value(self) -> Outcome<A, T> {
        self.get().ok_or(A::INVALID)
    }

    /// Returns the `n` consecutive values at this address.
    ///
    /// # Errors
    ///
    /// [`Abi::INVALID`] for NULL, or for an array that cannot exist.
    ///
    /// # Safety
    ///
    /// C promised `n` valid values, which do not change while the slice is used.
    #[inline]
    pub unsafe fn slice<'a>(self, n: usize) -> Outcome<A, &'a [T]> {
        // SAFETY: this method and `array` have the same requirements, and the caller meets them.
        unsafe { self.0.array(n) }.ok_or(A::INVALID)
    }
}

impl<A: Abi> In<c_void, A> {
    /// Returns a value of another type.
    ///
    /// # Errors
    ///
    /// [`Abi::INVALID`] for NULL.
    ///
    /// # Safety
    ///
    /// C passes a pointer to a value of this type, or NULL.
    pub unsafe fn get_as<T: Copy>(self) -> Outcome<A, T> {
        // SAFETY: C passes a pointer to a value of this type, or NULL, as the caller guarantees.
        unsafe { self.cast::<T>() }.value()
    }
}

impl<T, A: Abi> Out<T, A> {
    /// Fails if C passed NULL. For calls that must not act if they cannot return their result.
    ///
    /// # Errors
    ///
    /// [`Abi::INVALID`].
    #[inline]
    pub fn check(self) -> Outcome<A> {
        require(!self.is_null(), A::INVALID)
    }

    /// Writes the value that `make` returns. Calls `make` only if C passed an address.
    ///
    /// # Errors
    ///
    /// [`Abi::INVALID`] for NULL, and those of `make`.
    #[inline]
    pub fn make(self, make: impl FnOnce() -> Outcome<A, T>) -> Outcome<A> {
        self.check()?;
        self.put_if(make()?);
        Ok(())
    }

    /// Writes a value.
    ///
    /// # Errors
    ///
    /// [`Abi::INVALID`] for NULL.
    #[inline]
    pub fn put(self, value: T) -> Outcome<A> {
        self.check()?;
        self.put_if(value);
        Ok(())
    }

    /// Makes a pointer to a result from an element of an array of pointers that C passed.
    ///
    /// # Safety
    ///
    /// The address is 0, or valid for a write of the result.
    pub unsafe fn from_array(addr: u64) -> Self {
        Self(Ptr(Addr::at(addr).raw().cast()), PhantomData)
    }

    /// Writes `value`, or does nothing if C passed NULL.
    #[inline]
    pub fn put_if(self, value: T) {
        self.0.put(value);
    }
}

impl<T: Copy, A: Abi> Out<T, A> {
    /// Returns the present value of the variable, for calls that read it before they write it.
    pub fn before(self) -> Option<T> {
        self.0.value()
    }

    /// Copies `values` to the array that C passed.
    ///
    /// # Errors
    ///
    /// [`Abi::INVALID`] for NULL, or without room for all values.
    ///
    /// # Safety
    ///
    /// C has promised room for `room` values. The memory does not belong to this library.
    pub unsafe fn fill(self, values: &[T], room: usize) -> Outcome<A> {
        self.check()?;
        require(values.len() <= room, A::INVALID)?;
        // SAFETY: the caller guarantees the room, and the values fit into it.
        unsafe { self.0.0.copy_from_nonoverlapping(values.as_ptr(), values.len()) };
        Ok(())
    }
}

impl<A: Abi> Out<c_char, A> {
    /// Writes a string and its NUL.
    ///
    /// # Errors
    ///
    /// [`Abi::INVALID`] for NULL, or without room for all of it.
    ///
    /// # Safety
    ///
    /// C has promised room for `room` bytes. The memory does not belong to this library.
    pub unsafe fn text(self, text: &str, room: usize) -> Outcome<A> {
        self.check()?;
        require(text.len() < room, A::INVALID)?;
        // SAFETY: the caller guarantees the room.
        unsafe { self.0.put_text(room, text) };
        Ok(())
    }

    /// Writes a string and its NUL, truncated to `room` bytes.
    ///
    /// # Errors
    ///
    /// [`Abi::INVALID`] for NULL, or if `room` is 0 or less.
    ///
    /// # Safety
    ///
    /// C has promised room for `room` bytes. The memory does not belong to this library.
    pub unsafe fn cut_text(self, text: &str, room: c_int) -> Outcome<A> {
        require(!self.is_null() && room > 0, A::INVALID)?;
        // SAFETY: the caller guarantees the room, which is not negative.
        unsafe { self.0.put_text(room as usize, text) };
        Ok(())
    }
}

impl<A: Abi> Out<c_void, A> {
    /// Writes a value of another type.
    ///
    /// # Errors
    ///
    /// [`Abi::INVALID`] for NULL.
    ///
    /// # Safety
    ///
    /// C passes a pointer to a value of this type, or NULL.
    pub unsafe fn put_as<T>(self, value: T) -> Outcome<A> {
        Out::<T, A>(Ptr(self.0.0.cast()), PhantomData).put(value)
    }
}

/// A string from C, or NULL.
#[derive(Debug)]
#[repr(transparent)]
pub struct Text<A>(*const c_char, PhantomData<*const A>);

impl<A> Clone for Text<A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for Text<A> {}

impl<A> Text<A> {
    /// Wraps a string that is a field of a struct.
    ///
    /// # Safety
    ///
    /// The pointer is NULL, or a string that ends in NUL and does not change while the result is used.
    pub unsafe fn new(ptr: *const c_char) -> Self {
        Self(ptr, PhantomData)
    }

    /// Returns the string, unless C passed NULL.
    pub fn get<'a>(self) -> Option<&'a CStr> {
        // SAFETY: the pointer is not null, so it is to a string that ends in NUL and does not change, as C or
        // the caller of `new` promised.
        (!self.0.is_null()).then(|| unsafe { CStr::from_ptr(self.0) })
    }

    /// Returns the string, if C passed one and it is UTF-8.
    pub fn utf8<'a>(self) -> Option<&'a str> {
        self.get()?.to_str().ok()
    }
}

impl<A: Abi> Text<A> {
    /// Returns the string.
    ///
    /// # Errors
    ///
    /// [`Abi::INVALID`] for NULL.
    pub fn value<'a>(self) -> Outcome<A, &'a CStr> {
        self.get().ok_or(A::INVALID)
    }

    /// Returns the string.
    ///
    /// # Errors
    ///
    /// [`Abi::INVALID`] for NULL, and for a string that is not UTF-8.
    pub fn str<'a>(self) -> Outcome<A, &'a str> {
        self.utf8().ok_or(A::INVALID)
    }
}
