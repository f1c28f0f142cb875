//! Tests files on queues of both methods: contents, short reads, errors, cancellation, panics, threads that
//! exit, pipes, forks, sandboxes.
#![expect(unsafe_code, reason = "forks, and installs a seccomp filter")]

use std::future::Future;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use dma_core::{
    Access, BufferMut, BufferPool, DmaEngine, DmaEngineExt, ErrorKind, HostMemory, PoolOptions,
    SharedQueueOptions,
};
use dma_files::{DeviceFiles, DmaFile, FileError, FilePiece, FileQueue, FileQueueOptions, Method, OpenFile};
use futures_lite::future::block_on;
use proptest::prelude::*;

const METHODS: [Method; 2] = [Method::IoUring, Method::Threads];

fn engine() -> impl DmaEngine + Clone {
    std::sync::Arc::new(dma_cpu::CpuEngine::open(&dma_cpu::CpuOptions::default()).expect("it opens"))
}

/// Returns a queue of `method`, or `None` if the system forbids this method.
fn queue(method: Method, pools: &[&BufferPool]) -> Option<FileQueue> {
    let options = FileQueueOptions::new().with_method(Some(method)).with_depth(8).with_threads(2);
    match FileQueue::with_pools(&options, pools) {
        Ok(queue) => {
            assert_eq!(queue.method(), method);
            Some(queue)
        }
        Err(e) => {
            assert_eq!(method, Method::IoUring);
            assert!(!e.hint().is_empty() && e.message().contains("io_uring"), "{e}");
            eprintln!("left out: {e}");
            None
        }
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect()
}

fn file_of(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(bytes).expect("written");
    file
}

fn buffer(engine: &impl DmaEngine, bytes: &[u8]) -> BufferMut {
    let mut buffer = engine.allocate(bytes.len()).expect("memory");
    buffer.copy_from_slice(bytes);
    buffer
}

#[test]
fn reads_end_when_the_buffer_is_full_or_the_file_ends() {
    let engine = engine();
    let pool = BufferPool::new(&engine, &PoolOptions::new().with_class(50_000, 4)).expect("a pool");
    let content = bytes(100_000);
    let named = file_of(&content);
    for method in METHODS {
        let Some(files) = queue(method, &[&pool]) else { continue };
        let file = DmaFile::open(named.path()).expect("it opens");
        for (offset, len, expected) in [
            (0, 50_000, 50_000),
            (7, 1, 1),
            (60_001, 50_000, 39_999),
            (100_000, 5, 0),
            (200_000, 5, 0),
            (5, 0, 0),
        ] {
            // Read into a buffer of the pool, and into a buffer that is not registered with the ring.
            for buffer in [pool.try_get(len).expect("free"), engine.allocate(len).expect("memory")] {
                let read = files.read_at(&file, offset, buffer).expect("submitted");
                let (buffer, n) = read.wait().expect("it reads");
                assert_eq!(n, expected, "{method:?}: {len} bytes at {offset}");
                assert!(
                    n == 0 || buffer[..n] == content[offset as usize..][..n],
                    "{method:?}: {len} at {offset}"
                );
            }
        }
        let window = engine.allocate(1000).expect("memory").share();
        let (window, n) = block_on(files.read_at(&file, 3, window).expect("submitted")).expect("it reads");
        let mut read = [0; 1000];
        window.read_at(0, &mut read).expect("in range");
        assert!(n == 1000 && read == content[3..1003]);
        assert_eq!(files.in_flight(), 0);
    }
    assert_eq!(pool.classes().map(|class| class.in_use).sum::<usize>(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Writes at random offsets, several in flight at once. A vector is the oracle.
    #[test]
    fn files_have_what_was_written(
        writes in proptest::collection::vec((0..40_usize, 1..9_usize, any::<u8>()), 1..20),
        (direct, method) in (any::<bool>(), proptest::sample::select(METHODS.to_vec())),
    ) {
        const UNIT: usize = 4096;
        let engine = engine();
        let pool = BufferPool::new(&engine, &PoolOptions::new().with_class(9 * UNIT, 8)).expect("a pool");
        let Some(files) = queue(method, &[&pool]) else { return Ok(()) };
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let path = folder.path().join("file");
        let open = OpenFile::new().with_create(true).with_direct(direct);
        let file = match open.open(&path) {
            Err(e) if direct && e.kind() == ErrorKind::Unsupported => return Ok(()),
            file => file.expect("it opens"),
        };
        prop_assert_eq!(file.is_direct(), direct);
        let mut oracle = Vec::new();
        for batch in writes.chunks(8) {
            // Writes that are in flight at the same time have no order, so writes that overlap another one
            // are omitted.
            let mut in_flight = Vec::new();
            let mut taken: Vec<std::ops::Range<usize>> = Vec::new();
            for &(unit, units, value) in batch {
                // Some writes do not begin at a multiple of the block size.
                let (begin, len) = (unit * UNIT + usize::from(value % 3 == 0), units * UNIT);
                if taken.iter().any(|other| begin < other.end && other.start < begin + len) {
                    continue;
                }
                taken.push(begin..begin + len);
                let mut buffer = pool.try_get(len).expect("free");
                buffer.fill(value);
                in_flight.push(files.write_at(&file, begin as u64, buffer).expect("room"));
                oracle.resize(oracle.len().max(begin + len), 0);
                oracle[begin..begin + len].fill(value);
            }
            for write in in_flight {
                let (buffer, written) = write.wait().expect("it writes");
                prop_assert_eq!(buffer.len(), written);
            }
        }
        block_on(files.sync(&file).expect("room")).expect("synced");
        prop_assert!(std::fs::read(&path).expect("readable") == oracle);
        let read = files.read_at(&file, 0, engine.allocate(oracle.len() + UNIT).expect("memory")).expect("room");
        let (buffer, n) = read.wait().expect("it reads");
        prop_assert!(n == oracle.len() && buffer[..n] == oracle);
    }
}

fn with_buffer<T>(e: FileError<T>) -> (dma_core::Error, T) {
    let (e, buffer) = e.into_parts();
    (e, buffer.expect("the process was not forked"))
}

#[test]
fn refused_operations_return_the_buffer_with_a_remedy() {
    let engine = engine();
    let named = file_of(&bytes(100));
    for method in METHODS {
        let Some(files) = queue(method, &[]) else { continue };
        let file = DmaFile::open(named.path()).expect("it opens");
        let e = files.read_at(&file, u64::MAX, buffer(&engine, &[7; 10])).expect_err("no such byte");
        let (e, same) = with_buffer(e);
        assert!(e.kind() == ErrorKind::OutOfRange && !e.hint().is_empty() && same[..] == [7; 10], "{e}");
        // The file is opened only for reading.
        let e = files
            .write_at(&file, 0, buffer(&engine, &[7; 10]))
            .expect("submitted")
            .wait()
            .expect_err("read-only");
        let (e, same) = with_buffer(e);
        assert!(e.kind() == ErrorKind::Os && e.to_string().contains("write 10 bytes of a file at 0"), "{e}");
        assert!(same[..] == [7; 10] && std::error::Error::source(&e).is_some());
        let read_only = dma_core::MemoryRequest::new(0).with_access(Access::READ);
        let memory = HostMemory::from_owner(vec![1; 64]);
        let window = engine.register_window(memory, &read_only).expect("registered");
        let e = files.read_at(&file, 0, window.clone()).expect_err("read-only memory");
        assert_eq!(e.error().kind(), ErrorKind::AccessDenied);
        let mut bytes = [0; 64];
        window.read_at(0, &mut bytes).expect("in range");
        assert_eq!((bytes, files.in_flight()), ([1; 64], 0));
    }
    for options in [
        FileQueueOptions::new().with_depth(0),
        FileQueueOptions::new().with_depth(5000),
        FileQueueOptions::new().with_threads(0),
    ] {
        let e = FileQueue::new(&options).expect_err("makes no sense");
        assert!(!e.hint().is_empty(), "{e}");
    }
    assert_eq!(DmaFile::open("/nowhere/at/all").expect_err("none").kind(), ErrorKind::NotFound);
}

#[test]
fn a_full_disk_is_an_error_with_the_remedy() {
    let engine = engine();
    for method in METHODS {
        let Some(files) = queue(method, &[]) else { continue };
        let full = OpenFile::new().with_write(true).open("/dev/full").expect("Linux has it");
        let e = files
            .write_at(&full, 0, buffer(&engine, &[1; 5000]))
            .expect("submitted")
            .wait()
            .expect_err("full");
        let (e, same) = with_buffer(e);
        assert!(e.kind() == ErrorKind::OutOfResources && e.hint().contains("free some space"), "{e}");
        assert_eq!((e.requested(), e.limit(), same.len()), (None, None, 5000), "{e}");
        assert_eq!(e.operation(), "write 5000 bytes of a file at 0");
    }
}

/// Returns the two ends of a pipe. Reads of the first end wait until bytes are written to the second end.
fn pipe() -> (DmaFile, std::fs::File) {
    let mut ends = [0; 2];
    // SAFETY: the array has room for two descriptors.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    // SAFETY: the file descriptors are new, and no other object owns them.
    let [reads, writes] = ends.map(|fd| unsafe { std::fs::File::from_raw_fd(fd) });
    (reads.into(), writes)
}

#[test]
fn a_full_queue_returns_the_buffer() {
    let engine = engine();
    for method in METHODS {
        let Some(files) = queue(method, &[]) else { continue };
        let (reads, mut writes) = pipe();
        let memory = || engine.allocate(1).expect("memory");
        let waiting: Vec<_> = (0..8).map(|_| files.read_at(&reads, 0, memory()).expect("room")).collect();
        let e = files.read_at(&reads, 0, memory()).expect_err("full");
        assert_eq!((e.error().kind(), files.in_flight()), (ErrorKind::QueueFull, 8));
        writes.write_all(&[1; 8]).expect("written");
        for read in waiting {
            assert_eq!(read.wait().expect("it reads").0[..], [1]);
        }
        assert_eq!(files.in_flight(), 0);
    }
}

/// Returns a socket in non-blocking mode, and its other end.
fn socket() -> (DmaFile, UnixStream) {
    let (file, other) = UnixStream::pair().expect("a pair");
    file.set_nonblocking(true).expect("set");
    (std::fs::File::from(OwnedFd::from(file)).into(), other)
}

#[test]
fn a_cancelled_read_ends_and_returns_its_buffer() {
    let engine = engine();
    for method in METHODS {
        let Some(files) = queue(method, &[]) else { continue };
        let ((pipe, _writes), (socket, _other)) = (pipe(), socket());
        for file in [pipe, socket] {
            let read = files.read_at(&file, 0, engine.allocate(100).expect("memory")).expect("room");
            assert!(!read.is_done());
            read.cancel();
            read.cancel();
            let (e, buffer) = with_buffer(read.wait().expect_err("cancelled"));
            assert_eq!((e.kind(), buffer.len(), files.in_flight()), (ErrorKind::Aborted, 100, 0));
            let text = e.to_string();
            assert!(
                text.contains("the program cancelled the operation") && !text.contains("device"),
                "{text}"
            );
        }
    }
}

#[test]
fn files_without_offsets_are_read_and_written() {
    let engine = engine();
    let content = bytes(300_000);
    for method in METHODS {
        let Some(files) = queue(method, &[]) else { continue };
        let ((pipe, mut writes), (socket, other)) = (pipe(), socket());
        let ends = [writes.try_clone(), other.try_clone().map(|end| OwnedFd::from(end).into())];
        for (file, end) in [&pipe, &socket].into_iter().zip(ends) {
            let read = files.read_at(file, 7, engine.allocate(300_000).expect("memory")).expect("room");
            // More bytes than fit, so that the other end waits for the read.
            let (mut end, sent): (std::fs::File, _) = (end.expect("cloned"), content.clone());
            let writer = std::thread::spawn(move || end.write_all(&sent));
            let (buffer, n) = read.wait().expect("it reads");
            assert!(n == 300_000 && buffer[..] == content, "{method:?}: {n}");
            writer.join().expect("no panic").expect("written");
        }
        // More bytes than fit, so that the write waits for the other end.
        let write = files.write_at(&socket, 7, buffer(&engine, &content)).expect("room");
        let mut reader = other.take(content.len() as u64);
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).map(|_| bytes)
        });
        assert_eq!(write.wait().expect("it writes").1, content.len(), "{method:?}");
        assert!(reader.join().expect("no panic").expect("readable") == content, "{method:?}");
        // A read ends where the file ends.
        let read = files.read_at(&pipe, 0, engine.allocate(10).expect("memory")).expect("room");
        writes.write_all(b"abc").expect("written");
        drop(writes);
        let (buffer, n) = read.wait().expect("it reads");
        assert_eq!((n, &buffer[..3]), (3, &b"abc"[..]), "{method:?}");
    }
}

