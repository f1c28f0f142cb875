//! The process that holds the memory: answers requests.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dma::{Access, DmaEngine, DmaEngineExt as _, Error, ErrorKind, Export, MemoryRequest, Result, Window};
use dma_handshake::{Macs, Receiving, Sending};

use super::request::{KINDS, MAX_MESSAGE, PIECE, Request, VERSION};

/// Time for importers to release memory. Correct ones have released it by then.
const REVOKE: Duration = Duration::from_secs(2);

/// Bytes that may still be exported.
#[derive(Clone, Debug)]
pub(crate) struct Budget(Arc<AtomicU64>);

impl Budget {
    pub(crate) fn new(bytes: u64) -> Self {
        Self(Arc::new(AtomicU64::new(bytes)))
    }

    fn take(&self, bytes: u64) -> Result<Taken> {
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        match taken {
            Ok(_) => Ok(Taken { from: self.clone(), bytes }),
            Err(left) => Err(Error::new(
                ErrorKind::OutOfResources,
                format!("{} MiB are asked for, and {} MiB are left", bytes.div_ceil(1 << 20), left >> 20),
            )
            .with_hint("serve with a greater --memory, or run with a smaller --footprint or sizes")),
        }
    }
}

/// A part of a [`Budget`], given back when it is dropped.
#[derive(Debug)]
struct Taken {
    from: Budget,
    bytes: u64,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.from.0.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

/// Memory that is exported to a peer.
#[derive(Debug)]
struct Held {
    export: Option<Export>,
    window: Window,
    _taken: Taken,
}

impl Drop for Held {
    fn drop(&mut self) {
        // A peer that keeps the memory harms itself.
        let _ = self.export.take().map(|export| export.revoke(REVOKE));
    }
}

impl Held {
    fn new(engine: &dyn DmaEngine, len: u64, budget: &Budget) -> Result<(Self, Vec<u8>)> {
        let taken = budget.take(len)?;
        let bytes =
            usize::try_from(len).map_err(|_| Error::new(ErrorKind::OutOfRange, format!("{len} bytes")))?;
        let window = engine.allocate_window(&MemoryRequest::new(bytes).exportable(Access::all()))?;
        let export = window.export(Access::all())?;
        let descriptor = export.descriptor().to_bytes();
        Ok((Self { export: Some(export), window, _taken: taken }, descriptor))
    }

    fn check(&self, at: u64, len: usize) -> Result<usize> {
        let end = at.checked_add(len as u64).filter(|end| *end <= self.window.len() as u64);
        match end {
            Some(_) if len <= PIECE => Ok(at as usize),
            _ => Err(Error::new(ErrorKind::OutOfRange, format!("{len} bytes at {at} are beyond the memory"))),
        }
    }
}

fn answer(
    engine: &dyn DmaEngine,
    budget: &Budget,
    held: &mut Option<Held>,
    message: &[u8],
) -> Result<Vec<u8>> {
    let early = || Error::new(ErrorKind::Malformed, "it asks for memory that it has not opened");
    match Request::decode(message) {
        Some(Request::Open { version, .. }) if version != VERSION => Err(Error::new(
            ErrorKind::VersionMismatch,
            format!("version {version} of the protocol was asked for, and this one is {VERSION}"),
        )
        .with_hint("use the same release on both sides")),
        Some(Request::Open { len: 0, .. }) => Ok(Vec::new()),
        Some(Request::Open { len, .. }) => {
            // The memory before it is given back first.
            *held = None;
            let (memory, descriptor) = Held::new(engine, len, budget)?;
            *held = Some(memory);
            Ok(descriptor)
        }
        Some(Request::Read { at, len }) => {
            let held = held.as_ref().ok_or_else(early)?;
            let at = held.check(at, len as usize)?;
            let mut bytes = vec![0; len as usize];
            held.window.read_at(at, &mut bytes)?;
            Ok(bytes)
        }
        Some(Request::Write { at, bytes }) => {
            let held = held.as_ref().ok_or_else(early)?;
            held.window.write_at(held.check(at, bytes.len())?, bytes)?;
            Ok(Vec::new())
        }
        None => Err(Error::new(ErrorKind::Malformed, "an unknown request")),
    }
}

/// Holds memory of `engine` for one peer until the connection ends. Refuses everything with `refusal`, if
/// there is one.
pub(crate) fn hold(
    engine: &dyn DmaEngine,
    budget: &Budget,
    to: impl Write,
    from: impl Read,
    macs: Option<(Macs, Macs)>,
    refusal: Option<&str>,
) -> io::Result<()> {
    let (sends, receives) = macs.unzip();
    let (mut to, mut from) = (Sending::new(to, sends), Receiving::new(from, receives, MAX_MESSAGE));
    let (mut held, mut message) = (None, Vec::new());
    loop {
        match from.receive(&mut message) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            received => received?,
        }
        let answer = match refusal {
            Some(text) => Err(Error::new(ErrorKind::OutOfResources, text.to_owned())),
            None => answer(engine, budget, &mut held, &message),
        };
        match answer {
            Ok(bytes) => to.send(&[&b"+"[..], &bytes].concat())?,
            Err(e) => {
                let kind = KINDS.iter().position(|kind| *kind == e.kind()).unwrap_or(0);
                to.send(&[&[b'-', kind as u8][..], e.to_string().as_bytes()].concat())?;
            }
        }
    }
}

/// The child process: holds memory of `engine` until the end of standard input.
pub(crate) fn serve(engine: &str) -> std::result::Result<(), String> {
    let engine = dma::open(engine).map_err(|e| e.to_string())?;
    let (to, from) = (io::stdout().lock(), io::stdin().lock());
    hold(&*engine, &Budget::new(u64::MAX), to, from, None, None).map_err(|e| format!("peer: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_requests_are_refused() {
        let engine = dma::open("cpu").unwrap();
        let budget = Budget::new(10_000);
        let mut held = None;
        let mut ask = |request: Request<'_>| answer(&*engine, &budget, &mut held, &request.encode());
        let kind = |answer: Result<Vec<u8>>| answer.unwrap_err().kind();
        let open = |len| Request::Open { version: VERSION, len };
        assert_eq!(kind(ask(Request::Read { at: 0, len: 1 })), ErrorKind::Malformed, "nothing is open");
        assert_eq!(kind(ask(Request::Open { version: 2, len: 1 })), ErrorKind::VersionMismatch);
        assert_eq!(kind(ask(open(10_001))), ErrorKind::OutOfResources);
        assert_eq!(kind(ask(open(u64::MAX))), ErrorKind::OutOfResources);
        // The memory before it is given back.
        for _ in 0..3 {
            ask(open(9000)).unwrap();
        }
        ask(Request::Write { at: 8990, bytes: &[7; 10] }).unwrap();
        assert_eq!(ask(Request::Read { at: 8989, len: 11 }).unwrap()[1..], [7; 10]);
        for at in [8991, 9000, u64::MAX, u64::MAX - 9] {
            assert_eq!(kind(ask(Request::Read { at, len: 10 })), ErrorKind::OutOfRange);
            assert_eq!(kind(ask(Request::Write { at, bytes: &[7; 10] })), ErrorKind::OutOfRange);
        }
        assert_eq!(kind(ask(Request::Read { at: 0, len: u32::MAX })), ErrorKind::OutOfRange);
        assert_eq!(ask(open(0)).unwrap(), b"", "a check that it can be reached");
        drop(held);
        assert_eq!(budget.0.load(Ordering::Relaxed), 10_000, "all is given back");
    }
}
