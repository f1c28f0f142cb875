//! Output files, folders and standard streams that cannot be written never cause the loss of measurements.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use test_support::default_signals;

fn bench(words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dma-bench"));
    default_signals::default_signals(&mut command);
    command.args(words).stdin(Stdio::null());
    command
}

/// A short run, for tests in which the figures do not matter.
fn run<S: AsRef<OsStr>>(words: impl IntoIterator<Item = S>) -> Command {
    let mut command = bench(["run", "-e", "cpu", "--samples", "2", "-t", "0.004", "--warm-up", "0.001"]);
    command.args(["--footprint", "1M"]).args(words);
    command
}

fn done(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().expect("dma-bench starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (status.code().unwrap_or(-1), text(&stdout), text(&stderr))
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("the results exist")).expect("JSON")
}

fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

fn names(folder: &Path) -> Vec<OsString> {
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    names
}

#[test]
fn a_full_standard_output_costs_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("r.json");
    let mut command = run(["-o", "64", "--json"]);
    let child = command.arg(&results).stdout(full()).stderr(Stdio::piped()).spawn().unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("standard output") && said.contains("free some space"), "{said}");
    assert_eq!(json(&results)["cells"].as_array().unwrap().len(), 2);
}

#[test]
fn a_hyphen_is_standard_input_and_no_output() {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("r.json");
    assert_eq!(done(run(["-o", "64", "--json"]).arg(&results)).0, 0);
    let (code, table, said) = done(bench(["show", "-"]).stdin(File::open(&results).unwrap()));
    assert!(code == 0 && table.contains("copy cold"), "{said}");
    let (code, _, said) = done(run(["-o", "64", "--json", "-"]).current_dir(&folder));
    assert!(code == 2 && said.contains("--json -: `-` is not a file"), "{code} {said}");
    assert_eq!(names(folder.path()), ["r.json"]);
}

#[test]
fn a_foreign_file_is_an_invalid_argument() {
    let folder = tempfile::tempdir().unwrap();
    let foreign = folder.path().join("foreign.json");
    fs::write(&foreign, "{\"name\": \"something else\"}").unwrap();
    for words in [&["show"][..], &["report", "-o", "/dev/null"], &["compare"], &["replay"]] {
        for file in [foreign.as_path(), Path::new("/nowhere/x.json")] {
            let mut command = bench(words);
            command.arg(file).args((words[0] == "compare").then_some(file));
            let (code, _, said) = done(&mut command);
            assert!(code == 2 && said.contains(file.to_str().unwrap()), "{words:?}: {code} {said}");
        }
    }
}

#[test]
fn results_are_saved_under_a_name() {
    let folder = tempfile::tempdir().unwrap();
    let ends =
        |command: &mut Command| done(command.env("XDG_DATA_HOME", folder.path()).current_dir(folder.path()));
    let (code, _, said) = ends(&mut run(["-o", "64", "--save", "main"]));
    assert_eq!(code, 0, "{said}");
    assert_eq!(names(&folder.path().join("dma-bench")), ["main.json"]);
    let (code, table, said) = ends(&mut bench(["show", "main"]));
    assert!(code == 0 && table.contains("copy cold"), "{said}");
    assert_eq!(ends(&mut bench(["compare", "main", "main"])).0, 0);
    let (code, _, said) = ends(&mut bench(["compare", "main", "other"]));
    assert!(code == 2 && said.contains("other: neither a file nor saved results; saved are: main"), "{said}");
    // A file takes precedence over saved results.
    fs::write(folder.path().join("main"), "{}").unwrap();
    assert_eq!(ends(&mut bench(["show", "main"])).0, 2);
    for name in ["../x", "a/b", "-", ".hidden", "", &"n".repeat(101)] {
        let (code, _, said) = ends(&mut run(["-o", "64", &format!("--save={name}")]));
        assert!(code == 2 && said.contains("is not a name"), "{name}: {code} {said}");
    }
    let mut homeless = run(["-o", "64", "--save", "main"]);
    let (code, _, said) = done(homeless.env_remove("XDG_DATA_HOME").env_remove("HOME"));
    assert!(code == 2 && said.contains("set XDG_DATA_HOME or HOME"), "{code} {said}");
}

