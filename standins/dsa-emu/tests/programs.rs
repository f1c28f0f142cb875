//! Runs unmodified programs by the installed `dsa-emu-run`.
#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]

use std::path::Path;
use std::process::{Command, Output};
use test_support::{built, stand_ins};

/// Runs a program on work queues of this configuration, with its own temporary folder. Asserts that the
/// folder is empty afterwards.
fn run(config: &str, program: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let runner = stand_ins::dsa_emu_prefix().join("bin/dsa-emu-run");
    let mut command = Command::new(runner);
    command.args(program).env("DSA_EMU", config).env("TMPDIR", folder.path()).env_remove("DSA_EMU_CONFIG");
    let output = command.output().unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "files are left");
    output
}

/// Returns true if there is a C compiler.
fn has_compiler() -> bool {
    let has = Command::new("cc").arg("--version").output().is_ok();
    if !has {
        println!("skipped: the C program is not compiled, without cc");
    }
    has
}

/// Compiles a source of `tests/c` to this file.
fn compile(source: &str, options: &[&str], to: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source);
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-o"]).arg(to).arg(source).args(options);
    assert!(cc.status().unwrap().success());
}

/// Asserts that a program has reported success.
fn succeeds(name: &str, output: &Output) {
    let said = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said, format!("{name}: all as it should be\n"), "{}: {stderr}", output.status);
    assert!(output.status.success());
}

/// Compiles `tests/c/NAME.c` and runs it on work queues of this configuration.
fn run_c(name: &str, config: &str) {
    if has_compiler() {
        let program = built::own_folder("dsa-emu-programs").join(name);
        compile(&format!("{name}.c"), &[], &program);
        succeeds(name, &run(config, &[program.to_str().unwrap()]));
    }
}

/// The constructor of a library runs before or after the stand-in's. The order depends on whether the library
/// is linked or preloaded, and on its position among the preloaded libraries.
#[test]
fn constructors_find_the_device_in_any_order() {
    if !has_compiler() {
        return;
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let [library, program] = ["libearly.so", "linked"].map(|name| dir.path().join(name));
    compile("early.c", &["-shared", "-fPIC"], &library);
    let library = library.to_str().unwrap();
    compile("nothing.c", &["-Wl,--no-as-needed", library], &program);
    // LD_PRELOAD cannot have a path with spaces.
    let find = "export LD_LIBRARY_PATH=\"${1%/*}\";";
    for command in [
        "exec \"$2\"",
        "LD_PRELOAD=libearly.so:$LD_PRELOAD exec $0",
        "LD_PRELOAD=$LD_PRELOAD:libearly.so exec $0",
    ] {
        let command =
            ["sh", "-c", &format!("{find} {command}"), "/bin/true", library, program.to_str().unwrap()];
        succeeds("early", &run("mode = 'shared'", &command));
    }
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

/// The runner starts programs also from a path that LD_PRELOAD cannot name.
#[test]
fn an_installation_may_have_spaces_in_its_path() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let [prefix, spaced] = ["in stalled", "t mp"].map(|name| folder.path().join(name));
    for file in ["bin/dsa-emu-run", "lib/libdsa_emu.so"] {
        std::fs::create_dir_all(prefix.join(file).parent().unwrap()).unwrap();
        // No copy, because a program that was just written is busy while the child of another test has its
        // descriptor.
        std::fs::hard_link(stand_ins::dsa_emu_prefix().join(file), prefix.join(file)).unwrap();
    }
    std::fs::create_dir(&spaced).unwrap();
    let start = |tmp: &Path| {
        let mut runner = Command::new(prefix.join("bin/dsa-emu-run"));
        runner.args(["sh", "-c", "cat /proc/self/maps"]).env("TMPDIR", tmp).output().unwrap()
    };
    let output = start(&std::env::temp_dir());
    // In a TMPDIR that has a space, too, there is no path.
    if !std::env::temp_dir().to_string_lossy().contains([' ', ':']) {
        assert!(
            String::from_utf8_lossy(&output.stdout).contains("/in stalled/lib/libdsa_emu.so"),
            "{output:?}"
        );
        assert!(output.stderr.is_empty(), "{output:?}");
    }
    let output = start(&spaced);
    assert_eq!(output.status.code(), Some(127), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("set TMPDIR to a directory without spaces"));
    assert_eq!(std::fs::read_dir(spaced).unwrap().count(), 0, "files are left");
}
