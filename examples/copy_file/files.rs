//! SRC and DST: what can be wrong with them, and a DST that has its name only when it is whole.

use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::Access;
use tempfile::NamedTempFile;

use crate::command::not_a_file;
use crate::{Failure, failure};

/// The file to copy, opened.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) file: File,
    path: PathBuf,
    before: Metadata,
}

impl Source {
    /// Opens `path` for reading.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        let explain = |e: io::Error| match e.kind() {
            io::ErrorKind::NotFound => failure!("SRC {shown} does not exist; check its name"),
            io::ErrorKind::NotADirectory => {
                failure!("SRC {shown} does not exist: a part of its path is a file; check its name")
            }
            io::ErrorKind::PermissionDenied => {
                failure!("SRC {shown} may not be read: permission denied; chmod it, or run as its owner")
            }
            _ => failure!("cannot open SRC {shown}: {e}"),
        };
        // Looked at before it is opened: opening a pipe or a device can block or do things.
        let before = fs::metadata(path).map_err(explain)?;
        if let Some(what) = not_a_file(&before) {
            return Err(failure!("SRC {shown} is {what}; copy_file copies one regular file, name one"));
        }
        let file = File::open(path).map_err(explain)?;
        let before = file.metadata().map_err(explain)?;
        // Advice: it costs nothing if the file system has no use for it.
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Sequential);
        Ok(Self { file, path: path.to_owned(), before })
    }

    /// Its length in bytes when it was opened.
    pub(crate) fn len(&self) -> u64 {
        self.before.len()
    }

    /// Whether it takes up less room than its length: it may have holes.
    pub(crate) fn is_sparse(&self) -> bool {
        self.before.blocks().saturating_mul(512) < self.len()
    }

    /// What went wrong when reading at `offset`.
    pub(crate) fn explain(&self, offset: u64, e: &io::Error) -> Failure {
        let shown = self.path.display();
        match e.kind() {
            io::ErrorKind::UnexpectedEof => failure!(
                "SRC {shown} became shorter than its {} bytes while it was copied; copy it again when nobody changes it",
                self.len()
            ),
            _ => failure!("cannot read SRC {shown} at byte {offset}: {e}"),
        }
    }

    /// Checks that nobody changed it since it was opened: a copy would be neither the old file nor the new one.
    pub(crate) fn check_unchanged(&self) -> Result<(), Failure> {
        let shown = self.path.display();
        let now = self.file.metadata().map_err(|e| failure!("cannot look at SRC {shown}: {e}"))?;
        let (before, after) = (self.len(), now.len());
        if before != after {
            return Err(failure!(
                "SRC {shown} went from {before} to {after} bytes while it was copied; copy it again when nobody changes it"
            ));
        }
        let modified = |m: &Metadata| (m.mtime(), m.mtime_nsec());
        if modified(&self.before) != modified(&now) {
            return Err(failure!(
                "SRC {shown} was written to while it was copied; copy it again when nobody changes it"
            ));
        }
        // Some files, as those in /proc, have bytes but no length.
        let mut byte = [0];
        match std::os::unix::fs::FileExt::read_at(&self.file, &mut byte, after) {
            Ok(0) => Ok(()),
            Ok(_) => Err(failure!(
                "SRC {shown} has more bytes than the {after} that it says it has; read it with cat instead"
            )),
            Err(e) => Err(self.explain(after, &e)),
        }
    }
}

/// The copy in the making: a file beside DST that is removed on every way out but [`publish`](Self::publish).
#[derive(Debug)]
pub(crate) struct Target {
    temporary: NamedTempFile,
    /// Where it is to be: DST, or the file that DST is a link to.
    path: PathBuf,
    dir: PathBuf,
    /// The permission bits to end up with, if the new file's are not right already.
    mode: Option<u32>,
    /// How much room there was, in bytes.
    free: Option<u64>,
    needed: u64,
}

