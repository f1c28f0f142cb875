//! Errors of an engine at the system's limits of file descriptors and threads, in processes of their own.

#[path = "support/calls.rs"]
mod calls;

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use calls::library;
use dma_core::{Access, DmaEngineExt, Error, ErrorKind, MemoryRequest};
use dma_doca::{DocaEngine, DocaOptions};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const CASE: &str = "DMA_DOCA_TEST_LIMIT";
/// A user without other processes, so that the limit counts only threads of the test.
const NOBODY: u32 = 65_534;

fn open(address: &str) -> DocaEngine {
    DocaEngine::open(&DocaOptions::new().with_address(address.parse().unwrap()).with_library(library()))
        .unwrap()
}

fn limit(resource: Resource, most: u64) {
    let maximum = getrlimit(resource).maximum;
    setrlimit(resource, Rlimit { current: Some(most), maximum }).unwrap();
}

/// Uses up file descriptors, so that this process has only `left` more.
fn descriptors(left: usize) -> Vec<File> {
    limit(Resource::Nofile, 256);
    let mut files = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
    }
    files.truncate(files.len() - left);
    files
}

fn check(error: &Error, remedy: &str) {
    assert_eq!(error.kind(), ErrorKind::OutOfResources, "{error}");
    assert!(error.to_string().contains(remedy), "{error}");
}

/// Runs one case of the other test, in a process of its own.
#[test]
#[ignore = "a part of the other test, in a separate process"]
fn case() {
    let Ok(case) = std::env::var(CASE) else { return };
    let request = || MemoryRequest::new(8192).exportable(Access::all());
    match case.as_str() {
        "allocate without descriptors" => {
            let engine = open("3b:00.0");
            let _files = descriptors(0);
            check(&engine.allocate_window(&request()).unwrap_err(), "ulimit -n");
        }
        "export without descriptors" => {
            let engine = open("3b:00.0");
            let window = engine.allocate_window(&request()).unwrap();
            let _files = descriptors(0);
            check(&window.export(Access::READ).unwrap_err(), "ulimit -n");
        }
        "import without descriptors" => {
            let (host, dpu) = (open("3b:00.0"), open("03:00.0"));
            let window = host.allocate_window(&request()).unwrap();
            let export = window.export(Access::READ).unwrap();
            for left in 0..3 {
                let files = descriptors(left);
                check(&dpu.import(export.descriptor()).unwrap_err(), "ulimit -n");
                drop(files);
            }
        }
        "export without threads" => {
            let engine = open("3b:00.0");
            let window = engine.allocate_window(&request()).unwrap();
            let before = getrlimit(Resource::Nproc);
            limit(Resource::Nproc, 0);
            check(&window.export(Access::READ).unwrap_err(), "ulimit -u");
            // Restore the limit, because a leak checker starts a process when this process ends.
            setrlimit(Resource::Nproc, before).unwrap();
        }
        other => panic!("{other}"),
    }
    println!("checked");
}

#[test]
fn each_limit_is_named_with_its_remedy() {
    for case in [
        "allocate without descriptors",
        "export without descriptors",
        "import without descriptors",
        "export without threads",
    ] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["case", "--exact", "--ignored", "--nocapture", "--test-threads=1"]).env(CASE, case);
        command.stdin(Stdio::null());
        // Root has no limit on threads.
        if case.ends_with("threads") && rustix::process::getuid().is_root() {
            command.uid(NOBODY);
        }
        let output = command.output().unwrap();
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && said.contains("checked"), "{case}: {:?}\n{said}", output.status);
    }
}
