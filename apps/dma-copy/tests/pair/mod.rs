//! Runs two processes of `dma-copy`, host and DPU, in a temporary directory.
#![allow(dead_code, reason = "each test file uses only a part of this module")]

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use test_support::default_signals;
use test_support::free_port::free_port;
use test_support::hold::Hold;

/// Time limit for a process, longer than any copy in these tests takes on a crowded machine.
pub(crate) const LONG: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Host,
    Dpu,
}

impl Side {
    pub(crate) const BOTH: [Self; 2] = [Self::Host, Self::Dpu];

    pub(crate) fn other(self) -> Self {
        if self == Self::Host { Self::Dpu } else { Self::Host }
    }

    pub(crate) fn name(self) -> &'static str {
        if self == Self::Host { "host" } else { "dpu" }
    }
}

/// The exit status and output of a process that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    /// Checks that the process succeeded and printed a summary of one line.
    pub(crate) fn copied(&self) -> &str {
        assert!(self.status.success(), "{self:?}");
        assert_eq!(self.err, "", "without a terminal, dma-copy prints only its summary");
        assert_eq!(self.out.lines().count(), 1, "{self:?}");
        assert!(self.out.starts_with("copied "), "{self:?}");
        self.out.trim_end()
    }

    /// Checks that the process failed, not by a signal, and printed one line that contains all of `words`.
    pub(crate) fn failed(&self, words: &[&str]) -> &str {
        assert_eq!(self.err.trim_end().lines().count(), 1, "{self:?}");
        self.failed_with_log(words)
    }

    /// Checks that the process refused its arguments in one line that contains all of `words`.
    pub(crate) fn refused(&self, words: &[&str]) {
        assert_eq!(self.err.trim_end().lines().count(), 1, "{self:?}");
        self.ended_with(2, words);
    }

    /// Checks that the process failed, not by a signal, and printed a message that contains all of `words`.
    /// Lines of the log may precede the message.
    pub(crate) fn failed_with_log(&self, words: &[&str]) -> &str {
        self.ended_with(1, words)
    }

    fn ended_with(&self, code: i32, words: &[&str]) -> &str {
        assert_eq!(self.status.code(), Some(code), "{self:?}");
        assert_eq!(self.out, "", "a failed copy prints no summary");
        let messages = self.err.lines().filter(|line| line.starts_with("dma-copy: ")).count();
        assert_eq!(messages, 1, "{self:?}");
        for word in words {
            assert!(self.err.contains(word), "`{word}` is not in: {}", self.err);
        }
        &self.err
    }
}

/// A running process, which is killed when dropped.
pub(crate) struct Running {
    child: Option<Child>,
    start: Instant,
}

impl Running {
    pub(crate) fn child(&mut self) -> &mut Child {
        self.child.as_mut().expect("it runs")
    }

    pub(crate) fn pid(&mut self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(self.child())
    }

    pub(crate) fn signal(&mut self, signal: rustix::process::Signal) {
        let pid = self.pid();
        // The process may have ended already.
        let _ = rustix::process::kill_process(pid, signal);
    }

