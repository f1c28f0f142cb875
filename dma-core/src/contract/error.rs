//! [`Error`]: a category for programs to branch on, and a message and a hint for people.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::{fmt, io};

use dma_process::{Limit, LimitError};

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The category of an error, for programs to branch on.
///
/// An [`Error`] also has the operation, the backend, the numbers and the hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument is invalid by itself: for example, an alignment that is not a power of two.
    InvalidArgument,
    /// A range exceeds its region, or a number exceeds what the engine allows.
    OutOfRange,
    /// Source and destination of a copy differ in length.
    LengthMismatch,
    /// Source and destination overlap, or two parts of the destination overlap.
    Overlap,
    /// The region does not grant the right that the operation needs.
    AccessDenied,
    /// The memory and the queue belong to different engines.
    WrongEngine,
    /// The engine does not have this capability: see [`Capabilities`](crate::Capabilities).
    Unsupported,
    /// The queue is full: poll it, or await a shared queue's [`ready`](crate::SharedQueue::ready), then
    /// submit again. The operands are returned.
    QueueFull,
    /// An object cannot be closed, freed or reconfigured because it is still in use.
    InUse,
    /// Host memory or device memory is exhausted.
    OutOfMemory,
    /// Queues, channels, tasks or another countable device resource are exhausted.
    OutOfResources,
    /// The engine, device, file or exported region does not exist.
    NotFound,
    /// The operating system refuses the request because of privileges, the memlock limit or device
    /// permissions.
    PermissionDenied,
    /// The time limit was reached. The operation may still be in flight. If it was refused, because the queue
    /// is full and its device hangs, the operands are returned.
    TimedOut,
    /// The device reported a failure that the request did not cause, for example a bus error or an
    /// unreachable page. Invalid arguments, missing rights, revoked memory and a lost device have their own
    /// kinds. A bus error may be transient; an unreachable page is not. The destination is undefined.
    /// Submitting again is safe.
    DeviceFault,
    /// The operation ended before it was complete, because its device was reset or stopped, or because the
    /// program cancelled it; the message has the cause. The destination is undefined. Submitting again is
    /// safe.
    Aborted,
    /// The device is lost and does not recover. Open another device.
    DeviceLost,
    /// The peer that exported the memory has revoked the export or has exited.
    Revoked,
    /// The queue, channel or export is closed. Open another queue, channel or export. An operation that the
    /// close ended also has this kind; its destination is undefined.
    Closed,
    /// The bytes are not a valid encoding, for example of an export descriptor.
    Malformed,
    /// This library does not support the version.
    VersionMismatch,
    /// A vendor's library or driver is not installed, or its installation is incomplete.
    MissingSdk,
    /// A system call failed. The error's source has the reason.
    Os,
}

impl ErrorKind {
    /// Returns whether the same request, unchanged, can succeed. The caller limits the number of tries.
    ///
    /// Submitting again after an error is safe: the new operation overwrites a partly written destination.
    #[must_use]
    pub const fn retry(self) -> Retry {
        match self {
            Self::QueueFull | Self::InUse => Retry::AfterProgress,
            Self::Aborted => Retry::Now,
            Self::DeviceFault => Retry::FewTimes,
            Self::OutOfMemory | Self::OutOfResources | Self::TimedOut => Retry::Later,
            _ => Retry::Never,
        }
    }

    /// Returns the remedy for errors of this kind that have no hint of their own. The errors of a full queue
    /// and of an operation without memory are made without allocating, so they have no other text. Devices
    /// report the other two without a text.
    pub(crate) const fn default_hint(self) -> &'static str {
        match self {
            Self::QueueFull => "poll it or wait for a transfer, then submit again",
            Self::OutOfMemory => "free some memory, or divide the request into smaller ones",
            Self::OutOfResources => "try again later",
            Self::DeviceLost => "open the device again, or another engine",
            _ => "",
        }
    }

    /// Returns the kind in a few words, for the beginning of an error message.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid argument",
            Self::OutOfRange => "out of range",
            Self::LengthMismatch => "lengths differ",
            Self::Overlap => "memory overlaps",
            Self::AccessDenied => "access denied",
            Self::WrongEngine => "memory of another engine",
            Self::Unsupported => "not supported",
            Self::QueueFull => "queue full",
            Self::InUse => "in use",
            Self::OutOfMemory => "out of memory",
            Self::OutOfResources => "out of resources",
            Self::NotFound => "not found",
            Self::PermissionDenied => "permission denied",
            Self::TimedOut => "timed out",
            Self::DeviceFault => "device fault",
            Self::Aborted => "aborted",
            Self::DeviceLost => "device lost",
            Self::Revoked => "revoked by the peer",
            Self::Closed => "closed",
            Self::Malformed => "malformed",
            Self::VersionMismatch => "version mismatch",
            Self::MissingSdk => "SDK missing",
            Self::Os => "operating system error",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Advice on whether and when to retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Retry {
    /// Never, unless the request or the machine changes.
    Never,
    /// Immediately.
    Now,
    /// Immediately, but only a few times (for example three). On many devices (BlueField, I/OAT), each failed
    /// try resets the queue, which aborts its other operations.
    FewTimes,
    /// After the queue has been polled, or after the user of the resource has released it.
    AfterProgress,
    /// After some time, when other users may have released the resource.
    Later,
}

