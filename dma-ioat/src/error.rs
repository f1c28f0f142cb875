//! Translation of SPDK's codes.

use std::borrow::Cow;

use dma_core::{Error, ErrorKind, NativeError};
use spdk_sys::LoadError;

/// The backend's name in errors and engine names.
pub(crate) const NAME: &str = "ioat";

pub(crate) const EPERM: i32 = 1;
pub(crate) const EACCES: i32 = 13;
pub(crate) const ENOMEM: i32 = 12;
pub(crate) const EBUSY: i32 = 16;
pub(crate) const EINVAL: i32 = 22;
pub(crate) const EALREADY: i32 = 114;

/// Names of the codes. SPDK returns the system's error numbers as negative values.
const NAMES: [(i32, &str); 9] = [
    (EPERM, "EPERM"),
    (2, "ENOENT"),
    (ENOMEM, "ENOMEM"),
    (EACCES, "EACCES"),
    (14, "EFAULT"),
    (EBUSY, "EBUSY"),
    (19, "ENODEV"),
    (EINVAL, "EINVAL"),
    (EALREADY, "EALREADY"),
];

/// Result of `spdk_ioat_process_events` on a halted channel. The value is also that of EPERM, which no
/// completion has.
pub(crate) const HALTED: i32 = -1;

/// Returns the name and description of a call's result.
pub(crate) fn native(code: i32) -> NativeError {
    let number = code.checked_neg().unwrap_or(0);
    let name = NAMES.iter().find(|(known, _)| *known == number).map_or("", |(_, name)| name);
    let description = match number {
        ..=0 => Cow::Borrowed(""),
        number => Cow::Owned(std::io::Error::from_raw_os_error(number).to_string()),
    };
    NativeError { code, name: name.into(), description }
}

/// Returns the name and description of a completion's code.
pub(crate) fn completion(code: i32) -> NativeError {
    if code == HALTED {
        return NativeError {
            code,
            name: "channel halted".into(),
            description: "spdk_ioat_process_events returned -1; SPDK's log has the channel's error register"
                .into(),
        };
    }
    native(code)
}

/// Returns the kind of error of a code.
pub(crate) const fn kind(code: i32) -> ErrorKind {
    match -code {
        EPERM | EACCES => ErrorKind::PermissionDenied,
        ENOMEM => ErrorKind::OutOfMemory,
        EBUSY | EALREADY => ErrorKind::InUse,
        EINVAL => ErrorKind::InvalidArgument,
        _ => ErrorKind::Os,
    }
}

/// Returns the error of a call that returned `code`.
pub(crate) fn failed(message: impl Into<Cow<'static, str>>, code: i32) -> Error {
    error(kind(code), message).with_native(native(code))
}

/// Returns the error for an SPDK that cannot be loaded.
pub(crate) fn load(error: LoadError) -> Error {
    error.into_error(&spdk_sys::SPDK, NAME)
}

/// Returns an error of this backend without a native code.
pub(crate) fn error(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(kind, message).with_backend(NAME)
}

/// Returns a copy of an error, for a later caller.
pub(crate) fn repeat(error: &Error) -> Error {
    let mut copy = Error::new(error.kind(), error.message().to_owned())
        .with_backend(NAME)
        .with_hint(error.hint().to_owned());
    if let Some(native) = error.native() {
        copy = copy.with_native(native.clone());
    }
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_names_and_kinds() {
        let busy = native(-EBUSY);
        assert_eq!((busy.code, busy.name.as_ref()), (-16, "EBUSY"));
        assert!(!busy.description.is_empty());
        assert_eq!(kind(-EACCES), ErrorKind::PermissionDenied);
        assert_eq!(completion(HALTED).name, "channel halted");
        for odd in [0, 1, i32::MIN, -4000] {
            assert_eq!(native(odd).code, odd);
        }
    }
}
