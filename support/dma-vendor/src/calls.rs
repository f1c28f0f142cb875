//! [`calls!`](crate::calls): tables of function pointers.
#![expect(unsafe_code, reason = "uses addresses found by name as functions")]

use std::ffi::c_void;
use std::ptr::NonNull;

/// Defines a table of the C calls of one library: a struct with one function pointer for each call, named
/// like the call.
///
/// `required` calls are plain fields: the library is refused without them. `optional` calls, which only some
/// versions export, are `Option` fields. The module after `of` has the functions' types, by their names. If a
/// module follows `linked`, it declares the functions themselves, which the function `linked` uses.
///
/// The struct is `Clone`, `Copy` and `Debug`, and has these functions. `get` maps a call's name to its
/// address:
///
/// - `unsafe fn load(get) -> Result<Self, Vec<&'static CStr>>` fills it. The error lists all required calls
///   that are missing.
/// - `unsafe fn linked(get) -> Self`, with the feature `linked` of the crate that uses the macro, takes
///   required calls from the linker.
/// - `fn absent(&self) -> Vec<&'static str>` lists the optional calls that the library does not export.
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
/// // SAFETY: the addresses are those of the functions.
/// let libc = unsafe { Libc::load(|name| address.filter(|_| name == c"labs")) }.unwrap();
/// // SAFETY: takes any number but the least.
/// assert_eq!(unsafe { (libc.labs)(-3) }, 3);
/// assert_eq!(libc.absent(), ["getpid"]);
/// // SAFETY: there are no addresses.
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
            /// Takes the address of each call from `get`.
            ///
            /// # Errors
            ///
            /// The names of all required calls for which `get` returned `None`.
            ///
            /// # Safety
            ///
            /// For each name, `get` returns the address of the function that the headers declare by it. The
            /// function stays loaded as long as the table or a copy of it is used.
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
                    // SAFETY: `get` returned the address of the function of this name, which has the type.
                    $($need: unsafe { $crate::function($need?) },)*
                    // SAFETY: `get` returns the address of the function of this name, which has the type.
                    $($may: get($crate::calls!(@name $may)).map(|address| unsafe { $crate::function(address) }),)*
                });
                all().ok_or(missing)
            }

            $crate::calls! {
                @linked [$($bindings)?] [$($need,)*] [$($may,)*]
            }

            /// The optional calls that the library does not export.
            #[must_use]
            pub fn absent(&self) -> Vec<&'static str> {
                let optional: &[(&'static str, bool)] = &[$((stringify!($may), self.$may.is_none())),*];
                optional.iter().filter(|(_, absent)| *absent).map(|(name, _)| *name).collect()
            }
        }
    };
    (@linked [] $($rest:tt)*) => {};
    (@linked [$bindings:ident] [$($need:ident,)*] [$($may:ident,)*]) => {
        /// Takes the required calls from the linker, and the others from `get`.
        ///
        /// # Safety
        ///
        /// See [`load`](Self::load).
        #[cfg(feature = "linked")]
        pub unsafe fn linked(
            mut get: impl FnMut(&'static ::core::ffi::CStr) -> Option<::core::ptr::NonNull<::core::ffi::c_void>>,
        ) -> Self {
            Self {
                $($need: $bindings::$need,)*
                // SAFETY: `get` returns the address of the function of this name, which has the type.
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

/// The function at an address, for [`calls!`](crate::calls).
///
/// # Safety
///
/// `F` is a function pointer type, and the function at `address` is of that type.
#[must_use]
pub unsafe fn function<F: Copy>(address: NonNull<c_void>) -> F {
    const { assert!(size_of::<F>() == size_of::<NonNull<c_void>>()) }
    // SAFETY: both have one size, as asserted above, and the function at the address has the type `F`.
    unsafe { std::mem::transmute_copy(&address) }
}