#[test]
fn a_full_or_closed_standard_error_costs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let closed = || std::io::pipe().unwrap().1;
    for (name, stream) in [("full.json", Stdio::from(full())), ("closed.json", Stdio::from(closed()))] {
        let results = folder.path().join(name);
        let status = run(["-o", "64..1K", "--json"])
            .arg(&results)
            .stdout(Stdio::null())
            .stderr(stream)
            .status()
            .unwrap();
        assert_eq!(status.code(), Some(0), "{name}");
        assert_eq!(json(&results)["interrupted"], false);
    }
    // An error message that cannot be written does not change the exit code.
    assert_eq!(bench(["run", "-e", "cpo"]).stderr(full()).status().unwrap().code(), Some(2));
}

#[test]
fn a_path_need_not_be_text() {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join(OsStr::from_bytes(b"\xff.json"));
    let (code, _, said) = done(run(["-o", "64", "--json"]).arg(&results));
    assert_eq!(code, 0, "{said}");
    let command = json(&results)["command"].to_string();
    assert!(command.contains('\u{fffd}'), "{command}");
}

#[test]
fn outputs_that_are_one_file_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let whole = at.join("x").display().to_string();
    fs::write(at.join("mine.toml"), "engines = ['cpu']").unwrap();
    symlink("x", at.join("link")).unwrap();
    for words in [
        &["--json", "x", "--csv", "x"][..],
        &["--json", "x", "--markdown", "./x"],
        &["--csv", "./x", "--report", &whole],
        &["--json", "link", "--report", "x"],
        &["--json", "x", "--plots", "x"],
        &["--campaign", "mine.toml", "--json", "mine.toml"],
    ] {
        let (code, out, said) = done(run(["-o", "64"]).args(words).current_dir(at));
        assert_eq!(code, 2, "{words:?}: {said}");
        assert!(said.contains("is the same file as"), "{words:?}: {said}");
        assert!(out.is_empty(), "before measuring");
    }
    // A table must not overwrite the results file.
    let mut command = run(["-o", "64", "--json", "x"]);
    let status = command.current_dir(at).stdout(File::create(at.join("x")).unwrap()).stderr(Stdio::null());
    assert_eq!(status.status().unwrap().code(), Some(2));
    assert_eq!(names(at), ["link", "mine.toml", "x"], "no other file is left");

    // A page must not overwrite its input.
    assert_eq!(done(run(["-o", "64", "--json", "a.json"]).current_dir(at)).0, 0);
    let before = fs::read(at.join("a.json")).unwrap();
    let (code, _, said) = done(bench(["report", "a.json", "-o", "./a.json"]).current_dir(at));
    assert_eq!((code, said.contains("is the same file as")), (2, true), "{said}");
    assert_eq!(fs::read(at.join("a.json")).unwrap(), before);
}

#[test]
fn paths_that_cannot_be_written_are_found_before_measuring() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::create_dir(at.join("dir")).unwrap();
    fs::write(at.join("file"), b"mine").unwrap();
    fs::write(at.join("kept"), b"mine").unwrap();
    fs::set_permissions(at.join("kept"), fs::Permissions::from_mode(0o444)).unwrap();
    let long = "n".repeat(300);
    for (option, path, says) in [
        ("--json", "dir", "the path of a file in it"),
        ("--csv", "new/", "the directory new/ does not exist"),
        ("--csv", "nowhere/x", "the directory nowhere does not exist"),
        ("--markdown", "/proc/x.json", "/proc"),
        ("--report", &long, "shorter name"),
        ("--json", "file/x", "give another path"),
        ("--json", "kept", "read-only"),
        ("--plots", "file", "file is not a folder"),
        ("--plots", "file/x", "give another path"),
        ("--plots", "/dev/full", "/dev/full is not a folder"),
        ("--plots", "/proc/plots", "/proc"),
        ("--plots", &long, "shorter name"),
    ] {
        let (code, out, said) = done(run(["-o", "64", option, path]).current_dir(at));
        assert_eq!(code, 2, "{option} {path}: {said}");
        assert!(said.contains(&format!("{option} {path}: ")) && said.contains(says), "{option}: {said}");
        assert!(!said.contains("GB/s") && out.is_empty(), "{option} {path}: before measuring: {said}");
        assert!(!said.contains(".tmp"), "the message names only the user's paths: {said}");
    }
    assert_eq!(names(at), ["dir", "file", "kept"], "nothing is left");
    assert_eq!(fs::read(at.join("kept")).unwrap(), b"mine");
}

