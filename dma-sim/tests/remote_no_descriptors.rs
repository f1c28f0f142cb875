//! A process that runs out of descriptors says so, and goes on when it has some again. Alone in its process, as
//! it takes the descriptors away from all of it.

#![cfg(target_os = "linux")]

use std::fs::{self, File};
use std::time::Duration;

use dma_core::Access;
use dma_sim::remote::{Export, Import, Pages, RemoteError, SharedMemory};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn running_out_of_descriptors_is_an_error_and_not_the_end() {
    let memory = SharedMemory::allocate(100, Pages::Normal).unwrap();
    let export = Export::new(&memory, 0..100, Access::READ).unwrap();
    drop(Import::open(export.blob()).unwrap());

    let before = getrlimit(Resource::Nofile);
    let highest = fs::read_dir("/proc/self/fd").unwrap().count() as u64 + 2;
    let mut failures = 0;
    for spare in 0..8 {
        setrlimit(Resource::Nofile, Rlimit { current: Some(highest + spare), ..before }).unwrap();
        // Fill the gaps, so that the number of descriptors that are left is `spare` at most.
        let mut fillers: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        fillers.truncate(fillers.len().saturating_sub(spare as usize));
        match Import::open_within(export.blob(), Duration::from_millis(500)) {
            Ok(import) => import.check().unwrap(),
            Err(error @ RemoteError::Os { .. }) => {
                assert!(error.to_string().contains("ulimit -n"), "{error}");
                failures += 1;
            }
            Err(error) => {
                assert!(matches!(error, RemoteError::Timeout { .. }), "{error}");
                failures += 1;
            }
        }
        if spare == 0 {
            let error = SharedMemory::allocate(1, Pages::Normal).unwrap_err();
            assert!(error.to_string().contains("ulimit -n"), "{error}");
        }
    }
    assert!(failures > 0);
    setrlimit(Resource::Nofile, before).unwrap();
    Import::open(export.blob()).unwrap().check().unwrap();
    export.revoke(Duration::from_secs(60)).unwrap();
}
