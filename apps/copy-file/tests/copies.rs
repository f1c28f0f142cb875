//! Tests of the command line of `copy-file`: copies and error messages.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, getuid, kill_process};
use tempfile::TempDir;
use test_support::default_signals;
use test_support::hold::Hold;

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

    /// Makes a file of `len` bytes that depend on their position.
    fn file(&self, name: &str, len: usize) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, sample(len)).expect("a file");
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
            let dst = place.path(&format!("dst-{len}-{depth}"));
            let line = place.copies(&format!("--chunk 4K --depth {depth} src {}", dst.display()));
            assert!(line.starts_with(&format!("copied {len} byte")), "{line}");
            assert!(line.contains(" GB/s, engine "), "{line}");
            assert_same(&src, &dst);
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
        assert!(line.contains(&blake3::hash(&fs::read(&src).expect("readable")).to_string()), "{line}");
        let stored = |name: &str| fs::metadata(place.path(name)).expect("there").blocks() * 512;
        // Check this only if the file system does not store holes.
        if stored("src") < len / 2 {
            assert!(stored("dst") < len / 2, "{ranges:?}: {} bytes stored", stored("dst"));
            assert!(line.contains("bytes of holes kept"), "{line}");
        }
    }
}

#[test]
fn verifying_says_the_digest() {
    let place = Place::new();
    for len in [0, 1, 1_000_000] {
        let src = place.file("src", len);
        let line = place.copies("--verify --chunk 64K src dst");
        let digest = blake3::hash(&fs::read(&src).expect("readable")).to_string();
        assert!(line.contains(&format!("blake3 {digest}")), "{line}");
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

#[test]
fn a_reader_that_has_gone_is_no_failure() {
    let place = Place::new();
    place.file("src", 10);
    let mut child = place.command("src dst").stdout(Stdio::piped()).spawn().expect("it runs");
    drop(child.stdout.take());
    assert!(child.wait().expect("it ends").success());
    assert_same(&place.path("src"), &place.path("dst"));
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

#[test]
fn bad_sources_are_named() {
    let place = Place::new();
    place.file("file", 10);
    fs::create_dir(place.path("dir")).expect("a directory");
    assert!(Command::new("mkfifo").arg(place.path("fifo")).status().expect("mkfifo").success());
    place.refuses("nothing dst", &["SRC nothing does not exist"]);
    place.refuses("file/x dst", &["SRC file/x does not exist"]);
    place.refuses("dir dst", &["SRC dir is a directory", "name a regular file"]);
    place.refuses("fifo dst", &["SRC fifo is a pipe"]);
    place.refuses("/dev/zero dst", &["SRC /dev/zero is a device"]);
    // One file reports length 0 although it has bytes, and one file can be opened but not read.
    place.refuses("/proc/version dst", &["/proc/version", "more bytes than the 0"]);
    // Files in /sys report a page.
    place.refuses(
        "/sys/devices/system/cpu/online dst",
        &["/sys/devices/system/cpu/online has fewer bytes than the", "that it reports; read it with cat"],
    );
    place.refuses("/proc/self/mem dst", &["cannot read SRC /proc/self/mem"]);
}

#[test]
fn bad_destinations_are_named() {
    let place = Place::new();
    place.file("src", 10);
    place.file("file", 10);
    fs::create_dir(place.path("dir")).expect("a directory");
    symlink("gone", place.path("dangling")).expect("a link");
    assert!(Command::new("mkfifo").arg(place.path("fifo")).status().expect("mkfifo").success());
    place.refuses("src dir", &["DST dir is a directory", "dir/src"]);
    place.refuses("src new/", &["DST new/ names no file"]);
    place.refuses("src nowhere/new", &["directory nowhere", "mkdir -p nowhere"]);
    place.refuses("src file/new", &["DST file/new cannot exist"]);
    place.refuses("src dangling", &["DST dangling is a dangling link"]);
    place.refuses("src fifo", &["DST fifo is a pipe"]);
    place.refuses("src /dev/null", &["DST /dev/null is a device"]);
    let long = "x".repeat(300);
    place.refuses(&format!("src {long}"), &[&format!("DST {long} cannot exist: its name is too long")]);
    place.refuses(&format!("{long} dst"), &[&format!("SRC {long} cannot exist: its name is too long")]);
    let output = place.command("src").arg("").output().expect("it runs");
    assert_refused(&output, "an empty name", &["DST", "names no file"]);
}

#[test]
fn a_file_that_the_shell_has_opened_is_not_replaced() {
    let place = Place::new();
    place.file("src", 10);
    for dst in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        fs::write(place.path("log"), "earlier\n").expect("a file");
        let log = File::options().append(true).open(place.path("log")).expect("it opens");
        let mut command = place.command(&format!("src {dst}"));
        let output = command.stdout(log).output().expect("it runs");
        assert_refused(&output, dst, &[dst, "is an open file of this process; name the file itself"]);
        assert_eq!(fs::read_to_string(place.path("log")).expect("readable"), "earlier\n", "{dst}");
    }
}

#[test]
fn control_characters_of_names_do_not_reach_the_terminal() {
    let place = Place::new();
    place.file("src", 10);
    for args in [["gone\x1b[2J\x07", "dst"], ["src", "nowhere\x1b[2J\x07/dst"]] {
        let output = place.command("").args(args).output().expect("it runs");
        assert_refused(&output, "a name", &["?[2J?"]);
        assert!(!stderr(&output).contains(['\x1b', '\x07']), "{output:?}");
    }
    let output = place.command("--quiet src dst third\x1b").output().expect("it runs");
    assert_refused(&output, "an argument", &["third? is a third file"]);
}

#[test]
fn source_and_destination_must_differ() {
    let place = Place::new();
    let src = place.file("src", 10);
    symlink("src", place.path("link")).expect("a link");
    fs::hard_link(&src, place.path("hard")).expect("a link");
    for args in ["src src", "src ./src", "src link", "link src", "src hard", "hard src"] {
        place.refuses(args, &["are the same file", "choose another DST"]);
    }
    assert_eq!(fs::read(&src).expect("readable"), sample(10));
}

#[test]
fn bad_arguments_are_named() {
    let place = Place::new();
    place.file("src", 10);
    place.refuses("", &["SRC and DST are missing", "--help"]);
    place.refuses("src", &["DST is missing", "the copy of src"]);
    place.refuses("src dst more", &["more"]);
    for (size, words) in [
        ("abc", "is not a valid size"),
        ("-1", "is not a valid size"),
        ("", "--chunk"),
        ("12Q", "is not a valid size"),
        ("1.5M", "is not a valid size"),
        ("0", "4K to 1G"),
        ("4095", "4K to 1G"),
        ("2G", "4K to 1G"),
        ("99999999999999999999999", "4K to 1G"),
    ] {
        place.refuses(&format!("--chunk={size} src dst"), &[words]);
    }
    for depth in ["0", "x", "65537", "-3"] {
        place.refuses(&format!("--depth={depth} src dst"), &["--depth"]);
    }
    place.refuses("--engine warp src dst", &["warp"]);
    place.refuses("--engine cpu:threads=many src dst", &["many"]);
    place.refuses("--engine= src dst", &["engine"]);
}

/// Runs the program as an unprivileged user who does not own the files.
/// Runs a script of the shell without root's rights. In the script, the program is `./program`.
fn as_user(place: &Place, script: &str) -> Output {
    fs::copy(env!("CARGO_BIN_EXE_copy-file"), place.path("program")).expect("copied");
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(place.dir.path()).stdin(Stdio::null());
    if getuid().is_root() {
        command.uid(65_534).gid(65_534);
    }
    command.output().expect("a shell")
}

#[test]
fn a_limit_on_threads_is_named() {
    let place = Place::new();
    place.file("src", 10);
    let output = as_user(&place, "exec prlimit --nproc=1 ./program src /tmp/never");
    assert_refused(&output, "nproc", &["cannot handle signals", "os error 11", "ulimit -u"]);
}

#[test]
fn missing_permissions_are_named() {
    let place = Place::new();
    let src = place.file("src", 10);
    let secret = place.file("secret", 10);
    fs::set_permissions(&src, Permissions::from_mode(0o644)).expect("permissions");
    fs::set_permissions(&secret, Permissions::from_mode(0o000)).expect("permissions");
    let locked = place.path("locked");
    fs::create_dir(&locked).expect("a directory");
    fs::write(locked.join("old"), "old").expect("a file");
    fs::set_permissions(locked.join("old"), Permissions::from_mode(0o444)).expect("permissions");
    fs::set_permissions(&locked, Permissions::from_mode(0o555)).expect("permissions");
    let run = |src: &str, dst: &str| as_user(&place, &format!("exec ./program {src} {dst}"));
    let output = run("secret", "/tmp/never");
    assert_refused(&output, "secret", &["SRC secret cannot be read", "chmod"]);
    let output = run("src", "locked/new");
    assert_refused(&output, "locked/new", &["cannot create a file in locked", "choose a directory"]);
    let output = run("src", "locked/old");
    assert_refused(&output, "locked/old", &["DST locked/old exists and may not be written"]);
    assert_eq!(fs::read_dir(&locked).expect("readable").count(), 1);
    fs::set_permissions(&locked, Permissions::from_mode(0o755)).expect("permissions");
}

#[test]
fn a_limit_on_file_sizes_is_named() {
    let place = Place::new();
    place.file("src", 100_000);
    fs::write(place.path("dst"), "old").expect("a file");
    let before = place.names();
    let output = Command::new("sh")
        .args(["-c", "ulimit -f 8; exec \"$0\" src dst"])
        .arg(env!("CARGO_BIN_EXE_copy-file"))
        .current_dir(place.dir.path())
        .output()
        .expect("a shell");
    assert_refused(&output, "ulimit -f", &["100000 bytes", "ulimit -f"]);
    assert_eq!(place.names(), before);
    assert_eq!(fs::read(place.path("dst")).expect("readable"), b"old");
}

/// This test needs the right to mount a small file system: as root, or in a user namespace.
#[test]
fn a_full_disk_is_named() {
    let place = Place::new();
    place.file("src", 3 << 20);
    fs::create_dir(place.path("small")).expect("a directory");
    let script = "mount -t tmpfs -o size=1m none small || exit 99
        printf old > small/dst
        \"$0\" src small/dst; code=$?
        ls -A small; cat small/dst
        exit $code";
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
        .arg(env!("CARGO_BIN_EXE_copy-file"))
        .current_dir(place.dir.path())
        .output();
    let output = match output {
        Ok(output) if stderr(&output).contains("copy-file:") => output,
        other => {
            println!("skipped: no small file system can be mounted here: {other:?}");
            return;
        }
    };
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("no space left in") && said.contains("DST needs 3145728 bytes"), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "dst\nold", "only the old file exists");
}

/// Returns whether `child` has its partial file open. The file may have a name or not.
fn has_begun(place: &Place, child: &Child) -> bool {
    let dir = fs::canonicalize(place.dir.path()).expect("a directory");
    let begun = |link: &Path| link.parent() == Some(&dir) && link.to_string_lossy().ends_with(" (deleted)");
    let Ok(files) = fs::read_dir(format!("/proc/{}/fd", child.id())) else { return false };
    files.flatten().any(|file| fs::read_link(file.path()).is_ok_and(|link| begun(&link)))
        || place.names().iter().any(|name| name.ends_with(".partial"))
}

const STUCK: &str = "--engine sim:faults=stick@3 --chunk 4K src dst";

/// Starts a copy on a device that hangs, and waits until the copy has begun.
fn start_stuck(place: &Place) -> Child {
    wait_until_stuck(place, place.command(STUCK))
}

fn wait_until_stuck(place: &Place, mut command: Command) -> Child {
    place.file("src", 100 * CHUNK);
    fs::write(place.path("dst"), "old").expect("a file");
    let (child, mut hold) = start_held(&mut command, "begun");
    assert!(has_begun(place, &child), "its partial file is open");
    hold.answer("device=3600");
    child
}

/// Starts the program and waits until it holds at `point`.
fn start_held(command: &mut Command, point: &str) -> (Child, Hold) {
    let mut hold = Hold::at(command, point);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    command.stdin(Stdio::null());
    hold.wait(point);
    (child, hold)
}

#[test]
fn an_interrupted_copy_leaves_nothing() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let place = Place::new();
        let child = start_stuck(&place);
        kill_process(Pid::from_child(&child), signal).expect("sent");
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
        assert!(stderr(&output).contains("interrupted"), "{}", stderr(&output));
        assert_eq!(place.names(), BTreeSet::from(["dst".to_owned(), "src".to_owned()]));
        assert_eq!(fs::read(place.path("dst")).expect("readable"), b"old");
    }
}

