//! The side that copies: tests of memory that the other side exports.

use std::time::Instant;

use dma_core::{
    Access, Capabilities, DmaEngine, DmaEngineExt, ErrorKind, ExportDescriptor, Queue, QueueOptions, Window,
};
use dma_doca::DocaEngine;

use crate::Error;
use crate::channel::Channel;
use crate::exporter::{CHILD_LEN, Request, answer, sample};
use crate::report::{Report, Unpassed};

type Result<T = ()> = std::result::Result<T, Unpassed>;

/// Maximum length of the tested memory, in bytes, even if the device's tasks may be longer.
const MAX_LEN: usize = 32 << 20;

/// Runs all tests, and ends the other side's part.
pub(crate) fn test(
    engine: &DocaEngine,
    channel: &mut Channel,
    report: &mut Report,
) -> std::result::Result<(), Error> {
    let mut importer = Importer { engine, channel, lost: false };
    if engine.info().capabilities.contains(Capabilities::IMPORT) {
        report.test("copies of all lengths, both ways", || importer.lengths());
        report.test("lists of segments, both ways", || importer.lists());
        report.test("a full queue", || importer.full_queue());
        report.test("a fill", || importer.fill());
        report.test("memory exported for reading", || importer.reading_only());
        report.test("memory that is revoked", || importer.revoked());
        report.test("memory of a process that is killed", || importer.killed());
    } else {
        report.note("unsupported  two-sided tests: this device does not import memory");
    }
    match importer.ask(Request::Done) {
        Ok(_) => Ok(()),
        Err(_) => Err("the other side is gone".into()),
    }
}

struct Importer<'a> {
    engine: &'a DocaEngine,
    channel: &'a mut Channel,
    /// Set when the channel has failed.
    lost: bool,
}

/// Memory of the other side, and its expected content.
struct Remote {
    window: Window,
    expected: Vec<u8>,
}

