//! `dma-bench serve` and `run --peer HOST:PORT`.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use test_support::default_signals;
use test_support::free_port::free_port;

/// A time limit that no correct test reaches.
const LONG: Duration = Duration::from_secs(300);
/// A short run, in which the figures do not matter.
const SHORT: [&str; 12] = [
    "run",
    "--samples",
    "2",
    "-t",
    "0.004",
    "--warm-up",
    "0.001",
    "--footprint",
    "1M",
    "-o",
    "1000,64K",
    "--quiet",
];

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dma-bench"));
    default_signals::default_signals(&mut command);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Checks the exit code, and that the error messages contain all of `words`.
fn ended(output: &Output, code: i32, words: &[&str]) {
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{err}");
    words.iter().for_each(|word| assert!(err.contains(word), "`{word}` is not in: {err}"));
    assert!(!err.contains("panicked"), "{err}");
}

/// A running `dma-bench serve`, which is ended when this value is dropped.
struct Served {
    child: Child,
    at: String,
}

impl Served {
    fn start(secret_file: &str, words: &str) -> Self {
        let first = ["serve", "--listen", "127.0.0.1:0", "--secret-file", secret_file];
        let all: Vec<&str> = first.into_iter().chain(words.split(' ')).collect();
        Self::wait(command(&all))
    }

    /// Starts the program, and waits until it listens.
    fn wait(mut command: Command) -> Self {
        let mut child = command.spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
        let at = line.split(" on ").nth(1).and_then(|rest| rest.split(';').next()).unwrap_or_default();
        assert!(!at.is_empty(), "{line}: {:?}", child.wait_with_output());
        Self { child, at: at.to_owned() }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// Waits until the process ends.
    fn end(mut self) -> Output {
        let start = Instant::now();
        while self.child.try_wait().expect("a child").is_none() {
            assert!(start.elapsed() < LONG, "it hangs");
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut stderr = Vec::new();
        self.child.stderr.take().expect("piped").read_to_end(&mut stderr).expect("text");
        Output { status: self.child.wait().expect("it has ended"), stdout: Vec::new(), stderr }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A folder with secrets.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().expect("a folder"));
        for (name, secret) in [("key", "sixteen or more bytes"), ("other", "sixteen or more bytes, others")] {
            fs::write(place.path(name), secret).expect("written");
            fs::set_permissions(place.path(name), Permissions::from_mode(0o600)).expect("set");
        }
        place
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("text").to_owned()
    }

    fn serve(&self, words: &str) -> Served {
        Served::start(&self.path("key"), words)
    }

    /// Runs `dma-bench run` with the peer `at`, and returns its output and the results.
    fn run(&self, at: &str, words: &[&str]) -> (Output, Option<Value>) {
        let (key, json) = (self.path("key"), self.path("results.json"));
        let _ = fs::remove_file(&json);
        let peer = ["--peer", at, "--secret-file", &key, "--json", &json];
        let output = command(&[&SHORT[..], &peer, words].concat()).output().expect("it starts");
        (output, fs::read(json).ok().map(|bytes| serde_json::from_slice(&bytes).expect("JSON")))
    }
}

#[test]
fn memory_of_a_peer_is_measured_and_every_byte_compared() {
    let place = Place::new();
    for engine in ["cpu", "sim:profile=bluefield3"] {
        let served = place.serve(&format!("-e {engine}"));
        // This works twice, because the memory of the first run was freed.
        for ops in ["copy", "compare,copy-crc32c"] {
            let ops = if engine == "cpu" { ops } else { "copy" };
            let (output, results) = place.run(&served.at, &["-e", engine, "-w", ops, "-q", "1,8", "-y"]);
            ended(&output, 0, &[]);
            let results = results.expect("results");
            let cells = results["cells"].as_array().expect("cells");
            for direction in ["push", "pull"] {
                let mut measured =
                    cells.iter().filter(|c| c["engine"] == engine && c["direction"] == direction);
                assert!(measured.clone().count() > 0, "{direction}");
                assert!(measured.all(|c| c["status"] == "ok" && c["verified"] == c["ops"]), "{results}");
            }
            assert!(cells.iter().any(|c| c["engine"] == "memcpy" && c["status"] == "ok"), "beside memcpy");
            assert_eq!(results["campaign"]["peer"], "host");
            assert!(
                !results["campaign"].to_string().contains("key"),
                "the results do not contain the path of the secret"
            );
        }
        served.signal(Signal::INT);
        ended(&served.end(), 0, &["stopping", "served"]);
    }
}

#[test]
fn a_peer_that_cannot_be_reached_is_reported_before_anything_is_measured() {
    let place = Place::new();
    let (output, results) = place.run(&format!("127.0.0.1:{}", free_port()), &["-e", "cpu"]);
    ended(&output, 1, &["cannot connect to the peer", "dma-bench serve"]);
    assert!(results.is_none(), "nothing was measured");
    // The peer has another secret.
    let served = Served::start(&place.path("other"), "-e cpu");
    let (output, _) = place.run(&served.at, &["-e", "cpu"]);
    ended(&output, 1, &["has another secret", "--secret-file on both sides"]);
    served.signal(Signal::TERM);
    ended(&served.end(), 0, &["turned away", "served 0 connections"]);
    // The peer speaks another protocol.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("an address").to_string();
    let held = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("it connects");
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request, and forty bytes more");
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let (output, _) = place.run(&at, &["-e", "cpu"]);
    ended(&output, 1, &["is not dma-bench"]);
    held.join().expect("closed");
}

#[test]
fn strangers_do_not_keep_a_peer_out() {
    let place = Place::new();
    let served = place.serve("-e cpu");
    let _silent: Vec<_> = (0..20).map(|_| TcpStream::connect(&served.at).expect("connected")).collect();
    let mut loud = TcpStream::connect(&served.at).expect("connected");
    loud.write_all(&[7; 1000]).expect("sent");
    let (output, _) = place.run(&served.at, &["-e", "cpu", "-d", "pull"]);
    ended(&output, 0, &[]);
}

#[test]
fn signals_that_are_ignored_at_the_start_stay_ignored() {
    let place = Place::new();
    let serve = "trap '' HUP INT; exec \"$0\" serve --listen 127.0.0.1:0 -e cpu --secret-file \"$1\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", serve, env!("CARGO_BIN_EXE_dma-bench"), &place.path("key")]);
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let served = Served::wait(shell);
    let status = fs::read_to_string(format!("/proc/{}/status", served.child.id())).expect("it runs");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("a field");
    let ignored = u64::from_str_radix(ignored.trim(), 16).expect("signals");
    assert_eq!(ignored & 0x4003, 0x3, "SIGHUP and SIGINT are ignored, and SIGTERM is not");
    for signal in [Signal::HUP, Signal::INT, Signal::TERM] {
        served.signal(signal);
    }
    // The second signal that is not ignored would end the program at once, with another exit code.
    ended(&served.end(), 0, &["stopping", "served 0 connections"]);
}