#[test]
fn writes_to_a_file_for_appending_are_refused() {
    let engine = engine();
    for method in METHODS {
        let Some(files) = queue(method, &[]) else { continue };
        let named = file_of(&[1; 100]);
        let append =
            || std::fs::OpenOptions::new().read(true).append(true).open(named.path()).expect("it opens");
        let direct = DmaFile::from(append()).with_direct().ok();
        for file in direct.into_iter().chain([append().into()]) {
            let e = files.write_at(&file, 0, buffer(&engine, &[7; 10])).expect_err("for appending");
            let (e, same) = with_buffer(e);
            assert!(e.kind() == ErrorKind::InvalidArgument && e.hint().contains("without append"), "{e}");
            assert_eq!((&same[..], files.in_flight()), (&[7; 10][..], 0));
            let read = files.read_at(&file, 0, engine.allocate(200).expect("memory")).expect("room");
            assert_eq!(read.wait().expect("it reads").1, 100);
        }
        assert_eq!(std::fs::read(named.path()).expect("readable"), [1; 100]);
    }
}

/// An owner of memory whose destructor panics.
struct PanickingOwner(Vec<u8>);

impl AsMut<[u8]> for PanickingOwner {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for PanickingOwner {
    fn drop(&mut self) {
        panic!("the destructor of an owner panics");
    }
}

struct PanickingWaker;

impl Wake for PanickingWaker {
    fn wake(self: Arc<Self>) {
        panic!("a waker panics");
    }
}

/// Maximum time to wait for an operation that must end. Only a hang takes as long.
const HANGS: Duration = Duration::from_secs(120);

#[test]
fn panics_of_the_program_do_not_affect_other_operations() {
    let engine = engine();
    let named = file_of(&bytes(100));
    let file = DmaFile::open(named.path()).expect("it opens");
    for method in METHODS {
        let Some(files) = queue(method, &[]) else { continue };
        // More panics than the queue has threads.
        for _ in 0..3 {
            let ((first, mut to_first), (second, mut to_second)) = (pipe(), pipe());
            let mut awaited = files.read_at(&first, 0, engine.allocate(1).expect("memory")).expect("room");
            let waker = Waker::from(Arc::new(PanickingWaker));
            assert!(Pin::new(&mut awaited).poll(&mut Context::from_waker(&waker)).is_pending());
            let memory = HostMemory::from_owner(PanickingOwner(vec![0; 1]));
            drop(files.read_at(&second, 0, engine.register(memory).expect("registered")).expect("room"));
            to_first.write_all(&[1]).expect("written");
            to_second.write_all(&[2]).expect("written");
            assert!(awaited.wait_timeout(HANGS), "{method:?}");
            assert_eq!(awaited.wait().expect("it reads").0[..], [1]);
        }
        let other = files.read_at(&file, 0, engine.allocate(100).expect("memory")).expect("room");
        assert!(other.wait_timeout(HANGS), "{method:?}: an operation of another task never ends");
        assert_eq!(other.wait().expect("it reads").1, 100);
        // The operation whose transfer was dropped may end after the others.
        let start = Instant::now();
        while files.in_flight() > 0 {
            assert!(start.elapsed() < HANGS, "{method:?}: the operation with the panicking owner never ends");
            std::thread::yield_now();
        }
    }
}

#[test]
fn operations_do_not_depend_on_the_thread_that_submitted_them() {
    let engine = engine();
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let content = bytes(8 << 20);
    let path = folder.path().join("file");
    std::fs::write(&path, &content).expect("written");
    for method in METHODS {
        let Some(files) = queue(method, &[]) else { continue };
        let plain = std::fs::File::open(&path).expect("it opens");
        plain.sync_all().expect("synced");
        rustix::fs::fadvise(&plain, 0, None, rustix::fs::Advice::DontNeed).expect("a hint");
        let (file, (reads, mut writes)) = (DmaFile::from(plain), pipe());
        let memory = |len| engine.allocate(len).expect("memory");
        let (waiting, blocks) = std::thread::scope(|scope| {
            let submit = || {
                // One thread of the queue stays free.
                let waiting = files.read_at(&reads, 0, memory(3)).expect("room");
                let block = |i: u64| files.read_at(&file, i << 20, memory(1 << 20)).expect("room");
                (waiting, (0..7).map(block).collect::<Vec<_>>())
            };
            scope.spawn(submit).join().expect("no panic")
        });
        writes.write_all(b"abc").expect("written");
        assert_eq!(waiting.wait().expect("it reads").0[..], *b"abc", "{method:?}");
        for (block, expected) in blocks.into_iter().zip(content.chunks(1 << 20)) {
            assert!(block.wait().expect("it reads").0[..] == *expected, "{method:?}");
        }
    }
}

#[test]
fn the_buffer_of_a_dropped_transfer_is_kept_until_its_end() {
    let engine = engine();
    let pool = BufferPool::new(&engine, &PoolOptions::new().with_class(100, 1)).expect("a pool");
    let in_use = || pool.classes().map(|class| class.in_use).sum::<usize>();
    for method in METHODS {
        let Some(files) = queue(method, &[&pool]) else { continue };
        let (reads, mut writes) = pipe();
        drop(files.read_at(&reads, 0, pool.try_get(3).expect("free")).expect("room"));
        assert_eq!(in_use(), 1, "the kernel may still write to the buffer");
        // The queue may be dropped before its operations end.
        drop(files);
        writes.write_all(b"abc").expect("written");
        while in_use() > 0 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_forked_process_uses_neither_ring_nor_threads() {
    let engine = engine();
    let named = file_of(&bytes(100));
    let file = DmaFile::open(named.path()).expect("it opens");
    for method in METHODS {
        let Some(files) = queue(method, &[]) else { continue };
        let (first, second) = (engine.allocate(10).expect("memory"), engine.allocate(10).expect("memory"));
        let (reads, mut writes) = pipe();
        let read = || files.read_at(&reads, 0, engine.allocate(10).expect("memory")).expect("room");
        let (pending, dropped) = (read(), read());
        // SAFETY: the child waits for no lock of another thread. It allocates memory, which glibc allows in
        // a forked child, and exits without running other destructors.
        match unsafe { libc::fork() } {
            -1 => panic!("no fork: {}", std::io::Error::last_os_error()),
            0 => {
                let refused = files.read_at(&file, 0, first);
                let refused = matches!(&refused, Err(e) if e.error().kind() == ErrorKind::Unsupported);
                drop(dropped);
                let ended = pending.wait_timeout(Duration::from_secs(3600));
                let (e, buffer) = pending.wait().expect_err("the parent's").into_parts();
                let ended = ended && e.kind() == ErrorKind::Unsupported && buffer.is_none();
                drop(files);
                // SAFETY: `_exit` only ends the process.
                unsafe { libc::_exit(i32::from(!(refused && ended))) }
            }
            child => {
                writes.write_all(&[1; 20]).expect("written");
                assert_eq!(pending.wait().expect("it reads").1 + dropped.wait().expect("it reads").1, 20);
                let mut status = 0;
                // SAFETY: the pointer to the local variable `status` is valid for a write during the call.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                assert_eq!(status, 0, "the child's read was not refused, or the child died");
            }
        }
        let (_, n) = files.read_at(&file, 0, second).expect("room").wait().expect("it reads");
        assert_eq!(n, 10);
    }
}

#[test]
fn a_forked_process_leaves_the_files_that_its_parent_saves() {
    let engine = engine();
    let pool = BufferPool::new(&engine, &PoolOptions::new().with_class(4096, 4)).expect("a pool");
    let queue = engine.open_shared_queue(&SharedQueueOptions::new()).expect("a queue");
    let files = DeviceFiles::new(&queue, &pool, &FileQueueOptions::new()).expect("it opens");
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let start = |name| {
        let window = engine.allocate(100_000).expect("memory").share();
        let pieces = vec![FilePiece::new(0..100_000, window)];
        let mut save = files.save(folder.path().join(name), pieces).expect("valid");
        let ended = save.wait_timeout(Duration::ZERO);
        (save, ended)
    };
    // 25 blocks through 4 buffers, and two syncs, have hardly ended yet.
    let ((first, _), (second, ended)) = (start("first"), start("second"));
    // SAFETY: the child waits for no lock of another thread. It allocates memory, which glibc allows in a
    // forked child, and exits without running other destructors.
    match unsafe { libc::fork() } {
        -1 => panic!("no fork: {}", std::io::Error::last_os_error()),
        0 => {
            drop(first);
            let refused = second.wait().is_err_and(|e| e.error().kind() == ErrorKind::Unsupported);
            // SAFETY: `_exit` only ends the process.
            unsafe { libc::_exit(i32::from(!(refused || ended))) }
        }
        child => {
            let mut status = 0;
            // SAFETY: the pointer to the local variable `status` is valid for a write during the call.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "the child's save was not refused, or the child died");
            first.wait().expect("saved");
            second.wait().expect("saved");
        }
    }
    for name in ["first", "second"] {
        assert_eq!(std::fs::read(folder.path().join(name)).expect("it exists").len(), 100_000);
    }
}

/// Makes this system call fail with this error number, for this thread and threads that it starts.
fn forbid(call: u32, errno: i32) {
    /// The instructions that load a word of the call's description, compare it, and return. From
    /// linux/bpf_common.h.
    const LOAD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let step = |code, jf, k| libc::sock_filter { code, jt: 0, jf, k };
    let mut filter = [
        step(LOAD, 0, 0),
        step(JUMP_IF_EQUAL, 1, call),
        step(RETURN, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
        step(RETURN, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: all arguments are numbers. The call is needed because an unprivileged process may install a
    // filter only after it.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: the kernel copies the program and its filter during the call, and both local variables live
    // longer.
    let installed =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    assert_eq!(installed, 0, "{}", std::io::Error::last_os_error());
}

const ERRNO: &str = "DMA_TEST_ERRNO";
const CALL: &str = "DMA_TEST_CALL";

/// Runs as the child process of the test below.
#[test]
#[ignore = "the next test runs this in a separate process"]
fn child() {
    let Ok(errno) = std::env::var(ERRNO) else { return };
    let call = std::env::var(CALL).expect("set with the other variable");
    forbid(call.parse().expect("a number"), errno.parse().expect("a number"));
    let files = FileQueue::new(&FileQueueOptions::new()).expect("threads");
    assert_eq!(files.method(), Method::Threads);
    let content = bytes(10_000);
    let named = file_of(&content);
    let file = OpenFile::new().with_write(true).open(named.path()).expect("it opens");
    let engine = engine();
    let (buffer, n) = files
        .read_at(&file, 0, engine.allocate(20_000).expect("memory"))
        .expect("room")
        .wait()
        .expect("it reads");
    assert!(n == 10_000 && buffer[..n] == content);
    files.write_at(&file, 10_000, buffer).expect("room").wait().expect("it writes");
    let mut end = [0; 5];
    named.as_file().read_exact_at(&mut end, 10_000).expect("written");
    assert_eq!(end, content[..5]);
    let io_uring = FileQueueOptions::new().with_method(Some(Method::IoUring));
    let e = FileQueue::new(&io_uring).expect_err("forbidden");
    println!("refused: {:?}: {}", e.kind(), e.hint());
}

#[test]
#[cfg_attr(dma_thread_sanitizer, ignore = "io_uring is refused for another reason")]
fn threads_read_and_write_where_io_uring_is_forbidden_or_too_old() {
    for (call, errno, refused) in [
        (libc::SYS_io_uring_setup, libc::EPERM, "PermissionDenied: allow io_uring in the sandbox"),
        (libc::SYS_io_uring_setup, libc::ENOSYS, "Unsupported: allow io_uring in the sandbox"),
        // Linux 5.1 to 5.5 cannot be asked for their operations.
        (libc::SYS_io_uring_register, libc::EINVAL, "Unsupported: use Linux 5.6 or later"),
    ] {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "child", "--ignored", "--nocapture", "--test-threads=1"]);
        command.env(ERRNO, errno.to_string()).env(CALL, call.to_string());
        let output = command.output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains(&format!("refused: {refused}")), "{text}{error}");
    }
}
