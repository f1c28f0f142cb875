//! The library is a guest in the process of a program: a forked child gets errors and leaves its parent's
//! queues alone, the library's threads leave the signals to the program, and limits of the process and of its
//! control group lead to errors instead of the end of the program.
#![expect(unsafe_code, reason = "forks")]

use std::collections::BTreeSet;
use std::io::Write;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dma::files::{DmaFile, FileQueue, FileQueueOptions};
use dma::prelude::*;
use dma::process::ForkMark;
use dma::{Driver, Queue};
use test_support::patience::until;

/// The environment variable with the part that a child process runs.
const PART: &str = "DMA_TEST_PART";

/// Runs a part in a process of its own, by `command` and the arguments of this test program.
fn run(part: &str, mut command: Command) {
    let status = command
        .args(["--exact", "part", "--ignored", "--nocapture"])
        .env(PART, part)
        .stdin(Stdio::null())
        .status()
        .expect("it starts");
    assert!(status.success(), "{part}: {status}");
}

fn this_program() -> PathBuf {
    std::env::current_exe().expect("a path")
}

#[test]
#[ignore = "the other tests run this in child processes"]
fn part() {
    match std::env::var(PART).as_deref() {
        Ok("fork") => forks(false),
        Ok("nested") => forks(true),
        Ok("threads") => threads(),
        Ok("file-size") => file_size(),
        Ok("memory") => memory(),
        Ok("standard-streams") => standard_streams(),
        _ => {}
    }
}

#[test]
fn a_forked_child_gets_errors_and_its_parent_goes_on() {
    run("fork", Command::new(this_program()));
}

/// The child has the process id of its parent, 1.
#[test]
fn a_child_with_the_number_of_its_parent_gets_errors_and_its_parent_goes_on() {
    let unshare = |program: &Path| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]).arg(program);
        command
    };
    let probe = unshare("true".as_ref()).stderr(Stdio::null()).status();
    if !probe.is_ok_and(|status| status.success()) {
        println!("skipped: this user may not make PID namespaces");
        return;
    }
    run("nested", unshare(&this_program()));
}

#[test]
fn threads_of_the_library_block_signals() {
    run("threads", Command::new(this_program()));
}

#[test]
fn no_file_of_the_library_takes_the_number_of_a_standard_stream() {
    run("standard-streams", Command::new(this_program()));
}

#[test]
fn the_limit_on_file_sizes_leads_to_errors_that_name_it() {
    run("file-size", Command::new(this_program()));
}

/// The control group has less memory than the machine.
#[test]
fn the_limit_of_a_control_group_leads_to_errors() {
    let Some(group) = Group::new(GROUP_LIMIT) else {
        println!("skipped: this user may not make control groups with a limit of memory");
        return;
    };
    let mut command = Command::new("sh");
    // The shell enters the group, so that all memory of this program counts.
    command.args(["-c", "echo $$ >\"$0/cgroup.procs\" && exec \"$@\""]).arg(&group.0).arg(this_program());
    run("memory", command);
}

const GROUP_LIMIT: u64 = 256 << 20;

/// A control group with a limit of memory. Dropping it removes it.
struct Group(PathBuf);

