//! The exporting side: serves a peer's requests for memory.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dma::{Access, DmaEngine, DmaEngineExt as _, Error, ErrorKind, Export, MemoryRequest, Result, Window};
use dma_handshake::{Keys, Receiving, Sending};

use super::request::{ERROR_KINDS, MAX_MESSAGE, MAX_PIECE, Request, VERSION};

/// Time that importers have to release memory. A correct importer releases it in time.
const REVOKE_TIMEOUT: Duration = Duration::from_secs(2);

/// The number of bytes that may still be exported.
#[derive(Clone, Debug)]
pub(crate) struct MemoryLimit(Arc<AtomicU64>);

impl MemoryLimit {
    pub(crate) fn new(bytes: u64) -> Self {
        Self(Arc::new(AtomicU64::new(bytes)))
    }

    fn reserve(&self, bytes: u64) -> Result<Reservation> {
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        match taken {
            Ok(_) => Ok(Reservation { limit: self.clone(), bytes }),
            Err(left) => Err(Error::new(
                ErrorKind::OutOfResources,
                format!("{} MiB are requested, and {} MiB are left", bytes.div_ceil(1 << 20), left >> 20),
            )
            .with_hint("serve with a greater --memory, or run with a smaller --footprint or sizes")),
        }
    }
}

/// Bytes that are reserved from a [`MemoryLimit`]. Dropping the value returns them to the limit.
#[derive(Debug)]
struct Reservation {
    limit: MemoryLimit,
    bytes: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.limit.0.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

/// Memory that is exported to a peer.
#[derive(Debug)]
struct ExportedMemory {
    export: Option<Export>,
    window: Window,
    _reservation: Reservation,
}

impl Drop for ExportedMemory {
    fn drop(&mut self) {
        // A peer that still uses the memory after this time gets errors.
        let _ = self.export.take().map(|export| export.revoke(REVOKE_TIMEOUT));
    }
}

impl ExportedMemory {
    fn new(engine: &dyn DmaEngine, len: u64, limit: &MemoryLimit) -> Result<(Self, Vec<u8>)> {
        let reservation = limit.reserve(len)?;
        let bytes =
            usize::try_from(len).map_err(|_| Error::new(ErrorKind::OutOfRange, format!("{len} bytes")))?;
        let window = engine.allocate_window(&MemoryRequest::new(bytes).exportable(Access::all()))?;
        let export = window.export(Access::all())?;
        let descriptor = export.descriptor().to_bytes();
        Ok((Self { export: Some(export), window, _reservation: reservation }, descriptor))
    }

    fn check(&self, at: u64, len: usize) -> Result<usize> {
        let end = at.checked_add(len as u64).filter(|end| *end <= self.window.len() as u64);
        match end {
            Some(_) if len <= MAX_PIECE => Ok(at as usize),
            _ => Err(Error::new(ErrorKind::OutOfRange, format!("{len} bytes at {at} are beyond the memory"))),
        }
    }
}

fn answer(
    engine: &dyn DmaEngine,
    limit: &MemoryLimit,
    memory: &mut Option<ExportedMemory>,
    message: &[u8],
) -> Result<Vec<u8>> {
    let early = || Error::new(ErrorKind::Malformed, "the request is for memory that was not opened");
    match Request::decode(message) {
        Some(Request::Open { version, .. }) if version != VERSION => Err(Error::new(
            ErrorKind::VersionMismatch,
            format!("version {version} of the protocol was requested, and this one is {VERSION}"),
        )
        .with_hint("use the same release on both sides")),
        Some(Request::Open { len: 0, .. }) => Ok(Vec::new()),
        Some(Request::Open { len, .. }) => {
            // The previous memory is released before new memory is allocated.
            *memory = None;
            let (opened, descriptor) = ExportedMemory::new(engine, len, limit)?;
            *memory = Some(opened);
            Ok(descriptor)
        }
        Some(Request::Read { at, len }) => {
            let memory = memory.as_ref().ok_or_else(early)?;
            let at = memory.check(at, len as usize)?;
            let mut bytes = vec![0; len as usize];
            memory.window.read_at(at, &mut bytes)?;
            Ok(bytes)
        }
        Some(Request::Write { at, bytes }) => {
            let memory = memory.as_ref().ok_or_else(early)?;
            memory.window.write_at(memory.check(at, bytes.len())?, bytes)?;
            Ok(Vec::new())
        }
        None => Err(Error::new(ErrorKind::Malformed, "an unknown request")),
    }
}

/// Exports memory of `engine` to one peer until the connection ends. If `refusal` is given, refuses every
/// request with an error that has this text. Calls `begin_answer` before each answer.
pub(crate) fn export_memory(
    engine: &dyn DmaEngine,
    limit: &MemoryLimit,
    to: impl Write,
    from: impl Read,
    keys: Option<(Keys, Keys)>,
    refusal: Option<&str>,
    begin_answer: impl Fn(),
) -> io::Result<()> {
    let (sends, receives) = keys.unzip();
    let (mut to, mut from) = (Sending::new(to, sends), Receiving::new(from, receives, MAX_MESSAGE));
    let (mut memory, mut message) = (None, Vec::new());
    loop {
        match from.receive(&mut message) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            received => received?,
        }
        let answer = match refusal {
            Some(text) => Err(Error::new(ErrorKind::OutOfResources, text.to_owned())),
            None => answer(engine, limit, &mut memory, &message),
        };
        begin_answer();
        match answer {
            Ok(bytes) => to.send(&[&b"+"[..], &bytes].concat())?,
            Err(e) => {
                let kind = ERROR_KINDS.iter().position(|kind| *kind == e.kind()).unwrap_or(0);
                to.send(&[&[b'-', kind as u8][..], e.to_string().as_bytes()].concat())?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_requests_are_refused() {
        let engine = dma::open("cpu").unwrap();
        let limit = MemoryLimit::new(10_000);
        let mut memory = None;
        let mut ask = |request: Request<'_>| answer(&*engine, &limit, &mut memory, &request.encode());
        let kind = |answer: Result<Vec<u8>>| answer.unwrap_err().kind();
        let open = |len| Request::Open { version: VERSION, len };
        assert_eq!(kind(ask(Request::Read { at: 0, len: 1 })), ErrorKind::Malformed, "nothing is open");
        assert_eq!(kind(ask(Request::Open { version: 2, len: 1 })), ErrorKind::VersionMismatch);
        assert_eq!(kind(ask(open(10_001))), ErrorKind::OutOfResources);
        assert_eq!(kind(ask(open(u64::MAX))), ErrorKind::OutOfResources);
        // Each request frees the memory of the previous request.
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
        assert_eq!(ask(open(0)).unwrap(), b"", "a request of 0 bytes succeeds");
        drop(memory);
        assert_eq!(limit.0.load(Ordering::Relaxed), 10_000, "all memory is freed");
    }
}
