//! The device: channels, the engine they share, and the passing of time.

mod bytes;
mod channels;
mod config;
mod engine;
mod faults;
mod memory;
mod submit;

pub(super) use bytes::move_part;
pub use channels::{ChannelError, ChannelId};
pub use config::{DeviceConfig, DeviceError};
use engine::Lane;
use faults::Rule;

use super::channel::Channel;
use super::events::{Calendar, Event};
use super::far::Carrier;
use super::fault::{Fault, When};
use super::instant::Ring;
use super::memory::MemoryTable;
use super::profile::Profile;
use super::time::Time;
use super::trace::{Trace, TraceEvent, TraceMode};

/// A DMA device.
///
/// Nothing happens by itself: tasks are [submitted](Self::submit), released by a [doorbell](Self::doorbell),
/// and run while time [advances](Self::advance). See the [module](super) for an example. Where nothing takes time
/// ([`Profile::timeless`]), goes wrong or is recorded, they run in the doorbell.
///
/// One thread at a time drives a device; to share one, put it into a mutex.
#[derive(Debug)]
pub struct Device {
    profile: Profile,
    seed: u64,
    tearing: bool,
    now: Time,
    gone: bool,
    memory: MemoryTable,
    carrier: Carrier,
    channels: Vec<Option<Box<Channel>>>,
    /// Instead of the channels, where nothing takes time, goes wrong or is recorded.
    rings: Option<Vec<Option<Box<Ring>>>>,
    open: u32,
    lanes: [Lane; 3],
    calendar: Calendar,
    rules: Vec<Rule>,
    trace: Trace,
}

impl Device {
    /// Makes a device.
    ///
    /// # Errors
    ///
    /// Numbers of the profile or rules of the fault plan are out of their ranges.
    pub fn new(config: DeviceConfig) -> Result<Self, DeviceError> {
        let DeviceConfig { profile, seed, faults, trace, tearing } = config;
        profile.validate()?;
        faults.validate()?;
        let instant = profile.is_timeless() && faults.rules.is_empty() && trace == TraceMode::Off;
        let rings = instant.then(Vec::new);
        let mut calendar = Calendar::default();
        for (i, rule) in (0..).zip(&faults.rules) {
            if let (When::At(at), Fault::Reset | Fault::Stick | Fault::Gone) = (rule.when, rule.fault) {
                calendar.add(at, Event::Fault { rule: i });
            }
        }
        Ok(Self {
            profile,
            seed,
            tearing,
            now: Time::ZERO,
            gone: false,
            memory: MemoryTable::default(),
            carrier: Carrier::default(),
            channels: Vec::new(),
            rings,
            open: 0,
            lanes: Default::default(),
            calendar,
            rules: faults.rules.into_iter().map(|rule| Rule { rule, fired: false }).collect(),
            trace: Trace::new(trace),
        })
    }

    /// What is modelled.
    #[must_use]
    pub const fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The model's time.
    #[must_use]
    pub const fn now(&self) -> Time {
        self.now
    }

    /// The device vanished, as a fault plan said.
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        self.gone
    }

    /// The record so far.
    #[must_use]
    pub const fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Takes the recorded events out of the record; the digest goes on.
    #[must_use]
    pub fn take_trace(&mut self) -> Vec<TraceEvent> {
        self.trace.take()
    }
}
