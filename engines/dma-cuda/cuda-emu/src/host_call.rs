//! Functions of the program that a stream calls, and fills by rows, which the model lacks.
#![expect(unsafe_code, reason = "calls the program's functions, and writes to its memory")]

use std::ffi::{c_int, c_void};

/// `CUhostFn`.
pub(crate) type HostFunction = unsafe extern "C" fn(*mut c_void);
/// `CUstreamCallback`.
pub(crate) type StreamCallback = unsafe extern "C" fn(*mut c_void, c_int, *mut c_void);

/// A call that a stream makes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HostCall {
    Function { function: HostFunction, data: Data },
    Callback { function: StreamCallback, stream: u64, data: Data },
}

/// A pointer of the program, which its host function receives.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Data(*mut c_void);

// SAFETY: the stand-in never follows the pointer, and the program knows that its functions run on a thread of
// the driver.
unsafe impl Send for Data {}

impl HostCall {
    /// Calls the function.
    pub(crate) fn run(self) {
        match self {
            // SAFETY: the program passed this function to be called with this pointer.
            Self::Function { function, data } => unsafe { function(data.0) },
            Self::Callback { function, stream, data } => {
                let stream = std::ptr::with_exposed_provenance_mut(stream as usize);
                // SAFETY: the program passed this function to be called with these arguments.
                unsafe { function(stream, 0, data.0) }
            }
        }
    }
}

/// Writes one word at the start of each row. The rows are device memory, or pinned or registered host memory.
pub(crate) fn fill_rows(bytes: u64, pitch: u64, word: u32, rows: u64) {
    for row in 0..rows {
        let at: *mut u32 = std::ptr::with_exposed_provenance_mut((bytes + row * pitch) as usize);
        // SAFETY: the call that queued this step has checked that the row is within one allocation, and CUDA
        // requires that the program does not access it until the step has ended.
        unsafe { at.write_unaligned(word) };
    }
}
