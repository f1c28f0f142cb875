//! Builds C and C++ programs with their compilers and runs them on the library: every function on every
//! engine and stand-in, every misuse, and the examples.
#![cfg(not(any(dma_address_sanitizer, dma_thread_sanitizer)))]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use test_support::{built, stand_ins};

const HERE: &str = env!("CARGO_MANIFEST_DIR");
const STRICT: [&str; 6] = ["-Wall", "-Wextra", "-pedantic", "-Werror", "-g", "-pthread"];

/// A directory with the libraries under their installed names.
static LIBRARIES: LazyLock<PathBuf> = LazyLock::new(|| {
    let test = std::env::current_exe().expect("the test's own path");
    let libraries = test.parent().expect("a directory");
    let dir = built::own_folder("dma-c");
    for (name, target) in [
        (soname(), libraries.join("libdma_c.so")),
        ("libdma.so".to_owned(), PathBuf::from(soname())),
        ("libdma.a".to_owned(), libraries.join("libdma_c.a")),
    ] {
        let link = dir.join(name);
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(target, link).expect("a link");
    }
    dir
});

/// The name by which programs load the library.
fn soname() -> String {
    format!("libdma.so.{}", dma_c::header::DMA_ABI_VERSION)
}

/// Returns whether a compiler is installed.
fn has(compiler: &str) -> bool {
    Command::new(compiler).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// The C compilers: `cc`, and clang if it is installed.
fn c_compilers() -> impl Iterator<Item = &'static str> {
    ["cc", "clang"].into_iter().filter(|compiler| *compiler == "cc" || has(compiler))
}

#[track_caller]
fn expect_success(what: &dyn std::fmt::Debug, output: &Output) -> String {
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{what:?}: {}\n{text}", output.status);
    text
}

/// Builds a program, and returns its path.
#[track_caller]
fn build(compiler: &str, standard: &str, source: &str, link: &[&str]) -> PathBuf {
    static BUILT: AtomicUsize = AtomicUsize::new(0);
    let number = BUILT.fetch_add(1, Ordering::Relaxed);
    let name = format!("{}-{compiler}-{number}", source.replace(['/', '.'], "-"));
    let program = LIBRARIES.join(name);
    let mut command = Command::new(compiler);
    command.arg(format!("-std={standard}")).args(STRICT).arg(format!("-I{HERE}/include"));
    command.arg(Path::new(HERE).join(source)).arg("-o").arg(&program);
    if link.is_empty() {
        command.arg(format!("-L{}", LIBRARIES.display())).arg("-ldma");
        command.arg(format!("-Wl,-rpath,{}", LIBRARIES.display()));
    } else {
        command.arg(LIBRARIES.join("libdma.a")).args(link);
    }
    let output = command.output().unwrap_or_else(|e| panic!("{compiler}: {e}"));
    expect_success(&command, &output);
    program
}

/// Runs a program with these environment variables, and returns its output.
#[track_caller]
fn run(program: &Path, args: &[&str], variables: &[(&str, &Path)]) -> String {
    let mut command = Command::new(program);
    command.args(args).envs(variables.iter().copied());
    let output = command.output().unwrap_or_else(|e| panic!("{}: {e}", program.display()));
    expect_success(&command, &output)
}

/// Runs `every_call` on the engines.
#[track_caller]
fn every_call(engines: &[&str], variables: &[(&str, &Path)]) {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| build("cc", "c99", "tests/c/every_call.c", &[]));
    let text = run(&PROGRAM, engines, variables);
    for engine in engines {
        assert!(text.lines().any(|line| line == format!("{engine}: right")), "{text}");
    }
}

#[test]
fn every_function_runs_on_every_software_engine() {
    every_call(&["cpu", "cpu:threads=0", "auto", "verify+cpu", "meter+cpu", "sim:seed=7"], &[]);
    every_call(&["sim:profile=bluefield3", "sim:profile=ioat,depth=3", "sim:device_memory=64M"], &[]);
    every_call(&["sim:max_transfer=100,max_segments=2,depth=1", "sim:profile=dsa,clock=real"], &[]);
}

#[test]
fn every_function_runs_on_every_stand_in() {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let doca = stand_ins::library_dir(&stand_ins::doca_emu_prefix());
            every_call(&["doca"], &[("DMA_DOCA_LIB_DIR", &doca)]);
        });
        scope.spawn(|| {
            let spdk = stand_ins::spdk_emu_prefix().join("lib");
            every_call(&["ioat"], &[("DMA_SPDK_LIB_DIR", &spdk)]);
        });
        scope.spawn(|| {
            let rdma = stand_ins::rdma_emu_prefix();
            every_call(&["rdma"], &[("DMA_IBVERBS_LIB_DIR", &rdma)]);
        });
        scope.spawn(|| {
            let cuda = stand_ins::cuda_emu_prefix().join("lib");
            every_call(&["cuda"], &[("DMA_CUDA_LIB_DIR", &cuda)]);
        });
        if cfg!(target_arch = "x86_64") {
            let runner = stand_ins::dsa_emu_prefix().join("bin/dsa-emu-run");
            let program = build("cc", "c99", "tests/c/every_call.c", &[]);
            let text = run(&runner, &[program.to_str().expect("a path"), "dsa"], &[]);
            assert!(text.contains("dsa: right"), "{text}");
        }
    });
}

