//! Instructions of a post of a prepared transfer by the NIXL plugin, from `postXfer` to the return of
//! `checkXfer` that it is done: within a process, by the engine `cpu`, and between processes, by system
//! calls. Instructions of the kernel and of NIXL itself are not included. The pieces have 64 bytes, so the
//! copies themselves are a small part.
//!
//! `cargo bench -p dma-c --bench posts` runs `tests/nixl/posts.cpp` under `valgrind --tool=callgrind` with
//! two numbers of posts, and prints the instructions of one additional post. It exits with 1 if a count
//! exceeds its figure by more than 3 %, unless it runs with `--test`. The figures hold for the compilers in
//! [`COMPILERS`]; on other systems, counts are printed but not compared. Needs a C++17 compiler and valgrind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use test_support::callgrind;

const HERE: &str = env!("CARGO_MANIFEST_DIR");
/// The functions by which the plugin identifies the release of NIXL.
const FUNCTIONS: &str = include_str!("../tests/nixl/libnixl-1.5.1.txt");
/// The compilers for which the figures in [`POSTS`] hold.
const COMPILERS: [&str; 2] = ["rustc 1.95.0", "c++ (Debian 12.2.0-14+deb12u1) 12.2.0"];
const MAX_RISE: f64 = 1.03;
/// Kind of transfer, number of pieces, and the expected number of instructions of a post.
const POSTS: [(&str, usize, f64); 6] = [
    ("within", 1, 1_319.0),
    ("within", 64, 6_394.0),
    ("within", 1024, 83_217.0),
    ("between", 1, 1_042.0),
    ("between", 64, 4_544.0),
    ("between", 1024, 58_348.0),
];

/// Builds the plugin, optimised as `bindings/c/nixl/install` builds it, and the program that posts.
fn build() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("posts");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).expect("a directory");
    let bench = std::env::current_exe().expect("this program's path");
    let library = bench.parent().expect("a directory").join("libdma_c.so");
    for name in ["libdma.so".to_owned(), format!("libdma.so.{}", dma_c::header::DMA_ABI_VERSION)] {
        std::os::unix::fs::symlink(&library, dir.join(name)).expect("a link");
    }
    let functions: String = FUNCTIONS.lines().map(|name| format!("void {name}(void) {{}}\n")).collect();
    fs::write(dir.join("libnixl.c"), functions).expect("a file");
    let run = |command: &mut Command| {
        let output = command.current_dir(&dir).output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {text}");
    };
    let library_of_nixl = ["-shared", "-fPIC", "-Wl,-soname,libnixl.so", "libnixl.c", "-o", "libnixl.so"];
    run(Command::new("cc").args(library_of_nixl));
    let sources = fs::read_dir(Path::new(HERE).join("nixl")).expect("the plugin's sources");
    let sources = sources.map(|entry| entry.expect("a file").path());
    let mut sources: Vec<_> =
        sources.filter(|path| path.extension().is_some_and(|end| end == "cpp")).collect();
    sources.sort();
    let mut plugin = Command::new("c++");
    plugin.args(["-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-ffunction-sections", "-shared"]);
    plugin.arg(format!("-I{HERE}/include")).args(sources).args(["-o", "libplugin_DMA.so", "-L.", "-ldma"]);
    plugin.arg(format!("-Wl,--version-script={HERE}/nixl/exports.map,-rpath,{}", dir.display()));
    run(plugin.arg("-pthread"));
    let program = Path::new(HERE).join("tests/nixl/posts.cpp");
    let mut posts = Command::new("c++");
    posts.args(["-std=c++17", "-O2", "-rdynamic"]).arg(program);
    run(posts.args(["-ldl", "-pthread", "-o", "posts"]));
    dir
}

/// Returns true if the compilers are those of the figures.
fn is_comparable() -> bool {
    let first_line = |program: &str| {
        let output = Command::new(program).arg("--version").output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).lines().next()?.to_owned())
    };
    let rust = first_line("rustc").is_some_and(|line| line.starts_with(COMPILERS[0]));
    cfg!(target_arch = "x86_64") && rust && first_line("c++").is_some_and(|line| line == COMPILERS[1])
}

fn main() -> ExitCode {
    if !callgrind::is_there() {
        return ExitCode::SUCCESS;
    }
    if Command::new("c++").arg("--version").output().is_err() {
        println!("skipped: there is no C++ compiler");
        return ExitCode::SUCCESS;
    }
    let dir = build();
    let compares = is_comparable() && !std::env::args().any(|arg| arg == "--test");
    let mut above = false;
    for (kind, pieces, figure) in POSTS {
        let few = 2_000 / (pieces as u64 + 1) + 50;
        let instructions = callgrind::per_copy([few, 3 * few], 1, |count| {
            let mut command = callgrind::command(&dir.join("posts"));
            command.args([dir.join("libplugin_DMA.so"), dir.join("libnixl.so")]);
            command.args([kind, &pieces.to_string(), &count.to_string()]);
            command
        });
        let each = instructions / pieces as f64;
        println!("{kind}, pieces {pieces}: {instructions:.0} instructions a post, {each:.1} a piece");
        above |= compares && instructions > figure * MAX_RISE;
    }
    if above {
        eprintln!("a count exceeds its figure by more than 3 %: {POSTS:?}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
