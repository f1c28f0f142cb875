//! [`Requirements`]: the memory and capabilities that a trace needs.

use std::collections::BTreeMap;
use std::ops::Range;

use dma_core::{Capabilities, EngineInfo, Error, ErrorKind, Result};

use crate::record::{Kind, Span, Trace, TraceEvent};

/// Maximum number of queues, because each needs a thread.
const QUEUES: usize = 1024;
/// Alignment of the memory, so that operands keep their offset in a page.
const PAGE: usize = 4096;

/// The requirements of a trace.
#[derive(Debug, Default)]
pub(super) struct Requirements {
    /// For each queue, the parts of regions that its operations name, by region.
    pub(super) regions: Vec<BTreeMap<usize, Range<usize>>>,
    /// True if the trace has comparisons.
    pub(super) compares: bool,
    /// Kinds of operations other than copies, each with the queue and number of its first operation.
    kinds: Vec<(Kind, usize, u64)>,
}

impl Requirements {
    /// Collects the requirements of a trace.
    pub(super) fn of(trace: &Trace) -> Result<Self> {
        let queues = trace.queues();
        if queues.iter().all(|queue| queue.operations == 0) {
            return Err(Error::new(ErrorKind::InvalidArgument, "the trace has no operations")
                .with_hint("record a run that copies something"));
        }
        if queues.len() > QUEUES {
            return Err(Error::new(ErrorKind::OutOfRange, "queues of the trace")
                .with_numbers(queues.len() as u64, QUEUES as u64)
                .with_hint("record a shorter run, or one with fewer queues"));
        }
        let mut found = Self::default();
        for queue in 0..queues.len() {
            found.regions.push(BTreeMap::new());
            let mut events = trace.events(queue);
            let mut number = 0;
            while let Some(event) = events.next() {
                if let TraceEvent::Operation { kind, .. } = event {
                    found.operation(queue, number, kind, events.src(), events.dst())?;
                    number += 1;
                }
            }
        }
        found.compares = found.kinds.iter().any(|(kind, ..)| *kind == Kind::Compare);
        Ok(found)
    }

    fn operation(&mut self, queue: usize, number: u64, kind: Kind, src: &[Span], dst: &[Span]) -> Result<()> {
        let wrong = |what: &str| {
            Error::new(ErrorKind::Malformed, format!("operation {number} of queue {queue} {what}"))
                .with_hint("record the trace again with this build")
        };
        let empty = match kind {
            Kind::Fill => dst.is_empty(),
            Kind::CopyLists => src.is_empty() || dst.is_empty(),
            _ => false,
        };
        if empty {
            return Err(wrong("is one that this build does not know"));
        }
        let overlap = match kind {
            Kind::Copy | Kind::CopyCrc32c => overlap(&src[0], &dst[0]),
            Kind::Compare | Kind::Crc32c => false,
            Kind::CopyLists | Kind::Fill | Kind::CopyToBoth => overlapping(src, dst),
        };
        if overlap {
            return Err(wrong("writes bytes that it also reads, or writes some bytes twice"));
        }
        if kind != Kind::Copy && !self.kinds.iter().any(|(other, ..)| *other == kind) {
            self.kinds.push((kind, queue, number));
        }
        let regions = &mut self.regions[queue];
        for span in src.iter().chain(dst) {
            let (begin, end) = (span.offset & !(PAGE - 1), span.offset + span.len);
            let part = regions.entry(span.region).or_insert(begin..end);
            *part = part.start.min(begin)..part.end.max(end);
        }
        Ok(())
    }

    /// Returns the number of bytes of memory in the regions for which `of` returns true.
    pub(super) fn bytes(&self, of: impl Fn(usize) -> bool) -> u64 {
        let parts = self.regions.iter().flatten().filter(|(region, _)| of(**region));
        parts.fold(0, |sum: u64, (_, part)| sum.saturating_add(part.len() as u64))
    }

    /// Checks that an engine meets the requirements.
    pub(super) fn check(&self, info: &EngineInfo) -> Result<()> {
        for (kind, queue, number) in &self.kinds {
            let (needed, name) = match kind {
                Kind::Fill => (Capabilities::FILL, "fills"),
                Kind::Compare => (Capabilities::COMPARE, "comparisons"),
                Kind::Crc32c => (Capabilities::CRC32C, "CRC-32C"),
                Kind::CopyCrc32c => (Capabilities::COPY_CRC32C, "copies with CRC-32C"),
                Kind::CopyToBoth => (Capabilities::COPY_TO_BOTH, "copies to two destinations"),
                Kind::Copy | Kind::CopyLists => continue,
            };
            if !info.capabilities.contains(needed) {
                let message =
                    format!("the engine has no {name}, as operation {number} of queue {queue} found them");
                return Err(unsupported(message).with_hint(
                    "replay on an engine that has them, such as cpu, or record on one that lacks them too",
                ));
            }
        }
        Ok(())
    }
}

pub(super) fn unsupported(message: String) -> Error {
    Error::new(ErrorKind::Unsupported, message)
}

fn overlap(a: &Span, b: &Span) -> bool {
    a.region == b.region && a.offset < b.offset + b.len && b.offset < a.offset + a.len
}

/// Returns true if the lists name a byte twice, and at least once as a destination.
fn overlapping(src: &[Span], dst: &[Span]) -> bool {
    let mut all: Vec<_> =
        src.iter().map(|span| (span, false)).chain(dst.iter().map(|span| (span, true))).collect();
    all.sort_unstable_by_key(|(span, _)| (span.region, span.offset));
    // The end of the bytes read so far in this region, and of the bytes written.
    let (mut region, mut read, mut written) = (usize::MAX, 0, 0);
    for (span, writes) in all {
        if span.region != region {
            (region, read, written) = (span.region, 0, 0);
        }
        if span.offset < written || writes && span.offset < read {
            return true;
        }
        let end = if writes { &mut written } else { &mut read };
        *end = span.offset + span.len;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_are_found_among_lists() {
        let span = |region, offset, len| Span { region, offset, len };
        let src = [span(0, 0, 10), span(0, 5, 10), span(1, 0, 4)];
        for (dst, expected) in [
            (vec![span(0, 15, 5), span(1, 4, 4), span(2, 0, 9)], false),
            (vec![span(0, 14, 1)], true),
            (vec![span(1, 3, 4)], true),
            (vec![span(2, 0, 4), span(2, 3, 4)], true),
            (vec![span(0, 9, 1)], true),
        ] {
            assert_eq!(overlapping(&src, &dst), expected, "{dst:?}");
        }
        assert!(overlap(&src[0], &src[1]) && !overlap(&src[0], &src[2]));
    }
}
