//! Tests of engines in processes with a seccomp filter that forbids one system call, as in a sandbox.
#![expect(unsafe_code, reason = "installs a seccomp filter")]

use std::process::{Command, Stdio};

use dma::prelude::*;
use test_support::stand_ins;

/// The environment variable with the system call that the child process forbids.
const CALL: &str = "DMA_TEST_FORBIDDEN_CALL";
/// The environment variable with the engine that the child process opens.
const ENGINE: &str = "DMA_TEST_ENGINE";

/// Names and numbers of the system calls of the cases.
const CALLS: [(&str, libc::c_long); 8] = [
    ("eventfd2", libc::SYS_eventfd2),
    ("pipe2", libc::SYS_pipe2),
    ("timerfd_create", libc::SYS_timerfd_create),
    ("epoll_create1", libc::SYS_epoll_create1),
    ("epoll_pwait", libc::SYS_epoll_pwait),
    ("accept4", libc::SYS_accept4),
    ("prlimit64", libc::SYS_prlimit64),
    ("memfd_create", libc::SYS_memfd_create),
];

/// Makes `call` fail with EPERM in this thread and in the threads that it starts.
fn forbid(call: libc::c_long) {
    /// Instruction from linux/bpf_common.h: loads a word of the call's description.
    const LOAD: u16 = 0x20;
    /// Instruction from linux/bpf_common.h: compares the word.
    const JUMP_IF_EQUAL: u16 = 0x15;
    /// Instruction from linux/bpf_common.h: returns the decision.
    const RETURN: u16 = 0x06;
    const DENY: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let step = |code, jf, k| libc::sock_filter { code, jt: 0, jf, k };
    let mut filter = [
        step(LOAD, 0, 0),
        step(JUMP_IF_EQUAL, 1, call as u32),
        step(RETURN, 0, DENY),
        step(RETURN, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the arguments are numbers. The call gives up the right to gain privileges, which a filter
    // without privileges requires.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: the program and its filter live until the kernel has copied them.
    let installed =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    assert_eq!(installed, 0, "{}", std::io::Error::last_os_error());
}

/// The part of the tests below that runs in a child process.
#[test]
#[ignore = "the other tests run this in a child process"]
fn child() {
    let (Ok(call), Ok(name)) = (std::env::var(CALL), std::env::var(ENGINE)) else { return };
    let number = CALLS.iter().find(|(known, _)| *known == call).expect("the call is in the list").1;
    forbid(number);
    let engine = dma::open(&name).unwrap();
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let mut src = engine.allocate(100_000).unwrap();
    src.fill(7);
    let (_, dst) = queue.copy(src, engine.allocate(100_000).unwrap()).unwrap().wait().unwrap();
    assert!(dst.iter().all(|&byte| byte == 7));
    match queue.driver() {
        Ok(_) => println!("driver: made"),
        Err(e) => println!("driver: {:?}: {e}", e.kind()),
    }
    let request = MemoryRequest::new(100).exportable(Access::READ);
    match engine.allocate_window(&request).and_then(|memory| memory.export(Access::READ).map(drop)) {
        Ok(()) => println!("export: made"),
        Err(e) => println!("export: {:?}: {e}", e.kind()),
    }
}

/// Runs [`child`], and returns the line that it printed about `what`.
fn run(call: &str, engine: &str, what: &str) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "child", "--ignored", "--nocapture", "--test-threads=1"])
        .envs([(CALL, call), (ENGINE, engine)])
        .env("DMA_DOCA_LIB_DIR", stand_ins::library_dir(&stand_ins::doca_emu_prefix()))
        .env("DMA_SPDK_LIB_DIR", stand_ins::spdk_emu_prefix().join("lib"))
        .env("DMA_IBVERBS_LIB_DIR", stand_ins::rdma_emu_prefix())
        .stdin(Stdio::null());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{engine} without {call}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text.lines().find(|line| line.contains(what)).expect("the output has a line about it").to_owned()
}

/// A queue that never sleeps needs no event descriptor, so it works without the call. Making a driver fails,
/// and the error names the refused call.
#[test]
fn queues_copy_without_the_calls_that_only_sleeping_needs() {
    for (call, engine) in [
        ("eventfd2", "cpu"),
        ("timerfd_create", "cpu"),
        ("epoll_create1", "cpu"),
        ("timerfd_create", "sim:clock=real"),
        ("eventfd2", "auto:device=sim"),
        ("timerfd_create", "auto:device=sim"),
        ("epoll_create1", "auto:device=sim"),
    ] {
        let driver = run(call, engine, "driver: ");
        let remedy = driver.contains("PermissionDenied")
            && driver.contains(&format!("{call} was refused"))
            && driver.contains("os error 1")
            && driver.contains("seccomp");
        assert!(remedy, "{engine} without {call}: {driver}");
    }
}

/// Vendors' libraries load even if `memfd_create` is forbidden: a temporary file replaces the file in memory.
#[test]
fn vendors_libraries_load_without_files_in_memory() {
    for engine in ["cpu", "doca", "ioat", "rdma"] {
        run("memfd_create", engine, "driver: ");
    }
}

/// An importer would wait for a process that cannot wait for importers.
#[test]
fn exports_need_the_calls_of_the_thread_that_serves_importers() {
    for call in ["pipe2", "epoll_create1", "epoll_pwait", "accept4"] {
        let export = run(call, "cpu", "export: ");
        assert!(export.contains("PermissionDenied") && export.contains("os error 1"), "{call}: {export}");
    }
    for call in ["timerfd_create", "prlimit64"] {
        assert_eq!(run(call, "cpu", "export: "), "export: made", "{call}");
    }
}