#[test]
fn special_files_are_written_to_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    // This file stands for /dev/stdout. The real one is not used, because a defective program might replace
    // it.
    let stdout = folder.path().join("stdout");
    symlink("/proc/self/fd/1", &stdout).unwrap();
    let (code, out, said) = done(run(["-o", "64", "--csv", "/dev/fd/1", "--json"]).arg(&stdout));
    assert_eq!(code, 0, "{said}");
    let all = |text: &str| {
        text.contains("dma-bench/results")
            && text.contains("engine,kind,model,rate,op")
            && text.contains("copy cold")
    };
    assert!(all(&out), "{out}");
    // Standard output is a file, which is neither replaced nor overwritten.
    let behind = folder.path().join("out");
    let mut command = run(["-o", "64", "--csv", "/proc/self/fd/1", "--json"]);
    command.arg(&stdout).stdout(File::create(&behind).unwrap()).stderr(Stdio::null());
    assert_eq!(command.status().unwrap().code(), Some(0));
    assert!(all(&fs::read_to_string(&behind).unwrap()));
    assert!(stdout.is_symlink());
    let (code, _, said) = done(&mut run(["-o", "64", "--json", "/dev/null", "--csv", "/dev/null"]));
    assert_eq!(code, 0, "{said}");

    let pipe = folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let mut child = run(["-o", "64", "--quiet", "--json"])
        .arg(&pipe)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // The pipe has no writer if the program fails before it opens the pipe. Then this thread stays behind.
    let reading = std::thread::spawn(|| fs::read_to_string(pipe).unwrap());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(reading.join().unwrap().contains("dma-bench/results"));
}

#[test]
fn a_page_that_cannot_be_written_costs_no_plots() {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("r.json");
    let mut first = run(["-o", "64..256", "--report", "/dev/full", "--json"]);
    first.arg(&results).arg("--plots").arg(folder.path().join("a"));
    let mut second = bench(["report", "-o", "/dev/full"]);
    second.arg(&results).arg("--plots").arg(folder.path().join("b"));
    for (name, command) in [("a", &mut first), ("b", &mut second)] {
        let (code, _, said) = done(command);
        assert_eq!(code, 1, "{said}");
        assert!(said.contains("/dev/full") && said.contains("free some space"), "{said}");
        assert!(!names(&folder.path().join(name)).is_empty());
    }
}

#[test]
fn a_file_that_is_there_keeps_its_links_and_rights() {
    let folder = tempfile::tempdir().unwrap();
    let (real, link, ahead) =
        (folder.path().join("real"), folder.path().join("link"), folder.path().join("ahead"));
    fs::write(&real, b"old").unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o600)).unwrap();
    symlink("real", &link).unwrap();
    symlink("later", &ahead).unwrap();
    let (code, _, said) = done(run(["-o", "64", "--json"]).arg(&link).arg("--csv").arg(&ahead));
    assert_eq!(code, 0, "{said}");
    assert!(link.is_symlink() && ahead.is_symlink());
    assert_eq!(json(&real)["version"], 3);
    assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o7777, 0o600);
    assert!(fs::read_to_string(folder.path().join("later")).unwrap().starts_with("engine,"));
}

#[test]
fn an_engine_that_can_do_nothing_of_it_is_no_success() {
    let mut command = bench(["run", "-e", "sim:profile=ioat", "-w", "sg", "-s", "300", "-o", "64K"]);
    command.args(["--samples", "2", "-t", "0.004", "--warm-up", "0.001", "--footprint", "1M"]);
    let (code, _, said) = done(&mut command);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("sim:profile=ioat: not measured: "), "{said}");
    let (code, _, said) = done(command.args(["-e", "cpu"]));
    assert_eq!((code, said.contains("cpu: not measured")), (1, false), "{said}");
}

