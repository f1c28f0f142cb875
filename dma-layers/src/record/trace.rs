//! [`Trace`]: reads what a [`RecordEngine`](super::RecordEngine) wrote. Every byte may be wrong.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use dma_core::{CacheHint, Error, ErrorKind, Outcome, Result as DmaResult};

use super::HINTS;
use super::format::{
    BLOCK, BOTH, COMPARE, COPY, COPY_CRC, CRC, DONE, Decoder, END, ENDED, FENCE, FILL, FLUSH, HEADER, KIND,
    LISTS, MAGIC, POLL, REPEAT, SAME_DST, SAME_LEN, SAME_SRC, SUBMIT, TIME, VERSION, unzigzag,
};
use super::sink::failed;

/// A trace was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The first bytes are not those of a trace.
    #[error("this is no trace")]
    NotATrace,
    /// The trace has another version of the format.
    #[error("the trace has version {found}, and this build reads version {VERSION}")]
    Version {
        /// That version.
        found: u16,
    },
    /// The end is missing.
    #[error("the trace is cut off after {len} bytes")]
    CutOff {
        /// The length of what is there, in bytes.
        len: usize,
    },
    /// Something is wrong.
    #[error("the trace is damaged: {what}")]
    Damaged {
        /// The error.
        what: &'static str,
    },
}

const fn damaged(what: &'static str) -> TraceError {
    TraceError::Damaged { what }
}

/// The recorded engine, and the time that it was recorded for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recorded {
    /// The engine's name.
    pub engine: String,
    /// Time from opening the first queue to closing the last one.
    pub time: Duration,
    /// CPU time of the whole process meanwhile.
    pub cpu: Duration,
    /// The CPU moved the bytes: the engine has [`CPU_COPIES`](dma_core::Capabilities::CPU_COPIES).
    pub cpu_copies: bool,
    /// Lengths of the regions in bytes, by number. Regions that were there one after the other may have one
    /// number, with the longest length.
    pub regions: Vec<u64>,
}

/// A recorded queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueTrace {
    /// The most descriptors in flight.
    pub depth: usize,
    /// Cache hint.
    pub hint: CacheHint,
    /// Descriptors accepted.
    pub operations: u64,
    /// Their bytes: each counts its length once.
    pub bytes: u64,
    /// Doorbells rung, as the engine counted them.
    pub doorbells: u64,
    /// Time from opening the first queue to the end of opening this one.
    pub opened: Duration,
    /// Time from opening the first queue to closing this one.
    pub closed: Duration,
}

/// The kind of an operation, as of [`Operation`](dma_core::Operation).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "those of `Operation`")]
pub enum Kind {
    Copy,
    CopyLists,
    Fill,
    Compare,
    Crc32c,
    CopyCrc32c,
    CopyToBoth,
}

/// A part of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Span {
    /// The region's number.
    pub region: usize,
    /// The first byte.
    pub offset: usize,
    /// The length in bytes, at least 1.
    pub len: usize,
}

/// An event of a queue. Times are exact to 8 ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Descriptors were submitted in one call. So many [`Event::Operation`] follow.
    Submit {
        /// Time from the end of the event before to the call: the program's own.
        before: Duration,
        /// Time of the call: the engine's.
        call: Duration,
        /// Number of descriptors, at least 1.
        count: u64,
    },
    /// A descriptor, whose segments [`Events::src`] and [`Events::dst`] have.
    Operation {
        /// The kind.
        kind: Kind,
        /// It carries a fence.
        fence: bool,
        /// Bytes of each side.
        len: usize,
    },
    /// The doorbell was rung.
    Flush {
        /// Time from the end of the event before to the call: the program's own.
        before: Duration,
        /// Time of the call: the engine's.
        call: Duration,
    },
    /// The queue was polled and had nothing to report, before a call that is no poll.
    Poll {
        /// Time from the end of the event before to the first of these polls.
        time: Duration,
    },
    /// Descriptors were reported by a poll.
    Ended {
        /// Time from the end of the event before to the first poll: the program's own.
        before: Duration,
        /// Time from that poll to the report: the program waits for the engine.
        wait: Duration,
        /// Number of descriptors, at least 1.
        count: u64,
        /// Descriptors in flight that are older than those.
        older: u64,
        /// Their end. The kind of a failure is not recorded: it is `DeviceFault`.
        outcome: Outcome,
    },
}

/// A whole trace in memory, all of which has been checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    recorded: Recorded,
    queues: Vec<QueueTrace>,
    /// The events of each queue.
    events: Vec<Vec<u8>>,
}

