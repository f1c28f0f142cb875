//! Output files: regular files appear only when they are complete; special files and standard streams are
//! written to as they are.

use std::fmt::Display;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// A file that an option names, to read or to write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named<'a> {
    /// The option as the user wrote it.
    pub option: &'a str,
    pub path: &'a Path,
}

impl Display for Named<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.option, self.path.display())
    }
}

/// The kind of an output.
enum Target {
    /// This process's own standard output or error. Opening it anew would overwrite a file behind it from the
    /// start.
    Stream(u32),
    /// A device or a pipe, which cannot be replaced.
    Special,
    /// A regular file with links followed, and its metadata if it exists.
    Regular(PathBuf, Option<Metadata>),
}

/// Writes a line to standard error. Failures are ignored: there is nowhere to report them.
pub(crate) fn say(text: impl Display) {
    let text: String =
        text.to_string().chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect();
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Returns a remedy for an I/O error, as the end of a sentence.
pub(crate) fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "; nothing was left half written; free some space or give another path"
        }
        ErrorKind::NotFound => "; check the path",
        ErrorKind::PermissionDenied => {
            "; change the rights (`chmod u+w` if it is to be written), or give another path"
        }
        ErrorKind::ReadOnlyFilesystem => "; give a path on a file system that can be written",
        ErrorKind::IsADirectory => "; give the path of a file in it",
        ErrorKind::InvalidFilename => "; give a shorter name",
        ErrorKind::NotADirectory => "; a part of the path is a file: give another path",
        _ => "; give another path",
    }
}

/// Returns the message for a path that the system refuses.
pub(crate) fn refused(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}{}", path.display(), remedy(error))
}

/// Returns the path of an input. `-` is standard input.
pub(crate) fn input(path: &Path) -> &Path {
    if path == Path::new("-") { Path::new("/dev/stdin") } else { path }
}

/// Returns the file descriptor of this process that `path` stands for: `/dev/stdout`, `/dev/fd/3`, or a link
/// to one.
fn descriptor(path: &Path) -> Option<u32> {
    let own = Path::new("/proc/self/fd").canonicalize().ok()?;
    let mut at = path.to_owned();
    // The system follows 40 links, too.
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
    match descriptor(path) {
        Some(fd @ (1 | 2)) => return Ok(Target::Stream(fd)),
        Some(_) => return Ok(Target::Special),
        None => {}
    }
    match path.metadata() {
        Ok(found) if found.is_dir() => Err(io::Error::new(ErrorKind::IsADirectory, "this is a folder")),
        Ok(found) if !found.is_file() => Ok(Target::Special),
        // Checks the mode, because root may write read-only files.
        Ok(found) if found.permissions().readonly() => {
            Err(io::Error::new(ErrorKind::PermissionDenied, "the file is there and read-only"))
        }
        Ok(found) => Ok(Target::Regular(path.canonicalize()?, Some(found))),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(Target::Regular(absent(path)?, None)),
        Err(e) => Err(e),
    }
}

/// Returns the path of a file that does not exist yet, with dangling links followed.
fn absent(path: &Path) -> io::Result<PathBuf> {
    let folder = folder_of(path);
    let nowhere = |folder: &Path| {
        io::Error::new(ErrorKind::NotFound, format!("there is no folder {}", folder.display()))
    };
    if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err(nowhere(path));
    }
    let name = path.file_name().ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "it names no file"))?;
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

/// Removes the name of a temporary file, which means nothing to the user.
fn bare(error: io::Error) -> io::Error {
    match error.to_string().rsplit_once(" at path ") {
        Some((text, _)) => io::Error::new(error.kind(), text),
        None => error,
    }
}

/// Creates an empty file in `folder` that is deleted unless it is persisted.
fn temporary(folder: &Path) -> io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    // The usual mode of new files. The umask applies.
    builder.permissions(Permissions::from_mode(0o666));
    builder.tempfile_in(folder).map_err(bare)
}

