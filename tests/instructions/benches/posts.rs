//! Instructions of a post of a prepared transfer by the NIXL plugin, from `postXfer` to the return of
//! `checkXfer` that it is done: within a process, by the engine `cpu`, and between processes, by system
//! calls. Instructions of the kernel and of NIXL itself are not included. The pieces have 64 bytes, so the
//! copies themselves are a small part.
//!
//! `cargo bench -p instructions --bench posts` runs `bindings/c/tests/nixl/posts.cpp` under
//! `valgrind --tool=callgrind` with two numbers of posts, and prints the instructions of one additional post.
//! It exits with 1 if a count exceeds its figure by more than 3 %, unless it runs with `--test`. The figures
//! hold for the compilers in [`COMPILERS`]; on other systems, counts are printed but not compared. Needs a
//! C++17 compiler and valgrind.

#[path = "../../../bindings/c/tests/nixl/mod.rs"]
mod nixl;

use std::process::{Command, ExitCode};

/// The directory of the package dma-c.
const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bindings/c");
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
    let plugin = nixl::plugin(true);
    let libnixl = nixl::libnixl("checked", nixl::FUNCTIONS.lines());
    let program = nixl::program("posts", &["-O2", "-rdynamic"]);
    let compares = is_comparable() && !std::env::args().any(|arg| arg == "--test");
    let mut above = false;
    for (kind, pieces, figure) in POSTS {
        let few = 2_000 / (pieces as u64 + 1) + 50;
        let instructions = callgrind::per_copy([few, 3 * few], 1, |count| {
            let mut command = callgrind::command(&program);
            command.args([&plugin, &libnixl]);
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
