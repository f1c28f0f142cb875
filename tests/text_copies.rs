//! Tests of the examples that copy a text: within one process, and from host to DPU with two files.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use test_support::built;

/// Engines that can import the export of another process on this machine.
const ENGINES: [&str; 2] = ["cpu", "sim:profile=bluefield3"];

fn run(example: &str, args: &[&str]) -> Output {
    Command::new(built::example(example)).args(args).stdin(Stdio::null()).output().expect("it runs")
}

/// Returns the standard output of an example that must succeed.
fn says(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{:?}\n{out}{err}", output.status);
    out.into_owned()
}

/// Returns the standard error of an example that must fail.
fn fails(output: &Output) -> String {
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && output.status.code().is_some(), "{:?}: {err}", output.status);
    err
}

/// The host's process, which has exported a text and waits for Enter.
struct Host {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Host {
    fn start(engine: &str, dir: &Path, text: &str, more: &[&str]) -> Self {
        let mut command = Command::new(built::example("10_copy_host"));
        command
            .args(["--engine", engine, "--txt", text, "--export", "export.bin", "--buffer", "buffer.txt"])
            .args(more)
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        Self::wait(command)
    }

    /// Starts `command` and waits until it has exported.
    fn wait(mut command: Command) -> Self {
        let mut child = command.spawn().expect("it starts");
        let mut host = Self { out: BufReader::new(child.stdout.take().expect("piped")), child };
        assert!(host.line().starts_with("exported "));
        host
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("it speaks");
        line
    }

    /// Presses Enter and waits until the host's process ends.
    fn finish(mut self) {
        self.child.stdin.take().expect("piped").write_all(b"\n").expect("it listens");
        assert!(self.line().starts_with("press Enter"));
        assert_eq!(self.line(), "revoked\n");
        assert!(self.child.wait().expect("it ends").success());
    }
}

/// Runs the DPU's program in `dir`.
fn dpu(engine: &str, dir: &Path) -> Output {
    Command::new(built::example("11_copy_dpu"))
        .args(["--engine", engine, "--export", "export.bin", "--buffer", "buffer.txt"])
        .current_dir(dir)
        .stdin(Stdio::null())
        .output()
        .expect("it runs")
}

#[test]
fn a_text_is_copied_on_every_engine() {
    for engine in ENGINES {
        let said = says(&run("09_local_copy", &["--engine", engine, "--txt", "Grüße an die DPU"]));
        assert_eq!(said.lines().last(), Some("Grüße an die DPU"), "{engine}");
    }
    assert!(fails(&run("09_local_copy", &["--txt", ""])).contains("--txt"));
    assert!(fails(&run("09_local_copy", &["--pci", "3:00.0"])).contains("DDDD:BB:DD.F"));
    assert!(fails(&run("09_local_copy", &["--pci", "03:00.0", "--engine", "cpu"])).contains("--engine"));
}

#[test]
fn a_text_goes_from_host_to_dpu() {
    for engine in ENGINES {
        let dir = tempfile::tempdir().expect("a directory");
        let text = format!("from the host, by {engine}");
        let host = Host::start(engine, dir.path(), &text, &[]);
        for _ in 0..2 {
            let said = says(&dpu(engine, dir.path()));
            assert_eq!(said.lines().last(), Some(&*text), "{engine}");
        }
        host.finish();
        // The host has revoked the export.
        fails(&dpu(engine, dir.path()));
    }
}

#[test]
fn without_arguments_both_sides_use_the_same_default_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let command = |example| {
        let mut command = Command::new(built::example(example));
        command.env("TMPDIR", dir.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    };
    let output = command("11_copy_dpu").stderr(Stdio::piped()).output().expect("it runs");
    assert!(fails(&output).contains("start 10_copy_host"), "no host has written the files");
    let host = Host::wait(command("10_copy_host"));
    let said = says(&command("11_copy_dpu").output().expect("it runs"));
    assert_eq!(said.lines().last(), Some("This is a sample piece of text"));
    host.finish();
}

#[test]
fn files_that_are_not_the_hosts_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let (export, buffer) = (dir.path().join("export.bin"), dir.path().join("buffer.txt"));
    assert!(fails(&dpu("cpu", dir.path())).contains("buffer.txt"));

    let host = Host::start("cpu", dir.path(), "sixteen letters.", &[]);
    let (good_export, good_buffer) =
        (std::fs::read(&export).expect("written"), std::fs::read_to_string(&buffer).expect("written"));
    for bad in ["", "1\n", "x\n16\n", "0\n0\n", "1\n2\n3\n"] {
        std::fs::write(&buffer, bad).expect("writable");
        assert!(fails(&dpu("cpu", dir.path())).contains("buffer.txt"), "{bad:?}");
    }
    // Two ranges end one byte after the exported range. The other two are at the end of the address space,
    // and one of them wraps around.
    let address: u64 = good_buffer.lines().next().and_then(|n| n.parse().ok()).expect("a number");
    for (address, len) in [(address, 17), (address + 1, 16), (u64::MAX - 15, 16), (u64::MAX, 16)] {
        std::fs::write(&buffer, format!("{address}\n{len}\n")).expect("writable");
        assert!(fails(&dpu("cpu", dir.path())).contains("not within"), "{address} {len}");
    }
    std::fs::write(&buffer, &good_buffer).expect("writable");

    std::fs::write(&export, "").expect("writable");
    assert!(fails(&dpu("cpu", dir.path())).contains("is empty"));
    for end in [3, 20, good_export.len() - 1] {
        std::fs::write(&export, &good_export[..end]).expect("writable");
        assert!(fails(&dpu("cpu", dir.path())).contains("export.bin"), "cut off at {end}");
    }
    let mut altered = good_export.clone();
    altered[30] ^= 1;
    std::fs::write(&export, altered).expect("writable");
    fails(&dpu("cpu", dir.path()));
    std::fs::write(&export, &good_export).expect("writable");
    assert!(fails(&dpu("sim", dir.path())).contains("cpu"), "another engine's export");

    assert!(says(&dpu("cpu", dir.path())).ends_with("sixteen letters.\n"));
    host.finish();
}

#[test]
fn a_host_that_cannot_write_says_so() {
    let dir = tempfile::tempdir().expect("a directory");
    let missing = dir.path().join("missing");
    let output = Command::new(built::example("10_copy_host"))
        .arg("--export")
        .arg(missing.join("export.bin"))
        .arg("--buffer")
        .arg(missing.join("buffer.txt"))
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    assert!(fails(&output).contains("missing/buffer.txt"));
    let output = Command::new(built::example("10_copy_host"))
        .arg("--export")
        .arg(missing.join("export.bin"))
        .arg("--buffer")
        .arg(dir.path().join("buffer.txt"))
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    assert!(fails(&output).contains("missing/export.bin"));
    assert!(
        !dir.path().join("buffer.txt").exists(),
        "no file is left, because one file is useless without the other"
    );
}
