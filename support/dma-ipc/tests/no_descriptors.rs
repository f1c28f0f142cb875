//! A process without free file descriptors gets an error that says so, and works again when descriptors are
//! free. This test is alone in its process, because it exhausts the descriptors of the whole process.

#![cfg(target_os = "linux")]

use std::fs::{self, File};
use std::time::Duration;

use dma_core::Access;
use dma_ipc::{Export, Import, Pages, RemoteError, SharedMemory};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn running_out_of_descriptors_is_an_error_and_not_the_end() {
    let before = getrlimit(Resource::Nofile);
    let memory = SharedMemory::allocate(100, Pages::Normal).unwrap();
    let export = Export::new(&memory, 0..100, Access::READ).unwrap();

    // Descriptors 0 to 2 are in use in every process. So with a limit of 3 no descriptor is free, even
    // after the exporter's thread has closed some.
    setrlimit(Resource::Nofile, Rlimit { current: Some(3), ..before }).unwrap();
    let allocated = SharedMemory::allocate(1, Pages::Normal);
    let imported = Import::open(export.blob());
    setrlimit(Resource::Nofile, before).unwrap();
    let error = allocated.unwrap_err();
    assert!(error.to_string().contains("ulimit -n"), "{error}");
    let error = imported.unwrap_err();
    assert!(matches!(error, RemoteError::Os { .. }), "{error}");
    assert!(error.to_string().contains("ulimit -n"), "{error}");

    // With a few free descriptors, either side of the connection runs out of them, at different steps. The
    // number of free descriptors is known only approximately, because the exporter's thread closes ended
    // connections asynchronously.
    drop(Import::open(export.blob()).unwrap());
    let highest = fs::read_dir("/proc/self/fd").unwrap().count() as u64 + 2;
    for spare in 0..8 {
        setrlimit(Resource::Nofile, Rlimit { current: Some(highest + spare), ..before }).unwrap();
        // Fill the gaps, so that at most `spare` descriptors are free.
        let mut fillers: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        fillers.truncate(fillers.len().saturating_sub(spare as usize));
        // The exporter refuses an importer that it cannot serve. It does not leave the importer waiting.
        match Import::open_within(export.blob(), Duration::from_secs(60)) {
            Ok(import) => import.check().unwrap(),
            Err(error) => {
                assert!(
                    matches!(error, RemoteError::Os { .. } | RemoteError::PeerOs { .. }),
                    "{spare} free: {error}"
                );
                assert!(error.to_string().contains("ulimit -n"), "{spare} free: {error}");
            }
        }
    }
    setrlimit(Resource::Nofile, before).unwrap();
    Import::open(export.blob()).unwrap().check().unwrap();
    export.revoke(Duration::from_secs(60)).unwrap();
}