impl Target {
    /// Checks that `dst` can become a copy of `source`, and begins a file in the same directory.
    pub(crate) fn create(dst: &Path, source: &Source) -> Result<Self, Failure> {
        let shown = dst.display();
        let existing = match fs::metadata(dst) {
            Ok(existing) => Some(existing),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
                return Err(failure!("DST {shown} cannot be: a part of its path is a file; check its name"));
            }
            Err(e) => return Err(failure!("cannot look at DST {shown}: {e}; choose another DST")),
        };
        if let Some(existing) = &existing {
            check_existing(dst, existing, source)?;
        } else if fs::symlink_metadata(dst).is_ok() {
            return Err(failure!("DST {shown} is a link to nothing; remove it, or create what it points to"));
        } else if dst.as_os_str().is_empty() || dst.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Err(failure!("DST {shown} names no file; give the name of the copy"));
        }
        let dst = match existing {
            Some(_) => fs::canonicalize(dst).map_err(|e| failure!("cannot resolve DST {shown}: {e}"))?,
            None => dst.to_owned(),
        };
        let dir = match dst.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir.to_owned(),
            _ => PathBuf::from("."),
        };
        if !dir.is_dir() {
            return Err(failure!(
                "the directory {dir} of DST does not exist; create it with mkdir -p {dir}",
                dir = dir.display()
            ));
        }
        let needed = source.len();
        if let Some(limit) = rustix::process::getrlimit(rustix::process::Resource::Fsize).current
            && needed > limit
        {
            return Err(failure!(
                "SRC has {needed} bytes, and a file may have {limit} here; raise the limit with ulimit -f"
            ));
        }
        // A new file gets the bits of SRC less the umask, which open applies; one that is replaced keeps its own.
        let bits = |metadata: &Metadata| metadata.mode() & 0o777;
        let mode = existing.as_ref().map(bits);
        let initial = if mode.is_some() { 0o600 } else { bits(&source.before) };
        let free = rustix::fs::statvfs(&dir).ok().map(|s| s.f_bavail.saturating_mul(s.f_frsize));
        let temporary = tempfile::Builder::new()
            .prefix(".copy_file-")
            .suffix(".partial")
            .permissions(Permissions::from_mode(initial))
            .tempfile_in(&dir)
            .map_err(|e| explain(&e, "create a file", &dir, needed, free))?;
        Ok(Self { temporary, path: dst, dir, mode, free, needed })
    }

    /// The file in the making.
    pub(crate) fn file(&self) -> &File {
        self.temporary.as_file()
    }

    /// What went wrong when writing.
    pub(crate) fn explain(&self, e: &io::Error) -> Failure {
        explain(e, "write", &self.dir, self.needed, self.free)
    }

    /// Waits until the bytes are on their disk.
    pub(crate) fn sync(&self) -> Result<(), Failure> {
        self.file().sync_all().map_err(|e| self.explain(&e))
    }

    /// Gives it its name, in the place of what had that name, at once: nobody sees a part of it.
    pub(crate) fn publish(self) -> Result<(), Failure> {
        if let Some(mode) = self.mode {
            self.file()
                .set_permissions(Permissions::from_mode(mode))
                .map_err(|e| failure!("cannot set the permissions of {}: {e}", self.path.display()))?;
        }
        let (path, dir, needed, free) = (self.path, self.dir, self.needed, self.free);
        self.temporary.persist(&path).map(|_| ()).map_err(|e| {
            explain(&e.error, &format!("rename a file to {}", path.display()), &dir, needed, free)
        })
    }
}

fn check_existing(dst: &Path, existing: &Metadata, source: &Source) -> Result<(), Failure> {
    let shown = dst.display();
    if existing.is_dir() {
        let inside = dst.join(source.path.file_name().unwrap_or_default());
        return Err(failure!("DST {shown} is a directory; name the copy, as in {}", inside.display()));
    }
    if let Some(what) = not_a_file(existing) {
        return Err(failure!("DST {shown} is {what}; name a file"));
    }
    if (existing.dev(), existing.ino()) == (source.before.dev(), source.before.ino()) {
        return Err(failure!(
            "SRC {} and DST {shown} are the same file; choose another DST",
            source.path.display()
        ));
    }
    if rustix::fs::access(dst, Access::WRITE_OK).is_err() {
        return Err(failure!(
            "DST {shown} exists and may not be written; chmod or remove it, or choose another DST"
        ));
    }
    Ok(())
}

/// What went wrong in `dir` when trying to `act`.
fn explain(e: &io::Error, act: &str, dir: &Path, needed: u64, free: Option<u64>) -> Failure {
    let dir = dir.display();
    match e.kind() {
        io::ErrorKind::StorageFull => {
            let free = free.map_or(String::new(), |free| format!(", {free} were free"));
            failure!(
                "no space left in {dir}: DST needs {needed} bytes{free}; make room, or choose another DST"
            )
        }
        io::ErrorKind::QuotaExceeded => {
            failure!(
                "the disk quota in {dir} is used up: DST needs {needed} bytes; make room, or choose another DST"
            )
        }
        io::ErrorKind::FileTooLarge => {
            failure!("the file system of {dir} has no files of {needed} bytes; choose another DST")
        }
        io::ErrorKind::PermissionDenied => {
            failure!(
                "cannot {act} in {dir}: permission denied; choose a directory that you may write, or chmod it"
            )
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            failure!("cannot {act} in {dir}: the file system is read-only; choose another DST")
        }
        _ => failure!("cannot {act} in {dir}: {e}"),
    }
}
