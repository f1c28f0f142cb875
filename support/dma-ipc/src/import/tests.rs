use std::os::unix::thread::JoinHandleExt as _;
use std::thread;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
use rustix::net::{accept, recv};

use super::super::blob::Token;
use super::super::memory::control_page;
use super::super::service::{self, listen_on, random};
use super::*;

#[test]
fn processes_have_a_start() {
    let own = started(std::process::id()).unwrap();
    assert!(own > 0);
    assert_eq!(started(std::process::id()), Some(own));
    assert_eq!(started(u32::MAX), None);
}

/// Imports from an exporter that answers with `reply` and `files`, which may be wrong.
fn import_from(reply: Reply, files: &[&OwnedFd]) -> Result<Import, RemoteError> {
    import_by(Import::open, reply, files).map(|(import, _)| import)
}

/// Does the same as [`import_from`], but imports by calling `open`, and also returns the exporter's end
/// of the connection. Dropping this end closes the connection, and accesses fail from then on.
fn import_by(
    open: impl FnOnce(&[u8]) -> Result<Import, RemoteError> + Send,
    reply: Reply,
    files: &[&OwnedFd],
) -> Result<(Import, OwnedFd), RemoteError> {
    let pid = std::process::id();
    let blob = Blob { pid, uid: 0, started: 0, socket: random().unwrap(), token: Token([0; 16]) };
    let listener = listen_on(&blob.socket).unwrap();
    rustix::io::ioctl_fionbio(&listener, false).unwrap();
    thread::scope(|scope| {
        let importer = scope.spawn(|| open(&blob.encode()));
        let socket = accept(&listener).unwrap();
        recv(&socket, &mut [0; 100], RecvFlags::empty()).unwrap();
        let files: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
        service::send(&socket, reply, &files).unwrap();
        Ok((importer.join().unwrap()?, socket))
    })
}

fn granted(len: u64, rights: Access) -> Reply {
    let page_size = rustix::param::page_size() as u64;
    let grant = Grant { address: 0, len, rights };
    Reply::Granted(Granted { grant, offset: 0, page_size, kind: FileKind::Shared })
}

fn sealed() -> OwnedFd {
    control_page().unwrap().0
}

fn unsealed() -> OwnedFd {
    let file = memfd_create("unsealed", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, rustix::param::page_size() as u64).unwrap();
    file
}

#[test]
fn memory_that_could_fault_is_refused() {
    let page = rustix::param::page_size() as u64;
    let good = granted(page, Access::READ);
    // The length is known even after the exporter has closed the connection.
    assert_eq!(import_from(good, &[&sealed(), &sealed()]).unwrap().len() as u64, page);
    let refused = |reply, files: &[&OwnedFd]| {
        let error = import_from(reply, files).unwrap_err();
        assert!(matches!(error, RemoteError::Protocol { .. }), "{error}");
    };
    refused(good, &[&unsealed(), &sealed()]);
    refused(good, &[&sealed(), &unsealed()]);
    refused(granted(page + 1, Access::READ), &[&sealed(), &sealed()]);
    refused(good, &[]);
    refused(good, &[&sealed()]);
    let grant = Grant { address: 1, len: 1, rights: Access::READ };
    let process = Granted { grant, offset: 1, page_size: 1, kind: FileKind::Process };
    refused(Reply::Granted(process), &[&sealed(), &sealed()]);
    refused(Reply::Granted(process), &[]);
    let nothing = granted(0, Access::READ);
    refused(nothing, &[&sealed(), &sealed()]);
}

/// Returns a sealed file of `len` bytes that does not use memory yet.
fn sparse(len: u64) -> OwnedFd {
    let file = memfd_create("sparse", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, len).unwrap();
    fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    file
}

fn blocks(file: &OwnedFd) -> i64 {
    fstat(file).unwrap().st_blocks
}

