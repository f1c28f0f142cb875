//! Tests of the command line of `copy-file`: copies and error messages.

mod interruptions;
mod refusals;

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, getuid, kill_process};
use tempfile::TempDir;
use test_support::default_signals;
use test_support::failing_close::failing_close;
use test_support::hold::Hold;
use twox_hash::XxHash3_128;

const CHUNK: usize = 4096;

/// A directory with files to copy.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        // Other users need access, because some tests run the program as another user.
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).expect("permissions");
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Makes a file of `len` bytes that depend on their position. All users may read it.
    fn file(&self, name: &str, len: usize) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, sample(len)).expect("a file");
        fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("permissions");
        path
    }

    fn names(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(self.dir.path()).expect("a directory");
        entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
    }

    /// Runs the program in this directory with `args`, which are separated by spaces.
    fn run(&self, args: &str) -> Output {
        self.command(args).output().expect("it runs")
    }

    fn command(&self, args: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_copy-file"));
        command.args(args.split_whitespace()).current_dir(self.dir.path()).stdin(Stdio::null());
        default_signals::default_signals(&mut command);
        command
    }

    /// Runs the program and checks that it succeeds. Returns the line that it prints.
    fn copies(&self, args: &str) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args}: {}", stderr(&output));
        assert_eq!(stderr(&output), "", "{args}: a pipe gets only the summary");
        let line = String::from_utf8(output.stdout).expect("text");
        assert_eq!(line.lines().count(), 1, "{line}");
        line
    }

    /// Runs the program and checks that it fails, that the error contains all `words`, and that the directory
    /// is unchanged.
    fn refuses(&self, args: &str, words: &[&str]) {
        let before = self.names();
        let output = self.run(args);
        assert_refused(&output, args, words);
        assert_eq!(self.names(), before, "{args}: no file is left");
    }
}

fn assert_refused(output: &Output, what: &str, words: &[&str]) {
    let said = stderr(output);
    assert!(matches!(output.status.code(), Some(1 | 2)), "{what}: {:?} {said}", output.status);
    assert!(output.stdout.is_empty(), "{what}: a failed copy prints no summary");
    for word in words {
        assert!(said.contains(word), "{what}: the error does not contain `{word}`: {said}");
    }
    assert!(!said.contains("panicked"), "{what}: {said}");
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn sample(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .collect()
}

fn assert_same(a: &Path, b: &Path) {
    assert!(fs::read(a).expect("readable") == fs::read(b).expect("readable"), "{a:?} and {b:?} differ");
}

#[test]
fn copies_without_the_page_cache_and_by_the_file_system_are_the_same() {
    let place = Place::new();
    for args in [
        "--direct",
        "--direct --verify --chunk 64K --depth 3",
        "--direct --chunk 5000 --engine sim:profile=bluefield3,seed=3,faults=fail:p=0.05",
        "--share",
    ] {
        for len in [0, 1, CHUNK, 5 * CHUNK + 1, 1_000_003] {
            let src = place.file("src", len);
            let output = place.run(&format!("{args} src dst"));
            // File systems in memory may not support direct I/O, so skip the length.
            if args.contains("--direct") && stderr(&output).contains("copy without --direct") {
                continue;
            }
            assert!(output.status.success(), "{args}, {len} bytes: {}", stderr(&output));
            assert!(
                fs::read(place.path("dst")).expect("a copy") == fs::read(&src).expect("SRC"),
                "{args}: {len}"
            );
            assert_eq!(place.names().len(), 2, "{args}: no other file is left");
            fs::remove_file(place.path("dst")).expect("removed");
        }
        // A sparse file: data, a hole, and data.
        let mut sparse = File::create(place.path("src")).expect("a file");
        sparse.write_all(&sample(CHUNK)).expect("written");
        sparse.seek(SeekFrom::Start(4 << 20)).expect("a hole");
        sparse.write_all(&sample(CHUNK + 5)).expect("written");
        let output = place.run(&format!("{args} src dst"));
        if output.status.success() {
            assert!(
                fs::read(place.path("dst")).expect("a copy") == fs::read(place.path("src")).expect("SRC"),
                "{args}"
            );
            let blocks = |name: &str| fs::metadata(place.path(name)).expect("metadata").blocks();
            assert!(blocks("dst") <= blocks("src") + 64, "{args}: the hole is kept");
            fs::remove_file(place.path("dst")).expect("removed");
        }
    }
    place.refuses("--share --verify src dst", &["cannot be used with"]);
}

#[test]
fn every_size_arrives_whole() {
    let place = Place::new();
    for len in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 7 * CHUNK + 13, 100 * CHUNK] {
        let src = place.file("src", len);
        for depth in [1, 2, 3, 8, 1000] {
            let dst = format!("dst-{len}-{depth}");
            let line = place.copies(&format!("--chunk 4K --depth {depth} src {dst}"));
            assert!(line.starts_with(&format!("copied {len} byte")), "{line}");
            assert!(line.contains(" GB/s, engine "), "{line}");
            assert_same(&src, &place.path(&dst));
        }
    }
}

