//! Runs the example `17_configured_server` with configuration files: on a device that hangs, with faults in
//! the file, and until a signal.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use test_support::built;

/// A time limit that a test reaches only if it hangs.
const HANGS: Duration = Duration::from_secs(60);

struct Server {
    child: Child,
    lines: BufReader<ChildStdout>,
    config: PathBuf,
    _dir: tempfile::TempDir,
}

impl Server {
    fn start(config: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("config.toml");
        std::fs::write(&path, config).expect("written");
        let mut child = Command::new(built::example("17_configured_server"))
            .arg(&path)
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, lines, config: path, _dir: dir }
    }

    /// Reads a line that ends with an address, and connects to it.
    fn address(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("the server's output");
        line.split(['/', ' ', '\n']).find(|word| word.starts_with("127.0.0.1:")).expect(&line).to_owned()
    }

    /// Waits for the end. Returns whether the server succeeded, and its log.
    fn end(mut self) -> (bool, String) {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            assert!(begun.elapsed() < HANGS, "the server does not end");
            std::thread::yield_now();
        };
        let mut log = String::new();
        self.child.stderr.take().expect("a pipe").read_to_string(&mut log).expect("the server's log");
        (status.success(), log)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails if the server has ended.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(HANGS)).expect("a time limit");
    stream
}

/// Stores an object. Returns the response, or `None` if the server has closed the connection.
fn store(stream: &mut TcpStream, object: &[u8]) -> Option<u32> {
    let mut crc = [0; 4];
    let sent = stream.write_all(&(object.len() as u32).to_le_bytes()).and_then(|()| stream.write_all(object));
    match sent.and_then(|()| stream.read_exact(&mut crc)) {
        Ok(()) => Some(u32::from_le_bytes(crc)),
        Err(e) => {
            assert_ne!(e.kind(), std::io::ErrorKind::WouldBlock, "no response");
            None
        }
    }
}

/// Every third operation hangs. The client whose operation hangs is disconnected, and the next one is served.
#[test]
fn a_server_on_a_device_that_hangs_opens_it_again() {
    let mut server = Server::start(
        r#"
        listen = "127.0.0.1:0"
        metrics = "127.0.0.1:0"
        engine = "meter+sim:faults=stick@3,label=store"
        queue = { queue = { stall_timeout = "500ms" } }
        pool = { classes = [{ len = "64K", count = 1 }] }
        object = { len = "1M" }
        "#,
    );
    let (address, metrics) = (server.address(), server.address());
    let object = [7; 50_000];
    for _ in 0..2 {
        let mut client = connect(&address);
        for expected in [Some(crc32c::crc32c(&object)), Some(crc32c::crc32c(&object)), None] {
            assert_eq!(store(&mut client, &object), expected);
        }
    }
    let mut scrape = connect(&metrics);
    scrape.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
    let mut text = String::new();
    scrape.read_to_string(&mut text).expect("a response");
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    for line in [
        "dma_descriptors_total{engine=\"store\",queue=\"0\",outcome=\"done\"} 4",
        "dma_descriptors_total{engine=\"store\",queue=\"0\",outcome=\"aborted\"} 2",
        "dma_latency_seconds_count{engine=\"store\",queue=\"0\"} 4",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    // A connection without a request does not delay the end.
    let idle = connect(&address);
    kill_process(Pid::from_child(&server.child), Signal::TERM).expect("it runs");
    let (success, log) = server.end();
    assert!(success, "{log}");
    drop(idle);
    assert_eq!(log.matches("the device has failed; opening the engine again").count(), 2, "{log}");
    assert_eq!(log.matches("the device completed nothing for 500ms").count(), 2, "{log}");
    assert!(log.contains("SIGTERM") && log.contains("the queue is closed"), "{log}");
}

#[test]
fn an_error_names_the_file_and_the_key() {
    let config = |engine: &str, lanes: u32, len: &str| {
        format!(
            r#"
            listen = "127.0.0.1:0"
            engine = "{engine}"
            queue = {{ lanes = {lanes} }}
            pool = {{ classes = [{{ len = "64K", count = 1 }}] }}
            object = {{ len = "{len}" }}
            "#
        )
    };
    for (config, key) in [
        (config("sim", 1, "0"), "object"),
        (config("sim:profile=none", 1, "1M"), "engine"),
        (config("sim", 70_000, "1M"), "queue"),
    ] {
        let server = Server::start(&config);
        let path = server.config.display().to_string();
        let (success, log) = server.end();
        assert!(!success && log.contains(&path) && log.contains(key), "{key}: {log}");
    }
}
