//! Programs with the preloaded library: each situation of `c/every_case.c`, with each method, and the ways to
//! load it. The programs are built by the C compiler.
#![cfg(all(
    target_arch = "x86_64",
    target_os = "linux",
    target_env = "gnu",
    not(any(dma_address_sanitizer, dma_thread_sanitizer))
))]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use test_support::{built, stand_ins};

const HERE: &str = env!("CARGO_MANIFEST_DIR");
/// The situations of `every_case.c`.
const SITUATIONS: [&str; 9] =
    ["constructors", "contents", "short", "faults", "unmapped", "signals", "forks", "threads", "overflows"];

/// The directory of the built programs, and of the library.
static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(|| {
    let directory = built::own_folder("dma-memcpy");
    let install = Path::new(HERE).join("install");
    succeed(Command::new(install).arg(&directory).args(["--profile", "test"]));
    directory
});

#[track_caller]
fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, text(&output));
    text(&output)
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn library() -> PathBuf {
    DIRECTORY.join(NAME)
}

/// Builds `tests/c/SOURCE` as `name`. Returns its path.
#[track_caller]
fn build(source: &str, name: &str, options: &[&str]) -> PathBuf {
    let program = DIRECTORY.join(name);
    let source = Path::new(HERE).join("tests/c").join(source);
    succeed(
        Command::new("cc")
            .args(["-std=gnu99", "-Wall", "-Wextra", "-Werror", "-g", "-O1", "-fno-builtin", "-pthread"])
            .arg(source)
            .arg("-o")
            .arg(&program)
            .args(options),
    );
    program
}

/// The library's name, which is searched in LD_LIBRARY_PATH. LD_PRELOAD cannot have a path with spaces.
const NAME: &str = "libdma_memcpy.so";

/// Returns a command that runs a program with the library.
fn preloaded(program: &Path, options: &str) -> Command {
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", NAME).env("LD_LIBRARY_PATH", &*DIRECTORY).env("DMA_MEMCPY", options);
    command
}

/// Returns a command that runs a program with the library on the stand-in, which sets LD_PRELOAD itself.
fn on_the_stand_in(runner: &Path, config: &str, program: &Path, options: &str) -> Command {
    let mut command = Command::new(runner);
    let add = r#"export LD_PRELOAD="$LD_PRELOAD:$1"; shift; exec "$@""#;
    command.args(["sh", "-c", add, "sh", NAME]).arg(program);
    command.env("LD_LIBRARY_PATH", &*DIRECTORY).env("DSA_EMU", config).env("DMA_MEMCPY", options);
    command
}

/// Runs every situation. Returns the report.
#[track_caller]
fn every_case(name: &str, options: &str, prefix: Option<(&Path, &str)>) -> String {
    let program = build("every_case.c", name, &["-ldl"]);
    let stats = DIRECTORY.join(format!("{name}.stats"));
    let _ = fs::remove_file(&stats);
    let options = format!("{options},stats={}", stats.display());
    let mut command = match prefix {
        None => preloaded(&program, &options),
        Some((runner, config)) => on_the_stand_in(runner, config, &program, &options),
    };
    let output = succeed(&mut command);
    for situation in SITUATIONS {
        assert!(output.lines().any(|line| line == situation), "{situation}: {output}");
    }
    assert!(!output.contains("not preloaded"), "{output}");
    let report = fs::read_to_string(stats).expect("a report");
    assert_eq!(report.matches("process").count(), 1, "forked children write no report: {report}");
    report
}

#[test]
fn every_situation_by_the_cpu() {
    let report = every_case("by_cpu", "engine=cpu,min=64K", None);
    assert!(report.contains("cpu") && !report.contains("the C library"), "{report}");
}

#[test]
fn every_situation_by_the_fastest_method() {
    let report = every_case("by_auto", "min=64K", None);
    assert!(report.contains("ticks/KiB, chosen"), "{report}");
    assert!(report.contains("compare: no call was taken"), "{report}");
}

#[track_caller]
fn by_the_stand_in(name: &str, engine: &str, config: &str) {
    let runner = stand_ins::dsa_emu_prefix().join("bin/dsa-emu-run");
    let report = every_case(name, &format!("engine={engine},min=64K"), Some((&runner, config)));
    for operation in ["copy", "fill", "compare"] {
        assert!(
            report.lines().any(|line| line.contains(operation) && line.contains("dsa")),
            "{operation}: {report}"
        );
    }
}

#[test]
fn every_situation_by_a_dedicated_work_queue() {
    by_the_stand_in("by_dedicated", "dsa", "page_faults = 0.1");
}

