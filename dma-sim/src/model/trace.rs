//! The record of a device's events.

use std::fmt::{self, Write as _};

use super::task::{Refused, Status};
use super::time::Time;

/// Extent of the record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TraceMode {
    /// Nothing. Costs nothing.
    #[default]
    Off,
    /// A running [digest](Trace::digest). Needs no memory.
    Digest,
    /// The digest and every event. Memory grows with each until they are [taken](super::Device::take_trace).
    Record,
}

/// An event of a device.
///
/// As text it is one line: the time in nanoseconds, `dev` or `ch` and the channel's number, the event, and
/// its values as `name=value`. A region is named by its key, an address by the region's key and its offset,
/// so that the lines are the same in every run. A task is named by its number on its channel, counted from 1
/// as in a [fault plan](super::FaultPlan).
///
/// ```text
/// 1500.000 ch0 submit task=1 token=7 op=copy len=64 segments=1x1 src=0.0+0 dst=1.0+128
/// 1500.000 ch0 doorbell tasks=1
/// 1500.000 ch0 start task=1
/// 3380.000 ch0 end task=1 status=done
/// 3380.000 ch0 report task=1 token=7
/// ```
///
/// | event | |
/// |---|---|
/// | `open`, `close` | a channel was opened with a queue of `depth` places, or closed |
/// | `register`, `unregister` | a region was registered or allocated; `remote` says that it is a peer's |
/// | `submit`, `refuse` | a task was accepted, or not; `src` and `dst` are its first bytes |
/// | `doorbell` | tasks were released to the device |
/// | `start`, `end` | the channel started a task, or a task ended |
/// | `move` | some of a running task's bytes moved; the last `part` moves at the end |
/// | `corrupt` | a bit of the destination was inverted, or of the result of a task without destination |
/// | `report` | the caller was given a completion |
/// | `lose` | a task ended and will not be reported |
/// | `stick` | a channel makes no progress any more |
/// | `halt`, `restart` | a channel went down, or runs again |
/// | `gone` | the device vanished |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// Time.
    pub at: Time,
    /// Channel, if any.
    pub channel: Option<u32>,
    /// The event and its values, as in the line.
    pub what: String,
}

impl fmt::Display for TraceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ps = self.at.as_ps();
        write!(f, "{}.{:03} ", ps / 1_000, ps % 1_000)?;
        match self.channel {
            Some(channel) => write!(f, "ch{channel} ")?,
            None => f.write_str("dev ")?,
        }
        f.write_str(&self.what)
    }
}

/// Describes the end of a task.
pub(super) fn end(line: &mut String, task: u64, status: Status) -> fmt::Result {
    match status {
        Status::Done => write!(line, "end task={task} status=done"),
        Status::Failed(error) => write!(line, "end task={task} status=failed:{}", error.code().1),
        Status::Aborted(cause) => write!(line, "end task={task} status=aborted:{cause}"),
    }
}

/// Names the reason of a refusal.
pub(super) fn refusal(why: Refused) -> &'static str {
    match why {
        Refused::Full { .. } => "full",
        Refused::Rejected => "rejected",
        Refused::Halted(_) => "halted",
        Refused::DeviceGone => "device-gone",
        Refused::Invalid(error) => error.code().1,
        Refused::NoSuchChannel => "no-such-channel",
    }
}

/// The record of a device.
#[derive(Clone, Debug)]
pub struct Trace {
    mode: TraceMode,
    events: Vec<TraceEvent>,
    digest: Fnv,
    /// The memory of the last event that was not kept.
    spare: String,
}

impl Trace {
    pub(super) fn new(mode: TraceMode) -> Self {
        Self { mode, events: Vec::new(), digest: Fnv::default(), spare: String::new() }
    }

    /// Returns the extent of the record.
    #[must_use]
    pub const fn mode(&self) -> TraceMode {
        self.mode
    }

    /// Returns the events recorded and not taken. None unless everything is recorded.
    #[must_use]
    pub fn events(&self) -> &[TraceEvent] {
        &self.events
    }

    /// Returns a digest of all events so far, also those taken: the 64-bit FNV-1a hash of their lines, each
    /// ended by a line feed. Equal digests mean equal events, apart from hash collisions. If nothing is
    /// recorded, it is the hash of an empty text.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.digest.0
    }

    pub(super) fn take(&mut self) -> Vec<TraceEvent> {
        std::mem::take(&mut self.events)
    }

    /// Records the event that `what` writes, which is called only if anything is recorded.
    #[inline]
    pub(super) fn record(
        &mut self,
        at: Time,
        channel: Option<u32>,
        what: impl FnOnce(&mut String) -> fmt::Result,
    ) {
        if self.mode != TraceMode::Off {
            self.add(at, channel, what);
        }
    }

    #[cold]
    fn add(&mut self, at: Time, channel: Option<u32>, what: impl FnOnce(&mut String) -> fmt::Result) {
        let mut event = TraceEvent { at, channel, what: std::mem::take(&mut self.spare) };
        event.what.clear();
        // Writing into a string or a hash cannot fail.
        let _ = what(&mut event.what);
        let _ = writeln!(self.digest, "{event}");
        match self.mode {
            TraceMode::Record => self.events.push(event),
            _ => self.spare = event.what,
        }
    }
}

/// The FNV-1a hash, 64 bits (Fowler, Noll, Vo).
#[derive(Clone, Copy, Debug)]
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl fmt::Write for Fnv {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_that_of_the_lines() {
        let mut trace = Trace::new(TraceMode::Record);
        assert_eq!(trace.digest(), 0xcbf2_9ce4_8422_2325);
        trace.record(Time::from_ps(1_880_001), Some(3), |line| line.write_str("stick"));
        trace.record(Time::from_us(2), None, |line| line.write_str("gone"));
        let text: String = trace.events().iter().map(|event| format!("{event}\n")).collect();
        assert_eq!(text, "1880.001 ch3 stick\n2000.000 dev gone\n");
        let mut fnv = Fnv::default();
        fnv.write_str(&text).unwrap();
        assert_eq!(trace.digest(), fnv.0);
        // The published value for "a".
        let mut fnv = Fnv::default();
        fnv.write_str("a").unwrap();
        assert_eq!(fnv.0, 0xaf63_dc4c_8601_ec8c);
    }

    #[test]
    fn off_is_never_asked() {
        let mut trace = Trace::new(TraceMode::Off);
        trace.record(Time::ZERO, None, |_| unreachable!());
        let mut digest = Trace::new(TraceMode::Digest);
        digest.record(Time::ZERO, None, |line| line.write_str("gone"));
        assert!(digest.events().is_empty());
        assert_ne!(digest.digest(), trace.digest());
    }
}
