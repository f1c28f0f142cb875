//! The file that is sent, and the one that has its name only when it is whole.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, RenameFlags, SeekFrom};
use rustix::io::Errno;

use crate::command::not_a_file;
use crate::failure::{Failure, failure};
use crate::talk::worked;

/// After so many bytes written, `--sync` waits for the disk: so no wait is long.
const SYNC_EVERY: u64 = 64 << 20;

/// The file that is sent, opened.
#[derive(Debug)]
pub(crate) struct Source {
    file: File,
    path: PathBuf,
    before: Metadata,
}

impl Source {
    /// Opens `path` for reading; `None` if there is no such file, and so this side receives.
    pub(crate) fn open(path: &Path) -> Result<Option<Self>, Failure> {
        let shown = path.display();
        let explain = |e: io::Error| match e.kind() {
            io::ErrorKind::PermissionDenied => {
                failure!(
                    Starting,
                    "{shown} may not be read: permission denied; chmod it, or run as its owner"
                )
            }
            _ => failure!(Starting, "cannot open {shown}: {e}"),
        };
        // Looked at before it is opened: opening a pipe or a device can block or do things.
        let before = match fs::metadata(path) {
            Ok(before) => before,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(explain(e)),
        };
        if let Some(what) = not_a_file(&before) {
            return Err(failure!(Starting, "{shown} is {what}; name a regular file, or one that is to be"));
        }
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::NONBLOCK.bits() as i32)
            .open(path)
            .map_err(explain)?;
        let before = file.metadata().map_err(explain)?;
        // Advice: it costs nothing if the file system has no use for it.
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Sequential);
        Ok(Some(Self { file, path: path.to_owned(), before }))
    }

    /// Its length in bytes when it was opened.
    pub(crate) fn len(&self) -> u64 {
        self.before.len()
    }

    /// Reads all of `bytes` at `offset`.
    pub(crate) fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> Result<(), Failure> {
        self.file.read_exact_at(bytes, offset).map_err(|e| self.explain(offset, &e))
    }

    /// Reads all of `len` bytes at `offset` by `read`, which is given how many it has and says how many it got.
    pub(crate) fn read_all(
        &self,
        offset: u64,
        len: usize,
        mut read: impl FnMut(usize, &File) -> dma::Result<usize>,
    ) -> Result<(), Failure> {
        let mut done = 0;
        while done < len {
            match read(done, &self.file)
                .map_err(|e| failure!(Reading, "cannot read {}: {e}", self.path.display()))?
            {
                0 => return Err(self.explain(offset, &io::ErrorKind::UnexpectedEof.into())),
                n => done += n,
            }
        }
        Ok(())
    }

    /// How many of the bytes from `offset` on are a hole, if that is at least `at_least` or all that is left; else 0.
    pub(crate) fn hole(&self, offset: u64, at_least: u64) -> u64 {
        if self.before.blocks().saturating_mul(512) >= self.len() {
            // It takes up its whole length: no holes to look for.
            return 0;
        }
        let data = match rustix::fs::seek(&self.file, SeekFrom::Data(offset)) {
            Ok(data) => data.min(self.len()),
            // No data behind.
            Err(Errno::NXIO) => self.len(),
            // A file system that knows nothing of holes, or a file that has become shorter, which reading finds out.
            Err(_) => return 0,
        };
        match data.saturating_sub(offset) {
            hole if data == self.len() => hole,
            hole => hole - hole % at_least,
        }
    }

    /// What went wrong when reading at `offset`.
    fn explain(&self, offset: u64, e: &io::Error) -> Failure {
        let shown = self.path.display();
        match e.kind() {
            io::ErrorKind::UnexpectedEof => failure!(
                Reading,
                "the file changed while it was sent: {shown} became shorter than its {} bytes; send it again when nobody changes it",
                self.len()
            ),
            _ => failure!(Reading, "cannot read {shown} at byte {offset}: {e}"),
        }
    }

    /// Checks that nobody changed it since it was opened: the copy would be neither the old file nor the new one.
    pub(crate) fn check_unchanged(&self) -> Result<(), Failure> {
        let shown = self.path.display();
        let now = self.file.metadata().map_err(|e| failure!(Reading, "cannot look at {shown}: {e}"))?;
        let (before, after) = (self.len(), now.len());
        let modified = |m: &Metadata| (m.mtime(), m.mtime_nsec());
        if before != after {
            return Err(failure!(
                Reading,
                "the file changed while it was sent: {shown} went from {before} to {after} bytes; send it again when nobody changes it"
            ));
        }
        if modified(&self.before) != modified(&now) {
            return Err(failure!(
                Reading,
                "the file changed while it was sent: {shown} was written to; send it again when nobody changes it"
            ));
        }
        Ok(())
    }
}

