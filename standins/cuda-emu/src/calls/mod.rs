//! The calls of the driver API, by the parts of its reference.

pub(crate) mod context;
pub(crate) mod copy_and_fill;
pub(crate) mod device;
pub(crate) mod kernel;
pub(crate) mod memory;
pub(crate) mod occupancy;
pub(crate) mod pool;
pub(crate) mod stream;

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

/// Returns the address of a call, as `dlsym` returns it for the installed library. `None` if the stand-in
/// does not have the call.
#[must_use]
pub fn symbol(name: &CStr) -> Option<NonNull<c_void>> {
    let name = name.to_str().ok()?;
    if name == "cuda_emu_model" {
        return NonNull::new((device::cuda_emu_model as *const c_void).cast_mut());
    }
    let parts = [
        device::find,
        context::find,
        memory::find,
        copy_and_fill::find,
        kernel::find,
        occupancy::find,
        stream::find,
        pool::find,
    ];
    let found = parts.iter().find_map(|find| find(name))?;
    NonNull::new(found.cast_mut())
}

/// Returns the variant of a call (`_v2`, `_v3`) that a program of CUDA `version` means by the plain name.
pub(crate) fn by_version(name: &str, version: i32) -> Option<NonNull<c_void>> {
    let variant = |number: u32| {
        let name = if number == 1 { name.to_owned() } else { format!("{name}_v{number}") };
        std::ffi::CString::new(name).ok().and_then(|name| symbol(&name))
    };
    // CUDA versions that changed the arguments. Other names mean their newest variant, older than 12.0.
    let changes: &[i32] = match name {
        "cuCtxCreate" => &[3020, 11_040, 12_050],
        "cuStreamGetCaptureInfo" => &[11_030, 12_030],
        "cuMemPrefetchAsync" | "cuMemAdvise" => &[12_020],
        "cuCtxSynchronize" => &[13_000],
        name if name.ends_with("BatchAsync") => &[13_000],
        _ => &[0; 3],
    };
    let newest = 1 + changes.iter().filter(|change| version >= **change).count() as u32;
    (1..=newest).rev().find_map(variant)
}
