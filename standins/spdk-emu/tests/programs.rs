//! Compiles C programs against the installed stand-in, and runs them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use stand_ins::spdk_emu_prefix;
use test_support::built;
use test_support::stand_ins;

/// Command lines of the compilers, for C and for C++.
const C: &[&str] = &["cc", "-std=gnu11"];
const CXX: &[&str] = &["g++", "-x", "c++", "-std=gnu++20"];
const SANITIZED: &[&str] =
    &["cc", "-std=gnu11", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

fn succeeds(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Returns the directory of the compiled programs.
fn folder() -> PathBuf {
    built::own_folder("spdk-emu-programs")
}

/// Compiles a program with the flags of `pkg-config`. Returns `None` if there is no compiler or no
/// `pkg-config`.
fn compile(name: &str, how: &[&str], suffix: &str) -> Option<(PathBuf, PathBuf)> {
    for program in [how[0], "pkg-config"] {
        if !is_there(program) {
            println!("skipped: {name} is not compiled, without {program}");
            return None;
        }
    }
    let prefix = spdk_emu_prefix();
    if prefix.to_string_lossy().contains(['\'', '"', '\\']) {
        println!("skipped: {name} is not compiled, because pkg-config takes no paths with quotes");
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(format!("{name}.c"));
    let program = folder().join(format!("{name}{suffix}"));
    // `pkg-config` escapes spaces for a shell that evaluates its output.
    let build = r#"eval "set -- \"\$@\" $(pkg-config --cflags --libs spdk_ioat spdk_env_dpdk spdk_syslibs)"; exec "$@""#;
    succeeds(
        Command::new("sh")
            .args(["-ec", build, "sh"])
            .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
            .args(how)
            .args(["-Wall", "-Wextra", "-Werror", "-O1", "-pthread", "-o"])
            .arg(&program)
            .arg(source)
            // The option for the language must apply only to the source, not to the libraries.
            .args(how.contains(&"-x").then_some(["-x", "none"]).into_iter().flatten()),
    );
    Some((program, prefix.join("lib")))
}

fn run(name: &str, how: &[&str], suffix: &str, config: &str) {
    let Some((program, libraries)) = compile(name, how, suffix) else { return };
    let mut command = Command::new(program);
    let output = succeeds(command.env("LD_LIBRARY_PATH", libraries).env("SPDK_EMU", config));
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.ends_with(&format!("{name}: all as it should be\n")), "{stdout}");
}

#[test]
fn environment() {
    run("env", C, "", "");
}

#[test]
fn copies() {
    run("copy", C, "", "");
}

#[test]
fn copies_with_times_and_small_transfers() {
    run("copy", C, "-ioat", "profile = 'ioat'\nxfercap = '64K'");
    run("copy", C, "-virtual", "profile = 'ioat'\nclock = 'virtual'\niova = 'va'");
}

#[test]
fn copies_in_cxx() {
    run("copy", CXX, "-cxx", "");
}

#[test]
fn sanitized() {
    if !built::can_sanitize(&folder()) {
        println!("skipped: this machine cannot build and run programs with the address sanitizer");
        return;
    }
    run("env", SANITIZED, "-sanitized", "");
    run("copy", SANITIZED, "-sanitized", "");
    if let Some((program, libraries)) = compile("init", SANITIZED, "-sanitized") {
        succeeds(Command::new(program).env("LD_LIBRARY_PATH", libraries).env("SPDK_EMU", ""));
    }
}

/// Runs the program `init`. Returns its output and its error output.
fn answers(config: &str, args: &[&str]) -> Option<(String, String)> {
    let (program, libraries) = compile("init", C, "")?;
    let mut command = Command::new(program);
    let output = succeeds(command.args(args).env("LD_LIBRARY_PATH", libraries).env("SPDK_EMU", config));
    Some((
        String::from_utf8(output.stdout).unwrap().trim().to_owned(),
        String::from_utf8(output.stderr).unwrap(),
    ))
}

#[test]
fn machines_that_say_no() {
    for (config, args, answer, said) in [
        ("", &[][..], "0 0 8", ""),
        ("", &["0000:00:04.3"], "0 0 1", ""),
        ("", &["no_pci"], "0 0 0", ""),
        ("hugepages = false", &[], "-13 -1 0", "vm.nr_hugepages"),
        ("hugepages = false", &["no_huge"], "0 0 8", ""),
        ("memory = '32M'", &["no_huge"], "-12 -1 0", "mem_size"),
        ("cores = 2", &["0x4"], "-22 -1 0", "core 2 does not exist"),
        ("cors = 2", &[], "-22 -1 0", "SPDK_EMU: socket 1: unknown field `cors`"),
        ("function = []", &[], "0 0 0", ""),
        ("function = [{ pci = '0:0:4.0', driver = 'ioatdma' }]", &[], "0 0 0", ""),
        ("function = [{ pci = '0:0:4.0', taken = true }]", &[], "0 -1 0", "another process has it"),
    ] {
        let Some((stdout, stderr)) = answers(config, args) else { return };
        assert_eq!(stdout, answer, "{config} {args:?}: {stderr}");
        assert!(stderr.contains(said), "{config}: {stderr}");
    }
}

#[test]
fn sonames_are_those_of_the_release() {
    let prefix = spdk_emu_prefix();
    for name in [
        "libspdk_ioat.so.9",
        "libspdk_env_dpdk.so.17",
        "libspdk_log.so.9",
        "libspdk_util.so.12",
        "libspdk_ioat.so",
        "libspdk_env_dpdk.so",
    ] {
        assert!(prefix.join("lib").join(name).exists(), "{name}");
    }
}
