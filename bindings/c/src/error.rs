//! Status codes, and the description of a thread's last failure.
#![expect(unsafe_code, reason = "functions that C calls")]

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString};
use std::panic::{AssertUnwindSafe, catch_unwind};

use dma::{Error, ErrorKind, OpError, Retry};

use crate::arguments::{Out, OutArray, OutStruct};
use crate::header::*;

pub(crate) const OK: dma_status = DMA_OK as dma_status;

/// Declares each error kind with its code, once for both directions.
macro_rules! kinds {
    ($($kind:ident = $code:ident),+ $(,)?) => {
        /// Returns the code of a kind.
        pub(crate) const fn status_of(kind: ErrorKind) -> dma_status {
            (match kind {
                $(ErrorKind::$kind => $code,)+
                _ => DMA_INTERNAL,
            }) as dma_status
        }

        /// Returns the kind of a code.
        pub(crate) const fn kind_of(status: dma_status) -> Option<ErrorKind> {
            $(if status == $code as dma_status {
                return Some(ErrorKind::$kind);
            })+
            None
        }
    };
}
kinds! {
    InvalidArgument = DMA_INVALID_ARGUMENT,
    OutOfRange = DMA_OUT_OF_RANGE,
    LengthMismatch = DMA_LENGTH_MISMATCH,
    Overlap = DMA_OVERLAP,
    AccessDenied = DMA_ACCESS_DENIED,
    WrongEngine = DMA_WRONG_ENGINE,
    Unsupported = DMA_UNSUPPORTED,
    QueueFull = DMA_QUEUE_FULL,
    InUse = DMA_IN_USE,
    OutOfMemory = DMA_OUT_OF_MEMORY,
    OutOfResources = DMA_OUT_OF_RESOURCES,
    NotFound = DMA_NOT_FOUND,
    PermissionDenied = DMA_PERMISSION_DENIED,
    TimedOut = DMA_TIMED_OUT,
    DeviceFault = DMA_DEVICE_FAULT,
    Aborted = DMA_ABORTED,
    DeviceLost = DMA_DEVICE_LOST,
    Revoked = DMA_REVOKED,
    Closed = DMA_CLOSED,
    Malformed = DMA_MALFORMED,
    VersionMismatch = DMA_VERSION_MISMATCH,
    MissingSdk = DMA_MISSING_SDK,
    Os = DMA_OS,
}

const fn retry_code(retry: Retry) -> dma_retry {
    (match retry {
        Retry::Now => DMA_RETRY_NOW,
        Retry::FewTimes => DMA_RETRY_FEW_TIMES,
        Retry::AfterProgress => DMA_RETRY_AFTER_PROGRESS,
        Retry::Later => DMA_RETRY_LATER,
        _ => DMA_RETRY_NEVER,
    }) as dma_retry
}

/// Returns the retry advice for a code.
pub(crate) const fn retry_of(status: dma_status) -> dma_retry {
    match kind_of(status) {
        Some(kind) => retry_code(kind.retry()),
        None => DMA_RETRY_NEVER as dma_retry,
    }
}

/// The library's version.
const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => panic!("a version without NUL"),
};

/// Returns a status in a few words.
fn text_of(status: dma_status) -> &'static CStr {
    /// The texts by status, each with a NUL at its end. Made by the compiler, because a program may need them
    /// when it has no memory.
    static TEXTS: [[u8; 32]; DMA_OS as usize + 1] = {
        let mut texts = [[0; 32]; DMA_OS as usize + 1];
        let mut status = 0;
        while status < texts.len() {
            let text = match kind_of(status as dma_status) {
                Some(kind) => kind.as_str(),
                None => "done",
            };
            texts[status].split_at_mut(text.len()).0.copy_from_slice(text.as_bytes());
            assert!(text.len() < texts[status].len(), "a NUL follows");
            status += 1;
        }
        texts
    };
    let text = usize::try_from(status).ok().and_then(|at| TEXTS.get(at));
    match text.and_then(|text| CStr::from_bytes_until_nul(text).ok()) {
        Some(text) => text,
        None if status == DMA_INTERNAL as dma_status => c"defect of the library",
        None => c"unknown status",
    }
}

/// A failed operation: the error, and the failed copies if it is a batch.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    copies: Vec<dma_failure>,
}

impl Failure {
    /// Returns the failure, and the operands if the device no longer uses them.
    pub(crate) fn with_operands<T>(e: OpError<T>) -> (Self, Option<T>) {
        let copies = e.failures().iter().map(|failure| dma_failure {
            index: failure.index as u64,
            status: status_of(failure.error.kind()),
            native: failure.error.native().map_or(0, |native| native.code),
        });
        let copies = copies.collect();
        let (error, operands) = e.into_parts();
        (Self { error, copies }, operands)
    }
}

impl<T> From<OpError<T>> for Failure {
    fn from(e: OpError<T>) -> Self {
        Self::with_operands(e).0
    }
}

/// The thread's last failure, and the strings that the C program reads.
#[derive(Default)]
struct Last {
    failure: Option<LastFailure>,
    strings: [CString; 3],
}

enum LastFailure {
    Of(Failure),
    Panic(String),
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
    /// The status of a failure that occurs after `LAST` was destroyed, in destructors of the thread's
    /// other data.
    static LATE: Cell<dma_status> = const { Cell::new(OK) };
}

/// Stores a failure of this thread and returns its code.
pub(crate) fn fail(failure: Failure) -> dma_status {
    let status = status_of(failure.error.kind());
    store(status, LastFailure::Of(failure));
    status
}

