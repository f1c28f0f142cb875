//! Errors of memory shared between processes.

use std::io;
use std::time::Duration;

use dma_core::{Access, Error, ErrorKind};

/// The reason why an operation on shared memory failed. Every message names the input and the remedy.
///
/// `pid` is a process id in the caller's PID namespace if it is visible there, otherwise in the exporting
/// process's namespace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum RemoteError {
    /// The bytes given to [`Import::open`](super::Import::open) are not an export descriptor of this module.
    #[error("malformed export descriptor: {what}; pass on all bytes of `Export::blob` unchanged")]
    MalformedBlob { what: &'static str },

    /// The descriptor is from a version of this library that uses another protocol.
    #[error(
        "the export descriptor is of version {found}, and this library speaks version {spoken}; run both \
         processes with the same version of it"
    )]
    VersionMismatch { found: u16, spoken: u16 },

    /// The exporting process still runs, but no longer exports this memory, or this process cannot reach its
    /// socket.
    #[error(
        "process {pid} does not export this memory any more: the export was revoked or dropped (or the \
         process is in another network namespace); export again and pass on the new descriptor"
    )]
    UnknownExport { pid: u32 },

    /// The exporter withdrew the grant while this import was open.
    #[error("process {pid} revoked this import; drop it, and import a new descriptor to continue")]
    Revoked { pid: u32 },

    /// The exporting process ended, or closed the connection, without revoking the export.
    #[error(
        "the exporting process {pid} is gone; bytes of completed copies are valid, others are \
         undefined: start the process again and import its new descriptor"
    )]
    PeerGone { pid: u32 },

    /// The grant lacks rights that an access needs, or the memory was not allocated for the rights of an
    /// export.
    #[error("the rights {} were requested, but {} are granted; allocate or export with more rights", names(*requested), names(*granted))]
    Permission { requested: Access, granted: Access },

    /// A byte range does not lie within the `available` bytes of the memory or the grant.
    #[error(
        "{len} bytes at offset {offset} are not within the {available} bytes there are; offsets count from \
         the start of the grant or of the memory"
    )]
    OutOfRange { offset: u64, len: u64, available: u64 },

    /// The exporter grants a number of bytes that differs from the expected length.
    #[error(
        "process {pid} grants {granted} bytes, and {expected} were expected; have it export the memory again, and pass \
         its descriptor on unchanged"
    )]
    OtherLength { pid: u32, expected: u64, granted: u64 },

    /// Memory to export is not mapped, or its protection does not allow the accesses that the export would
    /// grant.
    #[error(
        "the {len} bytes at {address:#x} are not all mapped in this process {}; export memory that is \
         allocated, and writable if peers are to write it",
        if *writable { "for writing" } else { "for reading" }
    )]
    NotMapped { address: u64, len: u64, writable: bool },

    /// The exporter freed or unmapped exported memory without revoking the export first. `offset` is the
    /// position of the first byte that could not be accessed.
    #[error(
        "process {pid} unmapped memory that it exports, at offset {offset}; let it revoke the export before it \
         frees the memory"
    )]
    Vanished { pid: u32, offset: u64 },

    /// An alignment, in bytes, is not a power of two.
    #[error("memory cannot be aligned to {align} bytes; ask for a power of two")]
    Misaligned { align: usize },

    /// An allocation, export or grant has no bytes or no rights.
    #[error("{what} must not be empty; request at least one")]
    Empty { what: &'static str },

    /// The process on the other side runs as user `uid`, and this process has the effective user id `own`.
    #[error(
        "process {pid} runs as user {uid}, this one as user {own}; memory is shared only between processes \
         of one user, or with root: run both as the same user"
    )]
    ForeignUser { pid: u32, uid: u32, own: u32 },

    /// The export has [`MAX_IMPORTS`](super::MAX_IMPORTS) imports.
    #[error("this export of process {pid} already has {max} imports; drop one, or export the range again")]
    TooManyImports { pid: u32, max: u32 },

    /// The import has [`MAX_LEASES`](super::MAX_LEASES) leases. Probably the program forgets to drop leases.
    #[error("this import already has {max} leases; drop leases when they are no longer needed")]
    TooManyLeases { max: u32 },

    /// Importers were still copying when the waiting time expired. `pids` has one entry for each import. The
    /// grant is withdrawn, but the memory **must not be reused** until a later call of
    /// [`Export::revoke`](super::Export::revoke) succeeds.
    #[error(
        "after {waited:?} the processes {pids:?} still copy from or to the revoked memory; do not reuse it: \
         call revoke again, or end those processes"
    )]
    StillInUse { pids: Vec<u32>, waited: Duration },

    /// The process on the other side did not respond in time.
    #[error(
        "process {pid} did not answer within {waited:?} while {operation}; is it stopped, or overloaded?"
    )]
    Timeout { operation: &'static str, pid: u32, waited: Duration },

    /// The exporting process closed this connection to make room for newer connections.
    #[error(
        "process {pid} is busy: too many connections to it send no request; try again, and see which program \
         opens them (`ss -xp`)"
    )]
    Busy { pid: u32 },

    /// The process on the other side sent a message that this version does not understand.
    #[error("process {pid} violated the protocol: {what}; run both processes with the same version")]
    Protocol { pid: u32, what: &'static str },

    /// The requested bytes, rounded up to whole pages, exceed the available memory.
    #[error(
        "{requested} bytes requested, but the machine and the control groups of this process have {available} left; \
         request less, free memory, or raise the limit of the container"
    )]
    OutOfMemory { requested: u64, available: u64 },

    /// The limit of threads of this user, or of the container, is reached.
    #[error(
        "no thread to share memory: {source}; there are as many threads as allowed: see `ulimit -u`, pids.max of the \
         control group and kernel.threads-max"
    )]
    NoThread { source: io::Error },

    /// The operating system refused a call of the exporting process.
    #[error("granting an import, in the exporting process {pid}: {source}{}", of_system(source).1)]
    PeerOs { pid: u32, source: io::Error },

    /// The operating system refused a call.
    #[error("{operation}: {source}{}", of_system(source).1)]
    Os { operation: &'static str, source: io::Error },

    /// The platform does not support this operation or memory.
    #[error("{what} is not supported here: {remedy}")]
    Unsupported { what: &'static str, remedy: &'static str },
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
            Self::TooManyImports { .. }
            | Self::TooManyLeases { .. }
            | Self::NoThread { .. }
            | Self::Busy { .. } => ErrorKind::OutOfResources,
            Self::StillInUse { .. } | Self::Timeout { .. } => ErrorKind::TimedOut,
            Self::OutOfMemory { .. } => ErrorKind::OutOfMemory,
            Self::PeerOs { source, .. } | Self::Os { source, .. } => of_system(source).0,
            Self::Unsupported { .. } => ErrorKind::Unsupported,
        }
    }
}