impl Group {
    fn new(limit: u64) -> Option<Self> {
        let name = format!("dma-test-{}", std::process::id());
        let hierarchies = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max", "memory.swap.max"),
        ];
        hierarchies.iter().find_map(|(dir, limit_file, swap_file)| {
            let path = Path::new(dir).join(&name);
            std::fs::create_dir(&path).ok()?;
            let group = Self(path);
            let swap = if limit_file.ends_with("bytes") { limit } else { 0 };
            std::fs::write(group.0.join(limit_file), limit.to_string()).ok()?;
            // Without swap, the group has no more than the limit.
            let _ = std::fs::write(group.0.join(swap_file), swap.to_string());
            Some(group)
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The kernel may list an ended process for a moment.
        let begun = Instant::now();
        while std::fs::remove_dir(&self.0).is_err() && begun.elapsed() < Duration::from_secs(60) {
            std::thread::yield_now();
        }
    }
}

/// Everything that a program may have open when it forks.
struct Opened {
    engine: Arc<dyn DmaEngine>,
    queue: Queue,
    driver: Driver,
    shared: SharedQueue,
    pool: BufferPool,
    /// Operands for a child, which gets no memory from the engine.
    held: Vec<(Vec<BufferMut>, Window)>,
}

impl Opened {
    fn new(name: &str) -> Self {
        let engine = dma::open(name).expect("it opens");
        let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
        let shared = engine.open_shared_queue(&SharedQueueOptions::new()).expect("a queue");
        let pool = BufferPool::new(&engine, &PoolOptions::new().with_class(64, 2)).expect("a pool");
        let driver = queue.driver().expect("a driver");
        let held = [64, 1 << 20].map(|len| {
            let buffers = (0..6).map(|_| engine.allocate(len).expect("memory")).collect();
            (buffers, engine.allocate_window(&MemoryRequest::new(len)).expect("memory"))
        });
        Self { engine, queue, driver, shared, pool, held: held.into() }
    }

    fn memory(&self, len: usize) -> BufferMut {
        self.engine.allocate(len).expect("memory")
    }

    /// Checks that each call fails with `Unsupported`, and returns the operands of a submission.
    fn check_refused(mut self, name: &str) {
        let error = self.engine.allocate(64).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{name}: {error}");
        for (buffers, window) in std::mem::take(&mut self.held) {
            let (mut buffers, len) = (buffers.into_iter(), window.len());
            let mut pair = || (buffers.next().expect("held"), buffers.next().expect("held"));
            let refused = |what: &str, error: dma::OpError<_>| {
                assert_eq!(error.error().kind(), ErrorKind::Unsupported, "{name}, {what}, {len}: {error}");
                error.into_operands().expect("a refusal returns the operands")
            };
            let (src, dst) = pair();
            let (src, dst) = refused("queue", self.queue.copy(src, dst).expect_err("refused"));
            let (src, dst) = refused("shared queue", self.shared.copy(src, dst).expect_err("refused"));
            let mut awaited = Box::pin(self.shared.copy_when_ready(src, dst));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            match awaited.as_mut().poll(&mut context) {
                std::task::Poll::Ready(result) => drop(refused("task", result.expect_err("refused"))),
                std::task::Poll::Pending => panic!("{name}: the task waits for a thread of the parent"),
            }
            let mut batch = || Batch::from_iter([pair()]);
            let error = self.queue.submit(batch()).expect_err("refused");
            assert_eq!(error.error().kind(), ErrorKind::Unsupported, "{name}, batch: {error}");
            let error = self.shared.submit(batch()).expect_err("refused");
            assert_eq!(error.error().kind(), ErrorKind::Unsupported, "{name}, batch: {error}");
            let (from, to) = ((&window, 0), (&window, len / 2));
            assert!(!self.queue.copy_at_once(from, to, len / 2), "{name}");
        }
        let error = self.driver.run().expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{name}: {error}");
        let error = self.queue.driver().expect_err("refused").to_string();
        assert!(error.contains("the queue belongs to the parent"), "{name}: {error}");
        let options = QueueOptions::new();
        for error in [
            self.engine.open_queue(&options).expect_err("refused"),
            self.engine.open_shared_queue(&SharedQueueOptions::new()).expect_err("refused"),
        ] {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{name}: {error}");
            assert!(error.to_string().contains("the engine belongs to the parent"), "{name}: {error}");
        }
        let error = self.shared.ready().wait().expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{name}: {error}");
        assert_eq!(self.engine.explain(), None, "{name}");
        let error = self.pool.held_by("the child").try_get(64).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{name}: {error}");
        assert!(self.shared.stalled().is_none());
        assert_eq!(self.shared.close(Duration::from_secs(60)).completed, 0);
    }

