//! Results of calls: `CUresult`, with the names and texts of CUDA's public reference.

use std::ffi::{CStr, c_int};

pub(crate) use dma_standin::c_abi::require;

/// A failure of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Code(pub(crate) c_int);

/// Result of a call within this crate.
pub(crate) type Outcome<T = ()> = Result<T, Code>;

macro_rules! codes {
    (
        called { $($name:ident = $code:literal, $text:literal;)* }
        configured { $($other:ident = $other_code:literal, $other_text:literal;)* }
    ) => {
        impl Code {
            $(pub(crate) const $name: Self = Self($code);)*
        }

        /// Returns the code's name and its text.
        pub(crate) fn describe(code: c_int) -> Option<(&'static CStr, &'static CStr)> {
            const fn text(with_nul: &'static str) -> &'static CStr {
                match CStr::from_bytes_with_nul(with_nul.as_bytes()) {
                    Ok(text) => text,
                    Err(_) => unreachable!(),
                }
            }
            match code {
                0 => Some((c"CUDA_SUCCESS", c"no error")),
                $($code => Some(const {
                    (text(concat!("CUDA_ERROR_", stringify!($name), "\0")), text(concat!($text, "\0")))
                }),)*
                $($other_code => Some(const {
                    (text(concat!("CUDA_ERROR_", stringify!($other), "\0")), text(concat!($other_text, "\0")))
                }),)*
                _ => None,
            }
        }
    };
}

codes! {
    called {
    INVALID_VALUE = 1, "invalid argument";
    OUT_OF_MEMORY = 2, "out of memory";
    NOT_INITIALIZED = 3, "initialization error";
    DEINITIALIZED = 4, "driver shutting down";
    INVALID_DEVICE = 101, "invalid device ordinal";
    INVALID_IMAGE = 200, "device kernel image is invalid";
    INVALID_CONTEXT = 201, "invalid device context";
    MAP_FAILED = 205, "mapping of buffer object failed";
    NO_BINARY_FOR_GPU = 209, "no kernel image is available for execution on the device";
    INVALID_PTX = 218, "a PTX JIT compilation failed";
    FILE_NOT_FOUND = 301, "file not found";
    INVALID_HANDLE = 400, "invalid resource handle";
    NOT_FOUND = 500, "named symbol not found";
    NOT_READY = 600, "device not ready";
    ILLEGAL_ADDRESS = 700, "an illegal memory access was encountered";
    LAUNCH_OUT_OF_RESOURCES = 701, "too many resources requested for launch";
    PEER_ACCESS_ALREADY_ENABLED = 704, "peer access is already enabled";
    PEER_ACCESS_NOT_ENABLED = 705, "peer access has not been enabled";
    ASSERT = 710, "device-side assert triggered";
    HOST_MEMORY_ALREADY_REGISTERED = 712, "part or all of the requested memory range is already mapped";
    HOST_MEMORY_NOT_REGISTERED = 713, "pointer does not correspond to a registered memory region";
    HARDWARE_STACK_ERROR = 714, "hardware stack error";
    MISALIGNED_ADDRESS = 716, "misaligned address";
    LAUNCH_FAILED = 719, "unspecified launch failure";
    NOT_PERMITTED = 800, "operation not permitted";
    NOT_SUPPORTED = 801, "operation not supported";
    UNKNOWN = 999, "unknown error";
    }
    // These codes occur only if a configuration names them.
    configured {
    NO_DEVICE = 100, "no CUDA-capable device is detected";
    ECC_UNCORRECTABLE = 214, "uncorrectable ECC error encountered";
    SYSTEM_DRIVER_MISMATCH = 803, "system has unsupported display driver / cuda driver combination";
    }
}
