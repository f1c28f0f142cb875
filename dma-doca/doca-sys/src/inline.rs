//! Calls that exist in the SDK's headers only, as inline functions: no library exports them.
#![expect(unsafe_code, reason = "passes the caller's promises on to C")]

use core::ffi::c_void;

use crate::Common;
use crate::bindings::{doca_buf, doca_buf_inventory, doca_error_t, doca_mmap};

impl Common {
    /// A buffer over `len` bytes at `addr`, without content: `doca_buf_inventory_buf_get_by_addr`.
    ///
    /// # Safety
    ///
    /// `inventory` and `mmap` are valid handles, `buf` can be written, and no other thread uses either handle meanwhile.
    pub unsafe fn doca_buf_inventory_buf_get_by_addr(
        &self,
        inventory: *mut doca_buf_inventory,
        mmap: *mut doca_mmap,
        addr: *mut c_void,
        len: usize,
        buf: *mut *mut doca_buf,
    ) -> doca_error_t {
        // SAFETY: the caller's promise is what the call asks for.
        unsafe { (self.doca_buf_inventory_buf_get_by_args)(inventory, mmap, addr, len, addr, 0, buf) }
    }

    /// A buffer whose content is the `data_len` bytes at `data`: `doca_buf_inventory_buf_get_by_data`.
    ///
    /// # Safety
    ///
    /// As [`doca_buf_inventory_buf_get_by_addr`](Self::doca_buf_inventory_buf_get_by_addr).
    pub unsafe fn doca_buf_inventory_buf_get_by_data(
        &self,
        inventory: *mut doca_buf_inventory,
        mmap: *mut doca_mmap,
        data: *mut c_void,
        data_len: usize,
        buf: *mut *mut doca_buf,
    ) -> doca_error_t {
        // SAFETY: the caller's promise is what the call asks for.
        unsafe {
            (self.doca_buf_inventory_buf_get_by_args)(inventory, mmap, data, data_len, data, data_len, buf)
        }
    }
}
