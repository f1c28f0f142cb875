//! Tests exports of memory of any kind, when the exporter is killed, revokes or unmaps in the
//! middle of copies.

#![cfg(target_os = "linux")]

mod remote_peer;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use dma_core::Access;
use dma_ipc::{Import, RemoteError};
use remote_peer::{LONG, Own, Peer, publish};

const MIB: usize = 1 << 20;

#[test]
#[ignore = "the other tests start this as their second process"]
fn peer() {
    remote_peer::obey();
}

/// Starts a peer that exports the bytes `begin..end` of `len` bytes with the value `byte`, and imports them.
fn exporting_peer(len: usize, byte: u8, begin: usize, end: usize, rights: Access) -> (Peer, Import) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("descriptor");
    let mut peer = Peer::start();
    assert_eq!(peer.answer(), "ready");
    assert_eq!(peer.ask(format_args!("own {len} {byte}")), "done");
    let export = format!("export-own {begin} {end} {} {}", rights.bits(), file.display());
    assert_eq!(peer.ask(export), "done");
    let import = Import::open(&fs::read(file).unwrap()).unwrap();
    (peer, import)
}

/// Repeats `copy` until it fails, and returns the error.
fn until_error(mut copy: impl FnMut() -> Result<(), RemoteError>) -> RemoteError {
    let begun = Instant::now();
    loop {
        if let Err(error) = copy() {
            return error;
        }
        assert!(begun.elapsed() < LONG, "it never failed");
    }
}

#[test]
fn bytes_go_both_ways_at_any_offset_and_length() {
    let (mut peer, import) = exporting_peer(5 * MIB, 7, 3, 5 * MIB - 5, Access::all());
    assert_eq!((import.pid(), import.len(), import.ptr()), (peer.pid(), 5 * MIB - 8, None));
    let mut bytes = vec![0; import.len()];
    import.read_at(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|&byte| byte == 7));

    // The copy is longer than one chunk, and does not begin or end at a chunk's boundary.
    let sent: Vec<_> = (0..3 * MIB + 77).map(|i| (i % 251) as u8).collect();
    import.write_at(MIB as u64 - 9, &sent).unwrap();
    let mut back = vec![0; sent.len() + 2];
    import.read_at(MIB as u64 - 10, &mut back).unwrap();
    assert_eq!((back[0], back[back.len() - 1]), (7, 7));
    assert_eq!(back[1..back.len() - 1], sent);
    for (offset, wanted) in [(0, 7), (MIB - 7, 7), (MIB - 6, 0), (MIB - 5, 1), (4 * MIB + 71, 7)] {
        assert_eq!(peer.ask(format_args!("peek-own {offset}")), wanted.to_string(), "at {offset}");
    }
    assert_eq!(peer.ask("set-own 3 9"), "done");
    import.read_at(0, &mut bytes[..1]).unwrap();
    assert_eq!(bytes[0], 9);
}

#[test]
fn gigabytes_are_reached() {
    let len = 5 << 30;
    let (mut peer, import) = exporting_peer(len, 0, 0, len, Access::all());
    let at = (4_usize << 30) + 12_345;
    assert_eq!(peer.ask(format_args!("set-own {at} 5")), "done");
    let mut bytes = [0; 3];
    import.read_at(at as u64 - 1, &mut bytes).unwrap();
    assert_eq!(bytes, [0, 5, 0]);
    import.write_at(len as u64 - 1, &[6]).unwrap();
    assert_eq!(peer.ask(format_args!("peek-own {}", len - 1)), "6");
}

#[test]
fn a_grant_is_its_range_and_rights() {
    let (mut peer, import) = exporting_peer(MIB, 7, 5000, 10001, Access::READ);
    for (offset, len) in [(5001, 1), (5000, 2), (0, 5002), (u64::MAX, 1)] {
        let error = import.read_at(offset, &mut vec![2; len]).unwrap_err();
        assert!(matches!(error, RemoteError::OutOfRange { available: 5001, .. }), "{error}");
    }
    let error = import.write_at(0, &[1]).unwrap_err();
    assert!(matches!(error, RemoteError::Permission { granted: Access::READ, .. }), "{error}");
    assert_eq!(peer.ask("peek-own 5000"), "7");
    let error = import.span(0, 1, Access::READ).unwrap_err();
    assert!(matches!(error, RemoteError::Unsupported { .. }), "{error}");

    let (mut peer, import) = exporting_peer(MIB, 7, 0, MIB, Access::WRITE);
    assert!(matches!(import.read_at(0, &mut [0]), Err(RemoteError::Permission { .. })));
    import.write_at(1, &[8]).unwrap();
    assert_eq!(peer.ask("peek-own 1"), "8");
}

#[test]
fn unmapped_memory_cannot_be_exported() {
    let own = Own::map(MIB);
    let (end, ends) = (own.len, own);
    own.export(0, end, Access::all()).unwrap();
    assert!(matches!(own.export(5, 5, Access::READ), Err(RemoteError::Empty { .. })));
    assert!(matches!(own.export(0, 1, Access::empty()), Err(RemoteError::Empty { .. })));
    ends.unmap();
    let error = own.export(0, end, Access::READ).unwrap_err();
    assert!(matches!(error, RemoteError::NotMapped { len, .. } if len == MIB as u64), "{error}");
}

