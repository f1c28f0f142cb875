//! A file that has no name until it is complete, so that the kernel removes it if the program is killed.
//!
//! On file systems without `O_TMPFILE`, the file is named `.DST.copy-file-*.partial`, and a killed
//! program leaves it behind.

use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat};
use rustix::io::Errno;
use tempfile::NamedTempFile;

/// Maximum number of bytes of DST's name that the partial file's name contains. A file name has at most
/// 255 bytes.
const NAME_MAX: usize = 200;
const SUFFIX: &str = ".partial";

/// The partial file, removed unless it is [published](Self::publish).
#[derive(Debug)]
pub(crate) enum Partial {
    /// A file without a name, and the prefix of the temporary name that it needs to replace DST.
    Unnamed(File, OsString),
    /// A named file, on file systems without unnamed files.
    Named(NamedTempFile),
}

impl Partial {
    /// Creates a file in `dir` with the permissions `mode` minus the umask.
    pub(crate) fn create(dst: &Path, dir: &Path, mode: u32) -> io::Result<Self> {
        let name = dst.file_name().unwrap_or_default().as_bytes();
        let prefix = [b".", &name[..name.len().min(NAME_MAX)], b".copy-file-"].concat();
        let prefix = OsString::from_vec(prefix);
        match unnamed(dir, mode) {
            Ok(file) => Ok(Self::Unnamed(file, prefix)),
            // These errors mean that the file system or the kernel lacks O_TMPFILE, or that /proc is missing.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {
                builder(&prefix).permissions(Permissions::from_mode(mode)).tempfile_in(dir).map(Self::Named)
            }
            Err(e) => Err(e.into()),
        }
    }

    pub(crate) fn file(&self) -> &File {
        match self {
            Self::Unnamed(file, _) => file,
            Self::Named(file) => file.as_file(),
        }
    }

    /// Gives the file the name `path`, which is in `dir`. Replaces an existing file atomically.
    pub(crate) fn publish(self, path: &Path, dir: &Path) -> io::Result<()> {
        match self {
            Self::Unnamed(file, prefix) => match link(&file, path) {
                // A link cannot replace an existing file, but a rename can. So the file first gets a
                // temporary name.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    let linked = builder(&prefix).make_in(dir, |name| link(&file, name))?;
                    linked.into_temp_path().persist(path).map_err(|e| e.error)
                }
                linked => linked,
            },
            Self::Named(file) => file.persist(path).map(|_| ()).map_err(|e| e.error),
        }
    }
}

fn builder(prefix: &OsString) -> tempfile::Builder<'_, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(prefix).suffix(SUFFIX);
    builder
}

/// Creates a file without a name in `dir`.
fn unnamed(dir: &Path, mode: u32) -> Result<File, Errno> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(dir, flags, Mode::from_raw_mode(mode))?);
    // Check that this path works, because `publish` links the unnamed file by it.
    rustix::fs::stat(proc_path(&file))?;
    Ok(file)
}

fn proc_path(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

fn link(file: &File, path: &Path) -> io::Result<()> {
    Ok(linkat(CWD, proc_path(file), CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}
