//! Translation of work completion statuses and of the system's error numbers.

use std::borrow::Cow;

use dma_core::{Error, ErrorKind, NativeError};
use dma_vendor::LoadError;
use rustix::io::Errno;

/// The backend's name in errors and engine names.
pub(crate) const NAME: &str = "rdma";

/// `IBV_WC_WR_FLUSH_ERR`: the device dropped the request after an earlier one failed.
pub(crate) const FLUSHED: i32 = 5;

/// Offset that is added to the status of a request to another host.
pub(crate) const REMOTE: i32 = 1 << 8;
/// The exporter is gone or revoked the memory.
const GONE: i32 = REMOTE + 64;
/// Failures to connect to an exporter. The codes of these failures count from [`GONE`] on.
const CONNECTING: [(ErrorKind, &str); 6] = [
    (ErrorKind::Revoked, "the exporter revoked the memory or is gone"),
    (ErrorKind::DeviceFault, "the exporter cannot be reached"),
    (ErrorKind::OutOfResources, "the exporter or this host has no queue pair or thread left"),
    (ErrorKind::VersionMismatch, "the exporter speaks another version"),
    (ErrorKind::Malformed, "the answer did not come from an exporter"),
    (
        ErrorKind::PermissionDenied,
        "this side or the exporter did not prove that it knows the export's secret",
    ),
];

/// Returns the code of a failure to connect.
pub(crate) fn connecting(kind: ErrorKind) -> i32 {
    let at = CONNECTING.iter().position(|(known, _)| *known == kind);
    GONE + at.unwrap_or(1) as i32
}

/// Returns the failure to connect with this code.
fn of_connecting(code: i32) -> Option<(ErrorKind, &'static str)> {
    CONNECTING.get(usize::try_from(code.checked_sub(GONE)?).ok()?).copied()
}

/// Names of `enum ibv_wc_status`, without the prefix `IBV_WC_`, and their meaning: `ibv_poll_cq(3)` and
/// `infiniband/verbs.h` of rdma-core.
const STATUSES: [(&str, &str); 22] = [
    ("SUCCESS", "it succeeded"),
    ("LOC_LEN_ERR", "the length is beyond a limit"),
    ("LOC_QP_OP_ERR", "the queue pair refuses the request"),
    ("LOC_EEC_OP_ERR", "an internal error of a reliable datagram"),
    ("LOC_PROT_ERR", "the destination is not within a region that grants the access"),
    ("WR_FLUSH_ERR", "an earlier request failed, or the queue was stopped"),
    ("MW_BIND_ERR", "a memory window cannot be bound"),
    ("BAD_RESP_ERR", "the responder sent an unexpected packet"),
    ("LOC_ACCESS_ERR", "the region does not grant the access"),
    ("REM_INV_REQ_ERR", "the responder refuses the request as invalid"),
    ("REM_ACCESS_ERR", "the source is not within a region that grants the access"),
    ("REM_OP_ERR", "the responder could not complete the request"),
    ("RETRY_EXC_ERR", "no answer within the timeout and its retries"),
    ("RNR_RETRY_EXC_ERR", "the responder was not ready, within all retries"),
    ("LOC_RDD_VIOL_ERR", "the domains of a reliable datagram differ"),
    ("REM_INV_RD_REQ_ERR", "the responder refuses a reliable datagram"),
    ("REM_ABORT_ERR", "the responder aborted the request"),
    ("INV_EECN_ERR", "an invalid context number"),
    ("INV_EEC_STATE_ERR", "an invalid state of a context"),
    ("FATAL_ERR", "a fatal failure of the device"),
    ("RESP_TIMEOUT_ERR", "no response in time"),
    ("GENERAL_ERR", "another failure of the transport"),
];

/// Returns the name and description of a completion's code, which is a status or a negative error number of
/// the system.
pub(crate) fn native(code: i32) -> NativeError {
    if let Some((_, description)) = of_connecting(code) {
        return NativeError { code, name: Cow::Borrowed(""), description: Cow::Borrowed(description) };
    }
    let code = if (REMOTE..GONE).contains(&code) { code - REMOTE } else { code };
    let status = usize::try_from(code).ok().filter(|code| *code > 0).and_then(|code| STATUSES.get(code));
    let (name, description) = match status {
        Some((name, description)) => (format!("IBV_WC_{name}"), (*description).to_owned()),
        None if (-4095..0).contains(&code) => {
            let errno = Errno::from_raw_os_error(-code);
            (String::new(), std::io::Error::from(errno).to_string())
        }
        None => (String::new(), String::new()),
    };
    NativeError { code, name: Cow::Owned(name), description: Cow::Owned(description) }
}

