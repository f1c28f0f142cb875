//! [`Handle`]: a pointer to an object of the library, and the error numbers of its calls.
#![expect(unsafe_code, reason = "pointers for several threads")]

use std::ffi::c_int;
use std::ptr::NonNull;

use rustix::io::Errno;

/// A pointer to an object of the library. Several threads may pass it to calls at the same time: all calls of
/// rdma-core are thread-safe (see `ibv_open_device(3)`).
#[derive(Debug)]
pub(crate) struct Handle<T>(NonNull<T>);

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

// SAFETY: the library's objects are not bound to a thread (rdma-core's manual pages).
unsafe impl<T> Send for Handle<T> {}
// SAFETY: the library's calls on one object may be made by several threads at once (rdma-core's manual
// pages).
unsafe impl<T> Sync for Handle<T> {}

impl<T> Handle<T> {
    /// Makes a handle from the result of a call. NULL becomes the error number.
    pub(crate) fn new(made: *mut T) -> Result<Self, Errno> {
        NonNull::new(made).map(Self).ok_or_else(errno)
    }

    pub(crate) const fn as_ptr(self) -> *mut T {
        self.0.as_ptr()
    }
}

/// Returns the error number of the last failed call.
fn errno() -> Errno {
    std::io::Error::last_os_error().raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}

/// Returns the result of a call that returns 0, an error number, or -1 with the error number in `errno`.
pub(crate) fn checked(code: c_int) -> Result<(), Errno> {
    match code {
        0 => Ok(()),
        1.. => Err(Errno::from_raw_os_error(code)),
        _ => Err(errno()),
    }
}