/// `nohup` starts programs with SIGHUP ignored, and shells start background jobs with SIGINT ignored.
#[test]
fn signals_that_are_ignored_at_the_start_stay_ignored() {
    let place = Place::new();
    let copy = place.command(STUCK);
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP INT; exec \"$0\" \"$@\""]).arg(copy.get_program()).args(copy.get_args());
    shell.current_dir(place.dir.path()).stdin(Stdio::null());
    let child = wait_until_stuck(&place, shell);
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it runs");
    let signals = |name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a field");
        u64::from_str_radix(line.trim(), 16).expect("signals") & 0x4003
    };
    // Bits 0, 1 and 14 are SIGHUP, SIGINT and SIGTERM.
    assert_eq!((signals("SigIgn:"), signals("SigCgt:")), (0x3, 0x4000));
    for signal in [Signal::HUP, Signal::INT, Signal::TERM] {
        kill_process(Pid::from_child(&child), signal).expect("sent");
    }
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
}

#[test]
fn a_killed_copy_leaves_nothing() {
    let place = Place::new();
    let mut child = start_stuck(&place);
    child.kill().expect("killed");
    child.wait().expect("it ends");
    assert_eq!(place.names(), BTreeSet::from(["dst".to_owned(), "src".to_owned()]));
    assert_eq!(fs::read(place.path("dst")).expect("readable"), b"old");
}

