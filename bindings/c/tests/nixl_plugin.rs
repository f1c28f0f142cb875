//! Tests the NIXL plugin without NIXL: a program calls it by slot numbers and offsets, and detects wrong
//! declarations. `ci/nixl.sh` runs the plugin in NIXL's own wheels.
#![cfg(not(any(dma_address_sanitizer, dma_thread_sanitizer)))]

mod nixl;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use test_support::stand_ins;

use nixl::{DIR, FUNCTIONS, expect_success, libnixl, lock, output, text};

/// The directory of the package.
const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// The program `host` and the plugin, which are compiled at the same time.
static BUILT: LazyLock<(PathBuf, PathBuf)> = LazyLock::new(|| {
    let host = std::thread::spawn(|| nixl::program("host", &["-O1"]));
    let plugin = nixl::plugin(false);
    (host.join().expect("the host is built"), plugin)
});
/// A library with the functions of release 1.5.1.
static RELEASE: LazyLock<PathBuf> = LazyLock::new(|| libnixl("checked", FUNCTIONS.lines()));

/// Returns the command for a test of `host.cpp`. Freed memory is overwritten.
fn host(plugin: &Path, libnixl: &Path, test: &str) -> Command {
    let mut command = Command::new(&BUILT.0);
    command.arg(plugin).arg(libnixl).arg(test).env("MALLOC_PERTURB_", "165");
    command
}

#[track_caller]
fn passes(test: &str) {
    expect_success(&mut host(&BUILT.1, &RELEASE, test));
}

#[test]
fn the_table_and_the_members_are_where_nixl_reads_them() {
    passes("table");
}

/// The program's options win over the environment, and the environment over the file.
#[test]
fn options_come_from_the_program_the_environment_and_a_file() {
    let file = DIR.join("options");
    // This program may run twice at once.
    let _lock = lock(&file);
    fs::write(&file, "# for all agents\n\n engine = sim:seed=1\nptrace=any\nstall_ms=9000\n")
        .expect("a file");
    let run = |variables: &[(&str, &str)]| {
        let mut command = host(&BUILT.1, &RELEASE, "options");
        output(command.envs(variables.iter().copied()))
    };
    let path = file.to_str().expect("plain");
    let found = run(&[
        ("DMA_NIXL_OPTIONS", path),
        ("DMA_NIXL_ENGINE", "sim:seed=7"),
        ("DMA_NIXL_STALL_MS", "8000"),
        ("DMA_NIXL_ANSWER_MS", "7000"),
        ("DMA_NIXL_LISTEN", ""),
    ]);
    assert!(found.status.success(), "{}", text(&found));
    for expected in ["engine is sim:seed=7\n", "ptrace is any\n", "stall_ms is 20000\n", "listen is \n"] {
        assert!(text(&found).contains(expected), "{expected}: {}", text(&found));
    }
    let said = format!(
        "dma-nixl: agent me: answer_ms=7000 (DMA_NIXL_ANSWER_MS), engine=sim:seed=7 (DMA_NIXL_ENGINE), \
         ptrace=any ({path}:4), stall_ms=20000 (program)\n"
    );
    // Once, although the program makes two backends.
    assert_eq!(String::from_utf8_lossy(&found.stderr), said);

    fs::write(&file, "engine=cpu\nengin=cpu\n").expect("a file");
    let odd = DIR.join("odd_options");
    fs::write(&odd, "engine cpu\n").expect("a file");
    let no_option = "there is no option engin; the options are engine=NAME";
    for (variable, value, says) in [
        ("DMA_NIXL_ENGIN", "cpu", format!("DMA_NIXL_ENGIN: {no_option}")),
        ("DMA_NIXL_ANSWER_MS", "0", "option answer_ms=0 (DMA_NIXL_ANSWER_MS); give a number of".to_owned()),
        ("DMA_NIXL_PEERS", "all", "option peers=all (DMA_NIXL_PEERS); the only allowed value".to_owned()),
        ("DMA_NIXL_ENGINE", "none", "none".to_owned()),
        ("DMA_NIXL_OPTIONS", path, format!("{path}:2: {no_option}")),
        ("DMA_NIXL_OPTIONS", odd.to_str().expect("plain"), ":1: `engine cpu` is not NAME=VALUE".to_owned()),
        ("DMA_NIXL_OPTIONS", "/nowhere", "/nowhere, which cannot be read: No such file".to_owned()),
        ("DMA_NIXL_OPTIONS", "/", "cannot be read".to_owned()),
    ] {
        let refused = run(&[(variable, value)]);
        assert!(!refused.status.success(), "{variable}={value}");
        assert!(text(&refused).contains(&says), "{variable}={value}: {}", text(&refused));
    }
}

