//! The file that is sent, and the copy, which gets its name only after it is complete.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Deref;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use dma::process::count;
use rustix::fs::{Access, CWD, FlockOperation, Mode, OFlags, RenameFlags, SeekFrom};
use rustix::io::Errno;
use twox_hash::XxHash3_128;

use crate::failure::{Failure, failure};
use crate::options::Options;
use crate::protocol::{MAX_MODE, Step};
use crate::session::made_progress;
use apps_shared::disk::{self, Directory, not_a_file};

/// With `--sync`, the number of bytes between two syncs, so that no sync takes long.
const SYNC_EVERY: u64 = 64 << 20;

/// The file that is sent.
#[derive(Debug)]
pub(crate) struct Source(disk::Source);

impl Deref for Source {
    type Target = disk::Source;

    fn deref(&self) -> &disk::Source {
        &self.0
    }
}

impl Source {
    /// Opens the regular file `path`. Returns `None` if no such file exists.
    pub(crate) fn open(path: &Path, label: &str) -> Result<Option<Self>, String> {
        Ok(disk::Source::open(path, label)?.map(Self))
    }

    /// The file's permission bits, without set-user-id, set-group-id and sticky.
    pub(crate) fn mode(&self) -> u16 {
        self.before.mode() as u16 & MAX_MODE
    }

    /// Reads exactly `bytes.len()` bytes at `offset`.
    pub(crate) fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> Result<(), Failure> {
        self.file.read_exact_at(bytes, offset).map_err(|e| self.failed(offset, &e))
    }

    /// Calls `read` with the number of bytes read so far, until `len` bytes are read. `read` returns the
    /// number of bytes that this call has read.
    pub(crate) fn read_all(
        &self,
        offset: u64,
        len: usize,
        mut read: impl FnMut(usize, &File) -> dma::Result<usize>,
    ) -> Result<(), Failure> {
        let mut done = 0;
        while done < len {
            match read(done, &self.file) {
                Ok(0) => return Err(self.failed(offset, &io::ErrorKind::UnexpectedEof.into())),
                Ok(n) => done += n,
                Err(e) => return Err(self.failed(offset, &io::Error::other(e))),
            }
        }
        Ok(())
    }

    /// Returns the length of the hole at `offset`, rounded down to a multiple of `block` unless the file ends
    /// with this hole.
    pub(crate) fn hole(&self, offset: u64, block: u64) -> u64 {
        if !self.is_sparse() {
            return 0;
        }
        let data = match rustix::fs::seek(&self.file, SeekFrom::Data(offset)) {
            Ok(data) => data.min(self.len()),
            // No data follows `offset`.
            Err(Errno::NXIO) => self.len(),
            // The file system does not report holes, or the file became shorter, which the next read reports.
            Err(_) => return 0,
        };
        match data.saturating_sub(offset) {
            hole if data == self.len() => hole,
            hole => hole - hole % block,
        }
    }

    pub(crate) fn unchanged(&self) -> Result<(), Failure> {
        self.check_unchanged().map_err(|message| Failure::new(Step::Reading, message))
    }

    fn failed(&self, offset: u64, e: &io::Error) -> Failure {
        Failure::new(Step::Reading, self.explain(offset, e))
    }
}

/// The partial copy: a file in the copy's directory that only its owner can read.
///
/// Only verified bytes are written to it, in order. After a failure it contains a prefix of the file, so
/// `--resume` needs no journal.
#[derive(Debug)]
pub(crate) struct Target {
    file: File,
    path: PathBuf,
    partial: PathBuf,
    directory: Directory,
    /// True if the partial copy is kept after a failure.
    keep: bool,
    size: u64,
    /// Number of bytes that an earlier copy left.
    earlier_len: u64,
    /// Permissions of the complete copy, before the umask is applied.
    mode: u16,
    sync: bool,
    /// Bytes written since the last sync.
    unsynced: AtomicU64,
}

impl Target {
    /// Checks that the copy `path` can be created, before this side waits for the other one.
    pub(crate) fn check_place(path: &Path) -> Result<(), Failure> {
        let (_, directory) = Self::place(path, 0)?;
        rustix::fs::access(&directory.path, Access::WRITE_OK | Access::EXEC_OK)
            .map_err(|e| Failure::new(Step::Starting, directory.explain("create a file", &e.into())))
    }