/// Returns the kind of a completion's code that is neither a success nor flushed.
pub(crate) fn kind(code: i32) -> ErrorKind {
    const OF_REMOTE: i32 = REMOTE + 10;
    const OF_QUEUE_PAIR: i32 = REMOTE + 9;
    match code {
        GONE.. => of_connecting(code).map_or(ErrorKind::DeviceFault, |(kind, _)| kind),
        // Rights and bounds were checked before the request was posted.
        OF_REMOTE => ErrorKind::Revoked,
        // The exporter's queue pair accepts no writes, because only reads were granted.
        OF_QUEUE_PAIR => ErrorKind::AccessDenied,
        REMOTE.. => kind(code - REMOTE),
        1 => ErrorKind::OutOfRange,
        4 | 8 | 10 => ErrorKind::AccessDenied,
        19 => ErrorKind::DeviceLost,
        _ => ErrorKind::DeviceFault,
    }
}

/// Returns the error of a call that failed with `errno`. The error's hint is the usual remedy for `errno`.
pub(crate) fn failed(message: impl Into<Cow<'static, str>>, errno: Errno) -> Error {
    let (kind, hint) = match errno {
        Errno::PERM | Errno::ACCESS => (
            ErrorKind::PermissionDenied,
            "this user needs read and write access to /dev/infiniband/uverbs*: check the owner and group of these files",
        ),
        Errno::NODEV | Errno::IO | Errno::NXIO => (
            ErrorKind::DeviceLost,
            "the device is gone, or does not answer: see `dmesg` and `ibv_devinfo`, then open the engine again",
        ),
        Errno::NOMEM => (ErrorKind::OutOfResources, "close some queues or regions, or choose a lower depth"),
        Errno::MFILE | Errno::NFILE => {
            (ErrorKind::OutOfResources, "raise the limit of open files with `ulimit -n`")
        }
        Errno::INVAL => (
            ErrorKind::InvalidArgument,
            "compare the options port, gid, mtu and sl with what `ibv_devinfo -v` shows of the device",
        ),
        _ => (ErrorKind::Os, "see `dmesg`"),
    };
    error(kind, message).with_source(std::io::Error::from(errno)).with_hint(hint)
}

/// Returns the error for a library that cannot be loaded.
pub(crate) fn load(cause: LoadError) -> Error {
    cause.into_error(&crate::library::RDMA_CORE, NAME)
}

/// Makes an error of this backend.
pub(crate) fn error(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(kind, message).with_backend(NAME)
}

/// Returns a copy of an error, for a further caller.
pub(crate) fn repeat(cause: &Error) -> Error {
    error(cause.kind(), cause.message().to_owned()).with_hint(cause.hint().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_names() {
        assert_eq!(native(FLUSHED).name, "IBV_WC_WR_FLUSH_ERR");
        assert_eq!(native(12).name, "IBV_WC_RETRY_EXC_ERR");
        assert_eq!(native(21).name, "IBV_WC_GENERAL_ERR");
        assert!(!native(-12).description.is_empty());
        for odd in [0, 22, 99, i32::MAX, i32::MIN, -5000] {
            assert_eq!((native(odd).code, native(odd).name.as_ref()), (odd, ""));
        }
        assert_eq!(kind(10), ErrorKind::AccessDenied);
        assert_eq!(kind(19), ErrorKind::DeviceLost);
        assert_eq!(kind(12), ErrorKind::DeviceFault);
        assert_eq!((kind(REMOTE + 10), kind(REMOTE + 4)), (ErrorKind::Revoked, ErrorKind::AccessDenied));
        assert_eq!((kind(REMOTE + 9), kind(9)), (ErrorKind::AccessDenied, ErrorKind::DeviceFault));
        assert_eq!(native(REMOTE + 10).name, "IBV_WC_REM_ACCESS_ERR");
        for (known, says) in CONNECTING {
            let code = connecting(known);
            assert_eq!((kind(code), native(code).description.as_ref()), (known, says));
        }
        assert_eq!(kind(connecting(ErrorKind::Os)), ErrorKind::DeviceFault);
    }
}
