//! The summary at the end of a trace: the recorded engine, times, regions and queues.

use std::time::Duration;

use dma_core::{CacheHint, Place};

use super::content::{QueueTrace, Recorded};
use super::format::{Decoder, PLACES};

/// The cache hints, by their number in a trace.
const HINTS: [CacheHint; 3] = [CacheHint::Auto, CacheHint::Hot, CacheHint::Cold];

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Encodes the summary of a trace.
pub(super) fn encode_summary(recorded: &Recorded, queues: &[QueueTrace]) -> Vec<u8> {
    let mut out = Vec::new();
    let Recorded { engine, time, cpu, cpu_copies, regions, places, partial: _ } = recorded;
    put(&mut out, engine.len() as u64);
    out.extend_from_slice(engine.as_bytes());
    put(&mut out, time.as_nanos() as u64);
    put(&mut out, cpu.as_nanos() as u64);
    put(&mut out, u64::from(*cpu_copies));
    put(&mut out, regions.len() as u64);
    for (len, place) in regions.iter().zip(places) {
        // Regions are too short to use the highest bit, so it is not lost.
        put(&mut out, len << 1 | u64::from(*place == Place::Device));
    }
    put(&mut out, queues.len() as u64);
    for QueueTrace { depth, hint, operations, bytes, doorbells, opened, closed } in queues {
        put(&mut out, *depth as u64);
        put(&mut out, HINTS.iter().position(|other| other == hint).unwrap_or(0) as u64);
        [operations, bytes, doorbells].into_iter().for_each(|number| put(&mut out, *number));
        [opened, closed].into_iter().for_each(|time| put(&mut out, time.as_nanos() as u64));
    }
    out
}

/// Decodes the summary of a trace of this version. Returns `None` if it is damaged.
pub(super) fn decode_summary(bytes: &[u8], version: u16) -> Option<(Recorded, Vec<QueueTrace>)> {
    let duration = |input: &mut Decoder<'_>| Some(Duration::from_nanos(input.number()?));
    let mut input = Decoder { rest: bytes };
    let name = usize::try_from(input.number()?).ok()?;
    let engine = std::str::from_utf8(input.take(name)?).ok()?.to_owned();
    let (time, cpu) = (duration(&mut input)?, duration(&mut input)?);
    let cpu_copies = input.number()? != 0;
    // Each entry takes bytes of the input, so the lists cannot become longer than the input.
    let (mut regions, mut places) = (Vec::new(), Vec::new());
    for _ in 0..input.number()? {
        let number = input.number()?;
        let (len, place) = match number & 1 {
            _ if version < PLACES => (number, Place::Host),
            0 => (number >> 1, Place::Host),
            _ => (number >> 1, Place::Device),
        };
        regions.push(len);
        places.push(place);
    }
    let mut queues = Vec::new();
    for _ in 0..input.number()? {
        let depth = usize::try_from(input.number()?).ok()?;
        let hint = *HINTS.get(usize::try_from(input.number()?).ok()?)?;
        let (operations, bytes) = (input.number()?, input.number()?);
        let (doorbells, opened, closed) = (input.number()?, duration(&mut input)?, duration(&mut input)?);
        queues.push(QueueTrace { depth, hint, operations, bytes, doorbells, opened, closed });
    }
    input
        .rest
        .is_empty()
        .then_some((Recorded { engine, time, cpu, partial: false, cpu_copies, regions, places }, queues))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_from_version_4_on() {
        let summary = [0, 0, 0, 0, 2, 126, 127, 0];
        let read = |version| {
            let recorded = decode_summary(&summary, version).expect("a summary").0;
            (recorded.regions, recorded.places)
        };
        assert_eq!(read(3), (vec![126, 127], vec![Place::Host; 2]));
        assert_eq!(read(4), (vec![63, 63], vec![Place::Host, Place::Device]));
        let (recorded, queues) = decode_summary(&summary, 4).expect("a summary");
        assert_eq!(encode_summary(&recorded, &queues), summary);
    }
}
