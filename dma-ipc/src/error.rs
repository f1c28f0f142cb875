//! Errors of memory shared between processes.

use std::io;
use std::time::Duration;

use dma_core::{Access, Error, ErrorKind};

/// Why an operation on shared memory failed. Every message names the input and the remedy.
///
/// `pid` is a process id in the caller's own numbering if the kernel knows it there, else in the exporting
/// process's.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// The bytes given to [`Import::open`](super::Import::open) are not an export descriptor of this module.
    #[error("malformed export descriptor: {what}; pass on the bytes of `Export::blob` whole and unchanged")]
    MalformedBlob {
        /// The problem.
        what: &'static str,
    },

    /// The descriptor is of a version of this library that speaks another protocol.
    #[error(
        "the export descriptor is of version {found}, and this library speaks version {spoken}; run both \
         processes with the same version of it"
    )]
    VersionMismatch {
        /// The descriptor's version.
        found: u16,
        /// This library's version.
        spoken: u16,
    },

    /// The exporting process runs, but does not export this memory (any more).
    #[error(
        "process {pid} does not export this memory any more: the export was revoked or dropped (or the \
         process is in another network namespace); export again and pass on the new descriptor"
    )]
    UnknownExport {
        /// The exporting process.
        pid: u32,
    },

    /// The exporter withdrew the grant while this import was open.
    #[error("process {pid} revoked this import; drop it, and import a new descriptor to go on")]
    Revoked {
        /// The exporting process.
        pid: u32,
    },

    /// The exporting process ended, or closed the connection, without revoking.
    #[error(
        "the exporting process {pid} is gone; bytes already copied are its own, but nobody answers for the \
         rest: start it again and import its new descriptor"
    )]
    PeerGone {
        /// The exporting process.
        pid: u32,
    },

    /// The grant does not include the rights that an access needs, or memory was not allocated for those of
    /// an export.
    #[error("the rights {} were requested, but {} are granted; allocate or export with more", names(*requested), names(*granted))]
    Permission {
        /// Rights that the access or the export needs.
        requested: Access,
        /// Rights that the exporter granted, or the memory was allocated for.
        granted: Access,
    },

    /// A byte range does not lie within the memory or the grant.
    #[error(
        "{len} bytes at offset {offset} are not within the {available} bytes there are; offsets count from \
         the start of the grant or of the memory"
    )]
    OutOfRange {
        /// First requested byte.
        offset: u64,
        /// Number of requested bytes.
        len: u64,
        /// Number of bytes that the memory or the grant has.
        available: u64,
    },

    /// The exporter grants another number of bytes than its descriptor promised.
    #[error(
        "process {pid} grants {granted} bytes, and {expected} were expected; have it export the memory again, and pass \
         its descriptor on unchanged"
    )]
    OtherLength {
        /// The exporting process.
        pid: u32,
        /// The number of bytes that the importer expected.
        expected: u64,
        /// The number of bytes that the exporter grants.
        granted: u64,
    },

    /// Memory to be exported is not there, or not as the rights need it.
    #[error(
        "of the {len} bytes at {address:#x} not all are mapped in this process {}; export memory that is \
         allocated, and writable if peers are to write it",
        if *writable { "for writing" } else { "for reading" }
    )]
    NotMapped {
        /// Address of the first byte.
        address: u64,
        /// Number of bytes.
        len: u64,
        /// The rights include writing.
        writable: bool,
    },

    /// The exporter freed or unmapped memory that it exports, without revoking first.
    #[error(
        "process {pid} unmapped memory that it exports, at offset {offset}; let it revoke the export before it \
         frees the memory"
    )]
    Vanished {
        /// The exporting process.
        pid: u32,
        /// The first byte of the grant that could not be reached.
        offset: u64,
    },

    /// An alignment is not a power of two.
    #[error("memory cannot be aligned to {align} bytes; ask for a power of two")]
    Misaligned {
        /// The requested alignment, in bytes.
        align: usize,
    },

    /// Nothing can be allocated, exported or granted with no bytes or no rights.
    #[error("{what} must not be empty; ask for at least one")]
    Empty {
        /// The empty input.
        what: &'static str,
    },

    /// The process on the other side runs as another user.
    #[error(
        "process {pid} runs as user {uid}, this one as user {own}; memory is shared only between processes \
         of one user, or with root: run both as the same user"
    )]
    ForeignUser {
        /// The process on the other side.
        pid: u32,
        /// Its user id.
        uid: u32,
        /// This process's effective user id.
        own: u32,
    },

    /// The export has as many imports as it can have.
    #[error("this export of process {pid} already has {max} imports; drop one, or export the range again")]
    TooManyImports {
        /// The exporting process.
        pid: u32,
        /// The limit, [`MAX_IMPORTS`](super::MAX_IMPORTS).
        max: u32,
    },

    /// The import has as many leases as it can have, so leases are being forgotten.
    #[error("this import already has {max} leases; leases end when dropped, so drop them")]
    TooManyLeases {
        /// The limit, [`MAX_LEASES`](super::MAX_LEASES).
        max: u32,
    },

    /// Importers still copied when the time to wait was over. The grant is withdrawn, but the memory **must
    /// not be reused** until a later call of [`Export::revoke`](super::Export::revoke) succeeds.
    #[error(
        "after {waited:?} the processes {pids:?} still copy from or to the revoked memory; do not reuse it: \
         call revoke again, or end those processes"
    )]
    StillInUse {
        /// The importing processes that hold leases, each as often as it imported.
        pids: Vec<u32>,
        /// Time that the call waited.
        waited: Duration,
    },

    /// The process on the other side did not answer in time.
    #[error(
        "process {pid} did not answer within {waited:?} while {operation}; is it stopped, or overloaded?"
    )]
    Timeout {
        /// The operation.
        operation: &'static str,
        /// The process on the other side.
        pid: u32,
        /// Time that the call waited.
        waited: Duration,
    },

    /// The process on the other side said something that this version does not understand.
    #[error("process {pid} broke the protocol: {what}; run both processes with the same version")]
    Protocol {
        /// The process on the other side.
        pid: u32,
        /// The violation.
        what: &'static str,
    },

    /// More memory was asked for than the machine can give.
    #[error("{requested} bytes requested, but the machine has {available} left; ask for less or free some")]
    OutOfMemory {
        /// Requested bytes, rounded up to whole pages.
        requested: u64,
        /// Bytes that the system reports as available.
        available: u64,
    },

    /// The limit of threads of this user, or of the container, is reached.
    #[error(
        "no thread to share memory: {source}; there are as many threads as allowed: see `ulimit -u`, pids.max of the \
         control group and kernel.threads-max"
    )]
    NoThread {
        /// The error of the system.
        source: io::Error,
    },

    /// The operating system refused a call.
    #[error("{operation}: {source}{}", of_system(source).1)]
    Os {
        /// The operation.
        operation: &'static str,
        /// The error of the system.
        source: io::Error,
    },

    /// The platform has no such memory.
    #[error("{what} is not supported here: {remedy}")]
    Unsupported {
        /// The missing function.
        what: &'static str,
        /// The alternative.
        remedy: &'static str,
    },
}

