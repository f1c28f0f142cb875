//! A log subscriber of the program exports memory in an event of the thread that shares memory. The test has
//! a process of its own, because the subscriber is that of all threads.
#![cfg(target_os = "linux")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use dma_core::Access;
use dma_ipc::{Export, Import, Pages, SharedMemory};
use test_support::log::set_log;

/// A time limit that the test reaches only if it hangs.
const HANGS: Duration = Duration::from_secs(120);

#[test]
fn a_log_subscriber_may_export_memory_in_events_of_the_service_thread() {
    let (done, ended) = channel();
    let is_first = AtomicBool::new(true);
    set_log(move |_| {
        // The thread of the service logs the first event.
        if is_first.swap(false, Ordering::Relaxed) {
            let memory = SharedMemory::allocate(100, Pages::Normal).expect("memory");
            Export::new(&memory, 0..100, Access::READ).expect("an export").revoke(HANGS).expect("it ends");
            let thread = std::thread::current().name().map(str::to_owned);
            done.send(thread).expect("the test waits");
        }
    });
    let memory = SharedMemory::allocate(100, Pages::Normal).expect("memory");
    let export = Export::new(&memory, 0..100, Access::READ).expect("an export");
    let (import, imported) = channel();
    let blob = export.blob().to_owned();
    std::thread::spawn(move || import.send(Import::open(&blob).map(drop)));
    match ended.recv_timeout(HANGS) {
        Ok(thread) => assert!(thread.as_deref().is_some_and(|name| name.starts_with("dma-")), "{thread:?}"),
        Err(RecvTimeoutError::Timeout) => panic!("the log subscriber hangs"),
        Err(RecvTimeoutError::Disconnected) => panic!("nothing was logged"),
    }
    imported.recv_timeout(HANGS).expect("the import ends").expect("it is granted");
}