/// The copy in the making: a file beside the one that it is to be, which nobody else can read.
///
/// Its bytes are written in order, and only verified ones: so whatever it holds after a failure is a part of the file, and `--resume` needs no
/// journal.
#[derive(Debug)]
pub(crate) struct Target {
    file: File,
    path: PathBuf,
    partial: PathBuf,
    /// Whether it stays after a failure.
    keep: bool,
    size: u64,
    there: u64,
    sync: bool,
    /// Bytes written since `sync` last waited for the disk.
    unsynced: AtomicU64,
}

impl Target {
    /// Begins the file that is to be `path`, or goes on with what is there of it.
    pub(crate) fn create(path: &Path, keep: bool, sync: bool, size: u64) -> Result<Self, Failure> {
        let shown = path.display();
        let name = match path.file_name() {
            Some(name) if !path.as_os_str().as_encoded_bytes().ends_with(b"/") => name,
            _ => return Err(failure!(Writing, "{shown} names no file; give the name of the copy")),
        };
        // It was not there when this side looked first.
        if fs::symlink_metadata(path).is_ok() {
            let what =
                if fs::metadata(path).is_ok() { "has come to be meanwhile" } else { "is a link to nothing" };
            return Err(failure!(Writing, "{shown} {what}; remove it, or choose another --file"));
        }
        let dir = match path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir,
            _ => Path::new("."),
        };
        if !dir.is_dir() {
            return Err(failure!(
                Writing,
                "the directory {dir} does not exist; create it with mkdir -p {dir}",
                dir = dir.display()
            ));
        }
        if let Some(limit) = rustix::process::getrlimit(rustix::process::Resource::Fsize).current
            && size > limit
        {
            return Err(failure!(
                Writing,
                "the file has {size} bytes, and a file may have {limit} here; raise the limit with ulimit -f"
            ));
        }
        let partial = dir.join(
            [&OsString::from("."), name, &OsString::from(".dma_copy.partial")]
                .into_iter()
                .collect::<OsString>(),
        );
        let file = open_partial(&partial, size)?;
        let there = if keep { file.metadata().map(|m| m.len()).unwrap_or(0) } else { 0 };
        Ok(Self {
            file,
            path: path.to_owned(),
            partial,
            keep,
            size,
            there,
            sync,
            unsynced: AtomicU64::new(0),
        })
    }

    /// How much an earlier copy left that may be gone on with.
    pub(crate) const fn there(&self) -> u64 {
        self.there
    }

    /// Reads back what is there.
    pub(crate) fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> Result<(), Failure> {
        self.file.read_exact_at(bytes, offset).map_err(|e| {
            failure!(Resuming, "cannot read {} at byte {offset}: {e}; remove it", self.partial.display())
        })
    }

    /// Makes it `len` bytes long: what is beyond is dropped, what is missing becomes a hole.
    pub(crate) fn cut(&self, len: u64) -> Result<(), Failure> {
        self.file.set_len(len).map_err(|e| self.explain(&e))
    }

    /// Writes `bytes` at `offset`.
    pub(crate) fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<(), Failure> {
        self.file.write_all_at(bytes, offset).map_err(|e| self.explain(&e))?;
        self.written(bytes.len() as u64)
    }

    /// Has `write` write all of `len` bytes at their places: it is given how many are done, and says how many more are.
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

    fn written(&self, len: u64) -> Result<(), Failure> {
        worked();
        if self.sync && self.unsynced.fetch_add(len, Ordering::Relaxed) + len >= SYNC_EVERY {
            self.unsynced.store(0, Ordering::Relaxed);
            self.file.sync_data().map_err(|e| self.explain(&e))?;
            worked();
        }
        Ok(())
    }

    /// Gives it its name, at once: nobody sees a part of it, and nothing that has the name by now is replaced.
    pub(crate) fn publish(&self) -> Result<(), Failure> {
        let (path, partial) = (self.path.display(), self.partial.display());
        let set = |e: io::Error| failure!(Finishing, "cannot finish {partial}: {e}");
        let len = self.file.metadata().map_err(set)?.len();
        if len != self.size {
            return Err(failure!(
                Finishing,
                "somebody else wrote to {partial}: it has {len} bytes, not {}; copy again",
                self.size
            ));
        }
        // As a new file would have them; it was the owner's alone so far.
        let mask = rustix::process::umask(Mode::empty());
        rustix::process::umask(mask);
        let mode = Mode::from_raw_mode(0o666) - mask;
        rustix::fs::fchmod(&self.file, mode).map_err(|e| set(e.into()))?;
        if self.sync {
            self.file.sync_all().map_err(|e| self.explain(&e))?;
            worked();
        }
        let renamed =
            match rustix::fs::renameat_with(CWD, &self.partial, CWD, &self.path, RenameFlags::NOREPLACE) {
                // A file system that cannot do that: a link can only be made where nothing is.
                Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                    fs::hard_link(&self.partial, &self.path).and_then(|()| fs::remove_file(&self.partial))
                }
                renamed => renamed.map_err(io::Error::from),
            };
        renamed.map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => failure!(
                Finishing,
                "{path} has come to be while it was copied, and is left alone; remove one of {path} and {partial}"
            ),
            _ => failure!(Finishing, "cannot rename {partial} to {path}: {e}"),
        })?;
        if self.sync
            && let Some(dir) = self.path.parent()
            && let Ok(dir) = File::open(if dir.as_os_str().is_empty() { Path::new(".") } else { dir })
        {
            // Some file systems cannot sync a directory; the bytes are safe.
            let _ = dir.sync_all();
        }
        Ok(())
    }

    /// Cleans up after a failure: removes the file in the making, unless it is to be gone on with and there is something to go on with.
    pub(crate) fn give_up(&self) {
        if !self.keep || self.file.metadata().is_ok_and(|m| m.len() == 0) {
            let _ = fs::remove_file(&self.partial);
        }
    }

    /// What went wrong when writing.
    fn explain(&self, e: &io::Error) -> Failure {
        explain(e, &self.partial, self.size)
    }
}

