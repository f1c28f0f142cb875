//! Checks that the kernel prevents a peer from writing memory that is exported read-only, even through a
//! reopened file descriptor.
#![cfg(target_os = "linux")]

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;

use dma::prelude::*;

/// Returns the paths of this process's file descriptors of shared memory, which a peer receives.
fn shared_memory() -> Vec<PathBuf> {
    let entries = fs::read_dir("/proc/self/fd").expect("the own descriptors");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    // Ignore errors, because the file descriptor of the listed directory is closed already.
    paths
        .filter(|path| fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("dma-shared")))
        .collect()
}

/// Opens `path` again for writing, which its owner may do, and writes a byte.
fn write_again(path: &PathBuf) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    OpenOptions::new().read(true).write(true).open(path)?.write_all_at(b"x", 0)
}

#[test]
fn a_peer_cannot_write_what_it_may_only_read() {
    for name in ["cpu", "sim:profile=bluefield3"] {
        let engine = dma::open(name).expect("an engine");
        let before = shared_memory().len();
        let readable =
            engine.allocate_window(&MemoryRequest::new(4096).exportable(Access::READ)).expect("memory");
        let paths = shared_memory();
        assert_eq!(paths.len(), before + 1, "{name}");
        for path in &paths {
            let refused = write_again(path).expect_err("sealed");
            assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{name}: {refused}");
        }
        // This process can write through its own mapping. A peer can write memory that is exported with write
        // access.
        readable.write_at(0, b"mine").expect("written");
        drop(readable);
        let writable =
            engine.allocate_window(&MemoryRequest::new(4096).exportable(Access::all())).expect("memory");
        assert!(
            shared_memory().iter().all(|path| write_again(path).is_ok()),
            "{name}: memory exported with write access can be written, so the check above is effective"
        );
        drop(writable);
        assert_eq!(shared_memory().len(), before, "{name}");
    }
}
