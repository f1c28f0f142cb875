//! Tests of CPU engines in two processes: one exports and the other copies. If one process exits, the other
//! one gets an error at most.
#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use dma_core::{Access, DmaEngineExt, ErrorKind, ExportDescriptor, MemoryRequest, QueueOptions};
use dma_cpu::{CpuEngine, CpuOptions};
use test_support::patience::Patience;

const LEN: usize = 3 << 20;

/// The exporting process: this test binary, run again for this one test.
struct Peer {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Peer {
    fn start() -> (Self, ExportDescriptor) {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "peer", "--nocapture", "--test-threads=1"])
            .env("DMA_TEST_PEER", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a second process");
        let mut lines = BufReader::new(child.stdout.take().expect("piped"));
        let descriptor = loop {
            let mut line = String::new();
            assert_ne!(lines.read_line(&mut line).expect("the peer speaks"), 0, "the peer ended");
            if let Some((_, hex)) = line.trim().split_once("descriptor ") {
                let bytes: Vec<u8> = (0..hex.len() / 2)
                    .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("hex"))
                    .collect();
                break ExportDescriptor::from_bytes(&bytes).expect("a descriptor");
            }
        };
        (Self { child, lines }, descriptor)
    }

    /// Makes the peer check its memory.
    fn check(&mut self, byte: u8) {
        writeln!(self.child.stdin.as_mut().expect("piped"), "{byte}").expect("the peer listens");
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("the peer speaks");
        assert_eq!(line.trim(), "right");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Main function of the second process. In the first process it does nothing.
#[test]
fn peer() {
    if std::env::var_os("DMA_TEST_PEER").is_none() {
        return;
    }
    let engine = CpuEngine::open(&CpuOptions::new()).expect("in range");
    let request = MemoryRequest::new(LEN).exportable(Access::READ | Access::WRITE);
    let window = engine.allocate_window(&request).expect("memory");
    window.write_at(0, &[1; LEN]).expect("local memory");
    let export = window.export(Access::READ | Access::WRITE).expect("exported");
    let hex: String = export.descriptor().to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    println!("descriptor {hex}");
    for line in std::io::stdin().lines() {
        let expected: u8 = line.expect("a line").parse().expect("a byte");
        let mut bytes = vec![0; LEN];
        window.read_at(0, &mut bytes).expect("local memory");
        println!("{}", if bytes.iter().all(|byte| *byte == expected) { "right" } else { "wrong" });
    }
}

#[test]
fn copies_cross_processes_until_the_peer_dies() {
    for options in
        [CpuOptions::new(), CpuOptions::new().with_threads(0), CpuOptions::new().with_inline_limit(0)]
    {
        let (mut peer, descriptor) = Peer::start();
        let engine = CpuEngine::open(&options).expect("in range");
        let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
        let remote = engine.import(&descriptor).expect("imported");
        let local = || engine.allocate(LEN).expect("memory");
        let (remote, mut bytes) = queue.copy(remote, local()).expect("accepted").wait().expect("completes");
        assert!(bytes.iter().all(|byte| *byte == 1));
        bytes.fill(2);
        let (bytes, remote) = queue.copy(bytes, remote).expect("accepted").wait().expect("completes");
        peer.check(2);
        // The copies are split, and some are short.
        let lists = (0..3).map(|at| remote.slice(at * 1000..at * 1000 + 7)).collect::<Vec<_>>();
        let (lists, got) = queue
            .copy(lists, engine.allocate(21).expect("memory"))
            .expect("accepted")
            .wait()
            .expect("completes");
        assert!(got.iter().all(|byte| *byte == 2));
        let filled = queue.fill(remote, [9; 8]).expect("accepted").wait().expect("completes");
        peer.check(9);

        drop(peer);
        // The kernel reports the exit with a delay. Until then the bytes are unchanged.
        let mut patience = Patience::new();
        let (mut remote, mut bytes) = (filled, bytes);
        let error = loop {
            match queue.copy(remote, bytes).expect("the queue cannot know that the peer has exited").wait() {
                Ok(operands) => (remote, bytes) = operands,
                Err(error) => break error,
            }
            patience.check("the queue notices the exit of the peer");
        };
        assert_eq!(error.kind(), ErrorKind::Revoked);
        assert!(error.to_string().contains("PEER_GONE"), "{error}");
        let late = queue
            .copy(lists, got)
            .expect("the queue cannot know that the peer has exited")
            .wait()
            .expect_err("gone");
        assert_eq!(late.kind(), ErrorKind::Revoked);
        assert_eq!(engine.import(&descriptor).expect_err("gone").kind(), ErrorKind::Revoked);
        queue.copy(local(), local()).expect("accepted").wait().expect("the queue still works");
    }
}
