//! Shares memory between two processes. This process exports memory and starts a peer. The peer copies to
//! and from the memory until the export is revoked.
//!
//! `cargo run --example 07_share_memory`

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use dma::ExportDescriptor;
use dma::prelude::*;

const LEN: usize = 1 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    match std::env::args().nth(1) {
        None => exporter(),
        Some(path) => Ok(importer(&path)?),
    }
}

/// Runs the exporter, such as a host.
fn exporter() -> Result<(), Box<dyn std::error::Error>> {
    let engine = dma::open("auto")?;
    // A window is accessed by copies, never by reference, because a peer may change it at any time.
    let request = MemoryRequest::new(LEN).exportable(Access::READ | Access::WRITE);
    let window = engine.allocate_window(&request)?;
    window.write_at(0, b"from the exporter")?;

    // Grants only this range, with only these rights. Any channel can carry the descriptor's bytes; this
    // example uses a file.
    let export = window.slice(..LEN / 2).export(Access::READ | Access::WRITE)?;
    // Anyone who has the descriptor can access the memory, so its file is in a directory that only this
    // user can read.
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("export");
    export.descriptor().save(&file)?;
    let mut peer = Peer::start(&file)?;

    peer.expect("copied")?;
    let mut answer = [0; 17];
    window.read_at(LEN / 4, &mut answer)?;
    println!("exporter: the peer wrote {:?}", String::from_utf8_lossy(&answer));
    assert_eq!(&answer, b"from the importer");

    // From here on the peer's copies fail, and only this process can access the memory.
    export.revoke(Duration::from_secs(60)).map_err(|(_, e)| e)?;
    peer.go_on()?;
    peer.expect("revoked")?;
    let status = peer.child.wait()?;
    assert!(status.success());
    println!("exporter: the peer's copy failed after the revocation, and the peer continued");
    Ok(())
}

/// Runs the importer, such as a DPU.
fn importer(path: &str) -> dma::Result<()> {
    let engine = dma::open("auto")?;
    let remote = engine.import(&ExportDescriptor::load(path)?)?;
    let queue = engine.open_queue(&QueueOptions::new())?;

    let (_, got) = queue.copy(remote.slice(..17), engine.allocate(17)?)?.wait()?;
    assert_eq!(&got[..], b"from the exporter");
    let mut answer = engine.allocate(17)?;
    answer.copy_from_slice(b"from the importer");
    queue.copy(answer, remote.slice(LEN / 4..LEN / 4 + 17))?.wait()?;
    println!("copied");

    std::io::stdin().read_exact(&mut [0])?;
    let late = queue
        .copy(remote.slice(..17), engine.allocate(17)?)?
        .wait()
        .expect_err("the exporter revoked the access");
    assert_eq!(late.kind(), ErrorKind::Revoked);
    eprintln!("importer: {late}");
    println!("revoked");
    Ok(())
}

/// The importing process.
struct Peer {
    child: Child,
    says: BufReader<ChildStdout>,
}

impl Peer {
    /// Starts the peer, which imports the export whose descriptor is in `file`.
    fn start(file: &std::path::Path) -> std::io::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let says = BufReader::new(child.stdout.take().expect("piped"));
        Ok(Self { child, says })
    }

    /// Waits for the peer's next line. Fails if it is not `word`.
    fn expect(&mut self, word: &str) -> std::io::Result<()> {
        let mut line = String::new();
        self.says.read_line(&mut line)?;
        if line.trim_end() == word {
            Ok(())
        } else {
            Err(std::io::Error::other(format!("the peer said {line:?}, not {word:?}")))
        }
    }

    /// Lets the peer continue with its next step.
    fn go_on(&mut self) -> std::io::Result<()> {
        self.child.stdin.as_mut().expect("piped").write_all(b"\n")
    }
}
