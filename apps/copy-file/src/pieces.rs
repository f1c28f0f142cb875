//! Divides a file into chunks of data and holes.

use std::fs::File;
use std::io;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Bytes to copy, at most one chunk.
    Data { offset: u64, len: usize },
    /// A hole of any length: bytes without storage, which read as zeros.
    Hole { len: u64 },
}

/// The pieces of a file, from its first byte to its last.
#[derive(Debug)]
pub(crate) struct Pieces<'a> {
    file: &'a File,
    len: u64,
    chunk: usize,
    at: u64,
    /// End of the data range that contains `at`.
    data_to: u64,
}

impl<'a> Pieces<'a> {
    /// Divides the first `len` bytes of `file` into chunks of `chunk` bytes. If the file is
    /// `sparse`, each hole is a separate piece.
    pub(crate) fn new(file: &'a File, len: u64, sparse: bool, chunk: usize) -> Self {
        Self { file, len, chunk, at: 0, data_to: if sparse { 0 } else { len } }
    }

    /// Returns the next piece, or `None` at the end of the file.
    pub(crate) fn next(&mut self) -> io::Result<Option<Piece>> {
        if self.at >= self.len {
            return Ok(None);
        }
        if self.at == self.data_to {
            let data = match rustix::fs::seek(self.file, SeekFrom::Data(self.at)) {
                Ok(data) => data.min(self.len),
                // No data follows `at`.
                Err(Errno::NXIO) => self.len,
                // The file system does not report holes.
                Err(Errno::INVAL | Errno::NOTSUP | Errno::NOSYS) => {
                    self.data_to = self.len;
                    self.at
                }
                Err(e) => return Err(e.into()),
            };
            if data > self.at {
                let hole = Piece::Hole { len: data - self.at };
                (self.at, self.data_to) = (data, data);
                return Ok(Some(hole));
            }
            if self.data_to == self.at {
                // At least one byte of data is at this position, unless the file has changed.
                let hole = rustix::fs::seek(self.file, SeekFrom::Hole(self.at)).unwrap_or(self.len);
                self.data_to = hole.clamp(self.at + 1, self.len);
            }
        }
        let left = self.data_to - self.at;
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(self.chunk);
        let offset = self.at;
        self.at += len as u64;
        Ok(Some(Piece::Data { offset, len }))
    }
}
