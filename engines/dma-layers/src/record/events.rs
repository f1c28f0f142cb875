//! [`Events`]: decodes the events of a queue. The bytes are untrusted.

use std::time::Duration;

use dma_core::{ErrorKind, Outcome};

use super::content::{Kind, Span, TraceEvent};
use super::error::{TraceError, damaged};
use super::format::{
    BOTH, COMPARE, COPY, COPY_CRC, CRC, DONE, Decoder, ENDED, FENCE, FILL, FLUSH, KIND, LISTS, POLL, REPEAT,
    SAME_DST, SAME_LEN, SAME_SRC, STRIDE, SUBMIT, TIME, unzigzag,
};

/// The events of a queue, in order.
#[derive(Clone, Debug)]
pub struct Events<'a> {
    input: Decoder<'a>,
    regions: &'a [u64],
    /// Number of operations of the current call that were not read yet.
    operations: u64,
    /// The length of the previous operation, and true if it was a copy.
    len: u64,
    copied: bool,
    /// Number of repetitions of the previous operation that were not read yet (`repeats`), and the distances
    /// of the repetitions on both sides (`steps`).
    repeats: u64,
    steps: [u64; 2],
    /// The region and the end of the last segment of each side.
    sides: [(u64, u64); 2],
    src: Vec<Span>,
    dst: Vec<Span>,
}

impl Iterator for Events<'_> {
    type Item = TraceEvent;

    fn next(&mut self) -> Option<TraceEvent> {
        // This cannot fail, because the events were checked when the trace was read.
        self.advance().ok().flatten()
    }
}

impl<'a> Events<'a> {
    pub(super) fn new(bytes: &'a [u8], regions: &'a [u64]) -> Self {
        Self {
            input: Decoder { rest: bytes },
            regions,
            operations: 0,
            len: 0,
            copied: false,
            repeats: 0,
            steps: [0; 2],
            sides: [(0, 0); 2],
            src: Vec::new(),
            dst: Vec::new(),
        }
    }
}

impl Events<'_> {
    /// Returns the segments that the last operation reads. For a comparison, returns the first side.
    #[must_use]
    pub fn src(&self) -> &[Span] {
        &self.src
    }

    /// Returns the segments that the last operation writes. For [`Kind::CopyToBoth`], there are two, each as
    /// long as the operation. For a comparison, returns the second side.
    #[must_use]
    pub fn dst(&self) -> &[Span] {
        &self.dst
    }

    /// Returns true if the current call has operations that were not read yet.
    pub(super) const fn in_call(&self) -> bool {
        self.operations > 0
    }

    /// Returns the number of bytes that were not read yet.
    pub(super) const fn left(&self) -> usize {
        self.input.rest.len()
    }

    pub(super) fn advance(&mut self) -> Result<Option<TraceEvent>, TraceError> {
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
                let event = TraceEvent::Submit { before: time()?, call: time()?, count };
                self.operations = count;
                event
            }
            FLUSH if count == 0 => TraceEvent::Flush { before: time()?, call: time()? },
            FLUSH if count == u64::from(POLL) => TraceEvent::Poll { time: time()? },
            DONE => {
                let (before, wait) = (time()?, time()?);
                TraceEvent::Ended { before, wait, count, older: 0, outcome: Outcome::Done }
            }
            ENDED => {
                let (before, wait) = (time()?, time()?);
                let outcome = match self.input.byte().ok_or(cut)? {
                    0 => Outcome::Done,
                    1 => Outcome::Failed(ErrorKind::DeviceFault),
                    2 => Outcome::Aborted,
                    _ => return Err(damaged("an outcome")),
                };
                TraceEvent::Ended { before, wait, count: 1, older: count, outcome }
            }
            _ => return Err(damaged("an event")),
        };
        if matches!(event, TraceEvent::Submit { count: 0, .. } | TraceEvent::Ended { count: 0, .. }) {
            return Err(damaged("an event without content"));
        }
        Ok(Some(event))
    }

    fn operation(&mut self) -> Result<TraceEvent, TraceError> {
        let cut = || damaged("an operation is cut off");
        let first = self.input.byte().ok_or_else(cut)?;
        if first & KIND == REPEAT {
            let count = self.input.number().ok_or_else(cut)?;
            let mut step = || self.input.number().map(|step| unzigzag(0, step)).ok_or_else(cut);
            self.steps = match first & !KIND {
                0 => [0; 2],
                STRIDE => [step()?, step()?],
                _ => return Err(damaged("a repetition")),
            };
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
        // Number of segments of each side; `None` for a list.
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
        Ok(TraceEvent::Operation { kind, fence: first & FENCE != 0, len })
    }

    fn repeated(&mut self) -> Result<TraceEvent, TraceError> {
        let Self { regions, len, sides, steps, src, dst, .. } = self;
        for ((spans, (region, end)), step) in [src, dst].into_iter().zip(sides).zip(steps) {
            spans.clear();
            *end = end.wrapping_add(*step);
            spans.push(span(regions, *region, *end, *len)?);
            *end += *len;
        }
        // The length was checked with the previous operation.
        Ok(TraceEvent::Operation { kind: Kind::Copy, fence: false, len: *len as usize })
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
            return Err(damaged("a list with an invalid length"));
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