    /// Waits until the process ends.
    pub(crate) fn end(mut self) -> Ended {
        let child = self.child();
        let (mut stdout, mut stderr) =
            (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
        let read = std::thread::spawn(move || {
            let (mut out, mut err) = (String::new(), String::new());
            // Both outputs are a few lines, which fit into the pipes, so reading after the end is enough.
            stdout.read_to_string(&mut out).expect("text");
            stderr.read_to_string(&mut err).expect("text");
            (out, err)
        });
        let status = loop {
            if let Some(status) = self.child().try_wait().expect("a child") {
                break status;
            }
            assert!(self.start.elapsed() < LONG, "it hangs");
            std::thread::sleep(Duration::from_millis(1));
        };
        self.child = None;
        let (out, err) = read.join().expect("read");
        assert!(!err.contains("panicked"), "{err}");
        Ended { status, out, err }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A directory with files to copy.
pub(crate) struct Place {
    pub(crate) dir: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a directory") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Creates a file of `len` bytes that differ by position.
    pub(crate) fn file(&self, name: &str, len: usize) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, sample(len)).expect("a file");
        path
    }

    pub(crate) fn names(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(self.dir.path()).expect("a directory");
        entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
    }

    /// Returns the command of one side, with a socket in this directory unless `args` name a channel, and
    /// with a timeout that no machine misses unless `args` have one.
    pub(crate) fn command(&self, side: Side, args: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dma-copy"));
        default_signals::default_signals(&mut command);
        command.args(["--role", side.name()]);
        if !args.contains("-c ") {
            command.args(["-c", "unix:socket"]);
        }
        if !args.contains("--timeout") {
            command.args(["--timeout", "600"]);
        }
        command
            .args(args.split_whitespace())
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn start(&self, side: Side, args: &str) -> Running {
        run(self.command(side, args))
    }

    /// Starts one side, which holds at `point`.
    pub(crate) fn hold(&self, side: Side, args: &str, point: &str) -> (Running, Hold) {
        let mut command = self.command(side, args);
        let hold = Hold::at(&mut command, point);
        (run(command), hold)
    }

    /// Runs both sides, `from` with the file `src` and the other side with `dst`. Returns the results of the
    /// sender and the receiver.
    pub(crate) fn pair(&self, from: Side, args: &str) -> (Ended, Ended) {
        self.pair_of(from, &format!("-f src {args}"), &format!("-f dst {args}"))
    }

    pub(crate) fn pair_of(&self, from: Side, sender: &str, receiver: &str) -> (Ended, Ended) {
        let receiver = self.start(from.other(), receiver);
        let sender = self.start(from, sender);
        (sender.end(), receiver.end())
    }

    /// Copies over TCP, with the secret of the file `key`. A proxy between the sides changes one bit, of the
    /// given byte that a side sends. Returns the results of host and DPU, and all bytes that passed.
    pub(crate) fn through_a_proxy(
        &self,
        from: Side,
        args: &str,
        change: Option<(Side, usize)>,
    ) -> ([Ended; 2], Vec<u8>) {
        let (port, listener) = (free_port(), TcpListener::bind("127.0.0.1:0").expect("a port"));
        let proxy = listener.local_addr().expect("an address").port();
        let [host, dpu] = [(Side::Host, proxy), (Side::Dpu, port)].map(|(side, port)| {
            let file = if side == from { "src" } else { "dst" };
            self.start(side, &format!("-f {file} -c tcp:{port} --secret-file key {args}"))
        });
        let (to_host, _) = listener.accept().expect("it connects");
        let start = Instant::now();
        let to_dpu = loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(stream) => break stream,
                Err(e) => assert!(start.elapsed() < LONG, "{e}"),
            }
        };
        let flip = |side| change.and_then(|(changed, at)| (side == changed).then_some(at));
        std::thread::scope(|scope| {
            let of_host = scope.spawn(|| pass_on(&to_host, &to_dpu, flip(Side::Host)));
            let of_dpu = scope.spawn(|| pass_on(&to_dpu, &to_host, flip(Side::Dpu)));
            let ended = [host.end(), dpu.end()];
            (ended, [of_host, of_dpu].map(|passing| passing.join().expect("passed on")).concat())
        })
    }

    /// Copies `src` to `dst` and checks the copy and both outputs.
    pub(crate) fn copies(&self, from: Side, args: &str) -> (String, String) {
        let (sender, receiver) = self.pair(from, args);
        assert!(
            sender.status.success() && receiver.status.success(),
            "{from:?} {args}: {sender:?} {receiver:?}"
        );
        let lines = (sender.copied().to_owned(), receiver.copied().to_owned());
        assert_same(&self.path("src"), &self.path("dst"));
        assert!(!self.path(PARTIAL).exists(), "{from:?} {args}: nothing else is left");
        assert!(!self.path("socket").exists(), "the socket is gone");
        lines
    }
}

/// Copies bytes from one stream to the other, with bit 0 of byte `flip` changed. Returns the bytes.
fn pass_on(mut from: &TcpStream, mut to: &TcpStream, flip: Option<usize>) -> Vec<u8> {
    let (mut bytes, mut all) = ([0; 4096], Vec::new());
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        let at = all.len();
        all.extend_from_slice(&bytes[..n]);
        if let Some(flip) = flip.filter(|flip| (at..at + n).contains(flip)) {
            bytes[flip - at] ^= 1;
        }
        if to.write_all(&bytes[..n]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    all
}

pub(crate) fn run(mut command: Command) -> Running {
    Running { child: Some(command.spawn().expect("it runs")), start: Instant::now() }
}

/// The name of the partial copy of `dst`.
pub(crate) const PARTIAL: &str = ".dst.dma-copy.partial";

pub(crate) fn sample(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .collect()
}

pub(crate) fn assert_same(a: &Path, b: &Path) {
    assert!(fs::read(a).expect("readable") == fs::read(b).expect("readable"), "{a:?} and {b:?} differ");
}

/// Writes a file for `--secret-file`.
pub(crate) fn secret(place: &Place, name: &str, text: &str) {
    fs::write(place.path(name), text).expect("written");
    fs::set_permissions(place.path(name), Permissions::from_mode(0o600)).expect("permissions");
}