/// Converts into the contract's error, with this error as its source.
impl From<RemoteError> for Error {
    fn from(error: RemoteError) -> Self {
        let wrapped = Self::new(error.kind(), error.to_string());
        let wrapped = match error {
            RemoteError::TooManyImports { .. } | RemoteError::Busy { .. } | RemoteError::PeerOs { .. } => {
                wrapped.by_peer()
            }
            RemoteError::OutOfRange { offset, len, available } => {
                wrapped.with_numbers(offset.saturating_add(len), available)
            }
            RemoteError::OutOfMemory { requested, available } => wrapped.with_numbers(requested, available),
            _ => wrapped,
        };
        wrapped.with_source(error)
    }
}

/// Returns the category of a system error, and the remedy, if the user has one.
fn of_system(source: &io::Error) -> (ErrorKind, &'static str) {
    use rustix::io::Errno;
    match Errno::from_io_error(source) {
        Some(Errno::MFILE) => (
            ErrorKind::OutOfResources,
            "; the process has too many open files: raise its limit with `ulimit -n`",
        ),
        Some(Errno::NFILE) => {
            (ErrorKind::OutOfResources, "; the system has too many open files: raise fs.file-max")
        }
        Some(Errno::NOMEM | Errno::NOSPC) => (
            ErrorKind::OutOfMemory,
            "; not enough memory: request less, or reserve huge pages in vm.nr_hugepages",
        ),
        Some(Errno::FBIG) => (
            ErrorKind::OutOfResources,
            "; the process's limit on the size of files also applies to shared memory: raise it with `ulimit -f`",
        ),
        Some(Errno::PERM | Errno::ACCESS) => {
            (ErrorKind::PermissionDenied, "; a sandbox may forbid the call: allow it there")
        }
        Some(Errno::NOSYS) => (ErrorKind::Unsupported, "; a sandbox may forbid the call: allow it there"),
        Some(Errno::NOENT) => (ErrorKind::Os, "; is /proc mounted?"),
        _ => (ErrorKind::Os, ""),
    }
}

impl RemoteError {
    /// The error of an `operation` that failed with `errno`.
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
        assert!(!Error::from(error(Errno::MFILE)).is_by_peer());
        let peers = RemoteError::PeerOs { pid: 77, source: Errno::MFILE.into() };
        assert!(peers.to_string().contains("77"), "{peers}");
        for by_peer in [peers, RemoteError::Busy { pid: 77 }, RemoteError::TooManyImports { pid: 77, max: 1 }]
        {
            let error = Error::from(by_peer);
            assert_eq!((error.kind(), error.is_by_peer()), (ErrorKind::OutOfResources, true), "{error}");
        }
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