impl Trace {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// `NotFound`, `PermissionDenied` or `Os` if the file cannot be read; `OutOfMemory` if it is longer than
    /// memory; `Malformed` or `VersionMismatch` as [`parse`](Self::parse). Each names the file and a remedy.
    pub fn load(path: &Path) -> DmaResult<Self> {
        let wrong = |kind, what: &dyn std::fmt::Display, hint| {
            Error::new(kind, format!("trace {}: {what}", path.display())).with_hint(hint)
        };
        let mut file = File::open(path).map_err(|e| failed(path, e).with_hint("check the path"))?;
        let found = file.metadata().map_err(|e| failed(path, e))?;
        if !found.is_file() {
            return Err(wrong(ErrorKind::InvalidArgument, &"this is no file", "give the path of a trace"));
        }
        let len = usize::try_from(found.len()).unwrap_or(usize::MAX);
        let mut bytes = Vec::new();
        // The events are held once more.
        bytes.try_reserve_exact(len.saturating_mul(2)).map_err(|_| {
            let what = format!("its {len} bytes do not fit into memory");
            wrong(ErrorKind::OutOfMemory, &what, "record a shorter time")
        })?;
        file.read_to_end(&mut bytes).map_err(|e| failed(path, e))?;
        Self::parse(&bytes).map_err(|error| {
            let (kind, hint) = match &error {
                TraceError::Version { .. } => {
                    (ErrorKind::VersionMismatch, "record it anew with this build, or read it with its own")
                }
                TraceError::NotATrace => {
                    (ErrorKind::Malformed, "record one with an engine such as record+cpu:file=copies.trace")
                }
                _ => (ErrorKind::Malformed, "copy it again, or record it anew"),
            };
            wrong(kind, &error, hint)
        })
    }

    /// Reads and checks the bytes of a trace. They may come from anywhere: memory in the order of their
    /// length is taken.
    ///
    /// # Errors
    ///
    /// [`TraceError`] for all that no [`RecordEngine`](super::RecordEngine) writes.
    pub fn parse(bytes: &[u8]) -> Result<Self, TraceError> {
        let cut_off = || TraceError::CutOff { len: bytes.len() };
        let start = bytes.get(..MAGIC.len()).ok_or(TraceError::NotATrace)?;
        if start != MAGIC {
            return Err(TraceError::NotATrace);
        }
        let mut input = Decoder { rest: &bytes[MAGIC.len()..] };
        let version = input.take(HEADER - MAGIC.len()).ok_or_else(cut_off)?;
        let version = u16::from_le_bytes([version[0], version[1]]);
        if version != VERSION {
            return Err(TraceError::Version { found: version });
        }
        let mut blocks = Vec::new();
        let summary = loop {
            let head = input.take(BLOCK).ok_or_else(cut_off)?;
            let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
            let block = input.take(word(4) as usize).ok_or_else(cut_off)?;
            if crc32fast::hash(block) != word(8) {
                return Err(damaged("the checksum of a block"));
            }
            if word(0) == END {
                break block;
            }
            blocks.push((word(0), block));
        };
        if !input.rest.is_empty() {
            return Err(damaged("bytes behind the end"));
        }
        let (recorded, queues) = decode_summary(summary).ok_or(damaged("the summary"))?;
        let mut events = vec![Vec::new(); queues.len()];
        for (queue, block) in blocks {
            let of: &mut Vec<u8> = events.get_mut(queue as usize).ok_or(damaged("the queue of a block"))?;
            of.extend_from_slice(block);
        }
        let trace = Self { recorded, queues, events };
        for queue in 0..trace.queues.len() {
            trace.check(queue)?;
        }
        Ok(trace)
    }

    fn check(&self, queue: usize) -> Result<(), TraceError> {
        let QueueTrace { depth, operations, bytes, .. } = self.queues[queue];
        let (mut in_flight, mut count, mut total) = (0_u64, 0_u64, 0_u64);
        let mut events = self.events(queue);
        while let Some(event) = events.advance()? {
            match event {
                Event::Submit { count, .. } => in_flight = in_flight.saturating_add(count),
                Event::Operation { len, .. } => {
                    count += 1;
                    total = total.wrapping_add(len as u64);
                }
                Event::Flush { .. } | Event::Poll { .. } => {}
                Event::Ended { count, older, .. } => {
                    in_flight = in_flight
                        .checked_sub(count)
                        .filter(|left| older <= *left)
                        .ok_or(damaged("more reports than operations"))?;
                }
            }
            if in_flight > depth as u64 {
                return Err(damaged("more in flight than the depth"));
            }
        }
        if (count, total) != (operations, bytes) {
            return Err(damaged("the number of operations or bytes"));
        }
        Ok(())
    }

    /// Returns the recorded engine and times.
    #[must_use]
    pub const fn recorded(&self) -> &Recorded {
        &self.recorded
    }

    /// Returns the queues, in the order in which they were opened.
    #[must_use]
    pub fn queues(&self) -> &[QueueTrace] {
        &self.queues
    }