#[test]
fn every_misuse_is_a_status() {
    for compiler in c_compilers() {
        let text = run(&build(compiler, "c99", "tests/c/misuse.c", &[]), &[], &[]);
        assert_eq!(text.trim(), "right");
    }
}

#[test]
fn completions_are_reported_once_in_any_order_of_calls() {
    let text = run(&build("cc", "c99", "tests/c/interleaved.c", &[]), &[], &[]);
    assert_eq!(text.trim(), "right");
}

#[test]
fn regions_close_only_when_no_device_may_write_them() {
    let text = run(&build("cc", "c99", "tests/c/broken_devices.c", &[]), &[], &[]);
    assert!(text.ends_with("right\n"), "{text}");
}

#[test]
fn a_lost_device_has_one_status() {
    let text = run(&build("cc", "c99", "tests/c/lost_device.c", &[]), &[], &[]);
    assert_eq!(text.trim(), "right");
}

#[test]
fn no_call_with_the_parents_handles_blocks_in_a_forked_child() {
    let text = run(&build("cc", "c99", "tests/c/forked.c", &[]), &[], &[]);
    assert_eq!(text.trim(), "right");
}

#[test]
fn examples_build_and_run() {
    let expect = |program: &Path, args: &[&str], words: &str| {
        let text = run(program, args, &[]);
        assert!(text.contains(words), "{}: {text}", program.display());
    };
    for compiler in c_compilers() {
        let first = build(compiler, "c99", "examples/first_copy.c", &[]);
        let ring = build(compiler, "c99", "examples/request_ring.c", &[]);
        let faults = build(compiler, "c99", "examples/device_faults.c", &[]);
        for engine in ["auto", "sim:seed=3"] {
            expect(&first, &[engine], "1048576 bytes copied");
            expect(&ring, &[engine], "200 requests of 65536 bytes");
        }
        for seed in ["7", "8", "9"] {
            expect(&faults, &[seed], "200 copies, ");
        }
    }
    for compiler in ["c++", "clang++"].into_iter().filter(|compiler| *compiler == "c++" || has(compiler)) {
        let owned = build(compiler, "c++17", "examples/owned_handles.cpp", &[]);
        expect(&owned, &["sim:seed=3"], "64 pieces of 4096 bytes, three times");
    }
}

#[test]
fn the_static_library_serves_as_well() {
    let libraries = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"];
    let program = build("cc", "c99", "examples/first_copy.c", &libraries);
    assert!(run(&program, &["cpu"], &[]).contains("1048576 bytes copied"));
}

#[test]
fn the_header_is_valid_in_older_and_newer_languages() {
    let header = Path::new(HERE).join("include/dma.h");
    for (compiler, language, standards) in
        [("cc", "c", ["c99", "c11", "c17"]), ("c++", "c++", ["c++11", "c++17", "c++20"])]
    {
        for standard in standards {
            let mut command = Command::new(compiler);
            command.arg(format!("-std={standard}")).args(STRICT).args(["-fsyntax-only", "-x", language]);
            let output = command.arg(&header).output().expect("it starts");
            expect_success(&command, &output);
        }
    }
}

#[test]
fn the_library_exports_the_header_and_nothing_else() {
    let header = std::fs::read_to_string(Path::new(HERE).join("include/dma.h")).expect("readable");
    // A line with a declaration begins with a type, a name and a parenthesis.
    let declared: BTreeSet<_> = header
        .lines()
        .filter(|line| {
            line.starts_with(|first: char| first.is_ascii_lowercase()) && !line.starts_with("typedef")
        })
        .filter_map(|line| line.split_once('('))
        .filter_map(|(before, _)| before.split([' ', '*']).next_back())
        .filter(|name| name.starts_with("dma_") && *name != "dma_open")
        .collect();
    let symbols = Command::new("nm").args(["-D", "--defined-only"]).arg(LIBRARIES.join(soname())).output();
    let symbols = expect_success(&"nm", &symbols.expect("nm of the C compiler's tools"));
    let exported: BTreeSet<_> = symbols.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    assert!(declared.len() > 40, "{declared:?}");
    assert_eq!(declared, exported);
    let dynamic = Command::new("readelf").arg("-dW").arg(LIBRARIES.join(soname())).output();
    let dynamic = expect_success(&"readelf", &dynamic.expect("readelf of the C compiler's tools"));
    assert!(
        dynamic.contains(&format!("soname: [{}]", soname())) && dynamic.contains("NODELETE"),
        "{dynamic}"
    );
}