    /// Returns the file name and the directory of the copy `path`, which has `size` bytes.
    fn place(path: &Path, size: u64) -> Result<(&OsStr, Directory), Failure> {
        let shown = path.display();
        let name = match path.file_name() {
            Some(name) if !path.as_os_str().as_encoded_bytes().ends_with(b"/") => name,
            _ => return Err(failure!(Writing, "{shown} names no file; give the name of the copy")),
        };
        // `Source::open` found no file of this name when this side started, so fail if the name exists now.
        if fs::symlink_metadata(path).is_ok() {
            let what =
                if fs::metadata(path).is_ok() { "was created during the copy" } else { "is a dangling link" };
            return Err(failure!(Writing, "{shown} {what}; remove it, or choose another --file"));
        }
        let directory =
            Directory::of(path, size, "--file").map_err(|message| Failure::new(Step::Writing, message))?;
        Ok((name, directory))
    }

    /// Creates the partial copy, or opens the partial copy that an earlier run left. The complete copy has
    /// `size` bytes, and the permissions `mode` minus the umask.
    pub(crate) fn create(options: &Options, path: &Path, size: u64, mode: u16) -> Result<Self, Failure> {
        let keep = options.resume;
        let (name, directory) = Self::place(path, size)?;
        let longest = rustix::fs::statvfs(&directory.path).map_or(255, |s| s.f_namemax as usize);
        let partial = directory.path.join(partial_name(name.as_bytes(), longest));
        let file = open_partial(&partial, &directory)?;
        let earlier_len = if keep { file.metadata().map(|m| m.len()).unwrap_or(0) } else { 0 };
        Ok(Self {
            file,
            path: path.to_owned(),
            partial,
            directory,
            keep,
            size,
            earlier_len,
            mode: mode & MAX_MODE,
            sync: options.sync,
            unsynced: AtomicU64::new(0),
        })
    }

    /// Number of bytes that an earlier copy left and `--resume` may continue.
    pub(crate) const fn earlier_len(&self) -> u64 {
        self.earlier_len
    }

    pub(crate) fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> Result<(), Failure> {
        self.file.read_exact_at(bytes, offset).map_err(|e| {
            failure!(Resuming, "cannot read {} at byte {offset}: {e}; remove it", self.partial.display())
        })
    }

    /// Sets the length to `len` bytes. The added bytes are a hole.
    pub(crate) fn set_len(&self, len: u64) -> Result<(), Failure> {
        self.file.set_len(len).map_err(|e| self.explain(&e))
    }

    pub(crate) fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<(), Failure> {
        self.file.write_all_at(bytes, offset).map_err(|e| self.explain(&e))?;
        self.written(bytes.len() as u64)
    }

    /// Calls `write` with the number of bytes written so far, until `len` bytes are written. `write` returns
    /// the number of bytes that this call has written.
    pub(crate) fn write_all(
        &self,
        len: usize,
        mut write: impl FnMut(usize, &File) -> dma::Result<usize>,
    ) -> Result<(), Failure> {
        let mut done = 0;
        while done < len {
            match write(done, &self.file) {
                Ok(0) => return Err(self.explain(&io::ErrorKind::WriteZero.into())),
                Ok(n) => done += n,
                Err(e) => {
                    let source = std::error::Error::source(&e).and_then(|s| s.downcast_ref::<io::Error>());
                    return Err(match source {
                        Some(source) => self.explain(source),
                        None => failure!(Writing, "{e}"),
                    });
                }
            }
        }
        self.written(len as u64)
    }

    /// Counts `len` written bytes as progress. With `--sync`, syncs the file after each [`SYNC_EVERY`] bytes.
    fn written(&self, len: u64) -> Result<(), Failure> {
        made_progress();
        if self.sync && self.unsynced.fetch_add(len, Ordering::Relaxed) + len >= SYNC_EVERY {
            self.unsynced.store(0, Ordering::Relaxed);
            self.file.sync_data().map_err(|e| self.explain(&e))?;
            made_progress();
        }
        Ok(())
    }

