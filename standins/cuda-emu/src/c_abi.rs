//! The C boundary: exported functions, and the pointers of [`dma_standin::c_abi`] with CUDA's codes.
//!
//! [`c_calls!`] declares all exported functions. Their callers meet the requirements of the driver API.
//! Handles are numbers, which are looked up in tables.

use std::ffi::c_int;

use dma_standin::c_abi::{self, Abi};

use crate::codes::{Code, Outcome};

/// CUDA's codes.
#[derive(Debug)]
pub(crate) struct Cuda;

impl Abi for Cuda {
    type Code = Code;
    const INVALID: Code = Code::INVALID_VALUE;
}

pub(crate) type In<T> = c_abi::In<T, Cuda>;
pub(crate) type Out<T> = c_abi::Out<T, Cuda>;
pub(crate) type Text = c_abi::Text<Cuda>;

/// Exports functions under their C names, and defines `find`, which returns their addresses by name. The body
/// of a function returns an [`Outcome`].
macro_rules! c_calls {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block)*) => {
        $(
            $(#[$doc])*
            #[unsafe(no_mangle)]
            pub(super) unsafe extern "C" fn $name($($arg: $type),*) -> std::ffi::c_int {
                $crate::c_abi::answer(move || $body)
            }
        )*

        /// Returns the address of the call with this name.
        pub(crate) fn find(name: &str) -> Option<*const std::ffi::c_void> {
            $(
                if name == stringify!($name) {
                    return Some($name as *const std::ffi::c_void);
                }
            )*
            None
        }
    };
}
pub(crate) use c_calls;

/// Runs a call. Refuses it within a host function, and in a child of the process that initialized the driver.
#[inline]
pub(crate) fn answer(call: impl FnOnce() -> Outcome) -> c_int {
    match crate::driver::permit().and_then(|()| call()) {
        Ok(()) => 0,
        Err(Code(code)) => code,
    }
}