    fn copies(&self) {
        for len in [64, 1 << 20] {
            let mut src = self.memory(len);
            src.fill(7);
            let (src, dst) =
                self.queue.copy(src, self.memory(len)).expect("accepted").wait().expect("it completes");
            assert!(dst[..] == src[..]);
            let (src, dst) = self.shared.copy(src, dst).expect("accepted").wait().expect("it completes");
            assert!(dst[..] == src[..]);
        }
        drop(self.pool.try_get(64).expect("a buffer"));
    }
}

/// Opens everything, forks, and checks the child and then the parent.
fn forks(nested: bool) {
    let names = ["cpu:threads=2", "sim", "auto", "meter+cpu", "verify+sim"];
    let opened: Vec<_> = names.iter().map(|name| Opened::new(name)).collect();
    opened.iter().for_each(Opened::copies);
    // Copies that the device never completes.
    let stuck = Opened::new("sim:faults=stick@1");
    let in_flight = stuck.queue.copy(stuck.memory(64), stuck.memory(64)).expect("accepted");
    stuck.queue.flush();
    let shared = stuck.shared.copy(stuck.memory(64), stuck.memory(64)).expect("accepted");
    let dropped = stuck.shared.copy(stuck.memory(64), stuck.memory(64)).expect("accepted");

    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    std::fs::write(&path, [7; 4096]).expect("written");
    let files = FileQueue::new(&FileQueueOptions::new()).expect("a queue");
    let file = DmaFile::open(&path).expect("it opens");
    let cpu = &opened[0].engine;
    let exported = cpu.allocate_window(&MemoryRequest::new(4096).exportable(Access::READ)).expect("memory");
    let export = exported.export(Access::READ).expect("an export");

    let (mark, number) = (ForkMark::new(), std::process::id());
    let mut all = Some((opened, stuck, in_flight, shared, dropped, files, export, exported));
    if nested {
        // SAFETY: this affects only the numbers of later children.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWPID) }, 0);
    }
    // SAFETY: the child only calls functions that do not wait for other threads of the parent, and ends
    // without returning from this function.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let checked = catch_unwind(AssertUnwindSafe(|| {
            let (opened, stuck, in_flight, shared, dropped, files, export, exported) =
                all.take().expect("set above");
            assert!(mark.is_child());
            assert_eq!(std::process::id() == number, nested);
            for (opened, name) in opened.into_iter().zip(names) {
                opened.check_refused(name);
            }
            let error = in_flight.wait().expect_err("it is the parent's");
            assert_eq!(error.error().kind(), ErrorKind::Unsupported, "{error}");
            let error = shared.wait().expect_err("it is the parent's");
            assert_eq!(error.error().kind(), ErrorKind::Unsupported, "{error}");
            drop(dropped);
            stuck.check_refused("stuck");
            let memory = dma::open("cpu").expect("it opens").allocate(10).expect("memory");
            let error = files.read_at(&file, 0, memory).expect_err("refused");
            assert_eq!(error.error().kind(), ErrorKind::Unsupported, "{error}");
            let error = exported.export(Access::READ).expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            let (export, error) = export.revoke(Duration::ZERO).expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            let (exported, error) = exported.deregister().expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            drop((files, export, exported));
            // The child's own queues work.
            Opened::new("cpu:threads=1").copies();
        }));
        // SAFETY: `_exit` ends the process without running code of the parent.
        unsafe { libc::_exit(i32::from(checked.is_err())) };
    }
    let mut status = 0;
    // SAFETY: the status is a local variable.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child's status");

    let (opened, stuck, in_flight, shared, dropped, files, export, _exported) =
        all.take().expect("only the child takes it");
    opened.iter().for_each(Opened::copies);
    let read = files.read_at(&file, 0, opened[0].memory(10)).expect("accepted").wait().expect("it reads");
    assert_eq!(read.1, 10);
    let imported = opened[0].engine.import(export.descriptor()).expect("an import");
    drop(imported);
    drop((in_flight, shared, dropped));
    for close in [stuck.queue.close(Duration::ZERO), stuck.shared.close(Duration::ZERO)] {
        assert_eq!(close.completed, 0);
    }
}

