//! `doca_error.h` and `doca_version.h`.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::ffi::{CStr, c_char};

use crate::c_abi::{Code, c, c_calls};

const ERRORS: [(&CStr, &CStr); 31] = [
    (c"DOCA_SUCCESS", c"Success"),
    (c"DOCA_ERROR_UNKNOWN", c"Unknown error"),
    (c"DOCA_ERROR_NOT_PERMITTED", c"Operation not permitted"),
    (c"DOCA_ERROR_IN_USE", c"Resource already in use"),
    (c"DOCA_ERROR_NOT_SUPPORTED", c"Operation not supported"),
    (c"DOCA_ERROR_AGAIN", c"Resource temporarily unavailable, try again"),
    (c"DOCA_ERROR_INVALID_VALUE", c"Invalid input"),
    (c"DOCA_ERROR_NO_MEMORY", c"Memory allocation failure"),
    (c"DOCA_ERROR_INITIALIZATION", c"Resource initialization failure"),
    (c"DOCA_ERROR_TIME_OUT", c"Timer expired waiting for resource"),
    (c"DOCA_ERROR_SHUTDOWN", c"Shut down in process or completed"),
    (c"DOCA_ERROR_CONNECTION_RESET", c"Connection reset by peer"),
    (c"DOCA_ERROR_CONNECTION_ABORTED", c"Connection aborted"),
    (c"DOCA_ERROR_CONNECTION_INPROGRESS", c"Connection in progress"),
    (c"DOCA_ERROR_NOT_CONNECTED", c"Not connected"),
    (c"DOCA_ERROR_NO_LOCK", c"Unable to acquire required lock"),
    (c"DOCA_ERROR_NOT_FOUND", c"Resource not found"),
    (c"DOCA_ERROR_IO_FAILED", c"Input/output operation failed"),
    (c"DOCA_ERROR_BAD_STATE", c"Bad state"),
    (c"DOCA_ERROR_UNSUPPORTED_VERSION", c"Unsupported version"),
    (c"DOCA_ERROR_OPERATING_SYSTEM", c"Operating system call failure"),
    (c"DOCA_ERROR_DRIVER", c"DOCA driver call failure"),
    (c"DOCA_ERROR_UNEXPECTED", c"An unexpected scenario was detected"),
    (c"DOCA_ERROR_ALREADY_EXIST", c"Resource already exists"),
    (c"DOCA_ERROR_FULL", c"No more space in resource"),
    (c"DOCA_ERROR_EMPTY", c"No entry is available in resource"),
    (c"DOCA_ERROR_IN_PROGRESS", c"Operation is in progress"),
    (c"DOCA_ERROR_TOO_BIG", c"Requested operation too big to be contained"),
    (c"DOCA_ERROR_AUTHENTICATION", c"Authentication failure"),
    (c"DOCA_ERROR_BAD_CONFIG", c"Configuration is not valid"),
    (c"DOCA_ERROR_SKIPPED", c"Result is valid, but some previous output was dropped"),
];

pub(crate) fn name(code: Code) -> &'static str {
    ERRORS.get(code as usize).and_then(|(name, _)| name.to_str().ok()).unwrap_or("DOCA_ERROR_UNKNOWN")
}

const _: () = assert!(ERRORS.len() == c::DOCA_ERROR_SKIPPED as usize + 1);

c_calls! {
    /// Returns the name of the constant, as a static string. Returns `DOCA_ERROR_UNKNOWN` for unknown
    /// numbers.
    fn doca_error_get_name | doca_get_error_name(error: Code) -> *const c_char {
        ERRORS.get(error as usize).map_or(c"DOCA_ERROR_UNKNOWN", |(name, _)| name).as_ptr()
    }
    /// Returns the description of a code, as a static string.
    fn doca_error_get_descr | doca_get_error_string(error: Code) -> *const c_char {
        ERRORS.get(error as usize).map_or(c"Unknown error", |(_, description)| description).as_ptr()
    }
}
