//! The summary at the end of a trace: the recorded engine, times, regions and queues.

use std::time::Duration;

use super::HINTS;
use super::format::Decoder;
use super::trace::{QueueTrace, Recorded};

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
    let Recorded { engine, time, cpu, cpu_copies, regions, partial: _ } = recorded;
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

/// Decodes it; `None` if it is damaged.
pub(super) fn decode_summary(bytes: &[u8]) -> Option<(Recorded, Vec<QueueTrace>)> {
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
    input
        .rest
        .is_empty()
        .then_some((Recorded { engine, time, cpu, partial: false, cpu_copies, regions }, queues))
}
