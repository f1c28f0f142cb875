//! [`OutputFile`]: writes the files of this library and of its programs.

use std::fs::{self, File, OpenOptions, Permissions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, IoSlice, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, OFlags, XattrFlags, fremovexattr, fsetxattr, lgetxattr};
use rustix::io::Errno;

use crate::{above_stdio, check_file_size};

/// Maximum length of a file name in bytes, on Linux's file systems.
const MAX_NAME: usize = 255;
/// Maximum number of partial files of one path.
const MAX_PARTIAL: u32 = 1000;

/// A file that a program writes to a path that its user chose.
///
/// - A regular file gets its name when [`finish`](Self::finish) is called. Until then the bytes are in a
///   temporary file in the same directory, and an existing file of that name keeps its content. Dropping the
///   value without `finish` removes the temporary file.
/// - A symbolic link is kept, and its target is written. A new file gets the owner, the group, the mode and
///   the access control list of the file that it replaces, as far as the user may set them: see
///   [`copy_access`](Self::copy_access). Other names (hard links) of the replaced file keep the old content.
///   Other extended attributes, such as `user.*` and file capabilities, are not copied.
/// - A character device, a named pipe and a path such as `/dev/stdout` are written directly. If `/dev/fd/N`
///   is an open file, data is appended to it.
/// - A directory, a block device, a socket, a read-only file and a pipe that no process reads are errors.
///
/// ```
/// use std::io::Write;
///
/// use dma_process::OutputFile;
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("report");
/// let mut report = OutputFile::create(&path)?;
/// report.write_all(b"complete")?;
/// assert!(!path.exists());
/// report.finish()?;
/// assert_eq!(std::fs::read(&path)?, b"complete");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct OutputFile {
    file: File,
    /// The temporary file. `None` for a device, a pipe or a standard stream, which are written directly.
    pending: Option<Pending>,
}

