//! The stand-in driver in this process.
#![expect(unsafe_code, reason = "hands the stand-in's calls to the engine")]
#![allow(dead_code, reason = "each test file uses only a part")]

use dma_cuda::{CudaDevice, CudaEngine, CudaOptions, Driver};

/// Two GPUs whose copies take no time, one whose copies take 20 us longer, and one with published times.
pub(crate) const HEALTHY: &str =
    "memory = '256M'\n[[gpu]]\n[[gpu]]\n[[gpu]]\ndelay = '20us'\n[[gpu]]\nprofile = 'hopper'\n";

/// Returns the stand-in's calls, except those that `lacks` names.
pub(crate) fn driver_without(config: &str, lacks: &[&str]) -> Driver {
    cuda_emu::use_config(config).expect("a valid configuration");
    let get = |name: &'static std::ffi::CStr| {
        cuda_emu::symbol(name).filter(|_| name.to_str().is_ok_and(|name| !lacks.contains(&name)))
    };
    // SAFETY: the stand-in's functions have the declared types, and are never unloaded.
    unsafe { Driver::load(get) }.expect("the stand-in has all calls")
}

pub(crate) fn driver(config: &str) -> Driver {
    driver_without(config, &[])
}

/// Opens a GPU of the stand-in.
pub(crate) fn open(config: &str, ordinal: u32) -> CudaEngine {
    open_with(&driver(config), &options(ordinal)).expect("the stand-in opens")
}

/// Opens a GPU by this table: the stand-in's functions, or replacements of the test.
pub(crate) fn open_with(driver: &Driver, options: &CudaOptions) -> dma_core::Result<CudaEngine> {
    // SAFETY: the stand-in's functions behave as CUDA's. A test's own function forwards to them, or fails.
    unsafe { CudaEngine::open_with(driver, options) }
}

pub(crate) fn options(ordinal: u32) -> CudaOptions {
    CudaOptions::new().with_device(CudaDevice::Ordinal(ordinal))
}
