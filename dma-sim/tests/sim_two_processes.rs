//! Host and DPU as two processes: one simulated device exports memory, and another copies it.

#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use dma_core::{Access, DmaEngineExt, ErrorKind, ExportDescriptor, MemoryRequest, QueueOptions, Window};
use dma_sim::model::Profile;
use dma_sim::sim::{SimEngine, SimOptions};
use test_support::patience::Patience;

const LEN: usize = 100_000;
const ROLE: &str = "DMA_SIM_TEST_HOST";

fn engine(seed: u64) -> SimEngine {
    SimEngine::open(&SimOptions::new().with_profile(Profile::bluefield3()).with_seed(seed)).unwrap()
}

/// The host exports memory and saves the descriptor at a given path. On request, it revokes the export
/// or returns the sum of the bytes.
#[test]
#[ignore = "the other tests start this as their second process"]
fn host() {
    let Some(path) = std::env::var_os(ROLE) else { return };
    let engine = engine(1);
    let request = MemoryRequest::new(LEN).exportable(Access::READ | Access::WRITE);
    let window = engine.allocate_window(&request).unwrap();
    window.write_at(0, &[5; LEN]).unwrap();
    let mut export = Some(window.export(Access::READ | Access::WRITE).unwrap());
    export.as_ref().unwrap().descriptor().save(Path::new(&path)).unwrap();
    say("ready");
    for line in std::io::stdin().lock().lines() {
        match line.unwrap().as_str() {
            "revoke" => {
                if let Some(export) = export.take() {
                    export.revoke(Duration::from_secs(60)).unwrap();
                }
                say("revoked");
            }
            "sum" => say(&sum(&window).to_string()),
            _ => return,
        }
    }
}

fn say(what: &str) {
    // The test harness may have printed a part of a line, so the text begins with a line break.
    println!("\n@{what}");
    std::io::stdout().flush().unwrap();
}

fn sum(window: &Window) -> u64 {
    let mut bytes = vec![0; window.len()];
    window.read_at(0, &mut bytes).unwrap();
    bytes.into_iter().map(u64::from).sum()
}

struct Host {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    descriptor: ExportDescriptor,
}

impl Host {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("descriptor");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "host", "--ignored", "--nocapture", "--test-threads=1"])
            .env(ROLE, &path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        assert_eq!(answer(&mut output), "ready");
        let descriptor = ExportDescriptor::load(&path).unwrap();
        Self { child, output, descriptor }
    }

    fn ask(&mut self, what: &str) -> String {
        writeln!(self.child.stdin.as_mut().unwrap(), "{what}").unwrap();
        answer(&mut self.output)
    }
}

fn answer(output: &mut impl BufRead) -> String {
    let mut line = String::new();
    loop {
        line.clear();
        assert_ne!(output.read_line(&mut line).unwrap(), 0, "the host ended");
        if let Some(answer) = line.strip_prefix('@') {
            return answer.trim_end().to_owned();
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn copies_go_both_ways_until_revoked() {
    let mut host = Host::start();
    let engine = engine(2);
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let remote = engine.import(&host.descriptor).unwrap();
    let (_, mut local) = queue.copy(remote.clone(), engine.allocate(LEN).unwrap()).unwrap().wait().unwrap();
    assert!(local.iter().all(|byte| *byte == 5));
    local.fill(9);
    let (local, _) = queue.copy(local, remote.clone()).unwrap().wait().unwrap();
    assert_eq!(host.ask("sum"), (9 * LEN).to_string());
    assert_eq!(host.ask("revoke"), "revoked");
    let error = queue.copy(local, remote).unwrap().wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Revoked, "{error}");
    assert_eq!(host.ask("sum"), (9 * LEN).to_string(), "no byte arrives after the revocation");
}

#[test]
fn the_death_of_the_host_is_an_error_and_nothing_worse() {
    let mut host = Host::start();
    let engine = engine(3);
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let remote = engine.import(&host.descriptor).unwrap();
    host.child.kill().unwrap();
    let mut local = engine.allocate(LEN).unwrap();
    let mut patience = Patience::new();
    let error = loop {
        match queue.copy(remote.clone(), local).unwrap().wait() {
            // Until the peer's end is detected, copies return its bytes.
            Ok((_, dst)) => local = dst,
            Err(error) => break error,
        }
        assert!(local.iter().all(|byte| *byte == 5), "somebody else's bytes");
        patience.check("a copy fails");
    };
    assert_eq!(error.kind(), ErrorKind::Revoked, "{error}");
    assert_eq!(error.error().native().unwrap().name, "SIM_PEER_GONE");
    // The queue and all other memory can still be used.
    queue.copy(engine.allocate(64).unwrap(), engine.allocate(64).unwrap()).unwrap().wait().unwrap();
}