fn names(rights: Access) -> String {
    if rights.is_empty() {
        "(none)".into()
    } else {
        rights.iter_names().map(|right| right.0).collect::<Vec<_>>().join(" and ")
    }
}

impl RemoteError {
    /// Returns the category, for programs to branch on.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::MalformedBlob { .. } | Self::Protocol { .. } | Self::OtherLength { .. } => {
                ErrorKind::Malformed
            }
            Self::VersionMismatch { .. } => ErrorKind::VersionMismatch,
            Self::UnknownExport { .. }
            | Self::Revoked { .. }
            | Self::PeerGone { .. }
            | Self::Vanished { .. } => ErrorKind::Revoked,
            Self::Permission { .. } => ErrorKind::AccessDenied,
            Self::OutOfRange { .. } => ErrorKind::OutOfRange,
            Self::Misaligned { .. } | Self::Empty { .. } | Self::NotMapped { .. } => {
                ErrorKind::InvalidArgument
            }
            Self::ForeignUser { .. } => ErrorKind::PermissionDenied,
            Self::TooManyImports { .. } | Self::TooManyLeases { .. } | Self::NoThread { .. } => {
                ErrorKind::OutOfResources
            }
            Self::StillInUse { .. } | Self::Timeout { .. } => ErrorKind::TimedOut,
            Self::OutOfMemory { .. } => ErrorKind::OutOfMemory,
            Self::Os { source, .. } => of_system(source).0,
            Self::Unsupported { .. } => ErrorKind::Unsupported,
        }
    }
}