impl Importer<'_> {
    fn ask(&mut self, request: Request) -> Result<Vec<u8>> {
        if self.lost {
            return Err(Unpassed::Failed("the other side is gone".to_owned()));
        }
        let reply = self.channel.send(&request.encode()).and_then(|()| self.channel.receive());
        let reply = reply.inspect_err(|_| self.lost = true)?;
        let (code, rest) = reply.split_first().ok_or("an empty answer")?;
        let reason = || format!("the other side: {}", String::from_utf8_lossy(rest));
        match *code {
            answer::DONE => Ok(rest.to_vec()),
            answer::UNSUPPORTED => Err(Unpassed::Unsupported(reason())),
            _ => Err(Unpassed::Failed(reason())),
        }
    }

    fn queue(&self) -> Result<Queue> {
        Ok(self.engine.open_queue(&QueueOptions::new())?)
    }

    fn remote(&mut self, len: usize) -> Result<Remote> {
        let request = Request::Export { len: len as u64, rights: Access::READ | Access::WRITE };
        let descriptor = ExportDescriptor::from_bytes(&self.ask(request)?)?;
        if descriptor.len() != len as u64 {
            return Err(format!("a descriptor of {} bytes, not {len}", descriptor.len()).into());
        }
        Ok(Remote { window: self.engine.import(&descriptor)?, expected: sample(len) })
    }

    /// Compares all bytes of the other side's memory with the expected ones, by a checksum.
    fn check(&mut self, expected: &[u8]) -> Result {
        let checksum = self.ask(Request::Checksum)?;
        if checksum == crc32fast::hash(expected).to_le_bytes() {
            Ok(())
        } else {
            Err("the other side's memory does not hold the bytes that were written".into())
        }
    }

    fn lengths(&mut self) -> Result {
        let longest = usize::try_from(self.engine.info().limits.max_transfer).unwrap_or(MAX_LEN);
        // Lengths of one task, and of several tasks.
        let len = (2 * longest).clamp(1 << 20, MAX_LEN);
        let mut lengths = vec![1, 2, 7, 63, 64, 65, 4095, 4096, 4097, 65_537, len - 1001];
        lengths
            .extend([longest - 1, longest, longest + 1].into_iter().filter(|longest| *longest < len - 1000));
        let mut remote = self.remote(len)?;
        let queue = self.queue()?;
        for (n, len) in lengths.into_iter().enumerate() {
            let range = n * 13..n * 13 + len;
            let (_, got) =
                queue.copy(remote.window.slice(range.clone()), self.engine.allocate(len)?)?.wait()?;
            if got[..] != remote.expected[range.clone()] {
                return Err(format!("{len} bytes read at {} are wrong", range.start).into());
            }
            let mut new = self.engine.allocate(len)?;
            new.fill(n as u8 ^ 0x5a);
            remote.expected[range.clone()].copy_from_slice(&new);
            queue.copy(new, remote.window.slice(range))?.wait()?;
        }
        self.check(&remote.expected)
    }

    fn lists(&mut self) -> Result {
        const PART: usize = 333;
        // The list has more segments than fit into one task.
        let parts = (2 * self.engine.info().limits.max_segments + 1).min(200);
        let mut remote = self.remote(parts * 1000)?;
        let queue = self.queue()?;
        let starts = (0..parts).rev().map(|n| n * 1000 + n);
        let pieces: Vec<Window> = starts.clone().map(|at| remote.window.slice(at..at + PART)).collect();
        let (_, got) = queue.copy(pieces.clone(), self.engine.allocate(parts * PART)?)?.wait()?;
        let gathered: Vec<u8> =
            starts.clone().flat_map(|at| remote.expected[at..at + PART].to_vec()).collect();
        if got[..] != gathered[..] {
            return Err("a gathered list is wrong".into());
        }
        let mut new = self.engine.allocate(parts * PART)?;
        new.copy_from_slice(&sample(parts * PART));
        for (n, at) in starts.enumerate() {
            remote.expected[at..at + PART].copy_from_slice(&new[n * PART..(n + 1) * PART]);
        }
        queue.copy(new, pieces)?.wait()?;
        self.check(&remote.expected)
    }

    fn full_queue(&mut self) -> Result {
        const LEN: usize = 64;
        let queue = self.queue()?;
        let depth = self.engine.info().limits.default_queue_depth;
        let remote = self.remote(depth * LEN)?;
        for _ in 0..10 {
            let mut transfers = Vec::new();
            for n in 0..depth {
                let from = remote.window.slice(n * LEN..(n + 1) * LEN);
                transfers.push(queue.copy(from, self.engine.allocate(LEN)?)?);
            }
            for (n, transfer) in transfers.into_iter().enumerate() {
                let (_, got) = transfer.wait()?;
                if got[..] != remote.expected[n * LEN..(n + 1) * LEN] {
                    return Err(format!("copy {n} of {depth} in flight is wrong").into());
                }
            }
        }
        Ok(())
    }

    fn fill(&mut self) -> Result {
        let mut remote = self.remote(100_000)?;
        self.queue()?.fill(remote.window.slice(11..90_011), *b"8 bytes!")?.wait()?;
        for (n, byte) in remote.expected[11..90_011].iter_mut().enumerate() {
            *byte = b"8 bytes!"[n % 8];
        }
        self.check(&remote.expected)
    }

    /// Reads memory that was exported for reading. The memory must not change, even if the descriptor is
    /// altered to claim more rights.
    fn reading_only(&mut self) -> Result {
        const LEN: usize = 10_000;
        let bytes = self.ask(Request::Export { len: LEN as u64, rights: Access::READ })?;
        let descriptor = ExportDescriptor::from_bytes(&bytes)?;
        let remote = Remote { window: self.engine.import(&descriptor)?, expected: sample(LEN) };
        let queue = self.queue()?;
        let (_, got) = queue.copy(remote.window.clone(), self.engine.allocate(LEN)?)?.wait()?;
        if got[..] != remote.expected[..] {
            return Err("the bytes read are wrong".into());
        }
        let refused = queue.copy(self.engine.allocate(LEN)?, remote.window.clone()).err();
        expect("writing", refused.map(|e| e.kind()), ErrorKind::AccessDenied)?;
        let backend = descriptor.backend();
        let claims = ExportDescriptor::new(backend, Access::all(), LEN as u64, descriptor.native())?;
        // Either the import or the copy is refused.
        if let Ok(window) = self.engine.import(&claims) {
            let copy = queue.copy(self.engine.allocate(LEN)?, window);
            if copy.is_ok_and(|transfer| transfer.wait().is_ok()) {
                return Err("memory exported for reading was written, by an altered descriptor".into());
            }
        }
        self.check(&remote.expected)?;
        self.works(&queue)
    }

    fn revoked(&mut self) -> Result {
        const LEN: usize = 100_000;
        let request = Request::Export { len: LEN as u64, rights: Access::READ | Access::WRITE };
        let descriptor = ExportDescriptor::from_bytes(&self.ask(request)?)?;
        let window = self.engine.import(&descriptor)?;
        let queue = self.queue()?;
        queue.copy(window.clone(), self.engine.allocate(LEN)?)?.wait()?;
        self.ask(Request::Revoke)?;
        self.is_out_of_reach(&queue, window, LEN)?;
        let again = self.engine.import(&descriptor).err();
        expect("importing again", again.map(|e| e.kind()), ErrorKind::Revoked)?;
        self.check(&sample(LEN))?;
        self.works(&queue)
    }

    fn killed(&mut self) -> Result {
        let descriptor = ExportDescriptor::from_bytes(&self.ask(Request::ExportInChild)?)?;
        let window = self.engine.import(&descriptor)?;
        let queue = self.queue()?;
        let (_, got) = queue.copy(window.clone(), self.engine.allocate(CHILD_LEN)?)?.wait()?;
        if got[..] != sample(CHILD_LEN)[..] {
            return Err("the bytes read before are wrong".into());
        }
        self.ask(Request::KillChild)?;
        // This side learns with a delay that the child has ended.
        let (limit, began) = (self.channel.timeout(), Instant::now());
        let mut operands = (window.clone(), got);
        while let Ok(copied) = queue.copy(operands.0, operands.1)?.wait() {
            operands = copied;
            if began.elapsed() > limit {
                return Err("the memory of a process that has ended can be read".into());
            }
        }
        self.is_out_of_reach(&queue, window, CHILD_LEN)?;
        self.works(&queue)
    }

    /// Copies in both directions must fail as `Revoked`.
    fn is_out_of_reach(&self, queue: &Queue, window: Window, len: usize) -> Result {
        let read = queue.copy(window.clone(), self.engine.allocate(len)?)?.wait().err();
        expect("reading", read.map(|e| e.kind()), ErrorKind::Revoked)?;
        let written = queue.copy(self.engine.allocate(len)?, window)?.wait().err();
        expect("writing", written.map(|e| e.kind()), ErrorKind::Revoked)
    }

    /// Checks that a queue whose copies have failed still copies local memory.
    fn works(&self, queue: &Queue) -> Result {
        let mut src = self.engine.allocate(1000)?;
        src.fill(0x77);
        let (src, dst) = queue.copy(src, self.engine.allocate(1000)?)?.wait()?;
        if src[..] == dst[..] { Ok(()) } else { Err("a later copy is wrong".into()) }
    }
}

fn expect(what: &str, found: Option<ErrorKind>, expected: ErrorKind) -> Result {
    match found {
        Some(kind) if kind == expected => Ok(()),
        Some(kind) => Err(format!("{what} failed as {kind:?}, not as {expected:?}").into()),
        None => Err(format!("{what} succeeded, and should fail as {expected:?}").into()),
    }
}
