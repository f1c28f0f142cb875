//! The file that is copied, and the directory of the copy.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, OFlags};

/// The file that is copied, opened for reading.
#[derive(Debug)]
pub struct Source {
    /// The open file.
    pub file: File,
    /// The name in messages: the argument's label, if it has one, and the path.
    name: String,
    /// The metadata when it was opened.
    pub before: Metadata,
}

impl Source {
    /// Opens the regular file `path`. Returns `None` if no such file exists. `label` precedes the path in
    /// messages.
    ///
    /// # Errors
    ///
    /// The message for the user, if the file cannot be read or is not a regular file.
    pub fn open(path: &Path, label: &str) -> Result<Option<Self>, String> {
        let name = format!("{label}{}", path.display());
        let explain = |e: io::Error| match e.kind() {
            io::ErrorKind::NotADirectory => {
                format!("{name} does not exist: a part of its path is a file; check its name")
            }
            io::ErrorKind::PermissionDenied => {
                format!("{name} cannot be read: permission denied; chmod it, or run as its owner")
            }
            io::ErrorKind::InvalidFilename => {
                format!("{name} cannot exist: its name is too long for the file system; give a shorter one")
            }
            _ => match dma_process::open_files_remedy(&e) {
                Some(remedy) => format!("cannot open {name}: {e}; {remedy}"),
                None => format!("cannot open {name}: {e}"),
            },
        };
        // Check the file type before opening, because opening a pipe or a device can block or have side
        // effects.
        match fs::metadata(path) {
            Ok(before) => {
                if let Some(kind) = not_a_file(&before) {
                    return Err(format!(
                        "{name} is {kind}, and only regular files can be copied; name a regular file"
                    ));
                }
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(explain(e)),
        }
        let flags = OFlags::NONBLOCK.bits() as i32;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(explain)?;
        let before = file.metadata().map_err(explain)?;
        // This is only a hint, which file systems may ignore.
        let _ = rustix::fs::fadvise(&file, 0, None, Advice::Sequential);
        Ok(Some(Self { file, name, before }))
    }

    /// Length in bytes when the file was opened.
    #[expect(clippy::len_without_is_empty, reason = "an empty file needs no special case")]
    pub fn len(&self) -> u64 {
        self.before.len()
    }

    /// True if the file occupies less disk space than its length, so that it may have holes.
    pub fn is_sparse(&self) -> bool {
        self.before.blocks().saturating_mul(512) < self.len()
    }

    /// Describes a failure to read at `offset`.
    pub fn explain(&self, offset: u64, e: &io::Error) -> String {
        match e.kind() {
            // Files in /sys report a length that is not the length of their contents.
            io::ErrorKind::UnexpectedEof if self.file.metadata().is_ok_and(|now| now.len() == self.len()) => {
                format!(
                    "{} has fewer bytes than the {} that it reports; read it with cat instead",
                    self.name,
                    self.len()
                )
            }
            io::ErrorKind::UnexpectedEof => {
                self.changed(&format!("became shorter than its {} bytes", self.len()))
            }
            _ => format!("cannot read {} at byte {offset}: {e}", self.name),
        }
    }

    /// Fails if the file has changed since it was opened, because the copy would then mix old and new
    /// content.
    ///
    /// # Errors
    ///
    /// The message for the user.
    pub fn check_unchanged(&self) -> Result<(), String> {
        let now = self.file.metadata().map_err(|e| format!("cannot stat {}: {e}", self.name))?;
        let (before, after) = (self.len(), now.len());
        if before != after {
            return Err(self.changed(&format!("changed its length from {before} to {after} bytes")));
        }
        let modified = |m: &Metadata| (m.mtime(), m.mtime_nsec());
        if modified(&self.before) != modified(&now) {
            return Err(self.changed("was written to"));
        }
        // Some files, such as those in /proc, have bytes but report length 0.
        match std::os::unix::fs::FileExt::read_at(&self.file, &mut [0], after) {
            Ok(0) => Ok(()),
            Ok(_) => Err(format!(
                "{} has more bytes than the {after} that it reports; read it with cat instead",
                self.name
            )),
            Err(e) => Err(self.explain(after, &e)),
        }
    }

    fn changed(&self, change: &str) -> String {
        format!("{} {change} while it was copied; copy it again when no program changes it", self.name)
    }
}

/// The directory that the copy is written to.
#[derive(Debug)]
pub struct Directory {
    /// The path of the directory.
    pub path: PathBuf,
    /// Length of the copy in bytes.
    needed: u64,
    /// Free bytes before the copy began.
    free: Option<u64>,
    /// Name of the argument that chose this directory, for messages.
    argument: &'static str,
}

impl Directory {
    /// Returns the directory of `copy`, a file of `needed` bytes. Fails if the directory does not exist,
    /// or if `needed` exceeds the limit on file sizes (RLIMIT_FSIZE).
    ///
    /// # Errors
    ///
    /// The message for the user.
    pub fn of(copy: &Path, needed: u64, argument: &'static str) -> Result<Self, String> {
        let path = match copy.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir.to_owned(),
            _ => PathBuf::from("."),
        };
        let dir = path.display();
        match path.metadata() {
            // The working directory of a process, or an open directory, can be deleted.
            Ok(metadata) if metadata.is_dir() && metadata.nlink() == 0 => {
                return Err(format!(
                    "the directory {dir} was deleted; change to another one with cd, or choose another {argument}"
                ));
            }
            Ok(metadata) if metadata.is_dir() => {}
            _ => return Err(format!("the directory {dir} does not exist; create it with mkdir -p {dir}")),
        }
        if let Some(limit) = rustix::process::getrlimit(rustix::process::Resource::Fsize).current
            && needed > limit
        {
            return Err(format!(
                "the copy has {needed} bytes, and the limit on file sizes is {limit}; raise the limit with ulimit -f"
            ));
        }
        let free = rustix::fs::statvfs(&path).ok().map(|s| s.f_bavail.saturating_mul(s.f_frsize));
        Ok(Self { path, needed, free, argument })
    }