/// Opens the file in the making, for its owner only, and for one process at a time.
fn open_partial(partial: &Path, size: u64) -> Result<File, Failure> {
    let shown = partial.display();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        // Somebody may have laid a link or a pipe there.
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32)
        .open(partial)
        .map_err(|e| match Errno::from_io_error(&e) {
            Some(Errno::LOOP | Errno::NXIO | Errno::ISDIR) => {
                failure!(Writing, "{shown} is there already and no regular file; remove it")
            }
            _ => explain(&e, partial, size),
        })?;
    let metadata = file.metadata().map_err(|e| explain(&e, partial, size))?;
    if not_a_file(&metadata).is_some()
        || metadata.nlink() > 1
        || metadata.uid() != rustix::process::geteuid().as_raw()
    {
        return Err(failure!(Writing, "{shown} is there already and no file of yours alone; remove it"));
    }
    rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR).map_err(|e| explain(&e.into(), partial, size))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            return Err(failure!(
                Writing,
                "another dma_copy writes {shown} right now; wait until it is done, or choose another --file"
            ));
        }
        // A file system without locks: then nobody else can be told.
        Err(e) => tracing::warn!("cannot lock {shown}: {e}"),
    }
    Ok(file)
}

/// What went wrong with the file in the making.
fn explain(e: &io::Error, partial: &Path, size: u64) -> Failure {
    let dir = match partial.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let free = rustix::fs::statvfs(dir).ok().map(|s| s.f_bavail.saturating_mul(s.f_frsize));
    let dir = dir.display();
    match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::WriteZero => {
            let free = free.map_or(String::new(), |free| format!(", {free} are free"));
            failure!(
                Writing,
                "no space left in {dir}: the file has {size} bytes{free}; make room, or choose another --file"
            )
        }
        io::ErrorKind::QuotaExceeded => failure!(
            Writing,
            "the disk quota in {dir} is used up: the file has {size} bytes; make room, or choose another --file"
        ),
        io::ErrorKind::FileTooLarge => failure!(
            Writing,
            "{dir} can have no files of {size} bytes; choose another --file, or raise the limit with ulimit -f"
        ),
        io::ErrorKind::PermissionDenied => failure!(
            Writing,
            "cannot create a file in {dir}: permission denied; choose a directory that you may write, or chmod it"
        ),
        io::ErrorKind::ReadOnlyFilesystem => {
            failure!(
                Writing,
                "cannot create a file in {dir}: the file system is read-only; choose another --file"
            )
        }
        _ => failure!(Writing, "cannot write {}: {e}; choose another --file", partial.display()),
    }
}