/// An error code of the vendor's library or of the device, with the code's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeError {
    /// The code that the library or device reported.
    pub code: i32,
    /// The code's name in the vendor's documents, such as `DOCA_ERROR_IO_FAILED`; empty if it has no name.
    pub name: Cow<'static, str>,
    /// The vendor's description of the code, or an empty text.
    pub description: Cow<'static, str>,
}

impl NativeError {
    /// The code of a copy that the engine `verify+NAME` found to be wrong. The description names the first
    /// wrong byte. The code is outside the range of errno values and of the vendors' codes.
    pub const VERIFY_MISMATCH: i32 = i32::MIN;
}

impl fmt::Display for NativeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.is_empty() {
            write!(f, "code {}", self.code)?;
        } else {
            write!(f, "{} ({})", self.name, self.code)?;
        }
        if !self.description.is_empty() {
            write!(f, ": {}", self.description)?;
        }
        Ok(())
    }
}

/// An error of this library.
///
/// `Display` writes one line with the operation, the reason, the numbers and the hint. Programs branch on
/// [`kind`](Self::kind). An error without details, such as a full queue, is made without an allocation.
pub struct Error {
    kind: ErrorKind,
    /// True for the source of an [`OpError`](crate::OpError). `Display` of the `OpError` writes all details,
    /// so `Display` of its source writes only the kind's name.
    is_source: bool,
    is_by_peer: bool,
    detail: Option<Arc<Detail>>,
}

#[derive(Default)]
struct Detail {
    operation: Cow<'static, str>,
    backend: Cow<'static, str>,
    message: Cow<'static, str>,
    requested: Option<u64>,
    limit: Option<u64>,
    native: Option<NativeError>,
    hint: Cow<'static, str>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// Makes an error of `kind` without details. Allocates nothing.
    #[must_use]
    pub const fn bare(kind: ErrorKind) -> Self {
        Self { kind, is_source: false, is_by_peer: false, detail: None }
    }

    /// Makes an error of `kind` with a message that names the invalid input.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self::bare(kind).with_message(message)
    }

    /// Copies the error, to be the source of an `OpError`, whose `Display` writes all details.
    pub(crate) fn to_cause(&self) -> Self {
        Self { is_source: true, detail: self.detail.clone(), ..*self }
    }

    fn detail_mut(&mut self) -> &mut Detail {
        let detail = self.detail.get_or_insert_default();
        // Only an `OpError` has a second reference to the details. It drops that reference before anyone can
        // change the error.
        Arc::get_mut(detail).expect("no other reference to the details exists")
    }

    /// Adds the requested number and its limit.
    #[must_use]
    pub fn with_numbers(mut self, requested: u64, limit: u64) -> Self {
        let detail = self.detail_mut();
        detail.requested = Some(requested);
        detail.limit = Some(limit);
        self
    }

    /// Adds the vendor's code.
    #[must_use]
    pub fn with_native(mut self, native: NativeError) -> Self {
        self.detail_mut().native = Some(native);
        self
    }

    /// Adds the error that caused this one.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.detail_mut().source = Some(source.into());
        self
    }

    /// Marks the error as the answer of a peer. If the peer lacks memory or resources, an import is not
    /// repeated with the idle memory of this process released.
    #[must_use]
    pub const fn by_peer(mut self) -> Self {
        self.is_by_peer = true;
        self
    }

    /// Returns whether the error is [the answer of a peer](Self::by_peer).
    #[must_use]
    pub const fn is_by_peer(&self) -> bool {
        self.is_by_peer
    }

    /// Returns the category.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns [`ErrorKind::retry`] of [`kind`](Self::kind).
    #[must_use]
    pub const fn retry(&self) -> Retry {
        self.kind.retry()
    }

    /// Returns the vendor's code and name, if the library or the device reported the failure.
    #[must_use]
    pub fn native(&self) -> Option<&NativeError> {
        self.detail.as_ref()?.native.as_ref()
    }

    /// Returns the requested number. The message tells its unit, such as bytes, operations or entries.
    #[must_use]
    pub fn requested(&self) -> Option<u64> {
        self.detail.as_ref()?.requested
    }

    /// Returns the limit that the request violated, in the unit of [`requested`](Self::requested).
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        self.detail.as_ref()?.limit
    }
}