fn store(status: dma_status, failure: LastFailure) {
    if LAST.try_with(|last| last.borrow_mut().failure.replace(failure)).is_err() {
        LATE.set(status);
    }
}

/// Runs the body of a function of the header. Stores its error or its panic, and returns the status.
#[inline]
pub(crate) fn guard(body: impl FnOnce() -> Result<(), Error>) -> dma_status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => OK,
        Ok(Err(error)) => fail_call(error),
        Err(panic) => panicked(panic),
    }
}

#[cold]
fn fail_call(error: Error) -> dma_status {
    fail(Failure { error, copies: Vec::new() })
}

#[cold]
fn panicked(panic: Box<dyn Any + Send>) -> dma_status {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    let status = DMA_INTERNAL as dma_status;
    store(status, LastFailure::Panic(format!("a defect of the library: {text}")));
    // The payload is not dropped, because dropping it may panic again.
    std::mem::forget(panic);
    status
}

/// Converts a text to a C string of one line. Control characters, which names may contain, become spaces.
pub(crate) fn c_string(text: &str) -> CString {
    CString::new(text.replace(char::is_control, " ")).unwrap_or_default()
}

/// Describes a failure of which only the status is known.
fn described(status: dma_status) -> dma_error {
    dma_error {
        size: size_of::<dma_error>(),
        status,
        retry: retry_of(status),
        native: 0,
        reserved: 0,
        requested: 0,
        limit: 0,
        text: if status == OK { c"" } else { text_of(status) }.as_ptr(),
        remedy: c"".as_ptr(),
        native_name: c"".as_ptr(),
    }
}

/// Describes the thread's last failure. The strings are valid until the next call or the next
/// failure.
pub(crate) fn last_error() -> dma_error {
    let describe = |last: &RefCell<Last>| {
        let last = &mut *last.borrow_mut();
        let mut described = described(OK);
        last.strings = match &last.failure {
            None => Default::default(),
            Some(LastFailure::Panic(text)) => {
                described.status = DMA_INTERNAL as dma_status;
                [c_string(text), c_string("report it to the project"), CString::default()]
            }
            Some(LastFailure::Of(Failure { error, .. })) => {
                described.status = status_of(error.kind());
                described.retry = retry_code(error.retry());
                (described.requested, described.limit) =
                    error.requested().zip(error.limit()).unwrap_or_default();
                let native = error.native();
                described.native = native.map_or(0, |native| native.code);
                let name = native.map_or("", |native| &native.name);
                [c_string(&error.to_string()), c_string(error.hint()), c_string(name)]
            }
        };
        [described.text, described.remedy, described.native_name] =
            last.strings.each_ref().map(|s| s.as_ptr());
        described
    };
    LAST.try_with(describe).unwrap_or_else(|_| described(LATE.get()))
}

/// Returns the failed copies of the batch whose completion is the thread's last failure.
fn last_failures() -> Vec<dma_failure> {
    let read = |last: &RefCell<Last>| match &last.borrow().failure {
        Some(LastFailure::Of(Failure { copies, .. })) => copies.clone(),
        _ => Vec::new(),
    };
    LAST.try_with(read).unwrap_or_default()
}

#[rustfmt::skip]
pub(crate) mod calls {
    use std::ffi::c_char;

    use super::*;
    use crate::header::c_calls;

    c_calls! {
        fn dma_last_error(error: *mut dma_error) -> dma_status {
            // This does not use `guard`, because that would replace the last failure.
            // SAFETY: the header requires that `error` is NULL or leads to a struct that begins with its size
            // and that this call may write.
            match unsafe { OutStruct::new("error", error) } {
                Ok(out) => {
                    out.write(last_error());
                    OK
                }
                Err(e) => status_of(e.kind()),
            }
        }

        fn dma_last_failures(failures: *mut dma_failure, capacity: usize, count: *mut usize) -> dma_status {
            // This does not use `guard`, because that would replace the last failure.
            let write = || {
                // SAFETY: the header requires that `count` is NULL or leads to a place that this call may
                // write.
                let count = unsafe { Out::new("count", count) }?;
                // SAFETY: the header requires that `failures` is NULL or leads to `capacity` places that this
                // call may write.
                let mut out = unsafe { OutArray::new("failures", failures, capacity) }?;
                let copies = last_failures();
                copies.iter().for_each(|copy| out.push(*copy));
                count.write(copies.len());
                Ok(())
            };
            write().map_or_else(|e: Error| status_of(e.kind()), |()| OK)
        }

        fn dma_status_text(status: dma_status) -> *const c_char {
            text_of(status).as_ptr()
        }

        fn dma_status_retry(status: dma_status) -> dma_retry {
            retry_of(status)
        }

        fn dma_abi_version() -> u32 {
            DMA_ABI_VERSION
        }

        fn dma_version() -> *const c_char {
            VERSION.as_ptr()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_code_of_its_own() {
        for status in 1..DMA_INTERNAL as dma_status {
            if let Some(kind) = kind_of(status) {
                assert_eq!(status_of(kind), status);
                assert_eq!(retry_of(status), retry_code(kind.retry()));
            } else {
                assert!(status > DMA_OS as dma_status, "{status} has no kind");
            }
        }
    }

    #[test]
    fn a_panic_is_a_status() {
        let status = guard(|| panic!("of a test"));
        assert_eq!(status, DMA_INTERNAL as dma_status);
        let error = last_error();
        assert_eq!((error.status, error.retry), (status, 0));
        LAST.with_borrow(|last| assert!(last.strings[0].to_str().unwrap().ends_with("of a test")));
    }
}
