//! A program that closes all descriptors, as a daemon does, can still drop exports and imports, and the
//! library does not write to files that get the numbers. This test is alone in its process, because it
//! replaces all descriptors.

#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "replaces descriptors of the library")]

use std::fs;
use std::os::fd::AsRawFd;

use dma_core::Access;
use dma_ipc::{Export, Import, Pages, SharedMemory};

#[test]
fn a_program_that_closed_all_descriptors_drops_its_exports() {
    let memory = SharedMemory::allocate(100, Pages::Normal).expect("memory");
    let export = Export::new(&memory, 0..100, Access::READ).expect("an export");
    let import = Import::open(export.blob()).expect("an import");
    let file = tempfile::tempfile().expect("a file");
    let open: Vec<i32> = fs::read_dir("/proc/self/fd")
        .expect("procfs")
        .map(|entry| entry.expect("an entry").file_name().to_str().and_then(|name| name.parse().ok()))
        .map(|number| number.expect("a number"))
        .collect();
    // Another file gets each number of the library.
    for number in open.into_iter().filter(|number| *number > 2 && *number != file.as_raw_fd()) {
        // SAFETY: the test expects that the library uses none of these files.
        assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), number) }, number);
    }
    // The connection has ended, which the library may have noticed.
    let _ = import.read_at(0, &mut [0]);
    assert!(Import::open(export.blob()).is_err());
    drop((import, export, memory));
    assert_eq!(file.metadata().expect("open").len(), 0, "bytes that the library wrote");
}
