//! The calls of DOCA 1.5 to 2.2 on the same objects: most under their names of that time.
//!
//! Choices where nothing public says how a real library answers:
//!
//! - A job that fails ends all others of its work queue and context with `IO_FAILED`. Submissions are
//!   `BAD_STATE` until the work queue was removed from the context and added again.
//! - A context copies with the first of its devices.
//! - Lists need no extension of the inventory.
//! - 1.5: a map that was stopped keeps its chunks and devices. Memory is registered when the first buffer or
//!   export needs it, as the devices may come later.
//! - 1.5: buffers can be made in a map without devices. While there are any, no device can be added.
//! - `doca_buf_refcount_add` is `NOT_SUPPORTED`, as the header of 1.5 says.
//! - Codes of later generations, such as `ALREADY_EXIST`, are `INVALID_VALUE` where 1.5 has none.

mod buffers;
mod device;
mod memory;
mod queue;

/// Exports calls that only have other names now: `fn OLD(…) -> RESULT = PATH;`.
macro_rules! renamed {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)? = $now:path;)*) => {
        $($crate::workq::renamed! { @one $(#[$doc])* $name ($($arg: $type),*) ($($result)?) $now })*
    };
    (@one $(#[$doc:meta])* $name:ident ($($arg:ident: $type:ty),*) () $now:path) => {
        $crate::workq::renamed! { @one $(#[$doc])* $name ($($arg: $type),*) ($crate::c_abi::Code) $now }
    };
    (@one $(#[$doc:meta])* $name:ident ($($arg:ident: $type:ty),*) ($result:ty) $now:path) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $type),*) -> $result {
            // SAFETY: the caller's promise is that of the other call.
            unsafe { $now($($arg),*) }
        }
    };
}
use renamed;

/// 1.5, and not 2.2.
const FIRST: bool = cfg!(feature = "generation-1-5");
