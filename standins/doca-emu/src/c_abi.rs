//! The C boundary: exported functions, and the pointers of [`dma_standin::c_abi`] with DOCA's codes.
//!
//! [`c_calls!`] declares all exported functions. Their callers obey the requirements of DOCA's reference.
#![expect(unsafe_code, reason = "takes the length of an array from C")]

use dma_standin::c_abi::{self, Abi};
pub(crate) use dma_standin::c_abi::{Mark, Object, object, pointer_to, require};
pub(crate) use doca_sys::bindings as c;

pub(crate) type Code = c::doca_error_t;
/// Result of internal functions. The code in `Err` is never `DOCA_SUCCESS`.
pub(crate) type Outcome<T = ()> = Result<T, Code>;

/// `Err(DOCA_ERROR_INVALID_VALUE)`, the result for most bad arguments.
pub(crate) const INVALID: Code = c::DOCA_ERROR_INVALID_VALUE;

/// DOCA's codes.
#[derive(Debug)]
pub(crate) struct Doca;

impl Abi for Doca {
    type Code = Code;
    const INVALID: Code = INVALID;
}

pub(crate) type Handle<T> = c_abi::Handle<T, Doca>;
pub(crate) type In<T> = c_abi::In<T, Doca>;
pub(crate) type Out<T> = c_abi::Out<T, Doca>;
pub(crate) type Text = c_abi::Text<Doca>;

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

pub(crate) const NO_DATA: c::doca_data = c::doca_data { u64_: 0 };

/// Bytes of the program that do not change until their task ends.
#[derive(Clone, Copy)]
pub(crate) struct TaskBytes {
    first: In<u8>,
    len: usize,
}

impl TaskBytes {
    pub(crate) const EMPTY: Self = Self { first: In::NULL, len: 0 };

    /// # Safety
    ///
    /// C promised `len` bytes, which do not change until the task ends.
    pub(crate) unsafe fn new(first: In<u8>, len: usize) -> Self {
        Self { first, len }
    }

    pub(crate) fn is_null(self) -> bool {
        self.first.is_null()
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
