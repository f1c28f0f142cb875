//! The error of an operation that exceeds a limit of the process or of the system.

use std::fmt;
use std::io;

/// A limit of the process or of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Memory, or address space.
    Memory,
    /// The size of files, in bytes.
    FileSize,
    /// The number of threads.
    Threads,
}

/// A limit does not permit an operation. `Display` writes the cause; [`hint`](Self::hint) is the remedy.
#[derive(Debug)]
pub struct LimitError {
    limit: Limit,
    message: String,
    hint: &'static str,
    numbers: Option<(u64, u64)>,
}

impl LimitError {
    pub(crate) fn new(limit: Limit, message: String, hint: &'static str) -> Self {
        Self { limit, message, hint, numbers: None }
    }

    pub(crate) fn with_numbers(self, requested: u64, limit: u64) -> Self {
        Self { numbers: Some((requested, limit)), ..self }
    }

    /// Returns the limit.
    #[must_use]
    pub fn limit(&self) -> Limit {
        self.limit
    }

    /// Returns the remedy.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        self.hint
    }

    /// Returns the requested amount and the limit in bytes, if both are known.
    #[must_use]
    pub fn numbers(&self) -> Option<(u64, u64)> {
        self.numbers
    }
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for LimitError {}

impl From<LimitError> for io::Error {
    fn from(error: LimitError) -> Self {
        let kind = match error.limit {
            Limit::Memory => io::ErrorKind::OutOfMemory,
            Limit::FileSize => io::ErrorKind::FileTooLarge,
            Limit::Threads => io::ErrorKind::WouldBlock,
        };
        Self::new(kind, error)
    }
}

/// Returns the remedy for a system call that failed because too many files are open, and `None` for other
/// errors.
#[must_use]
pub fn open_files_remedy(error: &io::Error) -> Option<&'static str> {
    match rustix::io::Errno::from_io_error(error)? {
        rustix::io::Errno::MFILE => Some("raise the process's limit on open files (ulimit -n)"),
        rustix::io::Errno::NFILE => Some("raise the system's limit on open files (sysctl fs.file-max)"),
        _ => None,
    }
}