/// Opens everything that starts threads, and looks at their masks.
fn threads() {
    let opened: Vec<_> = ["cpu:threads=2", "sim", "auto"].iter().map(|name| Opened::new(name)).collect();
    opened.iter().for_each(Opened::copies);
    let files = FileQueue::new(&FileQueueOptions::new()).expect("a queue");
    let by_threads = FileQueueOptions::new().with_method(Some(dma::files::Method::Threads));
    let by_threads = FileQueue::new(&by_threads).expect("a queue");
    let cpu = &opened[0].engine;
    let exported = cpu.allocate_window(&MemoryRequest::new(4096).exportable(Access::READ)).expect("memory");
    let export = exported.export(Access::READ).expect("an export");
    let watched = PoolOptions::new().with_class(64, 1).with_wait_warning(Duration::from_secs(600));
    let watched = BufferPool::new(cpu, &watched).expect("a pool");
    let _held = watched.try_get(64).expect("a buffer");
    let mut waits = Box::pin(watched.get(64));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(waits.as_mut().poll(&mut context).is_pending());

    let expected = ["dma-cpu-", "dma-files", "dma-lane-", "dma-pool-waits", "dma-remote"];
    // A thread gets its name when it runs for the first time.
    until("the threads have their names", || names_of_blocking_threads() == expected);
    drop((opened, files, by_threads, export, watched));
}

/// Closes the standard streams, opens everything that has files, and looks at the numbers of the streams.
fn standard_streams() {
    // SAFETY: the numbers are only looked up.
    let open = || (0..3).filter(|number| unsafe { libc::fcntl(*number, libc::F_GETFD) } != -1);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    std::fs::write(&path, [7; 4096]).expect("written");
    let file = DmaFile::open(&path).expect("it opens");
    let recorded = format!("record+cpu:file={}", folder.path().join("trace").display());
    // A copy of the standard error, for a failure of this test.
    let log = std::fs::File::from(std::io::stderr().as_fd().try_clone_to_owned().expect("a copy"));
    std::panic::set_hook(Box::new(move |panic| _ = writeln!(&log, "{panic}")));
    for number in 0..3 {
        // SAFETY: no other code uses these descriptors from here on: the harness ignores that its standard
        // output is closed.
        assert_eq!(unsafe { libc::close(number) }, 0);
    }
    let opened = ["cpu:threads=2", "sim", "sim:device_memory=1M", "auto", &recorded].map(Opened::new);
    let free = |what: &str| assert_eq!(open().count(), 0, "{what}: {:?}", open().collect::<Vec<_>>());
    free("engines");
    let create = dma::files::OpenFile::new().with_create(true);
    let created = create.open(folder.path().join("created")).expect("it opens");
    free("a file that a program opens");
    let cpu = &opened[0].engine;
    for method in [None, Some(dma::files::Method::Threads)] {
        let files = FileQueueOptions::new().with_method(method);
        let files = FileQueue::new(&files).expect("a queue");
        free("files");
        let memory = cpu.allocate(10).expect("memory");
        assert_eq!(files.read_at(&file, 0, memory).expect("accepted").wait().expect("it reads").1, 10);
        free("files");
    }
    let exported = cpu.allocate_window(&MemoryRequest::new(4096).exportable(Access::READ)).expect("memory");
    let export = exported.export(Access::READ).expect("an export");
    free("an export");
    let imported = opened[0].engine.import(export.descriptor()).expect("an import");
    free("an import");
    opened.iter().for_each(Opened::copies);
    free("copies");
    drop((imported, export, exported, opened, created));
}