#[test]
fn text_from_a_file_is_shown_without_control_characters() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let (clean, dirty) = (at.join("clean.json"), at.join("dirty.json"));
    assert_eq!(done(run(["-o", "64..256", "--json"]).arg(&clean)).0, 0);
    let text = fs::read_to_string(&clean).unwrap();
    fs::write(&dirty, text.replace("\"cpu\",", "\"c\\u001b[31m|\\npu\\u0007\",")).unwrap();
    let bad = |text: &str| text.contains(|c: char| c.is_control() && c != '\n');
    for format in ["table", "markdown", "csv", "json"] {
        let (code, out, said) = done(bench(["show", "--format", format]).arg(&dirty));
        assert_eq!(code, 0, "{said}");
        assert!(out.contains("[31m") && !bad(&out), "{format}: {out}");
        let columns = |line: &str| line.matches('|').count();
        let head = out.lines().find(|l| l.starts_with("| what")).map(columns);
        let mut rows = out.lines().filter(|l| l.starts_with("| copy"));
        assert!(format != "markdown" || rows.all(|l| Some(columns(l)) == head), "{out}");
    }
    let (code, out, _) = done(bench(["compare", "--all"]).arg(&dirty).arg(&dirty));
    assert!(code == 0 && !bad(&out), "{out}");
    assert_eq!(done(bench(["report", "--plots"]).arg(at.join("plots")).arg(&dirty)).0, 0);
    for name in names(&at.join("plots")).iter().filter(|n| n.as_bytes().ends_with(b".svg")) {
        let svg = fs::read_to_string(at.join("plots").join(name)).unwrap();
        assert!(!bad(&svg), "{name:?}");
    }
    let other = text.replace("\"version\": 3,", "\"version\": 2,").replacen(
        "\"tool\": \"",
        "\"tool\": \"\\u001b[31m",
        1,
    );
    fs::write(&dirty, other).unwrap();
    let (code, _, said) = done(bench(["show"]).arg(&dirty));
    assert!(
        code == 2 && said.contains("results of version 2") && said.contains("measure again") && !bad(&said),
        "{said}"
    );
}

// Release builds have no hold points.
#[cfg(debug_assertions)]
mod interruptions {
    use std::io::{BufRead as _, BufReader};

    use test_support::hold::Hold;

    use super::*;

    /// Interrupts a run when it reaches `point`. Returns its output and its messages.
    fn interrupted(mut command: Command, results: &Path, point: &str) -> (Output, String) {
        let mut hold = Hold::at(&mut command, point);
        command.args(["--samples", "1", "--json"]).arg(results).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(command);
        hold.wait(point);
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let (mut said, mut lines) = (String::new(), BufReader::new(child.stderr.take().unwrap()));
        while !said.contains("Ctrl-C again ends at once") {
            assert!(lines.read_line(&mut said).unwrap() > 0, "{said}");
        }
        lines.read_to_string(&mut said).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{said}");
        (output, said)
    }

    #[test]
    fn cells_that_were_never_begun_are_not_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let results = folder.path().join("r.json");
        let mut command = bench(["run", "-e", "cpu", "-o", "64..8K"]);
        command.args(["-t", "0.004", "--warm-up", "0.001", "--footprint", "1M"]);
        // The first cell is complete, and the run holds.
        let (output, said) = interrupted(command, &results, "cell");
        let value = json(&results);
        let begun = value["cells"].as_array().unwrap().len();
        assert!(value["planned"] == 16 && begun < 16, "{begun}: {said}");
        assert!(said.contains(&format!("{} of 16 were not begun", 16 - begun)), "{said}");
        let table = String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(table.contains(&format!("{} of 16 cells were not begun", 16 - begun)), "{table}");
    }

    #[test]
    fn a_run_interrupted_before_its_first_figure_replaces_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let results = folder.path().join("r.json");
        fs::write(&results, "mine").unwrap();
        let command = bench(["run", "-e", "cpu", "-o", "64", "--footprint", "1M"]);
        let (output, said) = interrupted(command, &results, "begun");
        assert!(said.contains("before anything was measured") && output.stdout.is_empty(), "{said}");
        assert_eq!(fs::read(&results).unwrap(), b"mine");
    }
}
