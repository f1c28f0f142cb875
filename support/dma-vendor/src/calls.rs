//! [`calls!`](crate::calls): tables of function pointers.
#![expect(unsafe_code, reason = "converts addresses that were found by name to functions")]

use std::ffi::c_void;
use std::ptr::NonNull;

/// Defines a table of one library's C calls: a struct with a function pointer for each call, which has the
/// call's name.
///
/// A `required` call is a plain field; a library without it is refused. An `optional` call, which only some
/// versions export, is an `Option` field. The module after `of` contains the functions' types under the
/// calls' names. If a module follows `linked`, it declares the functions themselves, which the function
/// `linked` uses.
///
/// The struct implements `Clone`, `Copy` and `Debug`, and has these functions, in which `get` maps a call's
/// name to its address:
///
/// - `unsafe fn load(get) -> Result<Self, Vec<&'static CStr>>` fills the table. The error lists all missing
///   required calls.
/// - `unsafe fn linked(get) -> Self` gets the required calls from the linker. It exists with the feature
///   `linked` of the crate that uses the macro.
/// - `fn absent(&self) -> Vec<&'static str>` lists the optional calls that the library does not export.
///
/// The fields are public, so safe code can replace a function of a table by any other function of its type.
/// This is sound because a table is only a list of functions, each of which needs `unsafe` to be called. A
/// crate must not rely on the functions of a table that safe code has passed to it: a function that accepts a
/// table from outside is `unsafe`, and the engines keep their tables where safe code can read them, but not
/// replace them.
///
/// ```
/// # #![allow(unsafe_code)]
/// mod bindings {
///     unsafe extern "C" {
///         pub fn labs(number: std::ffi::c_long) -> std::ffi::c_long;
///         pub fn getpid() -> i32;
///     }
/// }
/// #[allow(non_camel_case_types)]
/// mod types {
///     pub type labs = unsafe extern "C" fn(number: std::ffi::c_long) -> std::ffi::c_long;
///     pub type getpid = unsafe extern "C" fn() -> i32;
/// }
///
/// dma_vendor::calls! {
///     /// Calls of libc.
///     pub struct Libc of types, linked bindings;
///     required: labs;
///     optional: getpid;
/// }
///
/// let address = std::ptr::NonNull::new(bindings::labs as *mut std::ffi::c_void);
/// // SAFETY: the closure returns the address of the function that it is called for, or no address.
/// let libc = unsafe { Libc::load(|name| address.filter(|_| name == c"labs")) }.unwrap();
/// // SAFETY: `labs` accepts every number except the smallest one.
/// assert_eq!(unsafe { (libc.labs)(-3) }, 3);
/// assert_eq!(libc.absent(), ["getpid"]);
/// // SAFETY: the closure returns no addresses.
/// assert_eq!(unsafe { Libc::load(|_| None) }.unwrap_err(), [c"labs"]);
/// ```
#[macro_export]
macro_rules! calls {
    (
        $(#[$meta:meta])*
        pub struct $table:ident of $types:ident $(, linked $bindings:ident)?;
        required: $($need:ident),*;
        optional: $($may:ident),*;
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug)]
        pub struct $table {
            $(
                #[doc = concat!("`", stringify!($need), "`.")]
                pub $need: $types::$need,
            )*
            $(
                #[doc = concat!("`", stringify!($may), "`, which some versions lack.")]
                pub $may: Option<$types::$may>,
            )*
        }

        impl $table {
            /// Fills the table with the addresses that `get` returns.
            ///
            /// # Errors
            ///
            /// The names of all required calls for which `get` returned `None`.
            ///
            /// # Safety
            ///
            /// For each name, `get` must return the address of the function that the headers declare under
            /// this name. The function must stay loaded as long as the table or a copy of it is used.
            #[allow(unused_mut, reason = "a table may have no required calls")]
            pub unsafe fn load(
                mut get: impl FnMut(&'static ::core::ffi::CStr) -> Option<::core::ptr::NonNull<::core::ffi::c_void>>,
            ) -> Result<Self, Vec<&'static ::core::ffi::CStr>> {
                let mut missing = Vec::new();
                $(
                    let $need = get($crate::calls!(@name $need));
                    if $need.is_none() {
                        missing.push($crate::calls!(@name $need));
                    }
                )*
                let mut all = || Some(Self {
                    // SAFETY: the caller promises that `get` has returned the address of the function with
                    // this name, which has this type.
                    $($need: unsafe { $crate::function($need?) },)*
                    // SAFETY: the caller promises that `get` returns the address of the function with this
                    // name, which has this type.
                    $($may: get($crate::calls!(@name $may)).map(|address| unsafe { $crate::function(address) }),)*
                });
                all().ok_or(missing)
            }

            $crate::calls! {
                @linked [$($bindings)?] [$($need,)*] [$($may,)*]
            }

            /// Returns the optional calls that the library does not export.
            #[must_use]
            pub fn absent(&self) -> Vec<&'static str> {
                let optional: &[(&'static str, bool)] = &[$((stringify!($may), self.$may.is_none())),*];
                optional.iter().filter(|(_, absent)| *absent).map(|(name, _)| *name).collect()
            }
        }
    };
    (@linked [] $($rest:tt)*) => {};
    (@linked [$bindings:ident] [$($need:ident,)*] [$($may:ident,)*]) => {
        /// Gets the required calls from the linker, and the optional calls from `get`.
        ///
        /// # Safety
        ///
        /// The conditions of [`load`](Self::load).
        #[cfg(feature = "linked")]
        pub unsafe fn linked(
            mut get: impl FnMut(&'static ::core::ffi::CStr) -> Option<::core::ptr::NonNull<::core::ffi::c_void>>,
        ) -> Self {
            Self {
                $($need: $bindings::$need,)*
                // SAFETY: the caller promises that `get` returns the address of the function with this name,
                // which has this type.
                $($may: get($crate::calls!(@name $may)).map(|address| unsafe { $crate::function(address) }),)*
            }
        }
    };
    (@name $call:ident) => {
        const {
            match ::core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($call), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => unreachable!(),
            }
        }
    };
}

/// Converts an address to a function, for [`calls!`](crate::calls).
///
/// # Safety
///
/// `F` must be a function pointer type, and the function at `address` must have this type.
#[must_use]
pub unsafe fn function<F: Copy>(address: NonNull<c_void>) -> F {
    const { assert!(size_of::<F>() == size_of::<NonNull<c_void>>()) }
    // SAFETY: both types have the same size, as asserted above, and the caller promises that the function
    // at the address has the type `F`.
    unsafe { std::mem::transmute_copy(&address) }
}
