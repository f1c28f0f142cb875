//! Tests exports and imports of memory within one process.

#![cfg(target_os = "linux")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use dma_core::Access;
use dma_ipc::{BLOB_LEN, Export, Import, MAX_IMPORTS, Pages, RemoteError, SharedMemory};
use proptest::prelude::*;

const LONG: Duration = Duration::from_secs(300);

fn memory(len: usize) -> SharedMemory {
    SharedMemory::allocate(len, Pages::Normal).unwrap()
}

#[test]
fn import_twice_and_in_the_same_process() {
    let memory = memory(100);
    let export = Export::new(&memory, 10..90, Access::all()).unwrap();
    let first = Import::open(export.blob()).unwrap();
    let second = Import::open(export.blob()).unwrap();
    first.write_at(0, b"both").unwrap();
    let mut seen = [0; 4];
    second.read_at(0, &mut seen).unwrap();
    assert_eq!(&seen, b"both");
    memory.read_at(10, &mut seen).unwrap();
    assert_eq!(&seen, b"both");
    assert_eq!(first.grant(), export.grant());
    assert_eq!(first.grant().address, memory.ptr().addr().get() as u64 + 10);
    assert_eq!(first.pid(), std::process::id());

    drop(first);
    second.check().unwrap();
    export.revoke(Duration::ZERO).unwrap();
    assert!(matches!(second.check(), Err(RemoteError::Revoked { .. })));
}

#[test]
fn write_only_means_no_reading() {
    let memory = memory(100);
    let export = Export::new(&memory, 0..100, Access::WRITE).unwrap();
    let import = Import::open(export.blob()).unwrap();
    import.write_at(0, b"in").unwrap();
    assert!(matches!(import.read_at(0, &mut [0]), Err(RemoteError::Permission { .. })));
}

#[test]
fn nothing_can_be_exported_that_is_not_there() {
    let memory = memory(100);
    let refused = |range| Export::new(&memory, range, Access::READ).unwrap_err();
    assert!(matches!(refused(0..101), RemoteError::OutOfRange { offset: 0, len: 101, available: 100 }));
    assert!(matches!(refused(usize::MAX - 1..usize::MAX), RemoteError::OutOfRange { .. }));
    #[expect(clippy::reversed_empty_ranges, reason = "forgetting a lease is the subject of this test")]
    let backwards = refused(3..2);
    assert!(matches!(backwards, RemoteError::OutOfRange { .. }));
    assert!(matches!(refused(5..5), RemoteError::Empty { .. }));
    assert!(matches!(Export::new(&memory, 0..1, Access::empty()), Err(RemoteError::Empty { .. })));
}

#[test]
fn an_export_keeps_its_memory() {
    let export = {
        let memory = memory(100);
        memory.write_at(0, b"kept").unwrap();
        Export::new(&memory, 0..100, Access::READ).unwrap()
    };
    let import = Import::open(export.blob()).unwrap();
    let mut seen = [0; 4];
    import.read_at(0, &mut seen).unwrap();
    assert_eq!(&seen, b"kept");
}

#[test]
fn a_revoked_export_cannot_be_imported_whether_others_are_left_or_not() {
    let memory = memory(100);
    let export = Export::new(&memory, 0..100, Access::READ).unwrap();
    let other = Export::new(&memory, 0..100, Access::READ).unwrap();
    export.revoke(LONG).unwrap();
    let unknown = |blob: &[u8]| {
        let error = Import::open(blob).unwrap_err();
        assert!(matches!(error, RemoteError::UnknownExport { pid } if pid == std::process::id()), "{error}");
    };
    unknown(export.blob());
    Import::open(other.blob()).unwrap();
    let blob = other.blob().to_vec();
    drop((export, other));
    unknown(&blob);
}

