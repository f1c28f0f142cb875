//! [`FileError`]: a failed operation, with its buffer.

use std::fmt;

use dma_core::Error;

/// The error of an operation on a file. It contains the operation's buffer, unless the process was forked
/// while the operation was in flight.
pub struct FileError<T> {
    error: Error,
    buffer: Option<T>,
}

impl<T> FileError<T> {
    pub(crate) const fn new(error: Error, buffer: T) -> Self {
        Self { error, buffer: Some(buffer) }
    }

    /// Makes the error of an operation that may still use its buffer.
    pub(crate) const fn without_buffer(error: Error) -> Self {
        Self { error, buffer: None }
    }

    /// Returns the error.
    pub const fn error(&self) -> &Error {
        &self.error
    }

    /// Returns the error and the buffer. After a failed read, the contents of the unread part of
    /// the buffer are undefined. In a forked child, the buffer of an operation of the parent is `None`,
    /// because the parent's kernel request may still use the memory.
    pub fn into_parts(self) -> (Error, Option<T>) {
        (self.error, self.buffer)
    }
}

impl<T> From<FileError<T>> for Error {
    fn from(e: FileError<T>) -> Self {
        e.error
    }
}

impl<T> fmt::Debug for FileError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileError").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<T> fmt::Display for FileError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T> std::error::Error for FileError<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.error)
    }
}
