//! Translation of `doca_error_t`.
#![expect(unsafe_code, reason = "asks the library for the names of its codes")]

use std::borrow::Cow;
use std::ffi::{CStr, c_char};

use dma_core::{Error, ErrorKind, NativeError, Result};
use dma_process::with_signals_blocked;
use doca_sys::bindings::*;
use doca_sys::{Library, LoadError};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

/// The backend's name in errors, descriptors and engine names.
pub(crate) const NAME: &str = "doca";

/// Returns a code, with its name and its description from the library.
pub(crate) fn native(library: &Library, code: doca_error_t) -> NativeError {
    let text = |call: unsafe extern "C" fn(doca_error_t) -> *const c_char| -> Cow<'static, str> {
        // SAFETY: the call accepts any number, and has no other requirements.
        let text = unsafe { call(code) };
        if text.is_null() {
            return Cow::Borrowed("");
        }
        // SAFETY: the pointer is not null, so it is a constant string of the library, which is never
        // unloaded.
        unsafe { CStr::from_ptr(text) }.to_string_lossy()
    };
    NativeError {
        code: code.cast_signed(),
        name: text(library.common.doca_error_get_name),
        description: text(library.common.doca_error_get_descr),
    }
}

/// Returns the kind of error for the code of a call.
pub(crate) const fn kind(code: doca_error_t) -> ErrorKind {
    match code {
        DOCA_ERROR_NOT_PERMITTED | DOCA_ERROR_AUTHENTICATION => ErrorKind::PermissionDenied,
        DOCA_ERROR_IN_USE | DOCA_ERROR_NO_LOCK | DOCA_ERROR_ALREADY_EXIST | DOCA_ERROR_IN_PROGRESS => {
            ErrorKind::InUse
        }
        DOCA_ERROR_NOT_SUPPORTED => ErrorKind::Unsupported,
        DOCA_ERROR_AGAIN => ErrorKind::QueueFull,
        DOCA_ERROR_INVALID_VALUE | DOCA_ERROR_BAD_CONFIG => ErrorKind::InvalidArgument,
        DOCA_ERROR_NO_MEMORY => ErrorKind::OutOfMemory,
        DOCA_ERROR_FULL => ErrorKind::OutOfResources,
        DOCA_ERROR_TIME_OUT => ErrorKind::TimedOut,
        DOCA_ERROR_SHUTDOWN
        | DOCA_ERROR_CONNECTION_RESET
        | DOCA_ERROR_CONNECTION_ABORTED
        | DOCA_ERROR_NOT_CONNECTED => ErrorKind::Closed,
        DOCA_ERROR_NOT_FOUND | DOCA_ERROR_EMPTY => ErrorKind::NotFound,
        DOCA_ERROR_UNSUPPORTED_VERSION => ErrorKind::VersionMismatch,
        DOCA_ERROR_OPERATING_SYSTEM => ErrorKind::Os,
        DOCA_ERROR_TOO_BIG => ErrorKind::OutOfRange,
        // IO_FAILED, INITIALIZATION, BAD_STATE, DRIVER, UNEXPECTED, and codes of newer versions.
        _ => ErrorKind::DeviceFault,
    }
}

/// Encodes the status of a failed task as a negative number. This marks a task with an imported operand whose
/// export is not revoked.
pub(crate) const fn on_imported(status: i32) -> i32 {
    status.wrapping_neg()
}

/// Describes a completion's status. For a failure [on imported memory](on_imported), names the likely
/// reason.
pub(crate) fn explain(library: &Library, status: i32) -> NativeError {
    let mut native = native(library, status.unsigned_abs());
    if status < 0 {
        let reason = "an operand is imported memory, and a card may fail copies of memory that the same side \
                      exported: export on one side of the card, and import on the other";
        native.description = format!("{}; {reason}", native.description).into();
    }
    native
}

/// Returns the kind of error for the status of a failed task. It differs from [`kind`]: for a task, a
/// refused access does not mean a lack of privileges, and the arguments were checked before.
pub(crate) const fn task_kind(code: doca_error_t) -> ErrorKind {
    match kind(code) {
        ErrorKind::PermissionDenied => ErrorKind::AccessDenied,
        kind @ (ErrorKind::OutOfMemory | ErrorKind::OutOfResources | ErrorKind::TimedOut) => kind,
        _ => ErrorKind::DeviceFault,
    }
}

/// Makes the error of `call`, which returned `code`.
pub(crate) fn failed(library: &Library, call: &'static str, code: doca_error_t) -> Error {
    let error = Error::new(kind(code), call).with_backend(NAME).with_native(native(library, code));
    // The SDK has no codes for the system's limits on files and threads. It reports a driver failure or a
    // lack of memory instead.
    if matches!(error.kind(), ErrorKind::DeviceFault | ErrorKind::Os | ErrorKind::OutOfMemory)
        && let Some((lack, hint)) = lacking()
    {
        return Error::new(ErrorKind::OutOfResources, format!("{call}: {lack}"))
            .with_backend(NAME)
            .with_native(native(library, code))
            .with_hint(hint);
    }
    match code {
        DOCA_ERROR_DRIVER | DOCA_ERROR_OPERATING_SYSTEM => {
            error.with_hint("see the kernel's log (dmesg), and whether the mlx5 drivers are loaded")
        }
        DOCA_ERROR_BAD_CONFIG => error.with_hint("see the SDK's messages on stderr"),
        _ => error,
    }
}

/// Returns the system's limit that this process has reached, if any, and the remedy.
fn lacking() -> Option<(&'static str, &'static str)> {
    /// Number of file descriptors that one call of the SDK needs. The call closes some of them before it
    /// fails.
    const DESCRIPTORS: usize = 8;
    let mut open = Vec::with_capacity(DESCRIPTORS);
    while open.len() < DESCRIPTORS {
        match eventfd(0, EventfdFlags::CLOEXEC) {
            Ok(file) => open.push(file),
            Err(Errno::MFILE) => {
                return Some((
                    "this process is at its limit of file descriptors",
                    "raise its limit with `ulimit -n`, or close files",
                ));
            }
            Err(Errno::NFILE) => {
                return Some((
                    "the system is at its limit of file descriptors",
                    "raise fs.file-max, or close files",
                ));
            }
            Err(_) => return None,
        }
    }
    match with_signals_blocked(|| std::thread::Builder::new().spawn(|| ())) {
        Ok(thread) => {
            let _ = thread.join();
            None
        }
        Err(_) => Some((
            "no thread can be started",
            "raise the limit on threads: `ulimit -u`, pids.max of the control group, kernel.threads-max",
        )),
    }
}

/// Returns `Ok` for success. Otherwise returns the error of `call`.
pub(crate) fn check(library: &Library, call: &'static str, code: doca_error_t) -> Result<()> {
    if code == DOCA_SUCCESS { Ok(()) } else { Err(failed(library, call, code)) }
}

/// Makes the error for an SDK that cannot be loaded.
pub(crate) fn load(error: LoadError) -> Error {
    error.into_error(&doca_sys::DOCA, NAME)
}

/// Makes an error of this backend without a native code.
pub(crate) fn error(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(kind, message).with_backend(NAME)
}
