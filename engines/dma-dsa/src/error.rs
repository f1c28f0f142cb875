//! Translation of the device's statuses and of the system's error numbers.

use std::borrow::Cow;

use dma_core::{Error, ErrorKind, NativeError};
use rustix::io::Errno;

use dsa_sys::status;

/// The backend's name in errors and engine names.
pub(crate) const NAME: &str = "dsa";

/// Names of the statuses, as in Linux `include/uapi/linux/idxd.h`, without the prefix `DSA_COMP_`.
const NAMES: [(u8, &str, &str); 21] = [
    (0x03, "PAGE_FAULT_NOBOF", "a page of the memory cannot be reached"),
    (0x04, "PAGE_FAULT_IR", "a page cannot be reached, and the device may not request it"),
    (0x05, "BATCH_FAIL", "a descriptor of the batch failed"),
    (0x06, "BATCH_PAGE_FAULT", "a page of the list of descriptors cannot be reached"),
    (0x07, "DR_OFFSET_NOINC", "the offsets of a delta record do not increase"),
    (0x08, "DR_OFFSET_ERANGE", "an offset of a delta record is out of range"),
    (0x10, "BAD_OPCODE", "the device or the work queue does not have the operation"),
    (0x11, "INVALID_FLAGS", "the operation does not support one of the flags"),
    (0x12, "NOZERO_RESERVE", "a reserved field is not zero"),
    (0x13, "XFER_ERANGE", "the length is 0 or beyond the work queue's limit"),
    (0x14, "DESC_CNT_ERANGE", "the batch has too few or too many descriptors"),
    (0x15, "DR_ERANGE", "the delta record has a wrong size"),
    (0x16, "OVERLAP_BUFFERS", "source and destination overlap"),
    (0x17, "DCAST_ERR", "the two destinations differ in their low 12 address bits"),
    (0x18, "DESCLIST_ALIGN", "the list of descriptors is not aligned"),
    (0x19, "INT_HANDLE_INVAL", "the interrupt handle is invalid"),
    (0x1a, "CRA_XLAT", "the address of the completion record has no translation"),
    (0x1b, "CRA_ALIGN", "the completion record is not aligned"),
    (0x1c, "ADDR_ALIGN", "an address is not aligned"),
    (0x1d, "PRIV_BAD", "the privilege differs from that of the address space"),
    (0x1e, "TRAFFIC_CLASS_CONF", "the traffic class is not configured"),
];

/// Names of the system's error numbers that a submission can return.
const ERRNOS: [(Errno, &str, &str); 6] = [
    (Errno::PERM, "EPERM", "the queue belongs to the process that opened it"),
    (Errno::INVAL, "EINVAL", "the kernel refuses the descriptor"),
    (Errno::NODEV, "ENODEV", "the work queue is gone or disabled"),
    (Errno::NXIO, "ENXIO", "the work queue is gone or disabled"),
    (Errno::FAULT, "EFAULT", "the kernel cannot read the descriptors"),
    (Errno::IO, "EIO", "the device does not answer"),
];

/// Returns the name and description of a completion's code, which is a status or a negative error number of
/// the system.
pub(crate) fn native(code: i32) -> NativeError {
    let (name, description): (&str, &str) = if code < 0 {
        ERRNOS
            .iter()
            .find(|(errno, ..)| errno.raw_os_error() == code.wrapping_neg())
            .map_or(("", "an error number of the system"), |(_, name, description)| (name, description))
    } else {
        let plain = (code as u8) & status::CODE;
        let known = NAMES.iter().find(|(known, ..)| i32::from(*known) == code & i32::from(status::CODE));
        match known {
            Some((_, name, description)) => (name, description),
            None if code == 0 => ("", ""),
            None if plain > 0x1e => ("HARDWARE", "a hardware or translation error"),
            None => ("", "a status that is reserved"),
        }
    };
    let name = match name {
        "" => Cow::Borrowed(""),
        name if code > 0 => Cow::Owned(format!("DSA_COMP_{name}")),
        name => Cow::Borrowed(name),
    };
    NativeError { code, name, description: Cow::Owned(description.to_owned()) }
}

/// Returns the kind of a status other than success.
pub(crate) const fn kind(status: u8) -> ErrorKind {
    match status & status::CODE {
        status::BAD_OPCODE | status::BAD_FLAGS => ErrorKind::Unsupported,
        status::BAD_SIZE => ErrorKind::OutOfRange,
        status::OVERLAP => ErrorKind::Overlap,
        _ => ErrorKind::DeviceFault,
    }
}

/// Returns the kind of an error number that a submission returned.
pub(crate) fn kind_of(errno: Errno) -> ErrorKind {
    match errno {
        Errno::PERM | Errno::NODEV | Errno::NXIO | Errno::IO => ErrorKind::DeviceLost,
        Errno::INVAL => ErrorKind::Unsupported,
        _ => ErrorKind::Os,
    }
}

/// Makes an error of this backend.
pub(crate) fn error(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(kind, message).with_backend(NAME)
}

/// Returns the error of a queue that accepts no more descriptors, for the reason `why`.
pub(crate) fn lost(why: &str) -> Error {
    error(ErrorKind::DeviceLost, why.to_owned())
        .with_hint("enable the work queue (`accel-config enable-wq`), then this queue works again; after a fork, open the engine in the child")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_names() {
        assert_eq!(native(0x83).name, "DSA_COMP_PAGE_FAULT_NOBOF");
        assert_eq!(native(0x13).name, "DSA_COMP_XFER_ERANGE");
        assert_eq!(native(0x1f).name, "DSA_COMP_HARDWARE");
        assert_eq!(native(-1).name, "EPERM");
        for odd in [0, 9, 255, 256, i32::MAX, i32::MIN, -4000] {
            assert_eq!(native(odd).code, odd);
        }
        assert_eq!(kind(0x16), ErrorKind::Overlap);
        assert_eq!(kind(0x1a), ErrorKind::DeviceFault);
    }
}
