//! [`DmaFile`]: a file that file queues read and write.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use dma_core::{Error, ErrorKind, Result};
use dma_process::above_stdio;
use rustix::fs::OFlags;

/// Alignment of the address, offset and length of direct reads and writes, in bytes. No disk needs a larger
/// alignment.
pub(crate) const DIRECT_ALIGNMENT: usize = 4096;

/// Options for opening a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenFile {
    /// Opens the file for writing as well. Default: false.
    pub write: bool,
    /// Creates the file if it does not exist, and truncates it if it exists. Default: false.
    pub create: bool,
    /// Bypasses the page cache (`O_DIRECT`). Default: false. Ranges whose address, offset or length is not a
    /// multiple of 4096 bytes, such as the end of most files, still use the cache.
    pub direct: bool,
}

impl OpenFile {
    /// Returns the default options: the file is opened for reading, through the page cache.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    dma_core::setters! {
        with_write(write: bool);
        with_create(create: bool);
        with_direct(direct: bool);
    }

    /// Opens the file.
    ///
    /// # Errors
    ///
    /// `NotFound`, `PermissionDenied` or `Os`, with the path; `Unsupported` if the file system does not
    /// support direct access.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<DmaFile> {
        let path = path.as_ref();
        let mut options = OpenOptions::new();
        let write = self.write || self.create;
        options.read(true).write(write).create(self.create).truncate(self.create);
        let named = |e: io::Error| Error::from(e).with_operation(format!("open {}", path.display()));
        let file = above_stdio(options.open(path).map_err(named)?);
        let file = DmaFile::from(file);
        if self.direct {
            file.with_direct().map_err(|e| e.with_operation(format!("open {}", path.display())))
        } else {
            Ok(file)
        }
    }
}

/// An open file. Clones share it.
#[derive(Clone, Debug)]
pub struct DmaFile(Arc<Opened>);

#[derive(Debug)]
struct Opened {
    file: File,
    /// The same file, opened for direct access.
    direct: Option<File>,
}

impl From<File> for DmaFile {
    /// Uses a file that is already open. Reads and writes neither use nor change the file's position. Pipes,
    /// sockets and terminals have no positions: their reads and writes ignore the offset, and wait until the
    /// file is ready. Several of them in flight have no order.
    fn from(file: File) -> Self {
        Self(Arc::new(Opened { file, direct: None }))
    }
}

impl AsFd for DmaFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.file.as_fd()
    }
}

impl DmaFile {
    /// Opens a file for reading.
    ///
    /// # Errors
    ///
    /// The errors of [`OpenFile::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        OpenFile::new().open(path)
    }

    /// Returns the same file with direct access: see [`OpenFile::direct`]. The file needs no name, because it
    /// is opened again through `/proc`.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the file system does not support direct access; `NotFound` if `/proc` is not mounted;
    /// otherwise the error of the system, such as `PermissionDenied` or `Os`.
    pub fn with_direct(self) -> Result<Self> {
        let file = self.0.file.try_clone()?;
        let flags = rustix::fs::fcntl_getfl(&file).map_err(io::Error::from)?;
        let write = !(flags & OFlags::RWMODE).is_empty();
        let mut options = OpenOptions::new();
        options.read((flags & OFlags::RWMODE) != OFlags::WRONLY).write(write);
        options.custom_flags(OFlags::DIRECT.bits().cast_signed());
        let direct = options.open(format!("/proc/self/fd/{}", file.as_raw_fd())).map_err(|e| {
            if e.kind() == io::ErrorKind::InvalidInput {
                Error::new(
                    ErrorKind::Unsupported,
                    "the file system does not support direct access (O_DIRECT)",
                )
                .with_hint("do not use direct access, or use a file on a disk")
            } else {
                e.into()
            }
        })?;
        Ok(Self(Arc::new(Opened { file, direct: Some(direct) })))
    }

    /// Returns whether reads and writes of the file bypass the page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.0.direct.is_some()
    }

    /// Returns the file's path for errors, as the system reports it.
    pub(crate) fn name(&self) -> String {
        let path = std::fs::read_link(format!("/proc/self/fd/{}", self.0.file.as_raw_fd()));
        path.map_or_else(|_| "a file".to_owned(), |path| path.display().to_string())
    }

    /// Fails if the system would ignore the offsets of writes.
    pub(crate) fn check_write_offsets(&self) -> Result<()> {
        let flags = rustix::fs::fcntl_getfl(&self.0.file).map_err(io::Error::from)?;
        if flags.contains(OFlags::APPEND) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "the file is open for appending (O_APPEND), so all writes would go to its end",
            )
            .with_hint("open the file without append"));
        }
        Ok(())
    }

    /// Returns the file descriptor by which this range is read or written: the direct one only if the file
    /// has direct access and the range is aligned.
    pub(crate) fn descriptor(&self, addr: usize, offset: u64, len: usize) -> RawFd {
        let aligned = |n: usize| n.is_multiple_of(DIRECT_ALIGNMENT);
        let whole = aligned(addr) && aligned(len) && offset.is_multiple_of(DIRECT_ALIGNMENT as u64);
        self.0.direct.as_ref().filter(|_| whole).unwrap_or(&self.0.file).as_raw_fd()
    }
}