    /// Returns the events of a queue by its index in [`queues`](Self::queues); none for another index.
    #[must_use]
    pub fn events(&self, queue: usize) -> Events<'_> {
        let rest = self.events.get(queue).map_or(&[][..], |events| &events[..]);
        let (src, dst) = (Vec::new(), Vec::new());
        let input = Decoder { rest };
        let regions = &self.recorded.regions;
        let (operations, len, copied, repeats, sides) = (0, 0, false, 0, [(0, 0); 2]);
        Events { input, regions, operations, len, copied, repeats, sides, src, dst }
    }
}

/// The events of a queue, in order.
#[derive(Clone, Debug)]
pub struct Events<'a> {
    input: Decoder<'a>,
    regions: &'a [u64],
    /// Operations of the call that are left.
    operations: u64,
    /// The length of the operation before, and whether it was a copy.
    len: u64,
    copied: bool,
    /// Repetitions of it that are left.
    repeats: u64,
    /// Region and end of the last segment of both sides.
    sides: [(u64, u64); 2],
    src: Vec<Span>,
    dst: Vec<Span>,
}

impl Iterator for Events<'_> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        // All was checked when the trace was read.
        self.advance().ok().flatten()
    }
}

impl Events<'_> {
    /// Returns the segments that the last operation reads. Of a comparison, the first side.
    #[must_use]
    pub fn src(&self) -> &[Span] {
        &self.src
    }

    /// Returns the segments that the last operation writes: two of the operation's length for
    /// [`Kind::CopyToBoth`]. Of a comparison, the second side.
    #[must_use]
    pub fn dst(&self) -> &[Span] {
        &self.dst
    }

    fn advance(&mut self) -> Result<Option<Event>, TraceError> {
        let cut = damaged("an event is cut off");
        if self.operations > 0 {
            self.operations -= 1;
            if self.repeats > 0 {
                self.repeats -= 1;
                return self.repeated().map(Some);
            }
            return self.operation().map(Some);
        }
        if self.input.rest.is_empty() {
            return Ok(None);
        }
        let (kind, count) = self.input.event().ok_or_else(|| cut.clone())?;
        let mut time = || {
            let units = self.input.number().ok_or_else(|| cut.clone())?;
            let fits = units.checked_mul(1 << TIME).ok_or(damaged("a time"))?;
            Ok(Duration::from_nanos(fits))
        };
        let event = match kind {
            SUBMIT => {
                let event = Event::Submit { before: time()?, call: time()?, count };
                self.operations = count;
                event
            }
            FLUSH if count == 0 => Event::Flush { before: time()?, call: time()? },
            FLUSH if count == u64::from(POLL) => Event::Poll { time: time()? },
            DONE => {
                let (before, wait) = (time()?, time()?);
                Event::Ended { before, wait, count, older: 0, outcome: Outcome::Done }
            }
            ENDED => {
                let (before, wait) = (time()?, time()?);
                let outcome = match self.input.byte().ok_or(cut)? {
                    0 => Outcome::Done,
                    1 => Outcome::Failed(ErrorKind::DeviceFault),
                    2 => Outcome::Aborted,
                    _ => return Err(damaged("an outcome")),
                };
                Event::Ended { before, wait, count: 1, older: count, outcome }
            }
            _ => return Err(damaged("an event")),
        };
        if matches!(event, Event::Submit { count: 0, .. } | Event::Ended { count: 0, .. }) {
            return Err(damaged("an event of nothing"));
        }
        Ok(Some(event))
    }

    fn operation(&mut self) -> Result<Event, TraceError> {
        let cut = || damaged("an operation is cut off");
        let first = self.input.byte().ok_or_else(cut)?;
        if first == REPEAT {
            let count = self.input.number().ok_or_else(cut)?;
            if !self.copied || count == 0 || count - 1 > self.operations {
                return Err(damaged("a repetition"));
            }
            self.repeats = count - 1;
            return self.repeated();
        }
        self.copied = first & KIND == COPY;
        if first & SAME_LEN == 0 {
            self.len = self.input.number().ok_or_else(cut)?;
        }
        let len = usize::try_from(self.len).ok().filter(|len| *len > 0).ok_or(damaged("a length"))?;
        // Segments of each side; `None` for a list.
        let (kind, src, dst) = match first & KIND {
            COPY => (Kind::Copy, Some(1), Some(1)),
            LISTS => (Kind::CopyLists, None, None),
            FILL => (Kind::Fill, Some(0), None),
            COMPARE => (Kind::Compare, Some(1), Some(1)),
            CRC => (Kind::Crc32c, Some(1), Some(0)),
            COPY_CRC => (Kind::CopyCrc32c, Some(1), Some(1)),
            BOTH => (Kind::CopyToBoth, Some(1), Some(2)),
            _ => return Err(damaged("a kind of operation")),
        };
        self.side(0, src, first & SAME_SRC != 0)?;
        self.side(1, dst, first & SAME_DST != 0)?;
        Ok(Event::Operation { kind, fence: first & FENCE != 0, len })
    }

    fn repeated(&mut self) -> Result<Event, TraceError> {
        let Self { regions, len, sides, src, dst, .. } = self;
        for (spans, (region, end)) in [src, dst].into_iter().zip(sides) {
            spans.clear();
            spans.push(span(regions, *region, *end, *len)?);
            *end += *len;
        }
        // The length was checked with the operation before.
        Ok(Event::Operation { kind: Kind::Copy, fence: false, len: *len as usize })
    }

    fn side(&mut self, side: usize, count: Option<u64>, same: bool) -> Result<(), TraceError> {
        let cut = || damaged("an operation is cut off");
        let Self { input, regions, len, sides, src, dst, .. } = self;
        let (spans, (region, end)) = (if side == 0 { src } else { dst }, &mut sides[side]);
        spans.clear();
        let segments = count.map_or_else(|| input.number().ok_or_else(cut), Ok)?;
        let mut total = 0_u64;
        for _ in 0..segments {
            let len = if count.is_some() { *len } else { input.number().ok_or_else(cut)? };
            if !same {
                *region = input.number().ok_or_else(cut)?;
            }
            let offset = unzigzag(*end, input.number().ok_or_else(cut)?);
            spans.push(span(regions, *region, offset, len)?);
            *end = offset + len;
            total = total.saturating_add(len);
        }
        if count.is_none() && segments > 0 && total != *len {
            return Err(damaged("the length of a list"));
        }
        Ok(())
    }
}

