//! SRC and DST. DST gets its name only after it is complete.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use dma::process::OutputFile;
use rustix::fs::Access;

use crate::failure::{Failure, failure};
use crate::partial::Partial;
use apps_shared::disk::{Directory, Source, not_a_file};

/// The partial copy: a file in DST's directory that gets the name DST when it is complete.
#[derive(Debug)]
pub(crate) struct Target {
    partial: Partial,
    /// DST, or the file that DST is a link to.
    path: PathBuf,
    directory: Directory,
}

impl Target {
    /// Checks that `dst` can become a copy of `source`, the file at `src`, and creates the partial copy in
    /// the directory of `dst`.
    pub(crate) fn create(dst: &Path, src: &Path, source: &Source) -> Result<Self, Failure> {
        let shown = dst.display();
        let existing = match fs::metadata(dst) {
            Ok(existing) => Some(existing),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
                return Err(failure!(
                    "DST {shown} cannot exist: a part of its path is a file; check its name"
                ));
            }
            Err(e) if e.kind() == io::ErrorKind::InvalidFilename => {
                return Err(failure!(
                    "DST {shown} cannot exist: its name is too long for the file system; give a shorter one"
                ));
            }
            Err(e) => return Err(failure!("cannot stat DST {shown}: {e}; choose another DST")),
        };
        if let Some(existing) = &existing {
            check_existing(dst, existing, src, source)?;
        } else if fs::symlink_metadata(dst).is_ok() {
            return Err(failure!("DST {shown} is a dangling link; remove it, or create its target"));
        } else if dst.as_os_str().is_empty() {
            return Err(failure!("DST is empty; give the name of the copy"));
        } else if dst.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Err(failure!("DST {shown} names no file; give the name of the copy"));
        }
        let replaces = existing.is_some();
        let dst = match existing {
            Some(_) => fs::canonicalize(dst).map_err(|e| failure!("cannot resolve DST {shown}: {e}"))?,
            None => dst.to_owned(),
        };
        let directory = Directory::of(&dst, source.len(), "DST")?;
        // A new file gets SRC's permission bits minus the umask, which `open` applies.
        let initial = if replaces { 0o600 } else { source.before.mode() & 0o777 };
        let partial = Partial::create(&dst, &directory.path, initial)
            .map_err(|e| Failure::from(directory.explain("create a file", &e)))?;
        if replaces {
            OutputFile::copy_access(&dst, partial.file()).map_err(|e| {
                failure!("cannot set the owner and the permissions of {}: {e}", dst.display())
            })?;
        }
        Ok(Self { partial, path: dst, directory })
    }

    pub(crate) fn file(&self) -> &File {
        self.partial.file()
    }

    pub(crate) fn explain(&self, e: &io::Error) -> Failure {
        Failure::from(self.directory.explain("write", e))
    }

    pub(crate) fn sync(&self) -> Result<(), Failure> {
        self.file().sync_all().map_err(|e| self.explain(&e))
    }

    /// Renames the complete copy atomically. Replaces an existing file. With `sync`, the new name is on the
    /// disk, too.
    pub(crate) fn publish(self, sync: bool) -> Result<(), Failure> {
        // A network file system may report a full disk only here.
        dma::process::check_close(self.file()).map_err(|e| self.explain(&e))?;
        let (path, directory) = (self.path, self.directory);
        self.partial.publish(&path, &directory.path).map_err(|e| {
            Failure::from(directory.explain(&format!("rename a file to {}", path.display()), &e))
        })?;
        if sync {
            directory.sync();
        }
        Ok(())
    }
}

/// Checks that the existing file `dst` may be replaced by a copy of `source`, the file at `src`.
fn check_existing(dst: &Path, existing: &Metadata, src: &Path, source: &Source) -> Result<(), Failure> {
    let shown = dst.display();
    if existing.is_dir() {
        let inside = dst.join(src.file_name().unwrap_or_default());
        return Err(failure!("DST {shown} is a directory; name the copy, as in {}", inside.display()));
    }
    if let Some(what) = not_a_file(existing) {
        return Err(failure!("DST {shown} is {what}; name a file"));
    }
    // Replacing the file would take it away from all who have it open, such as the shell that appends to it.
    if matches!(OutputFile::check(dst), Ok(None)) {
        return Err(failure!("DST {shown} is an open file of this process; name the file itself"));
    }
    if (existing.dev(), existing.ino()) == (source.before.dev(), source.before.ino()) {
        return Err(failure!("SRC {} and DST {shown} are the same file; choose another DST", src.display()));
    }
    if rustix::fs::access(dst, Access::WRITE_OK).is_err() {
        return Err(failure!(
            "DST {shown} exists and may not be written; chmod or remove it, or choose another DST"
        ));
    }
    Ok(())
}
