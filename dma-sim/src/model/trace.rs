//! The record of a device's events.

use std::fmt::{self, Write as _};

use super::region::{RegionKey, Rights};
use super::task::{HaltCause, Operation, Refused, Status, TaskError};
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// Time.
    pub at: Time,
    /// Channel, if any.
    pub channel: Option<u32>,
    /// Event.
    pub what: Happening,
}

/// Event of a [`TraceEvent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Happening {
    /// `open`: a channel was opened.
    Open {
        /// Places in its queue.
        depth: u32,
    },
    /// `close`: a channel was closed.
    Close,
    /// `register`: a region was registered or allocated.
    Register {
        /// Its key.
        key: RegionKey,
        /// Its length in bytes.
        len: u64,
        /// Access rights.
        rights: Rights,
        /// It is a peer's.
        remote: bool,
    },
    /// `unregister`: a region was unregistered.
    Unregister {
        /// Its key.
        key: RegionKey,
    },
    /// `submit`: a task was accepted.
    Submit {
        /// Its number on the channel.
        task: u64,
        /// Its token.
        token: u64,
        /// Its operation.
        operation: Operation,
        /// Its length in bytes.
        len: u64,
        /// Segments to read.
        sources: u32,
        /// Segments to write.
        destinations: u32,
        /// Region and offset of the first byte read.
        src: Option<(RegionKey, u64)>,
        /// Region and offset of the first byte written.
        dst: Option<(RegionKey, u64)>,
        /// It has the ordering mark.
        fence: bool,
        /// Its report may be coalesced.
        coalesce: bool,
    },
    /// `refuse`: a task was not accepted.
    Refuse {
        /// Its token.
        token: u64,
        /// Reason.
        why: Refused,
    },
    /// `doorbell`: tasks were released to the device.
    Doorbell {
        /// Number of tasks.
        tasks: u32,
    },
    /// `start`: the channel started a task.
    Start {
        /// Its number.
        task: u64,
    },
    /// `move`: some of a running task's bytes moved.
    Move {
        /// Its number.
        task: u64,
        /// Part, counted from 1.
        part: u8,
        /// Number of parts. The last moves at the end.
        parts: u8,
    },
    /// `corrupt`: a bit of a destination was made wrong, or the result of a task without one.
    Corrupt {
        /// The task's number.
        task: u64,
        /// Byte of the destinations in a row; `None` for the result.
        byte: Option<u64>,
    },
    /// `end`: a task ended.
    End {
        /// Its number.
        task: u64,
        /// Result.
        status: Status,
    },
    /// `lose`: a task ended and will not be reported.
    Lose {
        /// Its number.
        task: u64,
    },
    /// `report`: the caller was given a completion.
    Report {
        /// The task's number.
        task: u64,
        /// Its token.
        token: u64,
    },
    /// `stick`: a channel makes no progress any more.
    Stick,
    /// `halt`: a channel went down.
    Halt {
        /// Reason.
        cause: HaltCause,
    },
    /// `restart`: a channel runs again.
    Restart,
    /// `gone`: the device vanished.
    Gone,
}