/// Partial files have names where O_TMPFILE does not work. Here it does not work, because /proc is hidden.
#[test]
fn a_complete_copy_leaves_no_partial_file_where_these_have_names() {
    let place = Place::new();
    place.file("src", 100 * CHUNK);
    let script = "mount -t tmpfs none /proc || exit 99; exec \"$0\" \"$@\"";
    for _ in 0..2 {
        let output = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
            .arg(env!("CARGO_BIN_EXE_copy-file"))
            .args(["src", "dst"])
            .current_dir(place.dir.path())
            .stdin(Stdio::null())
            .output()
            .expect("it runs");
        if output.status.code() == Some(99) || stderr(&output).contains("unshare") {
            println!("skipped: /proc cannot be hidden here: {}", stderr(&output));
            return;
        }
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(place.names(), BTreeSet::from(["dst".to_owned(), "src".to_owned()]));
        assert_same(&place.path("src"), &place.path("dst"));
    }
}

/// Holds a copy halfway, applies `change` to its source, and continues the copy.
fn change_while_copied(change: impl Fn(&Path)) -> Output {
    let place = Place::new();
    let src = place.file("src", 1 << 20);
    // Set a modification time in the past, so that any change alters it even with a coarse clock.
    File::options()
        .write(true)
        .open(&src)
        .expect("there")
        .set_modified(std::time::UNIX_EPOCH)
        .expect("a time");
    let (child, hold) = start_held(&mut place.command("--chunk 4K --depth 1 src dst"), "chunk");
    change(&src);
    drop(hold);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(place.names(), BTreeSet::from(["src".to_owned()]), "no file is left");
    output
}

