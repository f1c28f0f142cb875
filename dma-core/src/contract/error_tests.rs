//! Tests of [`Error`].

use std::io;

use super::error::{Error, ErrorKind, NativeError, Retry};

#[test]
fn display_is_one_line_with_everything_that_is_known() {
    let error = Error::new(ErrorKind::OutOfRange, "copy of 10 bytes at 4 in a region of 8")
        .with_operation("copy")
        .with_backend("doca")
        .with_numbers(10, 4)
        .with_native(NativeError { code: 6, name: "DOCA_ERROR_INVALID_VALUE".into(), description: "".into() })
        .with_hint("shorten the range");
    assert_eq!(
        error.to_string(),
        "copy on doca: out of range: copy of 10 bytes at 4 in a region of 8 (requested 10, limit 4) \
         [DOCA_ERROR_INVALID_VALUE (6)]; shorten the range"
    );
    assert_eq!(
        Error::bare(ErrorKind::QueueFull).to_string(),
        "queue full; poll it or wait for a transfer, then submit again"
    );
    let own = Error::bare(ErrorKind::QueueFull).with_operation("copy").with_hint("close it");
    assert_eq!(own.to_string(), "copy: queue full; close it");
    // A `main` that returns the error prints it with `{:?}`, so this form must be as readable as
    // `Display`.
    assert_eq!(format!("{error:?}"), error.to_string());
    assert!(format!("{error:#?}").contains("kind: OutOfRange"));
}

#[test]
fn io_errors_keep_their_kind_and_source() {
    let error = Error::from(io::Error::from(io::ErrorKind::PermissionDenied));
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn errors_become_io_errors() {
    let error = Error::new(ErrorKind::Overlap, "of 3 bytes").with_operation("copy");
    let text = error.to_string();
    let error = io::Error::from(error);
    assert_eq!((error.kind(), error.to_string()), (io::ErrorKind::InvalidInput, text));
    assert_eq!(io::Error::from(Error::bare(ErrorKind::QueueFull)).kind(), io::ErrorKind::WouldBlock);
    // An error that contains an `io::Error` is converted back to that `io::Error`, unchanged.
    let os = Error::from(io::Error::from(io::ErrorKind::AddrInUse));
    assert_eq!(io::Error::from(os).kind(), io::ErrorKind::AddrInUse);
}

#[test]
fn failures_of_the_device_alone_may_be_tried_again() {
    assert_eq!(ErrorKind::DeviceFault.retry(), Retry::FewTimes);
    assert_eq!(ErrorKind::Aborted.retry(), Retry::Now);
    for kind in [ErrorKind::AccessDenied, ErrorKind::Overlap, ErrorKind::Revoked, ErrorKind::DeviceLost] {
        assert_eq!(kind.retry(), Retry::Never, "{kind}");
    }
}

#[test]
fn an_error_fits_two_words() {
    assert!(size_of::<Error>() <= 2 * size_of::<usize>());
}
