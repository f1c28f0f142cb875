//! The macro `declare!`, by which tests call the stand-in's functions as C does.

/// Declares functions of the driver API, as its reference does.
macro_rules! declare {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(,)?);)*) => {$(
        #[expect(non_snake_case, reason = "as C's")]
        fn $name($($arg: $type),*) -> std::ffi::c_int {
            let name = std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes());
            let address = cuda_emu::symbol(name.expect("one NUL")).expect(stringify!($name));
            // SAFETY: `address` points to the function, and the driver API declares it with this type.
            let function = unsafe {
                std::mem::transmute::<std::ptr::NonNull<std::ffi::c_void>, unsafe extern "C" fn($($type),*) -> std::ffi::c_int>(address)
            };
            // SAFETY: the tests pass pointers to local variables or NULL, handles and addresses that may be
            // wrong, and memory that stays allocated until the stream has executed the call.
            unsafe { function($($arg),*) }
        }
    )*};
}