    /// Renames the complete copy atomically. Fails if a file of that name exists.
    pub(crate) fn publish(&self) -> Result<(), Failure> {
        let (path, partial) = (self.path.display(), self.partial.display());
        let set = |e: io::Error| failure!(Finishing, "cannot finish {partial}: {e}");
        let len = self.file.metadata().map_err(set)?.len();
        if len != self.size {
            return Err(failure!(
                Finishing,
                "another program wrote to {partial}: it has {}, not {}; copy again",
                count(len, "byte", "bytes"),
                self.size
            ));
        }
        // Sets the sender's permissions minus the umask, as if the file were created with them. Until now
        // only the owner could read it.
        let mask = rustix::process::umask(Mode::empty());
        rustix::process::umask(mask);
        let mode = Mode::from_raw_mode(self.mode.into()) - mask;
        rustix::fs::fchmod(&self.file, mode).map_err(|e| set(e.into()))?;
        if self.sync {
            self.file.sync_all().map_err(|e| self.explain(&e))?;
            made_progress();
        }
        // A network file system may report a full disk only here.
        dma::process::check_close(&self.file).map_err(|e| self.explain(&e))?;
        made_progress();
        let renamed =
            match rustix::fs::renameat_with(CWD, &self.partial, CWD, &self.path, RenameFlags::NOREPLACE) {
                // The file system lacks RENAME_NOREPLACE, so create a link, which never replaces a file.
                Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                    fs::hard_link(&self.partial, &self.path).and_then(|()| fs::remove_file(&self.partial))
                }
                renamed => renamed.map_err(io::Error::from),
            };
        renamed.map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => failure!(
                Finishing,
                "{path} was created during the copy, and was not replaced; remove {path} or {partial}"
            ),
            _ => failure!(Finishing, "cannot rename {partial} to {path}: {e}"),
        })?;
        if self.sync {
            self.directory.sync();
        }
        Ok(())
    }

    /// Removes the partial copy after a failure, unless `--resume` is given and the partial copy has bytes.
    pub(crate) fn give_up(&self) {
        if !self.keep || self.file.metadata().is_ok_and(|m| m.len() == 0) {
            let _ = fs::remove_file(&self.partial);
        }
    }

    fn explain(&self, e: &io::Error) -> Failure {
        Failure::new(Step::Writing, self.directory.explain("write the copy", e))
    }
}

/// Returns the name of the partial copy of `name`. If that name has more than `longest` bytes, its end is
/// replaced by a digest, so that different names stay different.
fn partial_name(name: &[u8], longest: usize) -> OsString {
    let mut suffix = String::from(".dma-copy.partial");
    let mut start = name;
    if 1 + name.len() + suffix.len() > longest {
        suffix = format!(".{:032x}{suffix}", XxHash3_128::oneshot(name));
        start = &name[..longest.saturating_sub(1 + suffix.len()).min(name.len())];
    }
    OsString::from_vec([b".", start, suffix.as_bytes()].concat())
}

/// Creates or opens the partial copy. Only its owner can read it, and a lock excludes other processes.
fn open_partial(partial: &Path, directory: &Directory) -> Result<File, Failure> {
    let shown = partial.display();
    let explain = |e: io::Error| Failure::new(Step::Writing, directory.explain("create a file", &e));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        // A link or a pipe of this name may exist: do not follow the link, and do not block on the pipe.
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32)
        .open(partial)
        .map_err(|e| match Errno::from_io_error(&e) {
            Some(Errno::LOOP | Errno::NXIO | Errno::ISDIR) => {
                failure!(Writing, "{shown} exists and is not a regular file; remove it")
            }
            _ => explain(e),
        })?;
    let metadata = file.metadata().map_err(explain)?;
    if not_a_file(&metadata).is_some()
        || metadata.nlink() > 1
        || metadata.uid() != rustix::process::geteuid().as_raw()
    {
        return Err(failure!(
            Writing,
            "{shown} exists and is not a file that only you can access; remove it"
        ));
    }
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            return Err(failure!(
                Writing,
                "another dma-copy is writing {shown}; wait until it is done, or choose another --file"
            ));
        }
        // The file system has no locks, so continue although other processes are not excluded.
        Err(e) => tracing::warn!("cannot lock {shown}: {e}"),
    }
    rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR).map_err(|e| explain(e.into()))?;
    Ok(file)
}