#[test]
fn transfers_within_a_process_are_right() {
    passes("local");
}

#[test]
fn transfers_between_processes_are_right() {
    passes("peers");
}

#[test]
fn deregistering_and_releasing_wait_for_the_device() {
    passes("waits");
}

#[test]
fn memory_is_registered_again() {
    passes("again");
}

#[test]
fn a_transfer_is_released_while_its_memory_is_deregistered() {
    passes("threads");
}

#[test]
fn failures_of_a_device_are_errors() {
    passes("fault");
    passes("stuck");
}

#[test]
fn estimates_come_from_earlier_transfers() {
    passes("estimates");
}

#[test]
fn adjacent_pieces_are_one_copy() {
    passes("adjacent");
}

#[test]
fn failed_pieces_are_tried_again() {
    passes("retries");
}

#[test]
fn the_cpu_takes_over_from_a_lost_device() {
    passes("fallback");
}

#[test]
fn auto_and_wrappers_work() {
    passes("wrappers");
}

#[test]
fn killed_and_stopped_peers_are_errors() {
    passes("killed");
}

#[test]
fn a_taken_mailbox_gets_nothing() {
    passes("taken");
}

#[test]
fn waiting_for_a_mailbox_sleeps() {
    passes("sleeps");
}

#[test]
fn unreachable_peers_are_errors() {
    passes("unreachable");
}

/// Runs a test of two processes as if they were on two hosts with RDMA.
#[track_caller]
fn passes_between_hosts(test: &str) {
    let mut command = host(&BUILT.1, &RELEASE, test);
    expect_success(command.env("DMA_IBVERBS_LIB_DIR", stand_ins::rdma_emu_prefix()));
}

#[test]
fn transfers_between_hosts_are_right() {
    passes_between_hosts("far");
}

#[test]
fn killed_and_stopped_peers_on_other_hosts_are_errors() {
    passes_between_hosts("far_killed");
}

#[test]
fn a_stopped_peer_on_another_host_delays_no_other_peer() {
    passes_between_hosts("far_stopped");
}

/// The examples of FIPS 180-4 and RFC 4231, and lengths around the length at which a message needs one
/// more block.
#[test]
fn proofs_between_hosts_are_hmacs_with_sha_256() {
    let expected = "\
        e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n\
        9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318\n\
        b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a\n\
        7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34\n\
        ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb\n\
        41edece42d63e8d9bf515a9ba6932e1c20cbc9f5a5d134645adb5db1b9737ea3\n\
        ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n\
        5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843\n\
        60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54\n";
    assert_eq!(expect_success(&mut Command::new(nixl::program("hashes", &[]))), expected);
}

#[test]
fn memory_of_a_gpu_is_copied_in_all_directions() {
    let cuda = stand_ins::cuda_emu_prefix().join("lib");
    for (test, faults) in [("gpu", ""), ("gpu_wrapped", ""), ("gpu_lost", "faults = 'gone@1'")] {
        passes_on_gpus(&cuda, test, faults);
    }
}

/// Runs a test on the stand-in for CUDA's driver with this configuration.
#[track_caller]
fn passes_on_gpus(cuda: &Path, test: &str, configuration: &str) {
    let mut command = host(&BUILT.1, &RELEASE, test);
    command.arg(cuda.join("libcuda.so.1")).env("DMA_CUDA_LIB_DIR", cuda).env("CUDA_EMU", configuration);
    expect_success(&mut command);
}

#[test]
fn memory_of_a_gpu_is_copied_between_processes() {
    let cuda = stand_ins::cuda_emu_prefix().join("lib");
    passes_on_gpus(&cuda, "gpu_peer", "");
    passes_on_gpus(&cuda, "gpu_peer", "delay = '100us'\nfaults = 'refuse@100+refuse@101+refuse@300'");
    passes_on_gpus(&cuda, "gpu_peer_gone", "delay = '50ms'");
    passes_on_gpus(&cuda, "gpu_refused", "");
    passes_on_gpus(&cuda, "gpu_refused", "[[gpu]]\nname = 'one'\n[[gpu]]\nname = 'two'");
}

#[test]
fn memory_of_a_gpu_is_copied_between_hosts() {
    let cuda = stand_ins::cuda_emu_prefix().join("lib");
    let mut command = host(&BUILT.1, &RELEASE, "gpu_far");
    command.arg(cuda.join("libcuda.so.1")).env("DMA_CUDA_LIB_DIR", cuda);
    expect_success(command.env("DMA_IBVERBS_LIB_DIR", stand_ins::rdma_emu_prefix()));
}

