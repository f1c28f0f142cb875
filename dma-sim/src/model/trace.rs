//! The trace: a record of a device's events.

use std::fmt::{self, Write as _};

use super::task::{Refused, Status};
use super::time::Time;

/// Extent of the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TraceMode {
    /// No events, at no cost.
    #[default]
    Off,
    /// Only a running [digest](Trace::digest), which needs no memory.
    Digest,
    /// The digest and every event. Memory grows with each event until the events are
    /// [taken](super::Device::take_trace).
    Record,
}

/// An event of a device.
///
/// As text, it is one line: the time in nanoseconds, `dev` or `ch` with the channel's number, the event, and
/// its values as `name=value`. A region is named by its key, and an address by the region's key and the
/// offset, so that the lines are the same in every run. A task is named by its number on its channel,
/// counted from 1 as in a [fault plan](super::FaultPlan).
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
/// | `open`, `close` | a channel was opened with a queue of `depth` slots, or closed |
/// | `register`, `unregister` | a region was registered, allocated or unregistered; `remote`: of a peer |
/// | `submit`, `refuse` | a task was accepted or refused; `src` and `dst` are its first bytes |
/// | `doorbell` | tasks were released to the device |
/// | `start`, `end` | the channel started a task, or a task ended |
/// | `move` | a part of a running task's bytes moved; the last part moves at the task's end |
/// | `corrupt` | a bit of the destination was inverted; without a destination, a bit of the result |
/// | `report` | the caller polled a completion |
/// | `lose` | a task ended and will not be reported |
/// | `stick` | a channel stopped making progress |
/// | `halt`, `restart` | a channel went down, or runs again |
/// | `gone` | the device vanished |
/// | `dead` | the device died |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// Time of the event.
    pub at: Time,
    /// Number of the channel; `None` for an event of the device.
    pub channel: Option<u32>,
    /// The event and its values, as in the line of text.
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

/// Returns the name of a refusal's reason.
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

/// The trace of a device.
#[derive(Clone, Debug)]
pub struct Trace {
    mode: TraceMode,
    events: Vec<TraceEvent>,
    digest: Fnv,
    /// Memory of the last event that was not stored, for reuse.
    spare: String,
}

impl Trace {
    pub(super) fn new(mode: TraceMode) -> Self {
        Self { mode, events: Vec::new(), digest: Fnv::default(), spare: String::new() }
    }

    /// Returns the extent of the trace.
    #[must_use]
    pub const fn mode(&self) -> TraceMode {
        self.mode
    }

    /// Returns the events that were recorded and not taken. The list is empty unless every event is
    /// recorded.
    #[must_use]
    pub fn events(&self) -> &[TraceEvent] {
        &self.events
    }

    /// Returns a digest of all events so far, including taken events: the 64-bit FNV-1a hash of their lines,
    /// each with a line feed at its end. Equal digests mean equal events, apart from hash collisions. If
    /// nothing is recorded, the digest is the hash of an empty text.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.digest.0
    }

    pub(super) fn take(&mut self) -> Vec<TraceEvent> {
        std::mem::take(&mut self.events)
    }

    /// Records the event that `what` writes. `what` is called only if the trace records events.
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
        // This is the published hash of "a".
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
