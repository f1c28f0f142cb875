//! Files that options name: checks before the run, and error messages.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use dma::process::OutputFile;

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

/// Writes a line to standard error. A failure is ignored, because no other place can report it.
pub(crate) fn say(text: impl Display) {
    let text: String =
        text.to_string().chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect();
    // One call, so that lines of other processes on the same terminal do not divide it.
    let _ = io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// Returns a remedy for an I/O error, as the end of a sentence.
pub(crate) fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "; nothing was left half written; free some space or give another path"
        }
        ErrorKind::NotFound => "; check the path",
        ErrorKind::PermissionDenied => "; change the rights (`chmod u+w` to write it), or give another path",
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

/// Writes a file, a device or a pipe. A file appears only when it is complete.
pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> Result<(), String> {
    // Opening a pipe blocks until its reader starts, so that no results are lost.
    let pipe = path.metadata().is_ok_and(|found| found.file_type().is_fifo());
    let write = || {
        let _reader = pipe.then(|| OpenOptions::new().append(true).open(path)).transpose()?;
        let mut file = OutputFile::create(path)?;
        file.write_all(bytes)?;
        file.finish()
    };
    write().map_err(|error| refused(path, &error))
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
                "{output}: `-` is not a file; write /dev/stdout, or ./- for a file of that name"
            ));
        }
        if let Some(at) = OutputFile::check(output.path).map_err(fail)? {
            claim(&mut taken, at, *output)?;
        }
    }
    let Some(plots) = plots else { return Ok(()) };
    let at = plots_folder(plots.path).map_err(|e| format!("{plots}: {e}{}", remedy(&e)))?;
    claim(&mut taken, at, plots)
}

/// Reserves the path `at` for an output. Fails if another output has this path.
fn claim(taken: &mut Vec<(PathBuf, String)>, at: PathBuf, output: Named<'_>) -> Result<(), String> {
    if let Some((_, other)) = taken.iter().find(|(path, _)| *path == at) {
        return Err(format!("{output}: this is the same file as {other}; give each a path of its own"));
    }
    taken.push((at, output.to_string()));
    Ok(())
}

/// Returns the path of the folder for plots with links resolved. The folder need not exist.
fn plots_folder(path: &Path) -> io::Result<PathBuf> {
    for folder in path.ancestors() {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        match folder.metadata() {
            Ok(found) if found.is_dir() => {
                let there = folder.canonicalize()?;
                OutputFile::check(&there.join(".plot"))?;
                return Ok(there.join(path.strip_prefix(folder).unwrap_or(path)));
            }
            Ok(_) => {
                return Err(io::Error::new(
                    ErrorKind::NotADirectory,
                    format!("{} is not a folder", folder.display()),
                ));
            }
            Err(e) if e.kind() == ErrorKind::NotFound && !folder.is_symlink() => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::new(ErrorKind::InvalidInput, "it does not name a folder"))
}
