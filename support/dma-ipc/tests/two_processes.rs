//! Tests memory shared between two processes that are killed in the middle of copies.

#![cfg(target_os = "linux")]

mod remote_peer;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use dma_core::Access;
use dma_ipc::{Export, Import, Pages, RemoteError, SharedMemory};
use remote_peer::{LONG, Peer, publish};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tempfile::TempDir;

const MIB: usize = 1 << 20;

#[test]
#[ignore = "the other tests start this as their second process"]
fn peer() {
    remote_peer::obey();
}

/// Starts a peer. Also returns the path of a file through which to pass a descriptor.
fn peer_and_file() -> (Peer, PathBuf, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let mut peer = Peer::start();
    assert_eq!(peer.answer(), "ready");
    (peer, dir.path().join("descriptor"), dir)
}

/// Starts a peer that exports `len` bytes with the value `byte`. Also returns the export's descriptor.
fn exporting_peer(len: usize, byte: u8, rights: Access) -> (Peer, Vec<u8>) {
    let (mut peer, file, _dir) = peer_and_file();
    assert_eq!(peer.ask(format_args!("allocate {len} {byte}")), "done");
    assert_eq!(peer.ask(format_args!("export 0 {len} {} {}", rights.bits(), file.display())), "done");
    let blob = fs::read(file).unwrap();
    (peer, blob)
}

/// Starts a peer that imports `export`.
fn importing_peer(export: &Export) -> Peer {
    let (mut peer, file, _dir) = peer_and_file();
    publish(&file, export.blob());
    assert_eq!(peer.ask(format_args!("import {}", file.display())), "done");
    peer
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
fn two_processes_exchange_bytes_through_a_descriptor_in_a_file() {
    let (mut peer, blob) = exporting_peer(3 * MIB, 7, Access::all());
    let import = Import::open(&blob).unwrap();
    assert_eq!((import.pid(), import.len()), (peer.pid(), 3 * MIB));
    assert_eq!((import.grant().rights, import.grant().len), (Access::all(), 3 * MIB as u64));

    let mut bytes = vec![0; 3 * MIB];
    import.read_at(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|&byte| byte == 7));
    import.write_at(2 * MIB as u64 + 1, &[8]).unwrap();
    assert_eq!(peer.ask(format_args!("peek {}", 2 * MIB + 1)), "8");
    assert_eq!(peer.ask(format_args!("peek {}", 2 * MIB)), "7");
    assert_eq!(peer.ask(format_args!("peek {}", 2 * MIB + 2)), "7");
}

#[test]
fn a_read_only_grant_can_be_read_and_not_written() {
    let (mut peer, blob) = exporting_peer(4096, 7, Access::READ);
    let import = Import::open(&blob).unwrap();
    let error = import.write_at(0, &[1]).unwrap_err();
    assert!(
        matches!(error, RemoteError::Permission { requested: Access::WRITE, granted: Access::READ }),
        "{error}"
    );
    assert!(import.span(0, 1, Access::all()).is_err());
    let mut byte = [0];
    import.read_at(0, &mut byte).unwrap();
    assert_eq!((byte, peer.ask("peek 0").as_str()), ([7], "7"));
    assert_eq!(make_writable(&import), Err(rustix::io::Errno::ACCESS), "the kernel must keep it read-only");
}

#[expect(unsafe_code, reason = "tries to circumvent a read-only grant")]
fn make_writable(import: &Import) -> Result<(), rustix::io::Errno> {
    use rustix::mm::{MprotectFlags, mprotect};
    let access = MprotectFlags::READ | MprotectFlags::WRITE;
    let page = import.ptr().unwrap();
    // SAFETY: `import` keeps the page mapped during the call, and no code of this process depends on the page
    // being read-only.
    unsafe { mprotect(page.as_ptr().cast(), 4096, access) }
}

#[test]
fn a_grant_ends_at_its_bytes() {
    let (mut peer, file, _dir) = peer_and_file();
    assert_eq!(peer.ask(format_args!("allocate {MIB} 7")), "done");
    assert_eq!(peer.ask(format_args!("export 5000 10001 3 {}", file.display())), "done");
    let import = Import::open(&fs::read(file).unwrap()).unwrap();
    assert_eq!(import.len(), 5001);

    import.write_at(0, &[1; 5001]).unwrap();
    for (offset, byte) in [(4999, "7"), (5000, "1"), (10000, "1"), (10001, "7")] {
        assert_eq!(peer.ask(format_args!("peek {offset}")), byte, "at {offset}");
    }
    for (offset, len) in [(5001, 1), (5000, 2), (0, 5002), (u64::MAX, 1), (1, 2 * MIB)] {
        let error = import.write_at(offset, &vec![2; len]).unwrap_err();
        assert!(matches!(error, RemoteError::OutOfRange { available: 5001, .. }), "{error}");
        let error = import.read_at(offset, &mut vec![2; len]).unwrap_err();
        assert!(matches!(error, RemoteError::OutOfRange { available: 5001, .. }), "{error}");
    }
    import.read_at(5001, &mut []).unwrap();
    assert_eq!(peer.ask("peek 10001"), "7");
}

