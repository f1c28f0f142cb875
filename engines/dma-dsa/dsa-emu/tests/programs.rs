//! Programs that know nothing of the stand-in, started by the installed `dsa-emu-run`.
#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]

#[path = "../../../../tests/stand_ins/mod.rs"]
mod install;

use std::path::Path;
use std::process::{Command, Output};

/// Runs a program on work queues of this configuration, with its own folder for temporary files. Asserts that
/// nothing is left there.
fn run(config: &str, program: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let runner = install::dsa_emu_prefix().join("bin/dsa-emu-run");
    let mut command = Command::new(runner);
    command.args(program).env("DSA_EMU", config).env("TMPDIR", folder.path()).env_remove("DSA_EMU_CONFIG");
    let output = command.output().unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "files are left");
    output
}

/// Compiles `tests/c/NAME.c` and runs it on work queues of this configuration. Asserts that it reports success.
fn run_c(name: &str, config: &str) {
    if Command::new("cc").arg("--version").output().is_err() {
        println!("skipped: the C program is not compiled, without cc");
        return;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name).with_extension("c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("dsa-emu-{name}"));
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-o"]).arg(&program).arg(source);
    assert!(cc.status().unwrap().success());
    let output = run(config, &[program.to_str().unwrap()]);
    let said = String::from_utf8(output.stdout).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said, format!("{name}: all as it should be\n"), "{}: {stderr}", output.status);
    assert!(output.status.success());
}

#[test]
fn a_c_program_finds_its_device() {
    run_c("program", "[[queue]]\n[[queue]]\nmmap = false");
}

#[test]
fn instructions_fault_as_on_a_processor_that_has_them() {
    run_c("faults", "");
}

#[test]
fn exit_statuses_and_mistakes_are_told() {
    for (config, program, status, says) in [
        ("", &["sh", "-c", "exit 3"][..], 3, ""),
        ("", &["sh", "-c", "kill -9 $$"], 137, ""),
        ("", &["sh", "-c", "kill -TERM $PPID; exec sleep 30"], 143, ""),
        ("", &["/no/such/program"], 127, "cannot start /no/such/program"),
        ("size = 0", &["true"], 127, "DSA_EMU: queue 1: size is 0"),
        ("", &[], 2, "usage: dsa-emu-run"),
    ] {
        let output = run(config, program);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{program:?}: {stderr}");
        assert!(stderr.contains(says), "{program:?}: {stderr}");
    }
}