#[test]
fn a_source_that_changes_is_an_error() {
    let open = |src: &Path| File::options().write(true).open(src).expect("there");
    let shorter = change_while_copied(|src| open(src).set_len(10_000).expect("shorter"));
    assert_refused(&shorter, "shorter", &["SRC src", "while it was copied", "copy it again"]);
    let longer = change_while_copied(|src| {
        File::options().append(true).open(src).expect("there").write_all(b"more").expect("longer");
    });
    assert_refused(&longer, "longer", &["SRC src changed its length from", "copy it again"]);
    let other = change_while_copied(|src| open(src).write_all(b"other").expect("written"));
    assert_refused(&other, "written to", &["SRC src was written to while it was copied"]);
}

#[test]
fn a_failed_copy_ends_with_what_the_device_said() {
    let place = Place::new();
    place.file("src", 100 * CHUNK);
    let at = "cannot copy the bytes of SRC at offset";
    place.refuses("--engine sim:faults=fail --chunk 4K src dst", &[at, "device fault"]);
    place.refuses("--engine sim:faults=gone@7 --chunk 4K src dst", &["device"]);
}

#[test]
fn temporary_errors_are_retried() {
    let place = Place::new();
    let src = place.file("src", 100 * CHUNK);
    // The faults are a reset while copies are in flight, a copy that fails once, and a temporary lack of
    // resources.
    for faults in ["reset@t=1us", "fail@7", "refuse@7"] {
        let line =
            place.copies(&format!("--engine sim:profile=bluefield3,faults={faults} --chunk 4K src dst"));
        assert!(line.contains(" retried"), "{line}");
        assert_same(&src, &place.path("dst"));
    }
    // A permanent error is reported after the retries.
    place.refuses(
        "--engine sim:faults=refuse --chunk 4K src dst2",
        &["cannot copy the bytes of SRC at offset"],
    );
}

#[test]
fn corruption_is_found_by_verifying() {
    let place = Place::new();
    place.file("src", 100 * CHUNK);
    place.refuses(
        "--engine sim:faults=corrupt@7 --chunk 4K --verify src dst",
        &["what arrived is not what was read", "--engine cpu --verify"],
    );
    // Without --verify, the corrupt copy is reported as a success.
    place.copies("--engine sim:faults=corrupt@7 --chunk 4K src dst");
    assert_ne!(
        fs::read(place.path("src")).expect("readable"),
        fs::read(place.path("dst")).expect("readable")
    );
}

/// The exit status is right even if the message cannot be written.
#[test]
fn a_full_standard_error_does_not_change_the_exit_status() {
    let place = Place::new();
    for (args, expected) in [("nothing dst", 1), ("--nonsense", 2)] {
        let full = File::options().write(true).open("/dev/full").expect("a device");
        let status = place.command(args).stderr(full).status().expect("it runs");
        assert_eq!(status.code(), Some(expected), "{args}");
    }
}
