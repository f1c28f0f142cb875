//! Tests `dma-bench replay` from outside: its output, its errors and its exit codes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use dma::{DmaEngineExt, MemoryRequest, QueueOptions};
use serde_json::Value;

fn replay(trace: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dma-bench"));
    command.arg("replay").arg(trace).args(["--runs", "1"]).args(words).stdin(Stdio::null());
    command.output().expect("dma-bench starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Records 40 copies in 10 batches, or fills, on `engine`. Returns the trace and the number of
/// doorbells.
fn recorded(folder: &Path, engine: &str, fills: bool) -> (PathBuf, u64) {
    let path = folder.join("copies.trace");
    let engine = dma::open(&format!("record+{engine},file={}", path.display())).expect("it opens");
    let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
    let window = || engine.allocate_window(&MemoryRequest::new(1 << 16)).expect("memory");
    let (src, dst) = (window(), window());
    for _ in 0..10 {
        for at in (0..4 << 12).step_by(1 << 12) {
            let (src, dst) = (src.slice(at..at + 3000), dst.slice(at..at + 3000));
            if fills {
                drop(queue.fill(dst, [1; 8]).expect("accepted"));
            } else {
                drop(queue.copy(src, dst).expect("accepted"));
            }
        }
        queue.flush();
        while queue.available() < queue.depth() {
            queue.poll();
        }
    }
    (path, queue.counters().doorbells)
}

#[test]
fn a_trace_is_shown_beside_the_recorded_run() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, doorbells) = recorded(folder.path(), "cpu:threads=0", false);
    let json = folder.path().join("out.json");
    let json_path = json.display().to_string();
    let words = ["-e", "cpu:threads=0", "-e", "sim:profile=dsa", "-e", "meter+sim", "--json", &json_path];
    let output = replay(&trace, &words);
    let (shown, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}");
    for expected in ["40 operations", "recorded: cpu:threads=0", "sim:profile=dsa", "doorbells", "is a model"]
    {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    let report: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!(report["recorded"]["doorbells"], doorbells);
    let engines = report["engines"].as_array().unwrap();
    assert_eq!(engines.len(), 3);
    for engine in engines {
        assert_eq!((&engine["doorbells"], &engine["descriptors"]), (&10.into(), &40.into()), "{engine}");
        assert_eq!((&engine["verified"], &engine["failed"]), (&40.into(), &0.into()), "{engine}");
        assert!(engine["seconds"].as_f64().unwrap() > 0.0, "{engine}");
    }
    // The recorded engine is used unless other engines are named.
    let csv = text(&replay(&trace, &["--format", "csv", "--quiet"]).stdout);
    let rows: Vec<_> = csv.lines().skip(1).map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(rows, ["cpu:threads=0"; 2], "{csv}");
    let markdown = text(&replay(&trace, &["--format", "markdown"]).stdout);
    assert!(markdown.contains("| recorded: cpu:threads=0"), "{markdown}");
}

#[test]
fn wrong_bytes_and_failures_have_their_exit_codes() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, _) = recorded(folder.path(), "cpu:threads=0", false);
    for (engine, code, says) in [
        ("sim:faults=corrupt@7", 3, "operation 6 of queue 0 is wrong at byte"),
        ("sim:faults=fail@7", 1, "1 of 40 operations failed"),
        ("sim:clock=virtual", 2, "leave clock out"),
        ("cpo", 2, "did you mean `cpu`?"),
        ("record+cpu", 2, "record+cpu:file="),
    ] {
        let output = replay(&trace, &["-e", engine, "-e", "cpu"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{engine}: {said}");
        assert!(said.contains(says), "{engine}: {said}");
        assert!(text(&output.stdout).contains("recorded: cpu"), "the other engines are shown");
    }
}

#[test]
fn an_engine_that_lacks_an_operation_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, _) = recorded(folder.path(), "cpu:threads=0", true);
    let output = replay(&trace, &["-e", "sim:profile=bluefield3"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let expected = "sim:profile=bluefield3: not supported";
    assert!(said.contains(expected) && said.contains("has no fills"), "{said}");
}

#[test]
fn a_trace_without_its_end_is_shown_as_partial() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, doorbells) = recorded(folder.path(), "cpu:threads=0", false);
    let whole = fs::read(&trace).unwrap();
    fs::write(&trace, &whole[..whole.len() - 1]).unwrap();
    let output = replay(&trace, &["-e", "cpu:threads=0"]);
    let (shown, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}");
    for expected in ["40 operations", "the program ended before the trace was complete"] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    let json = replay(&trace, &["-e", "cpu:threads=0", "--format", "json"]);
    let report: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert!(report["program_cpu_seconds"].is_null());
    assert_eq!(report["recorded"]["doorbells"], doorbells);
}

#[test]
fn a_trace_that_cannot_run_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, _) = recorded(folder.path(), "cpu:threads=0", false);
    let whole = fs::read(&trace).unwrap();
    let other = folder.path().join("other.trace");
    let write = |bytes: &[u8]| fs::write(&other, bytes).unwrap();
    let ends = |words: &[&str], code: i32, says: &str| {
        let output = replay(&other, words);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(says), "{says}: {said}");
    };
    ends(&[], 2, "other.trace: No such file");
    write(&whole[..20]);
    ends(&[], 2, "other.trace: the trace is cut off after");
    write(b"{}");
    ends(&[], 2, "other.trace: this is not a trace");
    let mut newer = whole.clone();
    newer[8] = 9;
    write(&newer);
    ends(&[], 2, "has version 9, and this build reads versions 2 to 4");
    write(&whole);
    ends(&["-e", "cpu", "--memory", "4K"], 1, "of memory that the trace needs");
    // The file is longer than the memory. It is sparse.
    fs::File::create(&other).unwrap().set_len(1 << 43).unwrap();
    ends(&[], 2, "do not fit into memory");
    fs::remove_file(&other).unwrap();
    let (empty, code) = (folder.path().join("empty.trace"), Some(2));
    drop(dma::open(&format!("record+cpu:file={}", empty.display())).expect("it opens"));
    let output = replay(&empty, &[]);
    assert_eq!(output.status.code(), code);
    assert!(text(&output.stderr).contains("the trace has no operations"), "{}", text(&output.stderr));
    assert_eq!(replay(&trace, &["--stall", "0"]).status.code(), Some(2));
}

#[test]
fn a_foreign_trace_chooses_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("inner.trace");
    let name = format!("record+cpu:threads=0,file={}", inner.display());
    let path = folder.path().join("copies.trace");
    let options = dma::layers::record::RecordOptions::new(&path).with_engine(name);
    let engine = dma::layers::record::RecordEngine::new(dma::open("cpu").unwrap(), &options).unwrap();
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let (src, dst) = (engine.allocate(64).unwrap(), engine.allocate(64).unwrap());
    queue.copy(src, dst).unwrap().wait().unwrap();
    drop(queue);
    engine.finish().unwrap();
    let output = replay(&path, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("permission denied"), "{}", text(&output.stderr));
    assert!(!inner.exists());
}
