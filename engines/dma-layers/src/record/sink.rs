//! [`Sink`]: the file of a trace.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use dma_core::{Error, ErrorKind, Result};
use dma_process::OutputFile;

use super::format::{MAGIC, VERSION};

/// A trace that is being written. Until it is complete, it has the name that [`OutputFile::create_partial`]
/// gives it.
#[derive(Debug)]
pub(super) struct Sink {
    file: OutputFile,
    path: PathBuf,
    /// True if the file contains a block, so that it is worth keeping.
    has_blocks: bool,
}

/// Returns the error of a trace's file.
fn failed(path: &Path, error: io::Error) -> Error {
    Error::of_output_file(path, error).with_operation("write trace")
}

impl Sink {
    pub(super) fn create(path: &Path) -> Result<Self> {
        let file = OutputFile::create_partial(path).map_err(|e| failed(path, e))?;
        let mut sink = Self { file, path: path.to_owned(), has_blocks: false };
        match sink.file.write_all(MAGIC).and_then(|()| sink.file.write_all(&VERSION.to_le_bytes())) {
            Ok(()) => Ok(sink),
            Err(error) => Err(sink.give_up(error)),
        }
    }

    /// Writes a block. After a failure, the sink must not be used further: see [`give_up`](Self::give_up).
    pub(super) fn block(&mut self, queue: u32, bytes: &[u8]) -> io::Result<()> {
        block(&mut self.file, queue, bytes)?;
        self.has_blocks = true;
        Ok(())
    }

    /// Gives the file its final name.
    pub(super) fn finish(self) -> Result<()> {
        let Self { file, path, .. } = self;
        let partial = file.temporary_path().map(Path::to_owned);
        file.finish().map_err(|e| kept(failed(&path, e), partial.as_deref()))
    }

    /// Ends the trace because of `error`. Returns the error, with the path of the part that was recorded.
    pub(super) fn give_up(self, error: io::Error) -> Error {
        let error = failed(&self.path, error);
        if !self.has_blocks {
            self.file.discard();
            return error;
        }
        kept(error, self.file.temporary_path())
    }
}

/// Adds the path of the part of a trace that was written before `error`.
fn kept(error: Error, partial: Option<&Path>) -> Error {
    match partial {
        Some(partial) => {
            let message = format!("{}; the trace up to this error is {}", error.message(), partial.display());
            error.with_message(message)
        }
        None => error,
    }
}

fn block(file: &mut impl Write, queue: u32, bytes: &[u8]) -> io::Result<()> {
    let len = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    file.write_all(&queue.to_le_bytes())?;
    file.write_all(&len.to_le_bytes())?;
    file.write_all(&crc32fast::hash(bytes).to_le_bytes())?;
    file.write_all(bytes)
}

/// Returns the error of a trace that was finished or given up.
pub(super) fn given_up() -> Error {
    Error::new(ErrorKind::Closed, "the trace was already finished or given up")
        .with_hint("open the engine again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_an_error() {
        let error = Sink::create(Path::new("/dev/full")).unwrap_err();
        assert!(
            error.to_string().contains("/dev/full") && error.hint().contains("free some space"),
            "{error}"
        );
    }

    #[test]
    fn a_file_has_its_name_when_it_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        let (path, partial) = (dir.path().join("a.trace"), dir.path().join("a.trace.partial"));
        let mut sink = Sink::create(&path).unwrap();
        sink.block(0, &[1]).unwrap();
        assert!(!path.exists() && partial.exists());
        sink.finish().unwrap();
        assert!(path.exists() && !partial.exists());
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        Sink::create(&path).unwrap().give_up(full());
        assert!(!partial.exists(), "the file has no content to keep");
        let mut sink = Sink::create(&path).unwrap();
        sink.block(0, &[1]).unwrap();
        let error = sink.give_up(full()).to_string();
        assert!(partial.exists() && error.contains("a.trace.partial"), "{error}");
        for wrong in [dir.path().join("none/a.trace"), dir.path().to_owned(), path.join("a")] {
            let error = Sink::create(&wrong).unwrap_err();
            assert!(
                error.to_string().contains(&*wrong.to_string_lossy()) && !error.hint().is_empty(),
                "{error}"
            );
        }
    }
}