/// A regular file that does not have its final name yet.
#[derive(Debug)]
struct Pending {
    temporary: PathBuf,
    path: PathBuf,
    /// If true, dropping this value keeps the file.
    keep: bool,
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.keep {
            // Ignore a failure to remove the file, because an earlier error is reported already.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// The kind of an output.
enum Target {
    /// Standard output or error of this process. The stream is not opened again, because opening would
    /// truncate the file that it may be redirected to.
    Stream(u32),
    /// A character device, a pipe, or another open file of this process.
    Special,
    /// The path of a regular file after following links, and whether the file exists.
    Regular(PathBuf, bool),
}

impl OutputFile {
    /// Creates a file. A new file has the mode 0666 minus the umask.
    ///
    /// # Errors
    ///
    /// `IsADirectory`, `InvalidInput` (a block device, a socket, no file name), `PermissionDenied` (also for
    /// a read-only file, even as root), `NotFound` (no such directory), `NotConnected` (a pipe that no
    /// process reads), and other errors of the file system.
    pub fn create(path: &Path) -> io::Result<Self> {
        Self::open(path, |path, replaces| {
            let (file, pending) = hidden(path, initial_mode(replaces))?;
            if replaces {
                Self::copy_access(path, &file)?;
            }
            Ok((file, pending))
        })
    }

    /// Creates a file that only this user can read (mode 0600), even if it replaces a file with another owner
    /// or mode.
    ///
    /// # Errors
    ///
    /// See [`create`](Self::create).
    pub fn create_private(path: &Path) -> io::Result<Self> {
        Self::open(path, |path, _| hidden(path, 0o600))
    }

    /// Creates a file that is useful before it is complete. Until [`finish`](Self::finish), its name is
    /// `PATH.partial`, or `PATH.partial2` and so on if that name exists. The partial file is kept when the
    /// process ends or this value is dropped. [`discard`](Self::discard) removes it.
    ///
    /// # Errors
    ///
    /// The errors of [`create`](Self::create); `AlreadyExists` if 1,000 partial files of the path exist.
    pub fn create_partial(path: &Path) -> io::Result<Self> {
        Self::open(path, |path, replaces| {
            for number in 1..=MAX_PARTIAL {
                let temporary = partial_name(path, number);
                match new_file(&temporary, initial_mode(replaces)) {
                    Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                    Err(e) => return Err(not_created(folder_of(path), &e)),
                    Ok(file) => {
                        let mut pending = Pending { temporary, path: path.to_owned(), keep: false };
                        if replaces {
                            Self::copy_access(path, &file)?;
                        }
                        pending.keep = true;
                        return Ok((file, pending));
                    }
                }
            }
            let message = "1000 partial files of earlier runs exist; remove the files that you do not need";
            Err(io::Error::new(ErrorKind::AlreadyExists, message))
        })
    }

    fn open(
        path: &Path,
        create: impl FnOnce(&Path, bool) -> io::Result<(File, Pending)>,
    ) -> io::Result<Self> {
        let unnamed = |file| Ok(Self { file, pending: None });
        match target(path)? {
            Target::Stream(1) => {
                io::stdout().flush()?;
                unnamed(io::stdout().as_fd().try_clone_to_owned()?.into())
            }
            Target::Stream(_) => unnamed(io::stderr().as_fd().try_clone_to_owned()?.into()),
            Target::Special => unnamed(open_special(path)?),
            Target::Regular(path, exists) => {
                let (file, pending) = create(&path, exists)?;
                Ok(Self { file, pending: Some(pending) })
            }
        }
    }

    /// Gives the file `to`, which is private and replaces `from`, the owner, the group, the mode and the
    /// access control list of `from`. If the user may not set the owner, sets the group alone.
    ///
    /// The replacement admits no user that `from` does not admit:
    ///
    /// - If the group cannot be kept, the group and all others get the rights that both had before.
    /// - If the access control list cannot be kept, only the owner gets rights.
    /// - The set-user-id bit is kept only with the owner, and the set-group-id bit only with the group.
    ///
    /// # Errors
    ///
    /// Errors of the file system; `ResourceBusy` if `from` is not a regular file any more.
    pub fn copy_access(from: &Path, to: &File) -> io::Result<()> {
        let found = from.symlink_metadata()?;
        if !found.is_file() {
            return Err(refused(ErrorKind::ResourceBusy, "another process is replacing this file"));
        }
        if fchown(to, Some(found.uid()), Some(found.gid())).is_err() {
            // The user may choose any of its own groups, and keeps the present one if this also fails.
            let _ = fchown(to, None, Some(found.gid()));
        }
        let now = to.metadata()?;
        let mut mode = found.mode() & 0o7777;
        if now.uid() != found.uid() {
            mode &= !0o4000;
        }
        if now.gid() != found.gid() {
            // Members of the earlier group now belong to the others, and some others belong to the new group.
            let common = mode & (mode >> 3) & 0o7;
            mode = (mode & 0o5700) | (common << 3) | common;
        }
        if !copy_acl(from, to, now.gid() == found.gid()) {
            mode &= 0o5700;
        }
        to.set_permissions(Permissions::from_mode(mode))
    }

    /// Checks that `path` can be written, without opening or changing the file. Returns the path of the
    /// regular file after following links, even if the file does not exist. Returns `None` for a device, a
    /// pipe or a standard stream.
    ///
    /// # Errors
    ///
    /// The errors of [`create`](Self::create), except that a pipe without a reader is not an error.
    pub fn check(path: &Path) -> io::Result<Option<PathBuf>> {
        match target(path)? {
            Target::Stream(_) => Ok(None),
            Target::Special => {
                rustix::fs::access(path, Access::WRITE_OK)?;
                Ok(None)
            }
            Target::Regular(path, _) => hidden(&path, 0o600).map(|_| Some(path)),
        }
    }

    /// Returns the path of the file that has the bytes until [`finish`](Self::finish); `None` for a device, a
    /// pipe or a standard stream.
    #[must_use]
    pub fn temporary_path(&self) -> Option<&Path> {
        self.pending.as_ref().map(|pending| &*pending.temporary)
    }

    /// Gives the file its final name. Returns when the bytes are on the disk and the file has this name.
    ///
    /// # Errors
    ///
    /// Errors of the file system. After an error, the file does not have its final name.
    pub fn finish(self) -> io::Result<()> {
        if self.pending.is_some() {
            // Some file systems report a full disk only at this call.
            self.file.sync_all()?;
        }
        self.finish_synced()
    }

    /// Gives the file its final name, as [`finish`](Self::finish) does, but does not write the bytes to the
    /// disk before. The caller has done so, for example by an asynchronous `fsync` of
    /// [`as_fd`](AsFd::as_fd).
    ///
    /// # Errors
    ///
    /// Errors of the file system. After an error, the file does not have its final name.
    pub fn finish_synced(self) -> io::Result<()> {
        let Self { mut file, pending } = self;
        file.flush()?;
        let Some(mut pending) = pending else { return Ok(()) };
        fs::rename(&pending.temporary, &pending.path)?;
        // From now on another file may get the temporary name, so do not remove it.
        pending.keep = true;
        Ok(())
    }

    /// Returns the path of the file after following links, which the file has after
    /// [`finish`](Self::finish); `None` for a device, a pipe or a standard stream.
    #[must_use]
    pub fn final_path(&self) -> Option<&Path> {
        self.pending.as_ref().map(|pending| &*pending.path)
    }

    /// Removes the file. Data that was written to a device or a pipe cannot be removed.
    pub fn discard(mut self) {
        if let Some(pending) = &mut self.pending {
            pending.keep = false;
        }
    }

    /// Checks that the process may write the next byte. Of a longer write, the kernel writes the bytes below
    /// the limit.
    fn check_size(&self) -> io::Result<()> {
        let appends = rustix::fs::fcntl_getfl(&self.file).is_ok_and(|flags| flags.contains(OFlags::APPEND));
        // A pipe has no position.
        let end =
            if appends { self.file.metadata()?.len() } else { rustix::fs::tell(&self.file).unwrap_or(0) };
        Ok(check_file_size(&self.file, end + 1)?)
    }
}

impl AsFd for OutputFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.check_size()?;
        self.file.write(bytes)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.check_size()?;
        self.file.write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn refused(kind: ErrorKind, message: impl Into<String>) -> io::Error {
    io::Error::new(kind, message.into())
}

/// Opens a device, a pipe, or an open file of this process by its path.
fn open_special(path: &Path) -> io::Result<File> {
    // Opening a pipe blocks until it has a reader, unless it is opened in non-blocking mode.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    // Open for appending, because the path may be an open file that has content.
    let file = OpenOptions::new().append(true).custom_flags(flags).open(path).map_err(|error| {
        match rustix::io::Errno::from_io_error(&error) {
            Some(rustix::io::Errno::NXIO) => {
                refused(ErrorKind::NotConnected, "no process reads this pipe; start its reader first")
            }
            _ => error,
        }
    })?;
    let file = above_stdio(file);
    // Make writes wait for the reader, instead of failing.
    rustix::fs::fcntl_setfl(&file, rustix::fs::fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// Returns the mode of a new file. If the file gets the access of another one, it is private until then.
const fn initial_mode(replaces: bool) -> u32 {
    if replaces { 0o600 } else { 0o666 }
}

/// Gives `to` the access control list of `from` if `from` has one, and otherwise none. Returns false if `to`
/// may have another list, or has none although `from` has one.
fn copy_acl(from: &Path, to: &File, same_group: bool) -> bool {
    const ACL: &str = "system.posix_acl_access";
    /// Maximum length of an extended attribute, in bytes.
    const MAX_LEN: usize = 1 << 16;
    let absent = |errno| matches!(errno, Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS);
    let mut list = vec![0; MAX_LEN];
    match lgetxattr(from, ACL, &mut list[..]) {
        // With another group, the list's entry of the group would admit that group.
        Ok(len) => same_group && fsetxattr(to, ACL, &list[..len], XattrFlags::empty()).is_ok(),
        // The new file may have inherited a list from its directory.
        Err(errno) if absent(errno) => fremovexattr(to, ACL).map_or_else(absent, |()| true),
        Err(_) => false,
    }
}

fn not_created(folder: &Path, error: &io::Error) -> io::Error {
    refused(error.kind(), format!("cannot create a file in {}: {error}", folder.display()))
}

fn new_file(path: &Path, mode: u32) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(path).map(above_stdio)
}

/// Creates an empty temporary file in the directory of `path`. The file is removed unless it is finished. The
/// name is random, because in a shared directory other users may create files or links with names that they
/// can guess.
fn hidden(path: &Path, mode: u32) -> io::Result<(File, Pending)> {
    let folder = folder_of(path);
    loop {
        // The keys of a new `RandomState` are random, so the hash is random.
        let temporary = folder.join(format!(".tmp-{:016x}", RandomState::new().hash_one(0)));
        match new_file(&temporary, mode) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(not_created(folder, &e)),
            Ok(file) => return Ok((file, Pending { temporary, path: path.to_owned(), keep: false })),
        }
    }
}

/// Returns the path of partial file `number` of `path`. If the name would be too long, its end is cut off.
fn partial_name(path: &Path, number: u32) -> PathBuf {
    let suffix = if number == 1 { ".partial".to_owned() } else { format!(".partial{number}") };
    let name = path.file_name().unwrap_or_default().as_bytes();
    let start = &name[..name.len().min(MAX_NAME - suffix.len())];
    path.with_file_name(std::ffi::OsString::from_vec([start, suffix.as_bytes()].concat()))
}

/// Returns the number of this process's file descriptor if `path` is `/dev/stdout`, a path such as
/// `/dev/fd/3`, or a link to one of them.
fn descriptor(path: &Path) -> Option<u32> {
    let own = Path::new("/proc/self/fd").canonicalize().ok()?;
    let mut at = path.to_owned();
    // The kernel also follows at most 40 links.
    for _ in 0..40 {
        let folder = folder_of(&at).canonicalize().ok()?;
        let name = at.file_name()?.to_owned();
        if folder == own {
            return name.to_str()?.parse().ok();
        }
        at = folder.join(fs::read_link(folder.join(name)).ok()?);
    }
    None
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn target(path: &Path) -> io::Result<Target> {
    /// Maximum number of attempts while other processes replace the file.
    const ATTEMPTS: usize = 100;
    let mut found = find_target(path);
    for _ in 1..ATTEMPTS {
        match &found {
            Err(e) if e.kind() == ErrorKind::ResourceBusy => found = find_target(path),
            _ => break,
        }
    }
    found
}

fn find_target(path: &Path) -> io::Result<Target> {
    match descriptor(path) {
        Some(fd @ (1 | 2)) => return Ok(Target::Stream(fd)),
        Some(_) => return Ok(Target::Special),
        None => {}
    }
    let found = match path.metadata() {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Target::Regular(absent(path)?, false)),
        found => found?,
    };
    let kind = found.file_type();
    match () {
        () if kind.is_dir() => Err(refused(ErrorKind::IsADirectory, "this is a directory")),
        () if kind.is_block_device() => Err(refused(
            ErrorKind::InvalidInput,
            "this is a block device, and its content would be overwritten",
        )),
        () if kind.is_socket() => Err(refused(ErrorKind::InvalidInput, "this is a socket")),
        () if !kind.is_file() => Ok(Target::Special),
        // Check the mode, because the kernel lets root write read-only files.
        () if found.permissions().readonly() => {
            Err(refused(ErrorKind::PermissionDenied, "the file exists and is read-only"))
        }
        () => {
            // Check the right to write, because renaming replaces even files that the user may not write.
            rustix::fs::access(path, Access::WRITE_OK)?;
            let real = path.canonicalize()?;
            // In shared directories, the kernel may refuse to follow another user's link, but `canonicalize`
            // reads such links. Check that both methods find the same file.
            let same = real.symlink_metadata()?;
            if (same.dev(), same.ino()) != (found.dev(), found.ino()) {
                return Err(refused(ErrorKind::ResourceBusy, "another process is replacing this file"));
            }
            Ok(Target::Regular(real, true))
        }
    }
}

/// Returns the path of a file that does not exist yet, after following dangling links.
fn absent(path: &Path) -> io::Result<PathBuf> {
    let folder = folder_of(path);
    let nowhere = |folder: &Path| {
        refused(ErrorKind::NotFound, format!("the directory {} does not exist", folder.display()))
    };
    if path.as_os_str().as_bytes().ends_with(b"/") {
        return Err(nowhere(path));
    }
    let name =
        path.file_name().ok_or_else(|| refused(ErrorKind::InvalidInput, "the path has no file name"))?;
    let found = match folder.canonicalize() {
        Err(e) if e.kind() == ErrorKind::NotFound => return Err(nowhere(folder)),
        found => found?,
    };
    let at = found.join(name);
    match fs::read_link(&at) {
        Ok(to) => absent(&found.join(to)),
        Err(_) => Ok(at),
    }
}