#[test]
fn another_length_than_expected_is_refused_with_both_numbers() {
    const MIB: u64 = 1 << 20;
    let file = sparse(3 << 30);
    for len in [3 << 30, MIB + 1, MIB - 1] {
        // No file is sent, because the lengths are compared before the files are used.
        for files in [&[&file, &sealed()][..], &[]] {
            let expecting = |blob: &[u8]| Import::open_expecting(blob, MIB);
            let error = import_by(expecting, granted(len, Access::all()), files).unwrap_err();
            let expected =
                matches!(error, RemoteError::OtherLength { expected: MIB, granted, .. } if granted == len);
            assert!(expected, "{error}");
            assert!(error.to_string().contains("1048576"), "{error}");
            assert!(error.to_string().contains(&len.to_string()), "{error}");
        }
    }
    let expecting = |blob: &[u8]| Import::open_expecting(blob, MIB);
    let (import, _exporter) = import_by(expecting, granted(MIB, Access::all()), &[&file, &sealed()]).unwrap();
    assert_eq!(import.len() as u64, MIB);
}

/// Granted pages that are never accessed use no memory.
#[test]
fn importing_takes_no_memory() {
    let file = sparse(3 << 30);
    let reply = granted(3 << 30, Access::all());
    let (import, _exporter) = import_by(Import::open, reply, &[&file, &sealed()]).unwrap();
    assert_eq!(blocks(&file), 0, "in units of 512 bytes");
    let mut byte = [1];
    import.read_at((3 << 30) - 1, &mut byte).unwrap();
    assert_eq!(byte, [0]);
}

#[test]
fn refusals_say_why() {
    let refused = |reply| import_from(reply, &[]).unwrap_err();
    assert!(matches!(refused(Reply::Unknown), RemoteError::UnknownExport { .. }));
    assert!(matches!(refused(Reply::Full), RemoteError::TooManyImports { .. }));
    assert!(matches!(refused(Reply::ForeignUser), RemoteError::ForeignUser { .. }));
    assert!(matches!(refused(Reply::BadHello), RemoteError::Protocol { .. }));
    let full = refused(Reply::Os(Errno::MFILE.raw_os_error()));
    assert!(full.to_string().contains("in the exporting process"), "{full}");
}

/// A signal interrupts a call on a socket with a time limit, and a repeated call must not wait for the whole
/// limit again.
#[test]
#[expect(unsafe_code, reason = "sends signals to a thread")]
fn signals_do_not_prolong_the_wait_for_an_exporter() {
    extern "C" fn handler(_: libc::c_int) {}
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: zeros are a valid `sigaction`.
    let action = unsafe { action.assume_init_mut() };
    action.sa_sigaction = handler as extern "C" fn(libc::c_int) as usize;
    // SAFETY: the action is valid, and its handler does nothing, so any thread can run it.
    assert_eq!(unsafe { libc::sigaction(libc::SIGURG, action, std::ptr::null_mut()) }, 0);
    let (pid, socket) = (std::process::id(), random().unwrap());
    let blob = Blob { pid, uid: 0, started: 0, socket, token: Token([0; 16]) };
    let listener = listen_on(&blob.socket).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let address = address(&blob.socket).unwrap();
    let connected = std::iter::from_fn(|| {
        let socket = new_socket(SocketFlags::NONBLOCK).unwrap();
        connect(&socket, &address).ok().map(|()| socket)
    });
    // No further connection fits, so that an importer waits.
    let _connected: Vec<_> = connected.collect();

    let importer = thread::spawn(move || Import::open_within(&blob.encode(), Duration::from_secs(1)));
    let begun = Instant::now();
    while !importer.is_finished() && begun.elapsed() < Duration::from_secs(120) {
        // SAFETY: the thread is not joined yet, so its handle is valid.
        unsafe { libc::pthread_kill(importer.as_pthread_t() as libc::pthread_t, libc::SIGURG) };
        thread::sleep(Duration::from_millis(5));
    }
    assert!(importer.is_finished(), "signals restart the time limit");
    let error = importer.join().unwrap().unwrap_err();
    assert!(matches!(error, RemoteError::Timeout { .. }), "{error}");
}