fn span(regions: &[u64], region: u64, offset: u64, len: u64) -> Result<Span, TraceError> {
    let whole = usize::try_from(region).ok().and_then(|region| regions.get(region));
    let inside = offset.checked_add(len).is_some_and(|end| whole.is_some_and(|whole| end <= *whole));
    if len == 0 || !inside {
        return Err(damaged("a segment beyond its region"));
    }
    let narrow = |number: u64| usize::try_from(number).map_err(|_| damaged("a segment beyond memory"));
    Ok(Span { region: narrow(region)?, offset: narrow(offset)?, len: narrow(len)? })
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Encodes the summary at the end of a trace.
pub(super) fn encode_summary(recorded: &Recorded, queues: &[QueueTrace]) -> Vec<u8> {
    let mut out = Vec::new();
    let Recorded { engine, time, cpu, cpu_copies, regions } = recorded;
    put(&mut out, engine.len() as u64);
    out.extend_from_slice(engine.as_bytes());
    put(&mut out, time.as_nanos() as u64);
    put(&mut out, cpu.as_nanos() as u64);
    put(&mut out, u64::from(*cpu_copies));
    put(&mut out, regions.len() as u64);
    regions.iter().for_each(|len| put(&mut out, *len));
    put(&mut out, queues.len() as u64);
    for QueueTrace { depth, hint, operations, bytes, doorbells, opened, closed } in queues {
        put(&mut out, *depth as u64);
        put(&mut out, HINTS.iter().position(|other| other == hint).unwrap_or(0) as u64);
        [operations, bytes, doorbells].into_iter().for_each(|number| put(&mut out, *number));
        [opened, closed].into_iter().for_each(|time| put(&mut out, time.as_nanos() as u64));
    }
    out
}

fn decode_summary(bytes: &[u8]) -> Option<(Recorded, Vec<QueueTrace>)> {
    let duration = |input: &mut Decoder<'_>| Some(Duration::from_nanos(input.number()?));
    let mut input = Decoder { rest: bytes };
    let name = usize::try_from(input.number()?).ok()?;
    let engine = std::str::from_utf8(input.take(name)?).ok()?.to_owned();
    let (time, cpu) = (duration(&mut input)?, duration(&mut input)?);
    let cpu_copies = input.number()? != 0;
    // Each entry has bytes of its own, so that the lists grow no longer than the input.
    let mut regions = Vec::new();
    for _ in 0..input.number()? {
        regions.push(input.number()?);
    }
    let mut queues = Vec::new();
    for _ in 0..input.number()? {
        let depth = usize::try_from(input.number()?).ok()?;
        let hint = *HINTS.get(usize::try_from(input.number()?).ok()?)?;
        let (operations, bytes) = (input.number()?, input.number()?);
        let (doorbells, opened, closed) = (input.number()?, duration(&mut input)?, duration(&mut input)?);
        queues.push(QueueTrace { depth, hint, operations, bytes, doorbells, opened, closed });
    }
    input.rest.is_empty().then_some((Recorded { engine, time, cpu, cpu_copies, regions }, queues))
}
