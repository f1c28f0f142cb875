//! [`Trace`]: reads the file of a [`RecordEngine`](super::RecordEngine). The bytes are untrusted.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use dma_core::{Error, ErrorKind, Result as DmaResult};

use super::content::{QueueTrace, Recorded, TraceEvent};
use super::error::{TraceError, damaged};
use super::events::Events;
use super::format::{BLOCK, CHECKPOINT, Decoder, END, HEADER, MAGIC, OLDEST, VERSION};
use super::summary::decode_summary;

/// A complete trace in memory, which has been checked.
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
    /// `NotFound`, `PermissionDenied` or `Os` if the file cannot be read; `OutOfMemory` if the file is longer
    /// than half of the available memory; `Malformed` or `VersionMismatch` if the content is invalid. Each
    /// error names the file and a remedy.
    pub fn load(path: &Path) -> DmaResult<Self> {
        let wrong = |kind, what: &dyn std::fmt::Display, hint| {
            Error::new(kind, format!("trace {}: {what}", path.display())).with_hint(hint)
        };
        let failed = |e: std::io::Error| {
            let kind = Error::from(std::io::Error::from(e.kind())).kind();
            wrong(kind, &e, "check the path").with_source(e)
        };
        let mut file = File::open(path).map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        if !found.is_file() {
            return Err(wrong(
                ErrorKind::InvalidArgument,
                &"this is not a regular file",
                "give the path of a trace",
            ));
        }
        let len = usize::try_from(found.len()).unwrap_or(usize::MAX);
        let mut bytes = Vec::new();
        // Twice the length, because the events are copied.
        let needed = len.saturating_mul(2);
        // The available memory is checked first, because the system might overcommit, and kill the program
        // when the memory is touched.
        let available = dma_process::available_memory().unwrap_or(u64::MAX);
        if needed as u64 > available || bytes.try_reserve_exact(needed).is_err() {
            let what = format!("its {len} bytes do not fit into memory");
            return Err(wrong(ErrorKind::OutOfMemory, &what, "record a shorter time"));
        }
        file.read_to_end(&mut bytes).map_err(failed)?;
        Self::parse(&bytes).map_err(|error| {
            let (kind, hint) = match &error {
                TraceError::Version { .. } => {
                    (ErrorKind::VersionMismatch, "record it again with this build, or read it with its own")
                }
                TraceError::NotATrace => {
                    (ErrorKind::Malformed, "record one with an engine such as record+cpu:file=copies.trace")
                }
                _ => (ErrorKind::Malformed, "copy it again, or record it again"),
            };
            wrong(kind, &error, hint)
        })
    }

    /// Reads and checks the bytes of a trace. The bytes may be untrusted: the memory that this function takes
    /// is proportional to their length. A trace without an end is read up to its last complete block: see
    /// [`Recorded::partial`].
    ///
    /// # Errors
    ///
    /// [`TraceError`] if a [`RecordEngine`](super::RecordEngine) cannot have written the bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, TraceError> {
        let cut_off = || TraceError::CutOff { len: bytes.len() };
        let start = bytes.get(..MAGIC.len()).ok_or(TraceError::NotATrace)?;
        if start != MAGIC {
            return Err(TraceError::NotATrace);
        }
        let mut input = Decoder { rest: &bytes[MAGIC.len()..] };
        let version = input.take(HEADER - MAGIC.len()).ok_or_else(cut_off)?;
        let version = u16::from_le_bytes([version[0], version[1]]);
        if !(OLDEST..=VERSION).contains(&version) {
            return Err(TraceError::Version { found: version });
        }
        let (mut blocks, mut checkpoint) = (Vec::new(), None);
        let (summary, partial) = loop {
            match next_block(&mut input)? {
                Some((END, block)) => break (block, false),
                Some((CHECKPOINT, block)) => checkpoint = Some(block),
                Some(block) => blocks.push(block),
                None => break (checkpoint.ok_or_else(cut_off)?, true),
            }
        };
        if !partial && !input.rest.is_empty() {
            return Err(damaged("bytes after the end"));
        }
        let (mut recorded, queues) = decode_summary(summary, version).ok_or(damaged("the summary"))?;
        recorded.partial = partial;
        let mut events = vec![Vec::new(); queues.len()];
        for (queue, block) in blocks {
            let of: &mut Vec<u8> = events.get_mut(queue as usize).ok_or(damaged("the queue of a block"))?;
            of.extend_from_slice(block);
        }
        let mut trace = Self { recorded, queues, events };
        for queue in 0..trace.queues.len() {
            let counted = trace.count(queue)?;
            if partial {
                trace.cut(queue, &counted);
            } else if (counted.operations, counted.bytes)
                != (trace.queues[queue].operations, trace.queues[queue].bytes)
            {
                return Err(damaged("the number of operations or bytes"));
            }
        }
        Ok(trace)
    }

    /// Checks the events of a queue. In a partial trace, checks only complete events.
    fn count(&self, queue: usize) -> Result<Counted, TraceError> {
        let depth = self.queues[queue].depth;
        let mut events = self.events(queue);
        let (mut counted, mut complete) = (Counted::default(), Counted::default());
        loop {
            if !events.in_call() {
                complete = Counted { left: events.left(), ..counted };
            }
            let event = match events.advance() {
                Ok(Some(event)) => event,
                Ok(None) => return Ok(complete),
                // The file ends within a call whose operations fill more than a block.
                Err(_) if self.recorded.partial && events.left() == 0 => return Ok(complete),
                Err(error) => return Err(error),
            };
            match event {
                TraceEvent::Submit { before, call, count } => {
                    counted.in_flight = counted.in_flight.saturating_add(count);
                    counted.pass([before, call]);
                }
                TraceEvent::Operation { len, .. } => {
                    counted.operations += 1;
                    counted.bytes = counted.bytes.wrapping_add(len as u64);
                }
                TraceEvent::Flush { before, call } => {
                    counted.doorbells += 1;
                    counted.pass([before, call]);
                }
                TraceEvent::Poll { time } => counted.pass([time]),
                TraceEvent::Ended { before, wait, count, older, .. } => {
                    counted.in_flight = counted
                        .in_flight
                        .checked_sub(count)
                        .filter(|left| older <= *left)
                        .ok_or(damaged("more reports than operations"))?;
                    counted.pass([before, wait]);
                }
            }
            if counted.in_flight > depth as u64 {
                return Err(damaged("more in flight than the depth"));
            }
        }
    }

    /// Ends a queue of a partial trace after its last complete event.
    fn cut(&mut self, queue: usize, counted: &Counted) {
        let events = &mut self.events[queue];
        events.truncate(events.len() - counted.left);
        let trace = &mut self.queues[queue];
        trace.operations = counted.operations;
        trace.bytes = counted.bytes;
        trace.doorbells = counted.doorbells;
        trace.closed = trace.closed.max(trace.opened.saturating_add(counted.time));
        self.recorded.time = self.recorded.time.max(trace.closed);
        self.recorded.cpu = Duration::ZERO;
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

    /// Returns the events of a queue by its index in [`queues`](Self::queues). Returns no events for another
    /// index.
    #[must_use]
    pub fn events(&self, queue: usize) -> Events<'_> {
        let bytes = self.events.get(queue).map_or(&[][..], |events| &events[..]);
        Events::new(bytes, &self.recorded.regions)
    }
}

/// Counts of the events of a queue.
#[derive(Clone, Copy, Default)]
struct Counted {
    operations: u64,
    bytes: u64,
    doorbells: u64,
    in_flight: u64,
    time: Duration,
    /// Number of bytes after the last complete event.
    left: usize,
}

impl Counted {
    fn pass<const N: usize>(&mut self, times: [Duration; N]) {
        self.time = times.into_iter().fold(self.time, Duration::saturating_add);
    }
}

/// Reads a block, and returns its queue and content. Returns `None` if the input ends within the block.
fn next_block<'a>(input: &mut Decoder<'a>) -> Result<Option<(u32, &'a [u8])>, TraceError> {
    let Some(head) = input.take(BLOCK) else { return Ok(None) };
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let Some(block) = input.take(word(4) as usize) else { return Ok(None) };
    if crc32fast::hash(block) != word(8) {
        return Err(damaged("the checksum of a block"));
    }
    Ok(Some((word(0), block)))
}
