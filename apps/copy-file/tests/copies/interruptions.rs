//! Copies that are interrupted, that fail, or whose source changes.

use super::*;

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

#[test]
fn a_device_that_completes_nothing_is_given_up() {
    let place = Place::new();
    place.file("src", 100 * CHUNK);
    fs::write(place.path("dst"), "old").expect("a file");
    let (child, mut hold) = start_held(&mut place.command(STUCK), "begun");
    hold.answer("device=0.5");
    let output = child.wait_with_output().expect("it ends");
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("has completed nothing for 500ms") && said.contains("--engine cpu"), "{said}");
    assert_eq!(place.names(), BTreeSet::from(["dst".to_owned(), "src".to_owned()]));
    assert_eq!(fs::read(place.path("dst")).expect("readable"), b"old");
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
    // One worker meets the loss first, and the other one fails because of it.
    place.refuses(
        "--engine sim:faults=dead@1 --chunk 4K src dst",
        &["cannot copy the bytes of SRC at offset", "copy on sim: device lost"],
    );
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
