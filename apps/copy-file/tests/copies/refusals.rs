//! Errors that are named before anything is copied, and missing rights and space.

use std::fs::File;
use std::sync::LazyLock;

use super::*;

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
    assert_refused(&output, "an empty name", &["DST is empty"]);
}

#[test]
fn a_directory_that_was_deleted_is_named() {
    let place = Place::new();
    place.file("src", 10);
    let script = "mkdir gone && cd gone && rmdir ../gone && exec \"$0\" \"$1\" dst";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(place.command("").get_program()).arg(place.path("src"));
    let output = command.current_dir(place.path("")).output().expect("it runs");
    assert_refused(&output, "a deleted directory", &["the directory . was deleted", "choose another DST"]);
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
    for args in [["gone\x1b[2J\n", "dst"], ["src", "nowhere\x1b[2J\n/dst"]] {
        let output = place.command("").args(args).output().expect("it runs");
        assert_refused(&output, "a name", &["?[2J?"]);
        assert!(!stderr(&output).contains('\x1b'), "{output:?}");
        assert_eq!(stderr(&output).lines().count(), 1, "a name adds no line: {output:?}");
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
        ("4KB", "or of K, M or G (1024 each), such as 256K"),
        ("1.5M", "is not a valid size"),
        ("0", "4K to 1G"),
        ("4095", "4K to 1G"),
        ("2G", "`2G` is out of range; give 4K to 1G"),
        ("99999999999999999999999", "4K to 1G"),
    ] {
        place.refuses(&format!("--chunk={size} src dst"), &[words]);
    }
    for depth in ["0", "x", "65537", "-3"] {
        place.refuses(&format!("--depth={depth} src dst"), &["--depth"]);
    }
    for (engine, words) in [
        ("warp", "unknown engine `warp`"),
        ("cpu:threads=many", "many"),
        ("sim:depth=0", "depth"),
        ("", "the name of the engine is missing"),
    ] {
        let output = place.run(&format!("--engine={engine} src dst"));
        assert_eq!(output.status.code(), Some(2), "{engine}");
        assert_refused(&output, engine, &[words]);
    }
    // The engine exists, but not its device.
    let output = place.run("--engine dsa:wq15.7 src dst");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    for (args, words) in [(["", "dst"], "SRC is empty"), (["src", ""], "DST is empty")] {
        let output = place.command("").args(args).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert_refused(&output, words, &[words, "name a file"]);
    }
}

/// A copy of the program that every user may execute. Its folder is gone, so no path leads to it: /tmp may
/// not execute programs, and other users may not enter the folder in which cargo has built the program.
static PROGRAM: LazyLock<File> = LazyLock::new(|| {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let copy = dir.path().join("copy-file");
    // Another program makes the copy: a process that another test starts meanwhile would inherit this
    // process's descriptor, and the kernel executes no file that is open for writing.
    let mut install = Command::new("install");
    install.args(["-m", "755", env!("CARGO_BIN_EXE_copy-file")]).arg(&copy);
    assert!(install.status().expect("install").success());
    File::open(copy).expect("the copy")
});

/// Runs a script of the shell as an unprivileged user who does not own the files. In the script, the
/// program is `/proc/self/fd/0`.
fn as_user(place: &Place, script: &str) -> Output {
    let mut command = Command::new("sh");
    let program = PROGRAM.try_clone().expect("a descriptor");
    command.args(["-c", script]).current_dir(place.dir.path()).stdin(program);
    if getuid().is_root() {
        command.uid(65_534).gid(65_534);
    }
    command.output().expect("a shell")
}

#[test]
fn a_limit_on_threads_is_named() {
    let place = Place::new();
    place.file("src", 10);
    let output = as_user(&place, "exec prlimit --nproc=1 /proc/self/fd/0 src /tmp/never");
    assert_refused(&output, "nproc", &["cannot handle signals", "os error 11", "ulimit -u"]);
}

/// io_uring needs threads of the kernel, which count as threads of the user, for files that are not in the
/// page cache.
#[test]
fn a_direct_copy_needs_no_threads_of_the_kernel() {
    let place = Place::new();
    place.file("src", 3 << 20);
    let open = "chmod 755 . && chmod 644 src && mkdir out && chmod 777 out";
    assert!(Command::new("sh").args(["-c", open]).current_dir(place.dir.path()).status().unwrap().success());
    // The program's thread, that of the signal handler and that of the file queue. Other processes of the
    // same user leave fewer threads, so more are tried.
    let mut limits = (3..12_u32).chain((4..32).map(|power| 1 << power));
    let tried = limits.find_map(|threads| {
        let engine = "--engine cpu:threads=0 --direct --chunk 64K";
        let output =
            as_user(&place, &format!("exec prlimit --nproc={threads} /proc/self/fd/0 {engine} src out/dst"));
        (!stderr(&output).contains("ulimit -u") && !stderr(&output).contains("limits on threads"))
            .then_some(output)
    });
    let output = tried.expect("a limit that leaves the program its own threads");
    let without_direct = stderr(&output).contains("copy without --direct");
    assert!(output.status.success() || without_direct, "{}", stderr(&output));
    if !without_direct {
        assert!(fs::read(place.path("out/dst")).unwrap() == fs::read(place.path("src")).unwrap());
    }
}

/// The copy has the permissions of a read-only file from its begin, and is opened a second time.
#[test]
fn a_read_only_file_is_copied_directly() {
    let place = Place::new();
    let src = place.file("src", 100_000);
    fs::set_permissions(&src, Permissions::from_mode(0o444)).expect("permissions");
    fs::create_dir(place.path("out")).expect("a directory");
    fs::set_permissions(place.path("out"), Permissions::from_mode(0o777)).expect("permissions");
    let output = as_user(&place, "umask 022; exec /proc/self/fd/0 --direct src out/dst");
    let said = stderr(&output);
    if !output.status.success() {
        // A file system in memory.
        assert!(said.contains("copy without --direct") && !said.contains("ermission"), "{said}");
        return;
    }
    assert_same(&src, &place.path("out/dst"));
    assert_eq!(fs::metadata(place.path("out/dst")).expect("a copy").mode() & 0o7777, 0o444);
}

#[test]
fn a_limit_on_open_files_is_named() {
    let place = Place::new();
    place.file("src", 10);
    // From a limit at which the program's libraries can be loaded to one at which it copies.
    let (mut failed, mut copied) = (0, 0);
    for limit in 4..24 {
        for option in ["", "--direct"] {
            let script = format!("exec prlimit --nofile={limit} /proc/self/fd/0 {option} src dst");
            let output = as_user(&place, &script);
            let said = stderr(&output);
            if output.status.success() || !said.contains("Too many open files") {
                copied += 1;
                continue;
            }
            failed += 1;
            assert!(said.contains("ulimit -n") || said.contains("limits of open files"), "{limit}: {said}");
            assert!(!said.contains("choose another"), "{limit}: {said}");
        }
    }
    assert!(failed > 0 && copied > 0, "{failed}, {copied}");
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
    let run = |src: &str, dst: &str| as_user(&place, &format!("exec /proc/self/fd/0 {src} {dst}"));
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