impl fmt::Display for TraceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ps = self.at.as_ps();
        write!(f, "{}.{:03} ", ps / 1_000, ps % 1_000)?;
        match self.channel {
            Some(channel) => write!(f, "ch{channel} ")?,
            None => f.write_str("dev ")?,
        }
        write!(f, "{}", self.what)
    }
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Open { depth } => write!(f, "open depth={depth}"),
            Self::Close => f.write_str("close"),
            Self::Register { key, len, rights, remote } => {
                write!(f, "register key={key} len={len} rights={rights} remote={remote}")
            }
            Self::Unregister { key } => write!(f, "unregister key={key}"),
            Self::Submit {
                task,
                token,
                operation,
                len,
                sources,
                destinations,
                src,
                dst,
                fence,
                coalesce,
            } => {
                let op = operation.name();
                write!(
                    f,
                    "submit task={task} token={token} op={op} len={len} segments={sources}x{destinations}"
                )?;
                for (name, place) in [("src", src), ("dst", dst)] {
                    if let Some((key, offset)) = place {
                        write!(f, " {name}={key}+{offset}")?;
                    }
                }
                f.write_str(if fence { " fence" } else { "" })?;
                f.write_str(if coalesce { " coalesce" } else { "" })
            }
            Self::Refuse { token, why } => write!(f, "refuse token={token} why={}", refusal(why)),
            Self::Doorbell { tasks } => write!(f, "doorbell tasks={tasks}"),
            Self::Start { task } => write!(f, "start task={task}"),
            Self::Move { task, part, parts } => write!(f, "move task={task} part={part}/{parts}"),
            Self::Corrupt { task, byte: Some(byte) } => write!(f, "corrupt task={task} byte={byte}"),
            Self::Corrupt { task, byte: None } => write!(f, "corrupt task={task} result"),
            Self::End { task, status: Status::Done } => write!(f, "end task={task} status=done"),
            Self::End { task, status: Status::Failed(error) } => {
                write!(f, "end task={task} status=failed:{}", code(error))
            }
            Self::End { task, status: Status::Aborted(cause) } => {
                write!(f, "end task={task} status=aborted:{cause}")
            }
            Self::Lose { task } => write!(f, "lose task={task}"),
            Self::Report { task, token } => write!(f, "report task={task} token={token}"),
            Self::Stick => f.write_str("stick"),
            Self::Halt { cause } => write!(f, "halt cause={cause}"),
            Self::Restart => f.write_str("restart"),
            Self::Gone => f.write_str("gone"),
        }
    }
}

fn refusal(why: Refused) -> &'static str {
    match why {
        Refused::Full { .. } => "full",
        Refused::Rejected => "rejected",
        Refused::Halted(_) => "halted",
        Refused::DeviceGone => "device-gone",
        Refused::Invalid(error) => code(error),
        Refused::NoSuchChannel => "no-such-channel",
    }
}

fn code(error: TaskError) -> &'static str {
    match error {
        TaskError::UnknownRegion { .. } => "unknown-region",
        TaskError::OutOfRange { .. } => "out-of-range",
        TaskError::Denied { .. } => "denied",
        TaskError::TooLong { .. } => "too-long",
        TaskError::Segments { .. } => "segments",
        TaskError::LengthMismatch { .. } => "length-mismatch",
        TaskError::ZeroLength => "zero-length",
        TaskError::Unsupported => "unsupported",
        TaskError::Revoked => "revoked",
        TaskError::PeerGone => "peer-gone",
        TaskError::Engine => "engine",
    }
}

/// The record of a device.
#[derive(Clone, Debug)]
pub struct Trace {
    mode: TraceMode,
    events: Vec<TraceEvent>,
    digest: Fnv,
}

impl Trace {
    pub(super) fn new(mode: TraceMode) -> Self {
        Self { mode, events: Vec::new(), digest: Fnv::default() }
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
    /// ended by a line feed. Equal digests mean equal events, apart from hash collisions. Without a record it
    /// is the digest of no lines.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.digest.0
    }

    pub(super) fn take(&mut self) -> Vec<TraceEvent> {
        std::mem::take(&mut self.events)
    }

    /// Records the result of `what`, which is called only if anything is recorded.
    #[inline]
    pub(super) fn record(&mut self, at: Time, channel: Option<u32>, what: impl FnOnce() -> Happening) {
        if self.mode != TraceMode::Off {
            self.add(TraceEvent { at, channel, what: what() });
        }
    }

    #[cold]
    fn add(&mut self, event: TraceEvent) {
        // Writing into a hash cannot fail.
        let _ = writeln!(self.digest, "{event}");
        if self.mode == TraceMode::Record {
            self.events.push(event);
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
        trace.record(Time::from_ps(1_880_001), Some(3), || Happening::Stick);
        trace.record(Time::from_us(2), None, || Happening::Gone);
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
        trace.record(Time::ZERO, None, || unreachable!());
        let mut digest = Trace::new(TraceMode::Digest);
        digest.record(Time::ZERO, None, || Happening::Gone);
        assert!(digest.events().is_empty());
        assert_ne!(digest.digest(), trace.digest());
    }
}
