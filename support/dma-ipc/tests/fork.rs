//! A forked child cannot use its parent's exports and imports. This test is alone in its process, because
//! a process with many threads should not fork.

#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "forks")]

use std::time::Duration;

use dma_core::Access;
use dma_ipc::{Export, Import, Pages, RemoteError, SharedMemory};
use rustix::process::{Pid, WaitOptions, waitpid};

#[test]
fn a_drop_in_a_forked_child_leaves_the_parents_memory() {
    let memory = SharedMemory::allocate(100, Pages::Normal).unwrap();
    let export = Export::new(&memory, 0..100, Access::all()).unwrap();
    let import = Import::open(export.blob()).unwrap();

    // SAFETY: the parent's other threads are blocked and hold no lock, and the child exits before it
    // returns from this function.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let theirs = matches!(export.revoke(Duration::ZERO), Err(RemoteError::Unsupported { .. }));
        drop((export, import));
        // The child's own exports work.
        let own = Export::new(&memory, 0..10, Access::READ)
            .and_then(|export| Import::open(export.blob())?.read_at(0, &mut [0; 10]));
        let status = if theirs && own.is_ok() { 0 } else { 1 };
        // SAFETY: `_exit` ends the process without running handlers of the parent.
        unsafe { libc::_exit(status) };
    }
    let (_, status) = waitpid(Some(Pid::from_raw(child).unwrap()), WaitOptions::empty()).unwrap().unwrap();
    assert_eq!(status.exit_status(), Some(0));

    import.write_at(0, b"still").unwrap();
    Import::open(export.blob()).unwrap().check().unwrap();
    export.revoke(Duration::from_secs(60)).unwrap();
    assert!(matches!(import.check(), Err(RemoteError::Revoked { .. })));
}