#[test]
fn every_situation_by_a_shared_work_queue_that_refuses() {
    by_the_stand_in("by_shared", "dsa:wq0.0", "mode = 'shared'\nsize = 2\nfaults = 'refuse:p=0.5'");
}

#[test]
fn every_situation_by_a_work_queue_that_fails() {
    by_the_stand_in("by_failing", "dsa", "faults = 'fail:p=0.01'");
}

#[test]
fn every_situation_by_the_fastest_of_three() {
    by_the_stand_in("by_three", "auto", "");
}

/// A device that is slow must not write after its call was cancelled.
#[test]
fn a_device_does_not_outlive_its_call() {
    let runner = stand_ins::dsa_emu_prefix().join("bin/dsa-emu-run");
    let program = build("every_case.c", "outliving", &["-ldl"]);
    let slow = "faults = 'slow:p=0.9:for=1ms'";
    let mut command = on_the_stand_in(&runner, slow, &program, "engine=dsa,min=64K");
    assert_eq!(succeed(command.arg("threads")), "threads\n");
}

#[test]
fn libraries_may_copy_before_it_is_relocated() {
    let here = format!("-L{}", DIRECTORY.display());
    let rpath = format!("-Wl,-rpath,{0},-rpath-link,{0}", DIRECTORY.display());
    build("resolver.c", "libearly_resolver.so", &["-shared", "-fPIC", "-Wl,-z,lazy"]);
    build("early_user.c", "libearly_user.so", &["-shared", "-fPIC", &here, "-learly_resolver", &rpath]);
    let program = build("early.c", "early", &[&here, "-learly_user", &rpath]);
    succeed(&mut Command::new(&program));
    succeed(preloaded(&program, "engine=cpu").env_remove("LD_BIND_NOW"));
}

#[test]
fn a_program_may_link_it() {
    let rpath = format!("-Wl,-rpath,{}", DIRECTORY.display());
    let library = library();
    let library = library.to_str().expect("a path");
    let program = build("every_case.c", "linked", &["-Wl,--no-as-needed", library, &rpath, "-ldl"]);
    let output = succeed(Command::new(&program).env("DMA_MEMCPY", "engine=cpu,min=64K"));
    assert!(output.contains("overflows") && !output.contains("not preloaded"), "{output}");
}

#[test]
fn a_program_may_load_and_unload_it() {
    let program = build("loads.c", "loads", &["-ldl"]);
    let output = succeed(Command::new(&program).arg(library()).env("DMA_MEMCPY", "engine=cpu"));
    assert_eq!(output, "copied\n");
}

#[test]
fn static_programs_are_left_alone() {
    let program = DIRECTORY.join("static");
    let source = Path::new(HERE).join("tests/c/static.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-static", "-fno-builtin"]).arg(source).arg("-o").arg(&program);
    if !compiler.output().expect("a compiler").status.success() {
        println!("skipped: the C library has no static version");
        return;
    }
    let stats = DIRECTORY.join("static.stats");
    let options = format!("engine=cpu,stats={}", stats.display());
    assert_eq!(succeed(&mut preloaded(&program, &options)), "");
    assert!(!stats.exists(), "the library is not loaded");
}

#[test]
fn mistakes_in_the_options_leave_all_calls_to_the_c_library() {
    let program = build("loads.c", "mistaken", &["-ldl"]);
    let run = |options: &str| succeed(&mut preloaded(&program, options));
    assert_eq!(run("off"), "copied\n");
    let output = run("min=1");
    assert!(output.contains("copied") && output.contains("`min=1`"), "{output}");
    let nowhere = "engine=dsa:wq15.7";
    let output = run(nowhere);
    assert!(output.contains("copied") && output.contains("no work queue"), "{output}");
}

#[test]
fn the_report_tells_what_was_taken() {
    let program = build("loads.c", "reporting", &["-ldl"]);
    let stats = DIRECTORY.join("reporting.stats");
    let _ = fs::remove_file(&stats);
    for (options, expected) in [
        ("engine=cpu", "copy from 2048 KiB: cpu 2 calls, 6 MiB"),
        ("engine=cpu,min=4M", "copy: no call was taken"),
        ("engine=cpu", "fill from 2048 KiB: cpu 2 calls, 6 MiB"),
    ] {
        succeed(&mut preloaded(&program, &format!("{options},stats={}", stats.display())));
        let report = fs::read_to_string(&stats).expect("a report");
        let last = report.rsplit("libdma_memcpy:").next().expect("a report");
        assert!(last.contains(expected), "{options}: {report}");
    }
    assert_eq!(fs::read_to_string(&stats).expect("a report").matches("libdma_memcpy:").count(), 3);
}