#[test]
fn the_importer_sees_that_it_was_revoked() {
    let (mut peer, blob) = exporting_peer(MIB, 7, Access::all());
    let import = Import::open(&blob).unwrap();
    import.check().unwrap();
    assert_eq!(peer.ask("revoke"), "done");
    let pid = peer.pid();
    let revoked = |error| matches!(error, RemoteError::Revoked { pid: by } if by == pid);
    assert!(revoked(import.check().unwrap_err()));
    assert!(revoked(import.read_at(0, &mut [0]).unwrap_err()));
    assert!(revoked(import.write_at(0, &[0]).unwrap_err()));
    assert!(revoked(import.lease().unwrap_err()));
    let error = Import::open(&blob).unwrap_err();
    assert!(matches!(error, RemoteError::UnknownExport { .. }), "{error}");
    // If the exporter ends afterwards, the reason stays the same.
    peer.kill();
    assert!(revoked(import.check().unwrap_err()));
    let error = Import::open(&blob).unwrap_err();
    assert!(matches!(error, RemoteError::PeerGone { .. }), "{error}");
}

#[test]
fn revoking_waits_for_the_importer_and_says_so_when_it_does_not_finish() {
    let memory = SharedMemory::allocate(MIB, Pages::Normal).unwrap();
    let export = Export::new(&memory, 0..MIB, Access::all()).unwrap();
    let mut peer = importing_peer(&export);
    assert_eq!(peer.ask("hold"), "holding");
    for within in [Duration::ZERO, Duration::from_millis(30)] {
        match export.revoke(within) {
            Err(RemoteError::StillInUse { pids, waited }) => {
                assert_eq!(pids, [peer.pid()]);
                assert!(waited >= within);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(peer.ask("hold"), format!("Revoked {}", std::process::id()));
    // The lease that the peer forgot ends when the peer drops its import.
    peer.tell("drop-import");
    export.revoke(LONG).unwrap();
    assert_eq!(peer.answer(), "done");
}

#[test]
fn after_revoke_no_byte_changes() {
    let memory = SharedMemory::allocate(MIB, Pages::Normal).unwrap();
    let (mut peer, file, _dir) = peer_and_file();
    let mut bytes = vec![0; MIB];
    for round in 0..40 {
        let export = Export::new(&memory, 0..MIB, Access::all()).unwrap();
        publish(&file, export.blob());
        assert_eq!(peer.ask(format_args!("import {}", file.display())), "done");
        assert_eq!(peer.ask("copy 1"), "copying");
        export.revoke(LONG).unwrap();
        // From here on only this process may access the memory, so a copy that is still running would
        // be detected.
        for value in 2..6 {
            memory.write_at(0, &vec![value; MIB]).unwrap();
            memory.read_at(0, &mut bytes).unwrap();
            let wrong = bytes.iter().position(|&byte| byte != value);
            assert_eq!(wrong, None, "round {round}: the importer wrote after revoke returned");
        }
        assert_eq!(peer.answer(), format!("Revoked {}", std::process::id()));
    }
}

#[test]
fn the_exporter_is_killed_while_the_importer_reads() {
    for _ in 0..5 {
        let (mut peer, blob) = exporting_peer(MIB, 7, Access::READ);
        let import = Import::open(&blob).unwrap();
        let pid = peer.pid();
        let mut bytes = vec![0; MIB];
        let mut copies = 0;
        let error = until_error(|| {
            bytes.fill(0);
            import.read_at(0, &mut bytes)?;
            assert!(bytes.iter().all(|&byte| byte == 7), "not the exporter's bytes");
            copies += 1;
            if copies == 10 {
                peer.kill_now();
            }
            Ok(())
        });
        assert!(matches!(error, RemoteError::PeerGone { pid: gone } if gone == pid), "{error}");
        assert!(copies >= 10);
        // The error is permanent.
        assert!(matches!(import.check(), Err(RemoteError::PeerGone { .. })));
        peer.kill();
        let error = Import::open(&blob).unwrap_err();
        assert!(matches!(error, RemoteError::PeerGone { pid: gone } if gone == pid), "{error}");
    }
}

#[test]
fn the_exporter_is_killed_while_the_importer_writes_and_holds_a_lease() {
    let (mut peer, blob) = exporting_peer(MIB, 7, Access::all());
    let import = Import::open(&blob).unwrap();
    let lease = import.lease().unwrap();
    let bytes = vec![9; MIB];
    peer.kill_now();
    let error = until_error(|| import.write_at(0, &bytes));
    assert!(matches!(error, RemoteError::PeerGone { pid } if pid == peer.pid()), "{error}");
    drop(lease);
    drop(import);
}

#[test]
fn the_exporter_ends_on_its_own_without_revoking() {
    let (mut peer, blob) = exporting_peer(4096, 7, Access::all());
    let import = Import::open(&blob).unwrap();
    let mut byte = [0];
    import.read_at(0, &mut byte).unwrap();
    let _ = peer.ask("pid");
    peer.kill();
    let error = until_error(|| import.check());
    assert!(matches!(error, RemoteError::PeerGone { .. }), "{error}");
}

#[test]
fn the_importer_is_killed_while_it_holds_a_lease() {
    let memory = SharedMemory::allocate(MIB, Pages::Normal).unwrap();
    let export = Export::new(&memory, 0..MIB, Access::all()).unwrap();
    let mut peer = importing_peer(&export);
    assert_eq!(peer.ask("hold"), "holding");
    assert!(matches!(export.revoke(Duration::ZERO), Err(RemoteError::StillInUse { .. })));
    peer.kill_now();
    export.revoke(LONG).unwrap();
    export.revoke(Duration::ZERO).unwrap();
}

#[test]
fn importers_are_killed_in_the_middle_of_a_copy() {
    let memory = SharedMemory::allocate(MIB, Pages::Normal).unwrap();
    let other = Export::new(&memory, 0..10, Access::READ).unwrap();
    let survivor = importing_peer(&other);
    for _ in 0..3 {
        let export = Export::new(&memory, 0..MIB, Access::all()).unwrap();
        let mut peer = importing_peer(&export);
        assert_eq!(peer.ask("copy 1"), "copying");
        peer.kill_now();
        export.revoke(LONG).unwrap();
        let mut bytes = vec![0; MIB];
        memory.write_at(0, &vec![2; MIB]).unwrap();
        memory.read_at(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 2));
    }
    // The exporter and its other importers are not affected.
    Import::open(other.blob()).unwrap().check().unwrap();
    drop(survivor);
}

#[test]
fn a_stopped_exporter_is_a_timeout() {
    let (peer, blob) = exporting_peer(4096, 7, Access::READ);
    let pid = Pid::from_raw(peer.pid().cast_signed()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap().unwrap();
    assert!(status.stopped());
    let error = Import::open_within(&blob, Duration::from_millis(50)).unwrap_err();
    assert!(matches!(error, RemoteError::Timeout { pid, .. } if pid == peer.pid()), "{error}");
    kill_process(pid, Signal::CONT).unwrap();
    Import::open(&blob).unwrap().check().unwrap();
}

/// Checks this only as root, because the test changes the user.
#[test]
fn other_users_are_refused_and_root_is_not() {
    const NOBODY: u32 = 65534;
    if !rustix::process::getuid().is_root() {
        return;
    }
    let anyone = Permissions::from_mode(0o777);
    let (dir, memory) = (tempfile::tempdir().unwrap(), SharedMemory::allocate(MIB, Pages::Normal).unwrap());
    fs::set_permissions(dir.path(), anyone).unwrap();
    let file = dir.path().join("descriptor");
    let Some(mut nobody) = Peer::start_as(NOBODY) else { return };
    assert_eq!(nobody.answer(), "ready");

    let export = Export::new(&memory, 0..MIB, Access::READ).unwrap();
    publish(&file, export.blob());
    assert_eq!(nobody.ask(format_args!("import {}", file.display())), format!("ForeignUser 0 {NOBODY}"));

    assert_eq!(nobody.ask("allocate 100 7"), "done");
    assert_eq!(nobody.ask(format_args!("export 0 100 1 {}", file.display())), "done");
    let import = Import::open(&fs::read(file).unwrap()).unwrap();
    let mut byte = [0];
    import.read_at(99, &mut byte).unwrap();
    assert_eq!(byte, [7]);
}
