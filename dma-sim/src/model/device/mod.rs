//! The device: channels, the engine they share, and the passing of time.

mod channels;
mod config;
mod engine;
mod faults;
mod memory;
mod submit;

pub use channels::{ChannelError, ChannelId};
pub use config::{DeviceConfig, DeviceError};
use engine::Server;
use faults::Rule;

use super::channel::Channel;
use super::events::{Calendar, Event};
use super::fault::{Fault, When};
use super::instant::Ring;
use super::memory::MemoryTable;
use super::profile::Profile;
use super::remote_memory::BounceBuffer;
use super::time::Time;
use super::trace::{Trace, TraceEvent, TraceMode};

/// A DMA device.
///
/// Tasks are [submitted](Self::submit), released by a [doorbell](Self::doorbell), and run while time
/// [advances](Self::advance). See the [module](super) for an example. On a timeless device
/// ([`Profile::timeless`]) without faults and trace, they run within the doorbell.
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
    bounce: BounceBuffer,
    channels: Vec<Option<Box<Channel>>>,
    /// Replaces the channels of a timeless device without faults and trace.
    rings: Option<Vec<Option<Box<Ring>>>>,
    open: u32,
    servers: [Server; 3],
    calendar: Calendar,
    rules: Vec<Rule>,
    trace: Trace,
}

impl Device {
    /// Makes a device.
    ///
    /// # Errors
    ///
    /// Returns an error if numbers of the profile or rules of the fault plan are out of range.
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
            bounce: BounceBuffer::default(),
            channels: Vec::new(),
            rings,
            open: 0,
            servers: Default::default(),
            calendar,
            rules: faults.rules.into_iter().map(|rule| Rule { rule, fired: false }).collect(),
            trace: Trace::new(trace),
        })
    }

    /// Returns the profile.
    #[must_use]
    pub const fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Returns the model's time.
    #[must_use]
    pub const fn now(&self) -> Time {
        self.now
    }

    /// Returns true once the device vanished by a fault plan.
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        self.gone
    }

    /// Returns the record so far.
    #[must_use]
    pub const fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Removes and returns the recorded events. The digest continues.
    #[must_use]
    pub fn take_trace(&mut self) -> Vec<TraceEvent> {
        self.trace.take()
    }
}
