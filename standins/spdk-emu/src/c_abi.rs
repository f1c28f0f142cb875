//! The C boundary: exported functions, and the pointers of [`dma_standin::c_abi`].
//!
//! [`c_calls!`] declares all exported functions. Their callers obey the requirements of SPDK's headers.

use std::ffi::c_int;

pub(crate) use dma_standin::c_abi::{Addr, Ptr};
pub(crate) use spdk_sys::bindings as c;

/// A negative `errno`, as SPDK's calls return it.
pub(crate) type Errno = c_int;
/// Result of internal functions.
pub(crate) type Outcome<T = ()> = Result<T, Errno>;

/// A string from C. A call says itself how it fails.
pub(crate) type Text = dma_standin::c_abi::Text<()>;

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