/// The contract's error, with this one as its source.
impl From<RemoteError> for Error {
    fn from(error: RemoteError) -> Self {
        let wrapped = Self::new(error.kind(), error.to_string());
        let wrapped = match error {
            RemoteError::OutOfRange { offset, len, available } => {
                wrapped.with_numbers(offset.saturating_add(len), available)
            }
            RemoteError::OutOfMemory { requested, available } => wrapped.with_numbers(requested, available),
            RemoteError::OtherLength { expected, granted, .. } => wrapped.with_numbers(granted, expected),
            _ => wrapped,
        };
        wrapped.with_source(error)
    }
}

/// Returns the category of an error of the system, and the remedy for users, if they have one.
fn of_system(source: &io::Error) -> (ErrorKind, &'static str) {
    use rustix::io::Errno;
    match Errno::from_io_error(source) {
        Some(Errno::MFILE) => (
            ErrorKind::OutOfResources,
            "; this process has too many open files: raise the limit with `ulimit -n`",
        ),
        Some(Errno::NFILE) => {
            (ErrorKind::OutOfResources, "; the system has too many open files: raise fs.file-max")
        }
        Some(Errno::NOMEM | Errno::NOSPC) => (
            ErrorKind::OutOfMemory,
            "; not enough memory: ask for less, or for huge pages reserve some in vm.nr_hugepages",
        ),
        Some(Errno::PERM | Errno::ACCESS) => (ErrorKind::PermissionDenied, ""),
        Some(Errno::NOENT) => (ErrorKind::Os, "; is /proc mounted?"),
        _ => (ErrorKind::Os, ""),
    }
}

impl RemoteError {
    /// `operation` was refused with `errno`.
    pub(super) fn os(operation: &'static str, errno: rustix::io::Errno) -> Self {
        Self::Os { operation, source: errno.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contracts_error_keeps_kind_numbers_and_source() {
        let error = Error::from(RemoteError::OutOfRange { offset: 5, len: 6, available: 10 });
        assert_eq!(
            (error.kind(), error.requested(), error.limit()),
            (ErrorKind::OutOfRange, Some(11), Some(10))
        );
        assert!(std::error::Error::source(&error).is_some());
        assert_eq!(Error::from(RemoteError::UnknownExport { pid: 7 }).kind(), ErrorKind::Revoked);
        assert!(Error::from(RemoteError::PeerGone { pid: 77 }).to_string().contains("77"));
    }

    #[test]
    fn system_errors_are_sorted_and_come_with_a_remedy() {
        use rustix::io::Errno;
        let error = |errno: Errno| RemoteError::Os { operation: "mapping", source: errno.into() };
        assert_eq!(error(Errno::MFILE).kind(), ErrorKind::OutOfResources);
        assert!(error(Errno::MFILE).to_string().contains("ulimit -n"));
        assert_eq!(error(Errno::NOMEM).kind(), ErrorKind::OutOfMemory);
        assert_eq!(error(Errno::ACCESS).kind(), ErrorKind::PermissionDenied);
        assert_eq!(error(Errno::IO).kind(), ErrorKind::Os);
    }

    #[test]
    fn rights_are_named() {
        let error = RemoteError::Permission { requested: Access::all(), granted: Access::READ };
        assert!(
            error.to_string().contains("rights READ and WRITE were requested, but READ are granted;"),
            "{error}"
        );
    }
}
