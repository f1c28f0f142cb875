//! A host and its DPU as two processes: the host exports memory, the DPU copies it, and the host
//! revokes it or dies.

#[path = "support/calls.rs"]
mod calls;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use dma_core::{Access, DmaEngineExt, ErrorKind, ExportDescriptor, MemoryRequest, QueueOptions};
use dma_doca::{DocaEngine, DocaOptions};
use test_support::patience::Patience;

const LEN: usize = 100_000;

fn open(address: &str) -> DocaEngine {
    DocaEngine::open(
        &DocaOptions::new().with_address(address.parse().unwrap()).with_library(calls::library()),
    )
    .unwrap()
}

/// Runs the host's side in a separate process: exports memory, and executes commands line by line.
#[test]
#[ignore = "a part of the other test, in a separate process"]
fn host() {
    let Some(path) = std::env::var_os("DMA_DOCA_TEST_EXPORT") else { return };
    let host = open("3b:00.0");
    let window = host.allocate_window(&MemoryRequest::new(LEN).exportable(Access::all())).unwrap();
    window.write_at(0, &[7; LEN]).unwrap();
    let mut export = Some(window.export(Access::READ | Access::WRITE).unwrap());
    export.as_ref().unwrap().descriptor().save(Path::new(&path)).unwrap();
    println!("exported");
    for line in std::io::stdin().lines() {
        match line.unwrap().as_str() {
            "check" => {
                let mut bytes = vec![0; LEN];
                window.read_at(0, &mut bytes).unwrap();
                assert!(bytes[..50].iter().all(|b| *b == 9) && bytes[50..].iter().all(|b| *b == 7));
                println!("checked");
            }
            "revoke" => {
                export.take().unwrap().revoke(Duration::from_secs(60)).unwrap();
                println!("revoked");
            }
            _ => break,
        }
    }
}

struct Host {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Host {
    fn start(export: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "host", "--ignored", "--nocapture"])
            .env("DMA_DOCA_TEST_EXPORT", export)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut host = Self { child, lines };
        host.hears("exported");
        host
    }

    fn hears(&mut self, what: &str) {
        let said = self.lines.by_ref().map(Result::unwrap).find(|line| line.contains(what));
        assert!(said.is_some(), "the host said {what}");
    }

    fn told(&mut self, what: &str, then: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{what}").unwrap();
        self.hears(then);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_dpu_copies_a_hosts_memory_until_it_is_revoked_or_the_host_dies() {
    let dir = tempfile::tempdir().unwrap();
    let dpu = open("03:00.0");
    let queue = dpu.open_queue(&QueueOptions::new()).unwrap();
    for dies in [false, true] {
        let path = dir.path().join(format!("export-{dies}"));
        let mut host = Host::start(&path);
        let descriptor = ExportDescriptor::load(&path).unwrap();
        let remote = dpu.import(&descriptor).unwrap();
        let (_, got) = queue.copy(remote.clone(), dpu.allocate(LEN).unwrap()).unwrap().wait().unwrap();
        assert!(got.iter().all(|b| *b == 7));
        let mut new = dpu.allocate(50).unwrap();
        new.fill(9);
        queue.copy(new, remote.slice(0..50)).unwrap().wait().unwrap();
        host.told("check", "checked");
        if dies {
            drop(host);
        } else {
            host.told("revoke", "revoked");
        }
        // This process learns with a delay that the host has ended. Until then the bytes are unchanged.
        let mut patience = Patience::new();
        let mut operands = (remote, dpu.allocate(LEN).unwrap());
        let e = loop {
            match queue.copy(operands.0, operands.1).unwrap().wait() {
                Ok(copied) if dies => operands = copied,
                ended => break ended.unwrap_err(),
            }
            patience.check("the import notices the end of the host");
        };
        assert_eq!(e.kind(), ErrorKind::Revoked, "{e}");
        assert_eq!(dpu.import(&descriptor).unwrap_err().kind(), ErrorKind::Revoked);
        let (src, dst) = (dpu.allocate(64).unwrap(), dpu.allocate(64).unwrap());
        queue.copy(src, dst).unwrap().wait().unwrap();
    }
}