#[test]
fn memory_that_a_device_keeps_is_never_given_back() {
    let cuda = stand_ins::cuda_emu_prefix().join("lib");
    // The CPU takes over no transfer whose destination the device may still write.
    for fallback in ["", "cpu"] {
        let mut command = host(&BUILT.1, &RELEASE, "lost");
        command.env("DMA_CUDA_LIB_DIR", &cuda).env("CUDA_EMU", "faults = 'stick@1'");
        let output = output(command.env("DMA_NIXL_FALLBACK", fallback));
        let text = text(&output);
        assert_eq!(output.status.signal(), Some(6), "{}\n{text}", output.status);
        let expected = ["its transfer has failed", "may still write to memory"];
        assert!(expected.iter().all(|each| text.contains(each)), "{text}");
    }
}

#[test]
fn other_releases_of_nixl_are_refused_with_the_reason() {
    let one_less = libnixl("older", FUNCTIONS.lines().skip(1));
    let one_more = libnixl("newer", FUNCTIONS.lines().chain(["_ZN9nixlAgent7newCallEv"]));
    for library in [one_less, one_more] {
        let refused = expect_success(&mut host(&BUILT.1, &library, "refused"));
        assert!(refused.contains("is no release from 1.0.0 to 1.5.1"), "{refused}");
    }
    let refused = expect_success(&mut host(&BUILT.1, Path::new("none"), "refused"));
    assert!(refused.contains("this process has no libnixl.so"), "{refused}");
    // Functions of other classes do not count.
    let same = libnixl("same", FUNCTIONS.lines().chain(["_ZN13nixlAgentData4callEv"]));
    expect_success(&mut host(&BUILT.1, &same, "table"));
}

#[test]
#[ignore = "builds the plugin ten times; `ci/nixl.sh full` runs it"]
fn wrong_declarations_are_told() {
    // A `static_assert` rejects a wrong declaration, or the plugin compiles and a test of `host.cpp` fails.
    let mutants = [
        (
            "virtual Status check(Handle *handle) const = 0;\n  virtual Status release(Handle *handle) const = 0;",
            "virtual Status release(Handle *handle) const = 0;\n  virtual Status check(Handle *handle) const = 0;",
        ),
        ("  virtual void release_view(void *) const {}\n", ""),
        ("  uintptr_t address;\n  size_t len;", "  size_t len;\n  uintptr_t address;"),
        ("  MemoryType type_;\n  std::vector<T> ranges_;", "  std::vector<T> ranges_;\n  MemoryType type_;"),
        ("  std::mutex events_mutex_;\n", ""),
        ("enum Direction : unsigned { READ, WRITE }", "enum Direction : unsigned { WRITE, READ }"),
        ("  IN_PROGRESS = 1,\n  SUCCESS = 0,", "  IN_PROGRESS = 0,\n  SUCCESS = 1,"),
        (
            "  std::string notification;\n  bool has_notification;",
            "  bool has_notification;\n  std::string notification;",
        ),
        ("  std::string agent;\n  std::string type;", "  std::string type;\n  std::string agent;"),
        (
            "  virtual Status connect(const std::string &agent) = 0;\n  virtual Status disconnect(const std::string &agent) = 0;",
            "  virtual Status disconnect(const std::string &agent) = 0;\n  virtual Status connect(const std::string &agent) = 0;",
        ),
    ];
    let right = fs::read_to_string(nixl::sources().join("interface.hpp")).expect("readable");
    for (number, (from, to)) in mutants.into_iter().enumerate() {
        let sources = DIR.join(format!("mutant-{number}"));
        fs::create_dir_all(&sources).expect("a directory");
        for file in fs::read_dir(nixl::sources()).expect("readable") {
            let file = file.expect("readable").path();
            fs::copy(&file, sources.join(file.file_name().expect("a name"))).expect("a copy");
        }
        assert_eq!(right.matches(from).count(), 1, "{from}");
        fs::write(sources.join("interface.hpp"), right.replace(from, to)).expect("a file");
        let plugin = sources.join("libplugin_DMA.so");
        let built = output(&mut nixl::plugin_command(&sources, &plugin, false));
        if !built.status.success() {
            assert!(text(&built).contains("static assertion failed"), "{from}: {}", text(&built));
            continue;
        }
        let told = ["table", "local"]
            .into_iter()
            .any(|test| !output(&mut host(&plugin, &RELEASE, test)).status.success());
        assert!(told, "not told: {from}");
    }
}
