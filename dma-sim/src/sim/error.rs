//! Translates statuses and errors of the model to those of the contract, with native codes.

use dma_core::{Completion, Error, ErrorKind, NativeError, Outcome};

use crate::model::{HaltCause, Refused, Status, TaskError, TaskReport};

/// The code, the name and the description of each error of the model. Codes are never reused.
const CODES: [(i32, &str, &str); 15] = [
    (1, "SIM_UNKNOWN_REGION", "the descriptor names a region that is not registered"),
    (2, "SIM_OUT_OF_RANGE", "the descriptor names memory outside of its region"),
    (3, "SIM_DENIED", "the region is not registered for this use"),
    (4, "SIM_TOO_LONG", "the descriptor exceeds the device's maximum length"),
    (5, "SIM_SEGMENTS", "the descriptor has more segments than the device supports"),
    (6, "SIM_LENGTH_MISMATCH", "the descriptor's sources and destinations differ in length"),
    (7, "SIM_ZERO_LENGTH", "the descriptor has 0 bytes"),
    (8, "SIM_UNSUPPORTED", "the device has no such operation"),
    (9, "SIM_REVOKED", "the peer revoked its memory"),
    (10, "SIM_PEER_GONE", "the peer that owns the memory is gone"),
    (11, "SIM_ENGINE", "the engine failed"),
    (12, "SIM_REJECTED", "the device refused the descriptor"),
    (13, "SIM_STOPPED", "the queue was stopped"),
    (14, "SIM_RESET", "the device reset the queue"),
    (15, "SIM_DEVICE_GONE", "the device is gone"),
];

/// Returns the name and description of a code.
pub(super) fn explain(code: i32) -> NativeError {
    let known = CODES.iter().find(|(known, ..)| *known == code);
    let (_, name, description) = known.copied().unwrap_or((code, "", ""));
    NativeError { code, name: name.into(), description: description.into() }
}

/// Translates a report.
pub(super) fn completion(report: TaskReport) -> Completion {
    let token = report.token;
    match report.status {
        Status::Done => Completion::done(token).with_result(report.result),
        Status::Failed(error) => {
            let kind = match error {
                TaskError::Revoked | TaskError::PeerGone => ErrorKind::Revoked,
                _ => ErrorKind::DeviceFault,
            };
            Completion::ended(token, Outcome::Failed(kind), error.code().0)
        }
        // A retry would be safe, but it would fail, because the device is gone.
        Status::Aborted(HaltCause::DeviceGone) => {
            Completion::ended(token, Outcome::Failed(ErrorKind::DeviceLost), 15)
        }
        Status::Aborted(cause) => {
            let native = if cause == HaltCause::Stopped { 13 } else { 14 };
            Completion::ended(token, Outcome::Aborted, native)
        }
    }
}

/// Translates a refusal.
pub(super) fn refused(why: Refused) -> Error {
    let (kind, code) = match why {
        Refused::Full { .. } => (ErrorKind::QueueFull, 0),
        // A later retry may succeed.
        Refused::Rejected => (ErrorKind::OutOfResources, 12),
        Refused::Halted(_) => (ErrorKind::Aborted, 14),
        Refused::DeviceGone => (ErrorKind::DeviceLost, 15),
        Refused::NoSuchChannel => (ErrorKind::Closed, 0),
        Refused::Invalid(error) => {
            let kind = match error {
                TaskError::OutOfRange { .. } | TaskError::TooLong { .. } => ErrorKind::OutOfRange,
                TaskError::Denied { .. } => ErrorKind::AccessDenied,
                TaskError::Unsupported => ErrorKind::Unsupported,
                _ => ErrorKind::InvalidArgument,
            };
            (kind, error.code().0)
        }
    };
    let error = Error::new(kind, why.to_string());
    let error = if code == 0 { error } else { error.with_native(explain(code)) };
    match why {
        Refused::Invalid(TaskError::TooLong { len, max }) => error.with_numbers(len, max),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_name_of_its_own() {
        for (i, (code, name, description)) in (1..).zip(CODES) {
            assert_eq!(code, i);
            assert!(name.starts_with("SIM_") && !description.is_empty());
            assert_eq!(explain(code).name, name);
        }
        let unknown = explain(99);
        assert_eq!((unknown.code, unknown.name.as_ref()), (99, ""));
    }
}