#[test]
fn the_exporter_is_killed_while_the_importer_reads() {
    for _ in 0..5 {
        let (mut peer, import) = exporting_peer(4 * MIB, 7, 1, 4 * MIB, Access::READ);
        let (pid, mut bytes, mut copies) = (peer.pid(), vec![0; 4 * MIB - 1], 0);
        let error = until_error(|| {
            copies += 1;
            if copies == 3 {
                peer.kill_now();
            }
            bytes.fill(7);
            let outcome = import.read_at(0, &mut bytes);
            assert!(bytes.iter().all(|&byte| byte == 7), "not the exporter's bytes");
            outcome
        });
        assert!(matches!(error, RemoteError::PeerGone { pid: gone } if gone == pid), "{error}");
        // The error is permanent, even after the process is reaped, when its id may be reused.
        peer.kill();
        let error = import.read_at(0, &mut bytes).unwrap_err();
        assert!(matches!(error, RemoteError::PeerGone { .. }), "{error}");
    }
}

#[test]
fn the_exporter_is_killed_while_the_importer_writes() {
    let (mut peer, import) = exporting_peer(4 * MIB, 7, 0, 4 * MIB, Access::all());
    let bytes = vec![9; 4 * MIB];
    import.write_at(0, &bytes).unwrap();
    peer.kill_now();
    let error = until_error(|| import.write_at(0, &bytes));
    assert!(matches!(error, RemoteError::PeerGone { pid } if pid == peer.pid()), "{error}");
}

#[test]
fn the_exporter_becomes_another_program_with_the_same_process_id() {
    for _ in 0..5 {
        let (mut peer, import) = exporting_peer(MIB, 7, 0, MIB, Access::all());
        let mut bytes = vec![0; MIB];
        import.read_at(0, &mut bytes).unwrap();
        peer.tell("exec");
        let error = until_error(|| {
            bytes.fill(7);
            let outcome = import.read_at(0, &mut bytes);
            assert!(bytes.iter().all(|&byte| byte == 7), "another program's bytes");
            outcome
        });
        assert!(matches!(error, RemoteError::PeerGone { .. }), "{error}");
        let error = import.write_at(0, &bytes).unwrap_err();
        assert!(matches!(error, RemoteError::PeerGone { .. }), "{error}");
    }
}

#[test]
fn after_revoke_no_byte_changes() {
    let own = Own::map(4 * MIB);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("descriptor");
    let mut peer = Peer::start();
    assert_eq!(peer.answer(), "ready");
    for round in 0..20 {
        let export = own.export(1, 4 * MIB, Access::all()).unwrap();
        publish(&file, export.blob());
        assert_eq!(peer.ask(format_args!("import {}", file.display())), "done");
        assert_eq!(peer.ask("copy 1"), "copying");
        export.revoke(LONG).unwrap();
        // From here on only this process may access the memory, so a copy that is still running would be
        // detected.
        for value in 2..4 {
            own.fill(value);
            let wrong = (0..4 * MIB).find(|&at| own.get(at) != value);
            assert_eq!(wrong, None, "round {round}: the importer wrote after revoke returned");
        }
        assert_eq!(peer.answer(), format!("Revoked {}", std::process::id()));
    }
}

#[test]
fn revoking_in_mid_copy_does_not_wait_for_the_rest_of_it() {
    let own = Own::map(1 << 30);
    let export = own.export(0, own.len, Access::READ).unwrap();
    let import = Import::open(export.blob()).unwrap();
    std::thread::scope(|scope| {
        let copier = scope.spawn(|| {
            let mut to = vec![0; own.len];
            until_error(|| import.read_at(0, &mut to))
        });
        std::thread::sleep(Duration::from_millis(20));
        export.revoke(LONG).unwrap();
        assert!(matches!(copier.join().unwrap(), RemoteError::Revoked { .. }));
    });
}

#[test]
fn an_importer_that_holds_on_keeps_the_memory_from_being_reused() {
    let own = Own::map(MIB);
    let export = own.export(0, MIB, Access::all()).unwrap();
    let import = Import::open(export.blob()).unwrap();
    let lease = import.lease().unwrap();
    let error = export.revoke(Duration::ZERO).unwrap_err();
    assert!(matches!(error, RemoteError::StillInUse { .. }), "{error}");
    drop(lease);
    export.revoke(LONG).unwrap();
    assert!(matches!(import.write_at(0, &[1]), Err(RemoteError::Revoked { .. })));
    assert!(matches!(Import::open(export.blob()), Err(RemoteError::UnknownExport { .. })));
}

#[test]
fn memory_that_is_unmapped_under_an_import_is_an_error() {
    let (mut peer, import) = exporting_peer(MIB, 7, 5, MIB, Access::all());
    import.write_at(0, &[1]).unwrap();
    assert_eq!(peer.ask("unmap-own"), "done");
    let error = import.read_at(3, &mut [0; 9]).unwrap_err();
    assert!(matches!(error, RemoteError::Vanished { pid, offset: 3 } if pid == peer.pid()), "{error}");
    let error = import.write_at(0, &[0]).unwrap_err();
    assert!(matches!(error, RemoteError::Vanished { .. }), "{error}");
    // The process still runs, and its other exports still work.
    import.check().unwrap();
}

/// Checks this only as root, because the test changes the user.
#[test]
fn no_right_to_trace_is_needed() {
    const NOBODY: u32 = 65534;
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
    let file = dir.path().join("descriptor");
    let (Some(mut exporter), Some(mut importer)) = (Peer::start_as(NOBODY), Peer::start_as(NOBODY)) else {
        return;
    };
    assert_eq!((exporter.answer(), importer.answer()), ("ready".into(), "ready".into()));
    assert_eq!(exporter.ask("own 100 7"), "done");
    assert_eq!(exporter.ask(format_args!("export-own 0 100 3 {}", file.display())), "done");
    assert_eq!(importer.ask(format_args!("import {}", file.display())), "done");
    assert_eq!(importer.ask("write 99 8"), "done");
    assert_eq!(exporter.ask("peek-own 99"), "8");
}