#[test]
fn serve_is_bounded_in_memory_peers_and_time() {
    let place = Place::new();
    let served = place.serve("-e cpu --memory 1M");
    let (output, results) = place.run(&served.at, &["-e", "cpu", "-d", "local,pull"]);
    ended(&output, 1, &["cells that failed"]);
    let results = results.expect("the measured figures are kept");
    for cell in results["cells"].as_array().expect("cells") {
        let pulls = cell["direction"] == "pull" && cell["engine"] == "cpu";
        assert_eq!(cell["status"], if pulls { "failed" } else { "ok" }, "{cell}");
        let text = cell["message"].as_str().unwrap_or_default();
        assert!(!pulls || text.contains("1 MiB are left") && text.contains("--memory"), "{cell}");
    }
    // A run has one connection for each direction.
    let served = place.serve("-e cpu --peers 1");
    let (output, results) = place.run(&served.at, &["-e", "cpu"]);
    ended(&output, 1, &["cells that failed"]);
    assert!(results.expect("results").to_string().contains("--peers allows no more"));
    ended(&place.serve("-e cpu --for 0.2").end(), 0, &["served 0 connections"]);
}

// Release builds have no hold points.
#[cfg(debug_assertions)]
#[test]
fn a_peer_that_dies_ends_its_cells_and_nothing_else() {
    use test_support::hold::Hold;

    let place = Place::new();
    let served = place.serve("-e cpu");
    let (key, json) = (place.path("key"), place.path("results.json"));
    let words = [
        "run",
        "-e",
        "cpu",
        "-d",
        "local,pull",
        "-o",
        "64K",
        "-y",
        "--quiet",
        "--footprint",
        "1M",
        "-t",
        "0.004",
    ];
    let peer = ["--peer", &served.at, "--secret-file", &key, "--json", &json];
    let mut command = command(&[&words[..], &peer].concat());
    let mut hold = Hold::at(&mut command, "sample");
    let run = command.spawn().expect("it starts");
    drop(command);
    // One sample is over, and the next begins.
    hold.wait("sample");
    hold.answer("");
    hold.wait("sample");
    // This waits until the peer has ended.
    drop(served);
    drop(hold);
    let output = run.wait_with_output().expect("it ends");
    ended(&output, 1, &["cells that failed: 1"]);
    let results: Value = serde_json::from_slice(&fs::read(&json).expect("results")).expect("JSON");
    for cell in results["cells"].as_array().expect("cells") {
        let pulls = cell["direction"] == "pull" && cell["engine"] == "cpu";
        assert_eq!(cell["status"], if pulls { "failed" } else { "ok" }, "{cell}");
    }
}

#[test]
fn wrong_command_lines_are_named() {
    let place = Place::new();
    let key = place.path("key");
    for (words, code, says) in [
        (&["run", "--peer", "10.0.0.2:4712"][..], 2, "needs --secret-file"),
        (&["run", "--secret-file", &key], 2, "--secret-file is for --peer"),
        (&["run", "--peer", "process", "--secret-file", &key], 2, "--secret-file is for --peer"),
        (&["run", "--peer", "nowhere"], 2, "thread, process and HOST:PORT"),
        (&["run", "--peer", "HOST:PORT", "--secret-file", &key], 2, "thread, process and HOST:PORT"),
        (&["run", "--peer", "nowhere:0"], 2, "thread, process and HOST:PORT"),
        (&["run", "--peer", "127.0.0.1:1", "--secret-file", "/missing"], 2, "cannot open --secret-file"),
        (&["serve", "-e", "cpu", "--listen", "127.0.0.1:0"], 2, "--secret-file"),
        (&["serve", "-e", "cpu", "--secret-file", &key], 2, "--listen"),
        (
            &["serve", "-e", "cpu", "--listen", "127.0.0.1:0", "--secret-file", &key, "--for=-1"],
            2,
            "more than 0",
        ),
        (
            &["serve", "-e", "cpu", "--listen", "127.0.0.1:0", "--secret-file", &key, "--for", "1e30"],
            2,
            "1e9",
        ),
        (&["serve", "-e", "cpo", "--listen", "127.0.0.1:0", "--secret-file", &key], 2, "did you mean"),
        (&["serve", "-e", "cpu", "--listen", "nowhere", "--secret-file", &key], 2, "--listen"),
        (&["serve", "-e", "cpu", "--listen", "127.0.0.1:0", "--secret-file", "/missing"], 2, "/missing"),
    ] {
        let output = command(words).output().expect("it starts");
        ended(&output, code, &[says]);
    }
}
