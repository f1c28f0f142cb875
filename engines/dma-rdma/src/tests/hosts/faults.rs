//! Tests hosts that die, and a link that goes down, while copies are in flight.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use dma_core::{Access, DmaEngineExt, ErrorKind, MemoryRequest, Queue, Transfer, Window};

use super::{Control, PATIENCE, Random, assert_copies, open, pattern, queue};
use crate::RdmaEngine;

const KILLED: usize = 20;
const LEN: usize = 256 << 10;
const PIECE: usize = 16 << 10;

/// Repeated copies of pieces in both directions.
struct Traffic {
    queue: Queue,
    local: Window,
    remote: Window,
    flights: Vec<Transfer<(Window, Window)>>,
    next: usize,
}

impl Traffic {
    fn open(engine: &RdmaEngine, control: &mut Control) -> Self {
        let remote = engine.import(&control.export(LEN, Access::all())).expect("an import");
        let local = engine.allocate_window(&MemoryRequest::new(LEN)).expect("memory");
        local.write_at(0, &pattern(LEN, 3)).expect("within");
        Self { queue: queue(engine), local, remote, flights: Vec::new(), next: 0 }
    }

    /// Keeps 16 copies in flight: from the lower half to the other host, and back to the upper half.
    fn go_on(&mut self) -> dma_core::Result<()> {
        while self.flights.len() < 16 {
            let at = self.next / 2 % (LEN / 2 / PIECE) * PIECE;
            let (low, high) = (at..at + PIECE, LEN / 2 + at..LEN / 2 + at + PIECE);
            let flight = if self.next.is_multiple_of(2) {
                self.queue.copy(self.local.slice(low.clone()), self.remote.slice(low))
            } else {
                self.queue.copy(self.remote.slice(low), self.local.slice(high))
            };
            self.next += 1;
            self.flights.push(flight.map_err(|e| e.into_parts().0)?);
        }
        self.queue.flush();
        self.flights.remove(0).wait().map(drop).map_err(|e| e.into_parts().0)
    }

    /// Waits for all copies, and returns the error kinds of the failed ones.
    fn end(&mut self) -> Vec<ErrorKind> {
        self.flights.drain(..).filter_map(|flight| flight.wait().err().map(|e| e.kind())).collect()
    }
}

/// The other test kills this process.
#[test]
#[ignore = "needs a second host: see the top of the file"]
fn a_peer_that_copies_until_it_is_killed() {
    let (engine, mut control) = (open(), Control::open());
    let mut traffic = Traffic::open(&engine, &mut control);
    let begun = Instant::now();
    traffic.go_on().expect("a copy");
    println!("\nit copies");
    while begun.elapsed() < PATIENCE {
        traffic.go_on().expect("a copy");
    }
}

#[test]
#[ignore = "needs a second host: see the top of the file"]
fn importer_4_is_killed_and_the_exporter_serves_on() {
    let (engine, mut control) = (open(), Control::open());
    let mut random = Random(0x0dd_c0de);
    let before = control.tell("pairs")[0];
    let mut longest = Duration::ZERO;
    for round in 0..KILLED {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--ignored", "--nocapture", "a_peer_that_copies_until_it_is_killed"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        // Every second time the peer may be killed while it connects.
        if round % 2 == 0 {
            let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
            assert!(
                lines.map_while(Result::ok).any(|line| line == "it copies"),
                "the peer ended before it copied"
            );
        }
        std::thread::sleep(Duration::from_micros(random.below(300_000)));
        child.kill().expect("it is killed");
        child.wait().expect("it has ended");
        longest = longest.max(control.wait_for_pairs(before));
        assert_copies(&engine, &mut control, round);
    }
    println!(
        "importer killed: {KILLED} times; its queue pairs were gone within {} ms, and the next importer was served",
        longest.as_millis()
    );
}

#[test]
#[ignore = "needs a second host: see the top of the file"]
fn importer_5_sees_an_exporter_that_is_killed() {
    let engine = open();
    let mut random = Random(0xfee1_dead);
    let (mut longest, mut kinds) = (Duration::ZERO, Vec::new());
    for _ in 0..KILLED {
        let mut control = Control::open();
        assert_copies(&engine, &mut control, 0);
        let mut traffic = Traffic::open(&engine, &mut control);
        traffic.go_on().expect("a copy");
        control.tell(&format!("die {}", random.below(300_000)));
        let begun = Instant::now();
        let error = loop {
            match traffic.go_on() {
                Ok(()) => assert!(begun.elapsed() < PATIENCE, "the exporter lives"),
                Err(error) => break error,
            }
        };
        // The TCP connection of the exporter ended when the exporter died.
        control.0.set_nonblocking(true).expect("an option");
        assert_eq!(control.0.read(&mut [0]).unwrap_or(0), 0);
        traffic.end();
        longest = longest.max(begun.elapsed());
        assert!(
            matches!(error.kind(), ErrorKind::Revoked | ErrorKind::DeviceFault | ErrorKind::Aborted),
            "{error}"
        );
        kinds.push(error.kind());
        // This export has no exporter any more.
        let late = traffic.queue.copy(traffic.local.slice(..64), traffic.remote.slice(..64));
        let late = late.expect("it is taken").wait().expect_err("the exporter is gone");
        assert!(matches!(late.kind(), ErrorKind::Revoked | ErrorKind::DeviceFault), "{late}");
    }
    println!("exporter killed: {KILLED} times; seen within {} ms as {kinds:?}", longest.as_millis());
}

fn link(state: &str) {
    let device = std::env::var("DMA_RDMA_LINK").expect("DMA_RDMA_LINK is the network device");
    let status = Command::new("ip").args(["link", "set", &device, state]).status().expect("the program `ip`");
    assert!(status.success(), "{device} has not become {state}");
}

#[test]
#[ignore = "needs a second host: see the top of the file"]
fn importer_6_goes_on_after_a_link_was_down() {
    let (engine, mut control) = (open(), Control::open());
    let mut traffic = Traffic::open(&engine, &mut control);
    traffic.go_on().expect("a copy");
    link("down");
    let begun = Instant::now();
    let error = loop {
        match traffic.go_on() {
            Ok(()) => assert!(begun.elapsed() < PATIENCE, "copies continue although the link is down"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error.kind(), ErrorKind::DeviceFault | ErrorKind::Aborted), "{error}");
    let seen = begun.elapsed();
    traffic.end();
    link("up");
    // These copies use the same import and queue.
    let begun = Instant::now();
    while let Err(error) = traffic.go_on() {
        assert!(error.kind() != ErrorKind::Revoked && begun.elapsed() < PATIENCE, "{error}");
        traffic.end();
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(traffic.end().is_empty(), "copies fail although the link is up");
    println!(
        "link down: seen after {} ms as {:?}; up again, copies went on after {} ms",
        seen.as_millis(),
        error.kind(),
        begun.elapsed().as_millis()
    );
    // The interruption is short, so requests are repeated and succeed.
    traffic.go_on().expect("a copy");
    link("down");
    std::thread::sleep(Duration::from_millis(20));
    link("up");
    let mut failed = Vec::new();
    for _ in 0..32 {
        failed.extend(traffic.go_on().err().map(|error| error.kind()));
    }
    failed.extend(traffic.end());
    println!("link down for 20 ms: {} of 48 copies failed {failed:?}", failed.len());
    assert!(failed.iter().all(|kind| matches!(kind, ErrorKind::DeviceFault | ErrorKind::Aborted)));
    assert_copies(&engine, &mut control, 1);
}
