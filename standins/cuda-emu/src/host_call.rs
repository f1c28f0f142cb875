//! Functions of the program that a stream calls, and accesses of streams to memory that the model lacks:
//! fills by rows, and values that streams write and wait for.
#![expect(unsafe_code, reason = "calls the program's functions, and writes to its memory")]

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

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

/// A value of 4 or 8 bytes that a stream writes or waits for. Its address is a multiple of its length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamValue {
    /// Address of the value's bytes in this process.
    pub(crate) bytes: u64,
    pub(crate) value: u64,
    pub(crate) len: u64,
}

/// `CUstreamWaitValue_flags`: how the value in memory relates to the given one when the wait ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// The difference, as a signed number, is at least 0.
    AtLeast,
    Equal,
    /// The values have a common bit.
    And,
    /// There is a bit that is in none of them.
    Nor,
}

impl StreamValue {
    /// Writes the value.
    pub(crate) fn write(self) {
        let at: *mut u64 = std::ptr::with_exposed_provenance_mut(self.bytes as usize);
        if self.len == 8 {
            // SAFETY: the call that queued this step has checked that the value is aligned, and within one
            // allocation of a device or of pinned or registered host memory.
            unsafe { AtomicU64::from_ptr(at) }.store(self.value, Ordering::SeqCst);
        } else {
            // SAFETY: the call that queued this step has checked that the value is aligned, and within one
            // allocation of a device or of pinned or registered host memory.
            unsafe { AtomicU32::from_ptr(at.cast()) }.store(self.value as u32, Ordering::SeqCst);
        }
    }

    /// Returns true if the value in memory ends the wait.
    pub(crate) fn is(self, until: Until) -> bool {
        let at: *mut u64 = std::ptr::with_exposed_provenance_mut(self.bytes as usize);
        // Values of 4 bytes are compared in the upper half, so that their sign is that of the 8 bytes.
        let (shift, mask) = if self.len == 8 { (0, u64::MAX) } else { (32, !0 << 32) };
        let found = if self.len == 8 {
            // SAFETY: the call that queued this step has checked that the value is aligned, and within one
            // allocation of a device or of pinned or registered host memory.
            unsafe { AtomicU64::from_ptr(at) }.load(Ordering::SeqCst)
        } else {
            // SAFETY: the call that queued this step has checked that the value is aligned, and within one
            // allocation of a device or of pinned or registered host memory.
            unsafe { AtomicU32::from_ptr(at.cast()) }.load(Ordering::SeqCst).into()
        };
        let (found, value) = (found << shift, self.value << shift);
        match until {
            Until::AtLeast => found.wrapping_sub(value) as i64 >= 0,
            Until::Equal => found == value,
            Until::And => found & value != 0,
            Until::Nor => !(found | value) & mask != 0,
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
