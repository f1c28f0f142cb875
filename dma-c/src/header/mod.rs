//! The declarations of `include/dma.h`, which bindgen writes, and the macro that exports functions with
//! exactly these types.

#[rustfmt::skip]
mod bindings;
#[rustfmt::skip]
pub(crate) mod call_bindings;

pub use bindings::*;

/// Exports functions under their C names, all `unsafe extern "C"`. Each must have the type that the header
/// declares. rustfmt skips them.
macro_rules! c_calls {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty $body:block)*) => {
        $(
            #[doc = concat!("See `", stringify!($name), "` in `include/dma.h`.")]
            ///
            /// # Safety
            ///
            /// Pointers are NULL, or lead to what the header says, for the time that it says.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> $result $body
            const _: crate::header::call_bindings::$name = $name;
        )*
    };
}
pub(crate) use c_calls;