#[test]
fn engines_and_chunks_make_no_difference() {
    let place = Place::new();
    let src = place.file("src", 3_000_001);
    for args in [
        "--engine cpu",
        "--engine sim",
        "--engine sim:seed=3,profile=bluefield3",
        "--chunk 1M",
        "--chunk 5000",
    ] {
        place.copies(&format!("{args} src dst"));
        assert_same(&src, &place.path("dst"));
        fs::remove_file(place.path("dst")).expect("removed");
    }
}

#[test]
fn holes_stay_holes() {
    let place = Place::new();
    let len = 40 << 20;
    // Ranges with data: no range, the start, the end, an unaligned range in the middle, and two ranges.
    let cases: [&[(u64, usize)]; 5] =
        [&[], &[(0, 5000)], &[(len - 1, 1)], &[(12_345_678, 100_000)], &[(1 << 20, 1 << 20), (9 << 20, 1)]];
    for ranges in cases {
        let src = place.path("src");
        let mut file = File::create(&src).expect("a file");
        file.set_len(len).expect("a length");
        for &(at, n) in ranges {
            file.seek(SeekFrom::Start(at)).expect("a position");
            file.write_all(&sample(n)).expect("written");
        }
        let line = place.copies("--verify src dst");
        assert_same(&src, &place.path("dst"));
        assert!(line.contains(&digest_of(&src)), "{line}");
        let stored = |name: &str| fs::metadata(place.path(name)).expect("there").blocks() * 512;
        // Check this only if the file system does not store holes.
        if stored("src") < len / 2 {
            assert!(stored("dst") < len / 2, "{ranges:?}: {} bytes stored", stored("dst"));
            assert!(line.contains("bytes of holes kept"), "{line}");
        }
    }
}

/// Returns the digest of a file as `xxhsum -H2` writes it.
fn digest_of(path: &Path) -> String {
    format!("xxh3 {:032x}", XxHash3_128::oneshot(&fs::read(path).expect("readable")))
}

#[test]
fn verifying_says_the_digest() {
    let place = Place::new();
    for len in [0, 1, 1_000_000] {
        let src = place.file("src", len);
        let line = place.copies("--verify --chunk 64K src dst");
        assert!(line.contains(&digest_of(&src)), "{line}");
    }
}

#[test]
fn quiet_is_quiet() {
    let place = Place::new();
    place.file("src", 10);
    assert!(place.copies("-q src dst").starts_with("copied 10 bytes"));
    let output = place.run("-qq --sync src dst");
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty());
}

