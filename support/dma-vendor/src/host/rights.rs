//! Rights of this process.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use dma_core::Finding;

/// Returns whether this process runs as root.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Checks that this process may open device files. If it lacks the permission, the finding's remedy is to run
/// as `who`.
#[must_use]
pub fn rights(files: &[PathBuf], who: &str) -> Finding {
    for file in files {
        let Err(e) = fs::OpenOptions::new().read(true).write(true).open(file) else { continue };
        let found = format!("{}: {e}", file.display());
        match e.kind() {
            ErrorKind::PermissionDenied => return Finding::bad("rights", found, format!("run as {who}")),
            ErrorKind::NotFound => {
                return Finding::warning("rights", found, "load the driver that creates this file");
            }
            // Ignore other errors, for example if another program has the device open.
            _ => {}
        }
    }
    Finding::ok("rights", if is_root() { "root" } else { "the device files can be opened" })
}

#[cfg(test)]
mod tests {
    use dma_core::Verdict;

    use super::*;

    #[test]
    fn device_files_that_are_missing_are_not_said_to_open() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rdma_cm");
        assert_eq!(rights(std::slice::from_ref(&file), "root").verdict, Verdict::Warning);
        fs::write(&file, "").unwrap();
        assert_eq!(rights(&[file], "root").verdict, Verdict::Ok);
    }
}
