//! Counts instructions of programs with callgrind.

use std::path::Path;
use std::process::Command;

/// Returns true if valgrind is installed; otherwise prints a message.
pub fn is_there() -> bool {
    let there = Command::new("valgrind").arg("--version").output().is_ok();
    if !there {
        println!("skipped: valgrind, which counts instructions, is not installed");
    }
    there
}

/// Returns a command that runs `program` under callgrind. Arguments that the caller adds are passed to
/// `program`.
pub fn command(program: &Path) -> Command {
    let mut command = Command::new("valgrind");
    // Suppresses valgrind's messages about instructions that trap on purpose.
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--sigill-diagnostics=no"]);
    command.arg(program);
    command
}

/// Returns the number of instructions of each additional copy. `run` makes a [`command`] with the given
/// number of rounds, each with `copies` copies. Running two numbers of rounds excludes the set-up.
pub fn per_copy(rounds: [u64; 2], copies: usize, run: impl Fn(u64) -> Command) -> f64 {
    let [few, many] = rounds.map(|rounds| instructions(&mut run(rounds)));
    (many - few) as f64 / ((rounds[1] - rounds[0]) as f64 * copies as f64)
}

fn instructions(command: &mut Command) -> u64 {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}");
    let count = text.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    count.unwrap_or_else(|| panic!("{command:?}: no count in {text}"))
}