/// Checks the signal masks of the library's threads, and returns the names of the threads without numbers.
fn names_of_blocking_threads() -> Vec<String> {
    let mut found = BTreeSet::new();
    for task in std::fs::read_dir("/proc/self/task").expect("procfs") {
        // A thread may end while this runs.
        let Ok(status) = std::fs::read_to_string(task.expect("a thread").path().join("status")) else {
            continue;
        };
        let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).expect("a field").trim();
        let (name, blocked) = (field("Name:"), u64::from_str_radix(field("SigBlk:"), 16).expect("a mask"));
        if !name.starts_with("dma-") {
            continue;
        }
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR1, libc::SIGCHLD, libc::SIGALRM]
        {
            assert!(blocked & 1 << (signal - 1) != 0, "{name} takes signal {signal}");
        }
        assert!(blocked & 1 << (libc::SIGSEGV - 1) == 0, "{name} hides a fault from the program's handler");
        found.insert(name.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned());
    }
    found.into_iter().collect()
}

const ENGINES: [&str; 4] = ["cpu", "sim", "auto", "verify+cpu"];

/// Allocates more shared memory, and writes longer files, than the process may.
fn file_size() {
    let engines = ENGINES.map(|name| dma::open(name).expect("it opens"));
    let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the pointer is valid during the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
    let names_limit = |what: &str, error: &dma::Error| {
        assert_eq!(error.kind(), ErrorKind::OutOfResources, "{what}: {error}");
        assert!(format!("{error} {}", error.hint()).contains("ulimit -f"), "{what}: {error}");
    };
    for (engine, name) in engines.iter().zip(ENGINES) {
        engine.allocate(4 << 20).expect("plain memory is not a file");
        let shared = |len| MemoryRequest::new(len).exportable(Access::READ);
        names_limit(name, &engine.allocate_with(&shared(4 << 20)).expect_err("beyond the limit"));
        engine.allocate_with(&shared(1 << 19)).expect("within the limit");
        let pool = PoolOptions::new().with_class(1 << 20, 4).exportable(Access::READ);
        names_limit(name, &BufferPool::new(engine, &pool).expect_err("beyond the limit"));
    }
    names_limit("device memory", &dma::open("sim:device_memory=4M").map(drop).expect_err("beyond the limit"));

    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("output");
    let mut output = dma::process::OutputFile::create(&path).expect("created");
    let error = output.write_all(&vec![0; 2 << 20]).expect_err("beyond the limit");
    names_limit("output", &dma::Error::of_output_file(&path, error));
    assert!(!path.exists());
    let files = FileQueue::new(&FileQueueOptions::new()).expect("a queue");
    let file = dma::files::OpenFile::new().with_create(true).open(&path).expect("created");
    let bytes = engines[0].allocate(4096).expect("memory");
    let error = files.write_at(&file, 1 << 20, bytes).expect_err("beyond the limit");
    names_limit("file queue", error.error());
    let buffer = error.into_parts().1.expect("the process was not forked");
    files.write_at(&file, 0, buffer).expect("accepted").wait().expect("within the limit");
}

/// Allocates more memory than the control group has.
fn memory() {
    let available = dma::process::available_memory().expect("procfs");
    assert!(available <= GROUP_LIMIT, "{available}");
    for name in ENGINES {
        let engine = dma::open(name).expect("it opens");
        let len = GROUP_LIMIT as usize;
        for export in [Access::empty(), Access::READ] {
            let request = |len| MemoryRequest::new(len).exportable(export);
            let error = engine.allocate_with(&request(len)).expect_err("more than the group has");
            assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{name}: {error}");
            engine.allocate_with(&request(len / 8)).expect("less than the group has");
        }
        let pool = PoolOptions::new().with_class(len / 64, 64);
        let error = BufferPool::new(&engine, &pool).expect_err("more than the group has");
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{name}: {error}");
    }
    let sim = dma::open("sim:device_memory=1G").expect("it opens");
    let device = MemoryRequest::new(GROUP_LIMIT as usize).with_place(dma::Place::Device);
    let error = sim.allocate_window(&device).expect_err("more than the group has");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
}