    /// Writes the directory to its disk, so that the name of a new file is not lost. Ignores errors, because
    /// some file systems cannot sync a directory, and the file's bytes are on the disk already.
    pub fn sync(&self) {
        if let Ok(dir) = File::open(&self.path) {
            let _ = dir.sync_all();
        }
    }

    /// Describes a failure to `act` in this directory.
    pub fn explain(&self, act: &str, e: &io::Error) -> String {
        let Self { path, needed, free, argument } = self;
        let dir = path.display();
        match e.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::WriteZero => {
                let free = free.map_or(String::new(), |free| format!(", {free} were free"));
                format!(
                    "no space left in {dir}: {argument} needs {needed} bytes{free}; make room, or choose another {argument}"
                )
            }
            io::ErrorKind::QuotaExceeded => format!(
                "the disk quota in {dir} is used up: {argument} needs {needed} bytes; make room, or choose another {argument}"
            ),
            io::ErrorKind::FileTooLarge => format!(
                "a file in {dir} cannot have {needed} bytes; choose another {argument}, or raise the limit with ulimit -f"
            ),
            io::ErrorKind::PermissionDenied => format!(
                "cannot {act} in {dir}: permission denied; choose a directory that you can write, or chmod it"
            ),
            io::ErrorKind::ReadOnlyFilesystem => {
                format!("cannot {act} in {dir}: the file system is read-only; choose another {argument}")
            }
            _ => match dma_process::open_files_remedy(e) {
                Some(remedy) => format!("cannot {act} in {dir}: {e}; {remedy}"),
                None => format!("cannot {act} in {dir}: {e}; choose another {argument}"),
            },
        }
    }
}

/// Returns the kind of the entry that `metadata` describes, or `None` for a regular file.
pub fn not_a_file(metadata: &Metadata) -> Option<&'static str> {
    let kind = metadata.file_type();
    match () {
        () if kind.is_file() => None,
        () if kind.is_dir() => Some("a directory"),
        () if kind.is_fifo() => Some("a pipe"),
        () if kind.is_socket() => Some("a socket"),
        () => Some("a device"),
    }
}
