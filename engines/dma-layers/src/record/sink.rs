//! [`Sink`]: the file of a trace, which has its name when it is complete.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use dma_core::{Error, ErrorKind, Result};
use tempfile::NamedTempFile;

use super::format::{MAGIC, VERSION};

/// A file under a temporary name.
#[derive(Debug)]
pub(super) struct Sink {
    file: NamedTempFile,
    path: PathBuf,
}

/// Returns the error of a trace's file.
pub(super) fn failed(path: &Path, error: io::Error) -> Error {
    let hint = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free some space, or give another path",
        io::ErrorKind::NotFound => "make the folder, or give another path",
        _ => "give the path of a file in a folder that can be written",
    };
    let message = format!("trace {}: {error}", path.display());
    let kind = Error::from(io::Error::from(error.kind())).kind();
    Error::new(kind, message).with_hint(hint).with_source(error)
}

impl Sink {
    pub(super) fn create(path: &Path) -> Result<Self> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let create = || {
            if path.file_name().is_none() || path.is_dir() {
                return Err(io::Error::from(io::ErrorKind::IsADirectory));
            }
            let mut file = NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
            file.write_all(MAGIC)?;
            file.write_all(&VERSION.to_le_bytes())?;
            Ok(file)
        };
        Ok(Self { file: create().map_err(|e| failed(path, e))?, path: path.to_owned() })
    }

    pub(super) fn block(&mut self, queue: u32, bytes: &[u8]) -> Result<()> {
        block(self.file.as_file_mut(), queue, bytes).map_err(|e| failed(&self.path, e))
    }

    /// Gives the file its name.
    pub(super) fn finish(self) -> Result<()> {
        let Self { file, path } = self;
        // A disk may be found full only now.
        file.as_file().sync_all().map_err(|e| failed(&path, e))?;
        file.persist(&path).map_err(|e| failed(&path, e.error))?;
        Ok(())
    }
}

fn block(file: &mut File, queue: u32, bytes: &[u8]) -> io::Result<()> {
    let len = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    file.write_all(&queue.to_le_bytes())?;
    file.write_all(&len.to_le_bytes())?;
    file.write_all(&crc32fast::hash(bytes).to_le_bytes())?;
    file.write_all(bytes)
}

/// The error of a sink that was given up.
pub(super) fn given_up() -> Error {
    Error::new(ErrorKind::Closed, "the trace was finished or given up before")
        .with_hint("open the engine anew")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_an_error() {
        let mut full = File::options().write(true).open("/dev/full").expect("Linux has it");
        let error = failed(Path::new("x.trace"), block(&mut full, 0, &[1; 100]).unwrap_err());
        assert!(error.to_string().contains("x.trace") && error.hint().contains("free some space"), "{error}");
    }

    #[test]
    fn a_file_has_its_name_when_it_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.trace");
        let mut sink = Sink::create(&path).unwrap();
        sink.block(0, &[1]).unwrap();
        assert!(!path.exists());
        sink.finish().unwrap();
        assert!(path.exists());
        drop(Sink::create(&path).unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left behind");
        for wrong in [dir.path().join("none/a.trace"), dir.path().to_owned(), path.join("a")] {
            let error = Sink::create(&wrong).unwrap_err();
            assert!(
                error.to_string().contains(&*wrong.to_string_lossy()) && !error.hint().is_empty(),
                "{error}"
            );
        }
    }
}