/// Writes a file that appears only when it is complete. An existing file keeps its rights, and a link stays a
/// link. A device or a pipe is written to as it is.
pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let written = target(path).and_then(|target| match target {
        Target::Stream(1) => flushed(io::stdout().lock(), bytes),
        Target::Stream(_) => flushed(io::stderr().lock(), bytes),
        // Appends, because the descriptor may be a file with contents.
        Target::Special => OpenOptions::new().append(true).open(path)?.write_all(bytes),
        Target::Regular(at, found) => replace(&at, found.as_ref(), bytes),
    });
    written.map_err(|error| refused(path, &error))
}

fn flushed(mut stream: impl io::Write, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes)?;
    stream.flush()
}

fn replace(path: &Path, found: Option<&Metadata>, bytes: &[u8]) -> io::Result<()> {
    let file = temporary(folder_of(path))?;
    if let Some(found) = found {
        keep_rights(file.as_file(), found)?;
    }
    file.as_file().write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|e| e.error)?;
    Ok(())
}

/// Gives a new file the owner and mode of the one that it replaces. Without root, the owner stays the user.
fn keep_rights(file: &File, found: &Metadata) -> io::Result<()> {
    let _ = std::os::unix::fs::fchown(file, Some(found.uid()), Some(found.gid()));
    file.set_permissions(found.permissions())
}

/// Checks, before anything is measured, that all outputs can be written, each to a path of its own.
pub(crate) fn check(
    inputs: &[Named<'_>],
    outputs: &[Named<'_>],
    plots: Option<Named<'_>>,
) -> Result<(), String> {
    let streams = [("standard output", "/proc/self/fd/1"), ("standard error", "/proc/self/fd/2")];
    let mut taken: Vec<(PathBuf, String)> = Vec::new();
    let regular = |path: &Path| path.canonicalize().ok().filter(|p| p.is_file());
    for (name, path) in streams {
        taken.extend(regular(Path::new(path)).map(|p| (p, name.to_owned())));
    }
    for input in inputs {
        taken.extend(regular(input.path).map(|p| (p, format!("the input {}", input.path.display()))));
    }
    for output in outputs {
        let fail = |e: io::Error| format!("{output}: {e}{}", remedy(&e));
        if output.path == Path::new("-") {
            return Err(format!(
                "{output}: `-` is no file; write /dev/stdout, or ./- for a file of that name"
            ));
        }
        match target(output.path).map_err(fail)? {
            Target::Stream(_) => {}
            Target::Special => writable(output.path).map_err(fail)?,
            Target::Regular(at, _) => {
                claim(&mut taken, at.clone(), *output)?;
                probe(folder_of(&at)).map_err(fail)?;
            }
        }
    }
    let Some(plots) = plots else { return Ok(()) };
    let at = plots_folder(plots.path).map_err(|e| format!("{plots}: {e}{}", remedy(&e)))?;
    claim(&mut taken, at, plots)
}

/// Checks that a special file may be written to, without opening it, which could block.
fn writable(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::access(path, rustix::fs::Access::WRITE_OK)?)
}

/// Reserves the path `at` for an output. Fails if another one has it.
fn claim(taken: &mut Vec<(PathBuf, String)>, at: PathBuf, output: Named<'_>) -> Result<(), String> {
    if let Some((_, other)) = taken.iter().find(|(path, _)| *path == at) {
        return Err(format!("{output}: this is the same file as {other}; give each a path of its own"));
    }
    taken.push((at, output.to_string()));
    Ok(())
}

/// Checks that a file can be created in `folder`.
fn probe(folder: &Path) -> io::Result<()> {
    temporary(folder)
        .map(drop)
        .map_err(|e| io::Error::new(e.kind(), format!("no file can be made in {}: {e}", folder.display())))
}

/// Returns the folder for plots, existing or not, with links followed.
fn plots_folder(path: &Path) -> io::Result<PathBuf> {
    for folder in path.ancestors() {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        match folder.metadata() {
            Ok(found) if found.is_dir() => {
                let there = folder.canonicalize()?;
                probe(&there)?;
                return Ok(there.join(path.strip_prefix(folder).unwrap_or(path)));
            }
            Ok(_) => {
                return Err(io::Error::new(
                    ErrorKind::NotADirectory,
                    format!("{} is no folder", folder.display()),
                ));
            }
            Err(e) if e.kind() == ErrorKind::NotFound && !folder.is_symlink() => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::new(ErrorKind::InvalidInput, "it names no folder"))
}
