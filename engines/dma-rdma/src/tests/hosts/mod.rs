//! Tests between two hosts: `ci/kernel.sh` runs the exporter in one virtual machine, and the importer in
//! another. The README describes how to run them on other hosts.
//!
//! The exporter is restarted after it was killed, until it exits with 0. The exporter accepts commands, one
//! per line, on a TCP connection. When the connection ends, the exports of that connection end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use dma_core::{
    Access, BufferMut, DmaEngineExt, Export, ExportDescriptor, MemoryRequest, Queue, QueueOptions, Window,
};

use crate::region::keys;
use crate::{RdmaEngine, RdmaOptions};

mod faults;
mod random;
mod rights;
mod speed;

/// Time limit, which suits an emulated machine that runs beside others.
const PATIENCE: Duration = Duration::from_secs(60);

fn control_address() -> String {
    std::env::var("DMA_RDMA_CONTROL").expect("DMA_RDMA_CONTROL is the address of the exporter's commands")
}

fn open() -> RdmaEngine {
    RdmaEngine::open(&RdmaOptions::new()).unwrap_or_else(|error| panic!("no RDMA device to test: {error}"))
}

/// Random numbers that are reproducible from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Returns the number of a process's queue pairs in the kernel. `None` if the program `rdma` is missing.
fn queue_pairs(pid: u32) -> Option<usize> {
    let output = std::process::Command::new("rdma").args(["resource", "show", "qp"]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let is_ours = |line: &&str| {
        let mut words = line.split_whitespace().skip_while(|word| *word != "pid").skip(1);
        words.next().is_some_and(|word| word == pid.to_string())
    };
    Some(text.lines().filter(is_ours).count())
}

#[test]
#[ignore = "needs a second host: see the top of the file"]
fn exporter() {
    let engine = open();
    let listener = TcpListener::bind(control_address()).expect("a free port for commands");
    std::thread::scope(|scope| {
        for stream in listener.incoming() {
            let engine = &engine;
            scope.spawn(|| {
                if let Err(error) = obey(engine, &stream.expect("a connection")) {
                    eprintln!("a connection for commands ended: {error}");
                }
            });
        }
    });
}

/// Executes the commands of a connection.
fn obey(engine: &RdmaEngine, stream: &TcpStream) -> std::io::Result<()> {
    let mut exports: Vec<(Window, Option<Export>)> = Vec::new();
    let mut answer = stream;
    for line in BufReader::new(stream).lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<usize>().expect("a number");
        let reply = match words[0] {
            // Exports memory, and returns the descriptor.
            "export" => {
                let rights = Access::from_bits(number(2) as u32).expect("rights");
                let request = MemoryRequest::new(number(1)).exportable(rights);
                let window = engine.allocate_window(&request).expect("memory");
                let export = window.export(rights).expect("an export");
                let bytes = export.descriptor().to_bytes();
                exports.push((window, Some(export)));
                bytes
            }
            "revoke" => {
                let export = exports[number(1)].1.take().expect("it is exported");
                export.revoke(PATIENCE).expect("it is revoked");
                Vec::new()
            }
            "bytes" => bytes_of(&exports[number(1)].0),
            "fill" => {
                let window = &exports[number(1)].0;
                window.write_at(0, &pattern(window.len(), number(2) as u8)).expect("within");
                Vec::new()
            }
            // Returns the address and the key of memory that is registered but not exported.
            "private" => {
                let window = engine.allocate_window(&MemoryRequest::new(4096)).expect("memory");
                let info = *window.region().as_raw().info();
                exports.push((window, None));
                [&info.addr.0.to_le_bytes()[..], &keys(info.key).1.to_le_bytes()].concat()
            }
            "pairs" => vec![queue_pairs(std::process::id()).map_or(u8::MAX, |pairs| pairs as u8)],
            // Kills this process after this number of microseconds.
            "die" => {
                let after = Duration::from_micros(number(1) as u64);
                std::thread::spawn(move || {
                    std::thread::sleep(after);
                    let _ = rustix::process::kill_process(
                        rustix::process::getpid(),
                        rustix::process::Signal::KILL,
                    );
                });
                Vec::new()
            }
            "end" => std::process::exit(0),
            other => panic!("no command: {other}"),
        };
        answer.write_all(&(reply.len() as u32).to_le_bytes())?;
        answer.write_all(&reply)?;
    }
    Ok(())
}

fn bytes_of(window: &Window) -> Vec<u8> {
    let mut bytes = vec![0; window.len()];
    window.read_at(0, &mut bytes).expect("within");
    bytes
}

/// Returns the bytes of a seed.
fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(7) ^ (i >> 8) as u8 ^ seed).collect()
}

/// The importer's connection for commands.
struct Control(TcpStream);

impl Control {
    /// Connects once the exporter listens.
    fn open() -> Self {
        let begun = Instant::now();
        loop {
            match TcpStream::connect(control_address()) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
                    stream.set_nodelay(true).expect("an option");
                    return Self(stream);
                }
                Err(error) => assert!(begun.elapsed() < PATIENCE, "no exporter: {error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn ask(&mut self, command: &str) -> std::io::Result<Vec<u8>> {
        self.0.write_all(format!("{command}\n").as_bytes())?;
        let mut len = [0; 4];
        self.0.read_exact(&mut len)?;
        let mut answer = vec![0; u32::from_le_bytes(len) as usize];
        self.0.read_exact(&mut answer)?;
        Ok(answer)
    }

    fn tell(&mut self, command: &str) -> Vec<u8> {
        self.ask(command).unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    fn export(&mut self, len: usize, rights: Access) -> ExportDescriptor {
        let bytes = self.tell(&format!("export {len} {}", rights.bits()));
        ExportDescriptor::from_bytes(&bytes).expect("a descriptor")
    }

    /// Waits until the exporter has at most `most` queue pairs. Returns the time that this took.
    fn wait_for_pairs(&mut self, most: u8) -> Duration {
        let begun = Instant::now();
        while self.tell("pairs")[0] > most {
            assert!(begun.elapsed() < PATIENCE, "the exporter has not destroyed a dead peer's queue pairs");
        }
        begun.elapsed()
    }
}

/// Copies to a new export and back, and checks the bytes on both sides.
fn assert_copies(engine: &RdmaEngine, control: &mut Control, number: usize) {
    let descriptor = control.export(20_000, Access::all());
    let remote = engine.import(&descriptor).expect("an import");
    let queue = queue(engine);
    let sent = filled(engine, 20_000, number as u8);
    let (sent, remote) = queue.copy(sent, remote).expect("it is taken").wait().expect("a copy");
    assert!(control.tell(&format!("bytes {number}")) == sent[..], "the exporter has wrong bytes");
    let back = engine.allocate(20_000).expect("memory");
    let (_, back) = queue.copy(remote, back).expect("it is taken").wait().expect("a copy");
    assert!(back[..] == sent[..], "wrong bytes came back");
}

fn queue(engine: &RdmaEngine) -> Queue {
    engine.open_queue(&QueueOptions::new().with_depth(64)).expect("a queue")
}

fn filled(engine: &RdmaEngine, len: usize, seed: u8) -> BufferMut {
    let mut buffer = engine.allocate(len).expect("memory");
    buffer.copy_from_slice(&pattern(len, seed));
    buffer
}

/// Ends the exporter, and also the program that restarts it.
#[test]
#[ignore = "needs a second host: see the top of the file"]
fn the_exporter_is_told_to_end() {
    let _ = Control::open().ask("end");
}
