//! The declarations of `include/dma.h`, which bindgen generates, and the macro that exports functions with
//! exactly these types.

#[rustfmt::skip]
mod bindings;
#[rustfmt::skip]
pub(crate) mod call_bindings;

pub use bindings::*;

/// Exports functions under their C names, all as `unsafe extern "C"`. The compiler checks that each has
/// the type that the header declares. A function that is declared without `->` returns `dma_status`:
/// that of its body's `Result<()>`, made by the function `guard` in scope. rustfmt does not format the
/// functions.
macro_rules! c_calls {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block)*) => {
        $(
            #[doc = concat!("See `", stringify!($name), "` in `include/dma.h`.")]
            ///
            /// # Safety
            ///
            /// Each pointer is NULL, or leads to the object that the header describes, and is valid for as
            /// long as the header says.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> crate::header::result_of!($($result)?) {
                crate::header::body_of!(($($result)?) $body)
            }
            const _: crate::header::call_bindings::$name = $name;
        )*
    };
}
pub(crate) use c_calls;

macro_rules! result_of {
    () => {
        crate::header::dma_status
    };
    ($result:ty) => {
        $result
    };
}
pub(crate) use result_of;

macro_rules! body_of {
    (() $body:block) => {
        guard(|| $body)
    };
    (($result:ty) $body:block) => {
        $body
    };
}
pub(crate) use body_of;
