//! The declarations of `include/dma.h`, which bindgen generates, and the macro that exports functions with
//! exactly these types.

#[rustfmt::skip]
mod bindings;
#[rustfmt::skip]
pub(crate) mod call_bindings;

pub use bindings::*;

/// Exports functions under their C names, all as `unsafe extern "C"`. The compiler checks that each has
/// the type that the header declares. rustfmt does not format the functions.
macro_rules! c_calls {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty $body:block)*) => {
        $(
            #[doc = concat!("See `", stringify!($name), "` in `include/dma.h`.")]
            ///
            /// # Safety
            ///
            /// Each pointer is NULL, or leads to the object that the header describes, and is valid for as
            /// long as the header says.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> $result $body
            const _: crate::header::call_bindings::$name = $name;
        )*
    };
}
pub(crate) use c_calls;