/// A summary or help that cannot be written is an error, although the copy is complete.
#[test]
fn output_that_cannot_be_written_is_reported() {
    let place = Place::new();
    place.file("src", 10);
    // A socket that is shut down refuses bytes as a pipe without a reader does, also while a process that
    // another test starts has a copy of the peer.
    let closed = || {
        let (stdout, peer) = UnixStream::pair().expect("a pair of sockets");
        peer.shutdown(Shutdown::Both).expect("shut down");
        Stdio::from(OwnedFd::from(stdout))
    };
    let full = || Stdio::from(fs::File::options().write(true).open("/dev/full").expect("a device"));
    for stdout in [closed as fn() -> Stdio, full] {
        for (args, words) in [
            ("src dst", &["cannot write to standard output", "the copy is complete", "-qq"][..]),
            ("--help", &["cannot write to standard output"]),
        ] {
            let output = place.command(args).stdout(stdout()).output().expect("it runs");
            assert_eq!(output.status.code(), Some(1), "{args}");
            assert_refused(&output, args, words);
        }
        assert!(place.command("-qq src dst").stdout(stdout()).status().expect("it runs").success());
        assert_same(&place.path("src"), &place.path("dst"));
        fs::remove_file(place.path("dst")).expect("the copy");
    }
}

#[test]
fn permission_bits_are_those_of_cp() {
    let place = Place::new();
    let copied = |umask: u32| {
        let status = Command::new("sh")
            .args(["-c", &format!("umask {umask:03o}; \"$0\" src dst")])
            .arg(env!("CARGO_BIN_EXE_copy-file"))
            .current_dir(place.dir.path())
            .stdout(Stdio::null())
            .status()
            .expect("a shell");
        assert!(status.success());
        fs::metadata(place.path("dst")).expect("a copy").mode() & 0o7777
    };
    let src = place.file("src", 100);
    for mode in [0o644, 0o600, 0o755, 0o444, 0o4755] {
        fs::set_permissions(&src, Permissions::from_mode(mode)).expect("permissions");
        for umask in [0o022, 0o077, 0o000] {
            // This is the mode that `cp` of coreutils sets. The test does not run `cp`, because `cp` of
            // busybox also copies the set-user-ID bit.
            assert_eq!(copied(umask), mode & 0o777 & !umask, "{mode:o} with umask {umask:o}");
            fs::remove_file(place.path("dst")).expect("removed");
        }
    }
    // An existing destination keeps its permission bits.
    fs::set_permissions(place.file("dst", 5), Permissions::from_mode(0o640)).expect("permissions");
    assert_eq!(copied(0o022), 0o640);
}

/// A file system may report lost bytes only at `close`.
#[test]
fn an_error_at_the_end_leaves_the_destination() {
    let place = Place::new();
    place.file("src", 10_000);
    fs::write(place.path("dst"), "the old bytes").expect("a file");
    for option in ["", "--direct", "--share", "--verify"] {
        let mut command = place.command(&format!("src dst {option}"));
        failing_close(&mut command, "copy-file");
        let output = command.output().expect("it runs");
        if !stderr(&output).contains("copy without --direct") {
            assert_refused(&output, option, &["quota", "make room"]);
        }
        assert_eq!(place.names(), ["dst", "src"].map(String::from).into());
        assert_eq!(fs::read(place.path("dst")).expect("readable"), b"the old bytes");
    }
}

#[test]
fn an_existing_destination_is_replaced_at_once() {
    let place = Place::new();
    let src = place.file("src", 100_000);
    fs::write(place.path("dst"), "the old bytes").expect("a file");
    let mut reader = File::open(place.path("dst")).expect("the old file");
    symlink("dst", place.path("link")).expect("a link");
    place.copies("src link");
    assert_same(&src, &place.path("dst"));
    assert!(fs::symlink_metadata(place.path("link")).expect("there").is_symlink(), "the link is kept");
    let mut old = String::new();
    reader.read_to_string(&mut old).expect("readable");
    assert_eq!(old, "the old bytes", "a process that has the old file open reads the old bytes");
    assert_eq!(place.names().len(), 3);
}
