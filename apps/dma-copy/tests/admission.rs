//! Tests connections of other programs to `dma-copy`'s listener: the host is still admitted, and its
//! errors are correct.

use std::collections::VecDeque;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

mod pair;

use pair::{LONG, Place, Running, Side, assert_same, secret};
use test_support::free_port::free_port;

/// Number of connections: more than `dma-copy` keeps open plus the kernel's backlog.
const MANY: usize = 180;

/// Connects as soon as a listener exists.
fn connect<S>(mut try_it: impl FnMut() -> io::Result<S>) -> S {
    let start = Instant::now();
    loop {
        match try_it() {
            Ok(stream) => return stream,
            Err(e) => assert!(start.elapsed() < LONG, "{e}"),
        }
        sleep(Duration::from_millis(1));
    }
}

fn threads(running: &mut Running) -> usize {
    let tasks = format!("/proc/{}/task", running.child().id());
    std::fs::read_dir(tasks).map_or(0, Iterator::count)
}

fn copied_past<S>(place: &Place, args: &str, mut stranger: impl FnMut() -> io::Result<S>) {
    let mut dpu = place.start(Side::Dpu, &format!("-f dst {args}"));
    let silent: Vec<_> = (0..MANY).map(|_| connect(&mut stranger)).collect();
    assert!(threads(&mut dpu) < 8, "{} threads for {MANY} strangers", threads(&mut dpu));
    place.start(Side::Host, &format!("-f src {args}")).end().copied();
    dpu.end().copied();
    assert_same(&place.path("src"), &place.path("dst"));
    drop(silent);
}

#[test]
fn over_tcp_silent_strangers_do_not_keep_a_host_out() {
    let place = Place::new();
    place.file("src", 1000);
    secret(&place, "key", "sixteen or more bytes");
    let port = free_port();
    copied_past(&place, &format!("-c tcp:{port} --secret-file key"), || {
        TcpStream::connect(("127.0.0.1", port))
    });
}

#[test]
fn over_a_unix_socket_silent_strangers_do_not_keep_a_host_out() {
    let place = Place::new();
    place.file("src", 1000);
    let path = place.path("socket");
    copied_past(&place, "", || UnixStream::connect(&path));
}

/// If the DPU closes the host's connection to make room for a later connection, the host tries again.
#[test]
fn over_tcp_new_strangers_do_not_keep_a_host_out() {
    let place = Place::new();
    place.file("src", 1000);
    secret(&place, "key", "sixteen or more bytes");
    let port = free_port();
    let args = format!("-c tcp:{port} --secret-file key");
    let dpu = place.start(Side::Dpu, &format!("-f dst {args}"));
    drop(connect(|| TcpStream::connect(("127.0.0.1", port))));
    std::thread::scope(|scope| {
        let host = scope.spawn(|| place.start(Side::Host, &format!("-f src {args}")).end());
        let (mut silent, mut pause) = (VecDeque::new(), Duration::from_millis(2));
        while !host.is_finished() {
            // Connections are refused after the copy has started.
            silent.extend(TcpStream::connect(("127.0.0.1", port)));
            // All tests of this process have to do with its limit of open files.
            if silent.len() > MANY {
                silent.pop_front();
            }
            // The pause grows, so that a slow host can authenticate before it is displaced.
            pause += pause / 200;
            sleep(pause);
        }
        host.join().expect("it ends").copied();
    });
    dpu.end().copied();
}

/// Only a refusal by the DPU means a wrong secret; a closed connection does not.
#[test]
fn a_closed_connection_is_not_reported_as_a_wrong_secret() {
    let place = Place::new();
    place.file("src", 1000);
    secret(&place, "key", "sixteen or more bytes");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let args = format!("-f src -c tcp:{port} --secret-file key");
    let (host, mut hold) = place.hold(Side::Host, &args, "hung up");
    for answer in ["", "deadline=0.1"] {
        drop(listener.accept().expect("it connects"));
        hold.wait("hung up");
        hold.answer(answer);
    }
    let ended = host.end();
    let said = ended.failed(&["within 0.1 s and closed the connection 2 times", "--timeout"]);
    assert!(!said.contains("its secret"), "{said}");
}

/// No side makes the directory, so neither waits for it.
#[test]
fn a_socket_in_a_missing_directory_is_refused_at_once() {
    let place = Place::new();
    place.file("src", 1000);
    for (side, file) in [(Side::Host, "src"), (Side::Dpu, "dst")] {
        // A socket of `-c` replaces that of the test.
        let args = format!("-f {file} -c unix:/nonexistent/a --timeout 120");
        place
            .start(side, &args)
            .end()
            .failed(&["the directory of /nonexistent/a does not exist", "--channel"]);
    }
}

/// A listener with a full backlog does not block a host beyond --timeout.
#[test]
fn a_hung_listener_with_a_full_backlog_times_out() {
    let place = Place::new();
    place.file("src", 1000);
    let path: &Path = &place.path("socket");
    let listener = std::os::unix::net::UnixListener::bind(path).expect("bound");
    rustix::net::listen(&listener, 0).expect("a short queue");
    let _first = UnixStream::connect(path).expect("there is room for one");
    place.start(Side::Host, "-f src --timeout 1").end().failed(&["host: connecting", "within 1 s"]);
    place.start(Side::Dpu, "-f dst --timeout 1").end().failed(&["another dma-copy listens"]);
}