#[test]
fn the_number_of_imports_is_limited_and_dropping_frees_one() {
    test_support::descriptor_limit::raise_to(1024);
    let memory = memory(100);
    let export = Export::new(&memory, 0..100, Access::READ).unwrap();
    let mut imports: Vec<_> = (0..MAX_IMPORTS).map(|_| Import::open(export.blob()).unwrap()).collect();
    let error = Import::open(export.blob()).unwrap_err();
    assert!(matches!(error, RemoteError::TooManyImports { max: MAX_IMPORTS, .. }), "{error}");
    imports.pop();
    Import::open(export.blob()).unwrap();
    // Another export of the same range has its own limit of imports.
    let another = Export::new(&memory, 0..100, Access::READ).unwrap();
    Import::open(another.blob()).unwrap();
    export.revoke(LONG).unwrap();
    assert!(imports.iter().all(|import| import.check().is_err()));
}

#[test]
fn owned_leases_outlive_the_handle_of_their_import() {
    let memory = memory(100);
    let export = Export::new(&memory, 0..100, Access::READ).unwrap();
    let import = Arc::new(Import::open(export.blob()).unwrap());
    let lease = import.lease_owned().unwrap();
    drop(import);
    assert!(matches!(export.revoke(Duration::ZERO), Err(RemoteError::StillInUse { .. })));
    assert!(matches!(lease.import().lease_owned(), Err(RemoteError::Revoked { .. })));
    drop(lease);
    export.revoke(LONG).unwrap();
}

#[test]
fn a_revoker_is_woken_by_the_end_of_the_last_lease() {
    let memory = memory(100);
    for _ in 0..20 {
        let export = Export::new(&memory, 0..100, Access::READ).unwrap();
        let import = Import::open(export.blob()).unwrap();
        let leases = [import.lease().unwrap(), import.lease().unwrap()];
        thread::scope(|scope| {
            let revoker = scope.spawn(|| export.revoke(LONG));
            while import.check().is_ok() {
                thread::yield_now();
            }
            assert!(!revoker.is_finished());
            drop(leases);
            revoker.join().unwrap().unwrap();
        });
    }
}

#[test]
fn dropping_an_export_in_use_never_frees_the_memory() {
    let memory = memory(100);
    let address = memory.ptr();
    let export = Export::new(&memory, 0..100, Access::all()).unwrap();
    let import = Import::open(export.blob()).unwrap();
    let lease = import.lease().unwrap();
    drop((export, memory));
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(maps.lines().any(|line| line.starts_with(&format!("{:x}-", address.addr()))), "{maps}");
    drop(lease);
    assert!(matches!(import.lease(), Err(RemoteError::Revoked { .. })));
}

#[test]
fn threads_that_copy_while_others_revoke() {
    let memory = memory(4096);
    for _ in 0..50 {
        let export = Export::new(&memory, 0..4096, Access::all()).unwrap();
        let import = Import::open(export.blob()).unwrap();
        let mine = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while let Ok(lease) = import.lease() {
                        assert!(!mine.load(Ordering::Relaxed), "a lease after revoke returned");
                        drop(lease);
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    export.revoke(LONG).unwrap();
                    mine.store(true, Ordering::Relaxed);
                });
            }
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 2, ..Default::default() })]

    #[test]
    fn random_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..2 * BLOB_LEN)) {
        let malformed = matches!(Import::open(&bytes), Err(RemoteError::MalformedBlob { .. }));
        prop_assert!(malformed);
    }

    /// An altered descriptor never grants other memory or more rights than the original.
    #[test]
    fn altered_descriptors_gain_nothing(
        flips in proptest::collection::vec((0..BLOB_LEN, 1u8..), 1..4),
        cut in 0..4 * BLOB_LEN,
    ) {
        let memory = memory(100);
        let export = Export::new(&memory, 10..20, Access::READ).unwrap();
        let mut blob = export.blob().to_vec();
        for (at, flip) in flips {
            blob[at] ^= flip;
        }
        blob.truncate(cut);
        match Import::open_within(&blob, LONG) {
            // The altered field is used only in messages, or two changes cancelled each other.
            Ok(import) => prop_assert_eq!(import.grant(), export.grant()),
            Err(error) => {
                let typed = matches!(
                    error,
                    RemoteError::MalformedBlob { .. }
                        | RemoteError::VersionMismatch { .. }
                        | RemoteError::UnknownExport { .. }
                        | RemoteError::PeerGone { .. }
                );
                prop_assert!(typed, "{error}");
            }
        }
    }
}
