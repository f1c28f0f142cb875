//! The environment, set up once for all tests of a process, and memory in it.
#![allow(dead_code, reason = "not every test that includes this file uses all of it")]
#![expect(unsafe_code, reason = "calls of C functions")]

use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Once;

use spdk_emu as _;
use spdk_sys::bindings as c;

/// Sets up the environment with this configuration. Only the first call has an effect.
pub(crate) fn set_up(config: &'static str) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        spdk_emu::use_config(config).unwrap();
        let mut opts = MaybeUninit::<c::spdk_env_opts>::zeroed();
        // SAFETY: all zeros are a valid value of the struct.
        let opts = unsafe { opts.assume_init_mut() };
        opts.opts_size = size_of::<c::spdk_env_opts>();
        // SAFETY: the struct can be written, and has the size that `opts_size` states.
        unsafe { c::spdk_env_opts_init(opts) };
        // SAFETY: `spdk_env_opts_init` has filled the struct, whose texts are static.
        assert_eq!(unsafe { c::spdk_env_init(opts) }, 0);
        // Unpin this thread, so that the tests' threads do not share one core.
        // SAFETY: the call takes no arguments.
        unsafe { c::spdk_unaffinitize_thread() };
    });
}

/// Memory of the environment.
pub(crate) struct Memory {
    pub(crate) ptr: *mut u8,
    pub(crate) len: usize,
}

impl Memory {
    pub(crate) fn new(len: usize, align: usize) -> Self {
        // SAFETY: the pointer argument must be null, and is.
        let ptr = unsafe { c::spdk_dma_zmalloc(len, align, ptr::null_mut()) }.cast::<u8>();
        assert!(!ptr.is_null());
        Self { ptr, len }
    }

    /// Returns the bytes. No device may use them at the same time.
    #[expect(clippy::mut_from_ref, reason = "tests do not keep two of them")]
    pub(crate) fn bytes(&self) -> &mut [u8] {
        // SAFETY: the memory was allocated with this length and zeroed. No device uses it now, and tests do
        // not keep two references.
        unsafe { std::slice::from_raw_parts_mut(self.ptr, self.len) }
    }

    pub(crate) fn at(&self, offset: usize) -> *mut c_void {
        self.ptr.wrapping_add(offset).cast()
    }

    /// Returns the bus address of a byte.
    pub(crate) fn bus(&self, offset: usize) -> u64 {
        bus(self.at(offset))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `new` allocated the memory, which is freed only here, and no device uses it any more.
        unsafe { c::spdk_dma_free(self.ptr.cast()) }
    }
}

pub(crate) fn bus(ptr: *const c_void) -> u64 {
    // SAFETY: the call accepts any address, and the size may be null.
    unsafe { c::spdk_vtophys(ptr, ptr::null_mut()) }
}

/// Returns the address of a device, as text.
pub(crate) fn address(device: *mut c::spdk_pci_device) -> String {
    // SAFETY: the library returned this device, which is never freed.
    let addr = unsafe { c::spdk_pci_device_get_addr(device) };
    let mut text = [0; 32];
    // SAFETY: the buffer has 32 bytes, and `addr` is a local variable.
    assert_eq!(unsafe { c::spdk_pci_addr_fmt(text.as_mut_ptr(), 32, &addr) }, 0);
    // SAFETY: the call wrote a string that ends in NUL.
    let result = unsafe { CStr::from_ptr(text.as_ptr()) };
    result.to_str().unwrap().to_owned()
}