/// Defines the methods that set and return a text.
macro_rules! texts {
    ($($(#[$doc:meta])* $with:ident, $text:ident;)+) => {
        impl Error {$(
            $(#[$doc])*
            #[must_use]
            pub fn $with(mut self, $text: impl Into<Cow<'static, str>>) -> Self {
                self.detail_mut().$text = $text.into();
                self
            }

            #[doc = concat!("Returns the text of [`", stringify!($with), "`](Self::", stringify!($with), "), or an empty one.")]
            #[must_use]
            pub fn $text(&self) -> &str {
                self.detail.as_ref().map_or("", |detail| &detail.$text)
            }
        )+}
    };
}
texts! {
    /// Sets the message, which names the invalid input.
    with_message, message;
    /// Sets the operation that failed, such as `copy` or `open queue`.
    with_operation, operation;
    /// Sets the backend, such as `doca`.
    with_backend, backend;
}

impl Error {
    /// Sets the hint, which tells the remedy.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.detail_mut().hint = hint.into();
        self
    }

    /// Returns the remedy: the text of [`with_hint`](Self::with_hint), or the default text of the kind, or an
    /// empty text.
    #[must_use]
    pub fn hint(&self) -> &str {
        match &self.detail {
            Some(detail) if !detail.hint.is_empty() => &detail.hint,
            _ => self.kind.default_hint(),
        }
    }

    /// Writes all details in one line.
    fn line(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(detail) = &self.detail else {
            fmt::Display::fmt(&self.kind, f)?;
            return self.write_hint(f);
        };
        if !detail.operation.is_empty() {
            write!(f, "{}", detail.operation)?;
            if !detail.backend.is_empty() {
                write!(f, " on {}", detail.backend)?;
            }
            write!(f, ": ")?;
        } else if !detail.backend.is_empty() {
            write!(f, "{}: ", detail.backend)?;
        }
        fmt::Display::fmt(&self.kind, f)?;
        if !detail.message.is_empty() {
            write!(f, ": {}", detail.message)?;
        }
        if let (Some(requested), Some(limit)) = (detail.requested, detail.limit) {
            write!(f, " (requested {requested}, limit {limit})")?;
        }
        if let Some(native) = &detail.native {
            write!(f, " [{native}]")?;
        }
        self.write_hint(f)
    }

    fn write_hint(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.hint() {
            "" => Ok(()),
            hint => write!(f, "; {hint}"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_source { write!(f, "kind {:?}", self.kind) } else { self.line(f) }
    }
}

/// `{:?}` writes the same line as `Display`, because `unwrap` and a `main` that returns an error print this
/// form. `{:#?}` writes the fields.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            return self.line(f);
        }
        let mut out = f.debug_struct("Error");
        out.field("kind", &self.kind);
        if let Some(detail) = &self.detail {
            let mut text = |name: &str, value: &str| {
                if !value.is_empty() {
                    out.field(name, &value);
                }
            };
            text("operation", &detail.operation);
            text("backend", &detail.backend);
            text("message", &detail.message);
            text("hint", &detail.hint);
            if let (Some(requested), Some(limit)) = (detail.requested, detail.limit) {
                out.field("requested", &requested).field("limit", &limit);
            }
            if let Some(native) = &detail.native {
                out.field("native", native);
            }
            if let Some(source) = &detail.source {
                out.field("source", source);
            }
        }
        out.finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let source: &(dyn std::error::Error + Send + Sync + 'static) =
            self.detail.as_ref()?.source.as_deref()?;
        Some(source)
    }
}

impl From<LimitError> for Error {
    fn from(error: LimitError) -> Self {
        let kind = match error.limit() {
            Limit::Memory => ErrorKind::OutOfMemory,
            Limit::FileSize | Limit::Threads => ErrorKind::OutOfResources,
        };
        let of_limit = Self::new(kind, error.to_string()).with_hint(error.hint());
        match error.numbers() {
            Some((requested, limit)) => of_limit.with_numbers(requested, limit),
            None => of_limit,
        }
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self::bare(kind)
    }
}

impl Error {
    /// Returns an error that names the path of an output file and a remedy.
    #[must_use]
    pub fn of_output_file(path: &Path, error: io::Error) -> Self {
        use io::ErrorKind::{FileTooLarge, NotConnected, NotFound, QuotaExceeded, StorageFull};
        let hint = match error.kind() {
            StorageFull | QuotaExceeded => "free some space, or give another path",
            NotFound => "create the directory, or give another path",
            FileTooLarge => "raise the limit with `ulimit -f`, or use a file system with larger files",
            NotConnected => "start the reader of the pipe before this program",
            _ => "give the path of a file in a directory that you may write",
        };
        let message = format!("{}: {error}", path.display());
        let kind = Self::from(io::Error::from(error.kind())).kind();
        Self::new(kind, message).with_hint(hint).with_source(error)
    }

    /// Returns the error of the system call `call`, such as `eventfd2`, which failed with `source`. The
    /// message names both. The error number determines the kind. The hint names a limit to raise, or the call
    /// to allow in a sandbox.
    pub fn of_system_call(call: &str, source: io::Error) -> Self {
        use rustix::io::Errno;
        let errno = Errno::from_io_error(&source);
        let kind = match errno {
            Some(Errno::MFILE | Errno::NFILE) => ErrorKind::OutOfResources,
            Some(Errno::NOMEM) => ErrorKind::OutOfMemory,
            Some(Errno::PERM | Errno::ACCESS) => ErrorKind::PermissionDenied,
            _ => ErrorKind::Os,
        };
        let error = Self::new(kind, format!("{call} was refused: {source}")).with_source(source);
        match errno {
            Some(Errno::MFILE) => {
                error.with_hint("close files or queues, or raise the process's limit with `ulimit -n`")
            }
            Some(Errno::NFILE) => error.with_hint("close files, or raise the system's limit fs.file-max"),
            Some(Errno::NOMEM) => error.with_hint("free memory, or raise the limit of the control group"),
            Some(Errno::PERM | Errno::ACCESS | Errno::NOSYS) => error.with_hint(format!(
                "allow {call} in the sandbox of this process, such as its seccomp filter"
            )),
            _ => error,
        }
    }
}

impl From<io::Error> for Error {
    fn from(source: io::Error) -> Self {
        let kind = match source.kind() {
            io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            io::ErrorKind::OutOfMemory => ErrorKind::OutOfMemory,
            io::ErrorKind::TimedOut => ErrorKind::TimedOut,
            io::ErrorKind::FileTooLarge => ErrorKind::OutOfResources,
            _ => ErrorKind::Os,
        };
        match dma_process::open_files_remedy(&source) {
            Some(remedy) => Self::new(ErrorKind::OutOfResources, source.to_string()).with_hint(remedy),
            None => Self::new(kind, source.to_string()),
        }
        .with_source(source)
    }
}

impl From<Error> for io::Error {
    /// Keeps the error as the source, and chooses the nearest kind.
    fn from(error: Error) -> Self {
        use io::ErrorKind as Io;
        let of_source = || std::error::Error::source(&error)?.downcast_ref::<Self>().map(Self::kind);
        let kind = match error.kind() {
            ErrorKind::InvalidArgument
            | ErrorKind::OutOfRange
            | ErrorKind::LengthMismatch
            | ErrorKind::Overlap
            | ErrorKind::WrongEngine => Io::InvalidInput,
            ErrorKind::AccessDenied | ErrorKind::PermissionDenied => Io::PermissionDenied,
            ErrorKind::Unsupported => Io::Unsupported,
            ErrorKind::QueueFull => Io::WouldBlock,
            ErrorKind::InUse => Io::ResourceBusy,
            ErrorKind::OutOfMemory => Io::OutOfMemory,
            ErrorKind::NotFound | ErrorKind::MissingSdk => Io::NotFound,
            ErrorKind::TimedOut => Io::TimedOut,
            ErrorKind::Revoked => Io::ConnectionReset,
            ErrorKind::Closed => Io::NotConnected,
            ErrorKind::Malformed | ErrorKind::VersionMismatch => Io::InvalidData,
            _ => of_source().unwrap_or(Io::Other),
        };
        Self::new(kind, error)
    }
}
