//! The device: its memory, and its channels, which are either timed or instant.

mod config;
mod engine;

use std::fmt::Write as _;
use std::sync::Arc;

use dma_core::{Descriptor, RegionKey};

pub use config::{DeviceConfig, DeviceError};
use engine::TimedEngine;

use super::channel::{ChannelError, ChannelId, ChannelState, ChannelStats};
use super::instant::TaskRing;
use super::memory::MemoryTable;
use super::profile::{Profile, Reporting};
use super::region::{KeyName, PeerAccess, RegionError, RegionSpec, Rights};
use super::remote_memory::BounceBuffer;
use super::resources::Resources;
use super::task::{HaltCause, Refused, TaskReport};
use super::time::Time;
use super::trace::{Trace, TraceEvent, TraceMode};

/// A DMA device.
///
/// Tasks are [submitted](Self::submit), released by a [doorbell](Self::doorbell), and run while time
/// [advances](Self::advance). See the [module](super) for an example. On a timeless device
/// ([`Profile::timeless`]) without faults and trace, they run within the doorbell.
///
/// One thread at a time drives a device. To share a device, put it into a mutex.
#[derive(Debug)]
pub struct Device {
    resources: Resources,
    channels: Channels,
    /// Number of open channels.
    open: u32,
}

#[derive(Debug)]
enum Channels {
    /// Channels of a timeless device without faults and trace.
    Instant(Vec<Option<Box<TaskRing>>>),
    Timed(Box<TimedEngine>),
}

impl Device {
    /// Creates a device.
    ///
    /// # Errors
    ///
    /// Returns an error if numbers of the profile or rules of the fault plan are out of range.
    pub fn new(config: DeviceConfig) -> Result<Self, DeviceError> {
        let DeviceConfig { profile, seed, faults, trace, tearing } = config;
        profile.validate()?;
        faults.validate()?;
        let instant = profile.is_timeless() && faults.rules.is_empty() && trace == TraceMode::Off;
        let channels = if instant {
            Channels::Instant(Vec::new())
        } else {
            Channels::Timed(Box::new(TimedEngine::new(faults, seed, tearing)))
        };
        let resources = Resources {
            profile,
            now: Time::ZERO,
            memory: MemoryTable::default(),
            bounce: BounceBuffer::default(),
            trace: Trace::new(trace),
        };
        Ok(Self { resources, channels, open: 0 })
    }

    /// Returns the profile.
    #[must_use]
    pub const fn profile(&self) -> &Profile {
        &self.resources.profile
    }

    /// Returns the current model time.
    #[must_use]
    pub const fn now(&self) -> Time {
        self.resources.now
    }

    /// Returns true once the device has vanished or died because of its fault plan.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.engine().is_some_and(TimedEngine::is_gone)
    }

    /// Returns true once the device has died because of its fault plan. The tasks that were in flight are
    /// never reported.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.engine().is_some_and(TimedEngine::is_dead)
    }

    /// Returns the trace so far.
    #[must_use]
    pub const fn trace(&self) -> &Trace {
        &self.resources.trace
    }

    /// Removes and returns the recorded events. The digest still covers them.
    #[must_use]
    pub fn take_trace(&mut self) -> Vec<TraceEvent> {
        self.resources.trace.take()
    }

    fn engine(&self) -> Option<&TimedEngine> {
        match &self.channels {
            Channels::Instant(_) => None,
            Channels::Timed(engine) => Some(engine),
        }
    }

    /// Registers memory for tasks.
    ///
    /// # Errors
    ///
    /// Returns an error if the range ends beyond the last address or is too long for an address space, or if
    /// all keys are in use.
    ///
    /// # Safety
    ///
    /// From now until [`unregister`](Self::unregister) returns `Ok` or the device is dropped, the memory must
    /// be valid for reads by the thread that drives the device, and also for writes if the rights include
    /// any. A peer's memory needs to be valid only while access is [held](PeerAccess::acquire), and
    /// [far](crate::model::FarMemory) memory has no address. While a task in flight names bytes of the
    /// memory, no Rust reference to these bytes may be used, except shared references to bytes that the task
    /// only reads.
    #[expect(unsafe_code, reason = "the caller promises that the memory stays valid")]
    pub unsafe fn register(&mut self, spec: RegionSpec) -> Result<RegionKey, RegionError> {
        let (len, rights, remote) = (spec.len, spec.rights, spec.is_remote());
        // SAFETY: the table's method has the same requirements as this one, which the caller meets.
        let key = unsafe { self.resources.memory.register(spec) }?;
        self.registered(key, len, rights, remote);
        Ok(key)
    }

    fn registered(&mut self, key: RegionKey, len: u64, rights: Rights, remote: bool) {
        let name = KeyName(key);
        let line =
            |line: &mut String| write!(line, "register key={name} len={len} rights={rights} remote={remote}");
        self.resources.record(None, line);
    }

    /// Allocates `len` zeroed bytes and registers them. The device owns them and frees them when they are
    /// unregistered. Their addresses, from [`range`](Self::range), are virtual and the same in every run.
    /// With a `peer`, they are treated as that peer's memory.
    ///
    /// # Errors
    ///
    /// Returns an error if there is not enough memory, or if all keys are in use.
    pub fn allocate(
        &mut self,
        len: u64,
        rights: Rights,
        peer: Option<Arc<dyn PeerAccess>>,
    ) -> Result<RegionKey, RegionError> {
        let remote = peer.is_some();
        let key = self.resources.memory.allocate(len, rights, peer)?;
        self.registered(key, len, rights, remote);
        Ok(key)
    }

    /// Unregisters a region.
    ///
    /// # Errors
    ///
    /// Returns an error if the region does not exist, or tasks in flight use it. A task uses its regions
    /// until it ends, which may be before it is polled. A task whose completion is lost uses its regions
    /// until its channel is taken down.
    pub fn unregister(&mut self, key: RegionKey) -> Result<(), RegionError> {
        let unpinned = match &self.channels {
            Channels::Instant(rings) => rings.iter().flatten().map(|ring| ring.segments_naming(key)).sum(),
            Channels::Timed(_) => 0,
        };
        self.resources.memory.unregister(key, unpinned)?;
        let name = KeyName(key);
        self.resources.record(None, |line| write!(line, "unregister key={name}"));
        Ok(())
    }

    /// Returns a region's first address and length in bytes, if it exists.
    #[must_use]
    pub fn range(&self, key: RegionKey) -> Option<(u64, u64)> {
        self.resources.memory.range(key)
    }

    /// Reads bytes from `addr` on, in a region that the device [allocated](Self::allocate).
    ///
    /// # Errors
    ///
    /// Returns an error if the region does not exist, is not the device's own, or does not contain all of the
    /// bytes.
    pub fn read(&self, key: RegionKey, addr: u64, out: &mut [u8]) -> Result<(), RegionError> {
        self.resources.memory.peek(key, addr, out)
    }

    /// Writes bytes from `addr` on, in a region that the device [allocated](Self::allocate).
    ///
    /// # Errors
    ///
    /// See [`read`](Self::read).
    pub fn write(&mut self, key: RegionKey, addr: u64, bytes: &[u8]) -> Result<(), RegionError> {
        self.resources.memory.poke(key, addr, bytes)
    }

    /// Opens a channel with a queue of `depth` tasks.
    ///
    /// # Errors
    ///
    /// Returns an error if no channel is free, the depth is 0 or more than the profile's, or the device is
    /// gone.
    pub fn open_channel(&mut self, depth: u32) -> Result<ChannelId, ChannelError> {
        if self.is_gone() {
            return Err(ChannelError::DeviceGone);
        }
        let Profile { depth: max_depth, channels: max, .. } = self.resources.profile;
        if depth == 0 || depth > max_depth {
            return Err(ChannelError::Depth { requested: depth, max: max_depth });
        }
        let opened = match &self.channels {
            Channels::Instant(rings) => rings.len(),
            Channels::Timed(engine) => engine.opened(),
        };
        if self.open == max || opened == u32::MAX as usize {
            return Err(ChannelError::NoneFree { max });
        }
        match &mut self.channels {
            Channels::Instant(rings) => rings.push(Some(Box::new(TaskRing::new(depth)))),
            Channels::Timed(engine) => engine.open(&mut self.resources, depth),
        }
        self.open += 1;
        Ok(ChannelId(opened as u32))
    }

    /// Closes a channel. If it has tasks in flight, [stop](Self::stop) and poll it first.
    ///
    /// # Errors
    ///
    /// Returns an error if the channel does not exist or still has tasks.
    pub fn close_channel(&mut self, id: ChannelId) -> Result<(), ChannelError> {
        self.state(id).ok_or(ChannelError::NoSuchChannel)?;
        match self.in_flight(id) {
            0 => {}
            tasks => return Err(ChannelError::Busy { tasks }),
        }
        self.open -= 1;
        match &mut self.channels {
            Channels::Instant(rings) => rings[id.0 as usize] = None,
            Channels::Timed(engine) => engine.close(&mut self.resources, id),
        }
        Ok(())
    }

    /// Returns the state of a channel, if it exists.
    #[must_use]
    pub fn state(&self, id: ChannelId) -> Option<ChannelState> {
        match &self.channels {
            Channels::Instant(rings) => ring(rings, id).map(|ring| ring.state),
            Channels::Timed(engine) => engine.channel(id).map(|channel| channel.state),
        }
    }

    /// Returns the number of a channel's tasks that are submitted and not polled. Returns 0 if the channel
    /// does not exist.
    #[must_use]
    pub fn in_flight(&self, id: ChannelId) -> u32 {
        match &self.channels {
            Channels::Instant(rings) => ring(rings, id).map_or(0, TaskRing::used),
            Channels::Timed(engine) => engine.channel(id).map_or(0, |channel| channel.used),
        }
    }

    /// Returns the number of a channel's tasks that a doorbell released and that have not ended. Returns 0 if
    /// the channel does not exist.
    #[must_use]
    pub fn running(&self, id: ChannelId) -> u32 {
        self.engine().and_then(|engine| engine.channel(id)).map_or(0, |channel| channel.outstanding)
    }

    /// Returns the counters of a channel, if it exists.
    #[must_use]
    pub fn stats(&self, id: ChannelId) -> Option<ChannelStats> {
        match &self.channels {
            Channels::Instant(rings) => ring(rings, id).map(|ring| ring.stats),
            Channels::Timed(engine) => engine.channel(id).map(|channel| channel.stats),
        }
    }

    /// Returns true if [`poll`](Self::poll) would return a report.
    #[must_use]
    pub fn has_completion(&self, id: ChannelId) -> bool {
        match &self.channels {
            Channels::Instant(rings) => ring(rings, id).is_some_and(TaskRing::has_reports),
            Channels::Timed(engine) => engine.channel(id).is_some_and(|channel| channel.has_reports()),
        }
    }

    /// Takes a channel down: all its tasks in flight end as aborted, to be polled, and it accepts no tasks
    /// until it is [restarted](Self::restart). No effect if the channel is already down.
    ///
    /// # Errors
    ///
    /// Returns an error if the channel does not exist.
    pub fn stop(&mut self, id: ChannelId) -> Result<(), ChannelError> {
        match self.state(id) {
            None => return Err(ChannelError::NoSuchChannel),
            Some(ChannelState::Halted(_)) => return Ok(()),
            Some(ChannelState::Running) => {}
        }
        let resources = &mut self.resources;
        match &mut self.channels {
            Channels::Instant(rings) => {
                if let Some(ring) = ring_mut(rings, id) {
                    ring.halt(&mut resources.memory, HaltCause::Stopped, resources.now);
                }
            }
            Channels::Timed(engine) => engine.halt(resources, id.0, HaltCause::Stopped),
        }
        Ok(())
    }

    /// Restarts a halted channel. Unpolled completions stay available. No effect if the channel runs.
    ///
    /// # Errors
    ///
    /// Returns an error if the channel does not exist or the device is gone.
    pub fn restart(&mut self, id: ChannelId) -> Result<(), ChannelError> {
        match &mut self.channels {
            Channels::Instant(rings) => {
                ring_mut(rings, id).ok_or(ChannelError::NoSuchChannel)?.state = ChannelState::Running;
                Ok(())
            }
            Channels::Timed(engine) => engine.restart(&mut self.resources, id),
        }
    }

    /// [Stops](Self::stop) and [restarts](Self::restart) a channel.
    ///
    /// # Errors
    ///
    /// Returns an error if the channel does not exist or the device is gone.
    pub fn reset(&mut self, id: ChannelId) -> Result<(), ChannelError> {
        self.stop(id)?;
        self.restart(id)
    }

    /// Submits a task. It starts only after a [doorbell](Self::doorbell). With a fence, it starts only after
    /// all earlier tasks of its channel have ended, and no later task starts before it. All descriptors are
    /// checked, including descriptors that the contract forbids.
    ///
    /// # Errors
    ///
    /// Returns the reason why the task was not accepted. Except for its counters, the channel is then
    /// unchanged.
    #[inline]
    pub fn submit(&mut self, id: ChannelId, descriptor: &Descriptor<'_>) -> Result<(), Refused> {
        self.submit_any(id, descriptor, false)
    }

    /// [Submits](Self::submit) a task whose completion need not be reported individually. It is reported
    /// together with a later task of the channel that is reported individually or fails. Without such a task
    /// it is never reported, as on real devices. A failure is reported at once. A device whose [`Reporting`]
    /// has no coalescing reports each task.
    ///
    /// # Errors
    ///
    /// See [`submit`](Self::submit).
    #[inline]
    pub fn submit_coalesced(&mut self, id: ChannelId, descriptor: &Descriptor<'_>) -> Result<(), Refused> {
        self.submit_any(id, descriptor, true)
    }

    #[inline]
    fn submit_any(
        &mut self,
        id: ChannelId,
        descriptor: &Descriptor<'_>,
        coalesced: bool,
    ) -> Result<(), Refused> {
        let resources = &mut self.resources;
        let effective = coalesced && resources.profile.reporting == Reporting::Each { coalescing: true };
        match &mut self.channels {
            Channels::Instant(rings) => {
                ring_mut(rings, id).ok_or(Refused::NoSuchChannel)?.submit(resources, descriptor, effective)
            }
            Channels::Timed(engine) => engine.submit(resources, id, descriptor, coalesced),
        }
    }

    /// Releases all submitted tasks of a channel to the device. Returns their number. Stuck and halted
    /// channels also accept doorbells.
    ///
    /// # Errors
    ///
    /// Returns an error if the channel does not exist.
    #[inline]
    pub fn doorbell(&mut self, id: ChannelId) -> Result<u32, ChannelError> {
        match &mut self.channels {
            Channels::Instant(rings) => {
                Ok(ring_mut(rings, id).ok_or(ChannelError::NoSuchChannel)?.doorbell(&mut self.resources))
            }
            Channels::Timed(engine) => engine.doorbell(&mut self.resources, id),
        }
    }

    /// Returns the report of a channel's next ended task, if any. Does not advance time.
    #[inline]
    pub fn poll(&mut self, id: ChannelId) -> Option<TaskReport> {
        match &mut self.channels {
            Channels::Instant(rings) => ring_mut(rings, id)?.pop(),
            Channels::Timed(engine) => engine.poll(&mut self.resources, id),
        }
    }

    /// Calls `each` with up to `max` reports of a channel, as [`poll`](Self::poll) returns them. Returns
    /// their number.
    #[inline]
    pub fn poll_each(&mut self, id: ChannelId, max: usize, mut each: impl FnMut(TaskReport)) -> usize {
        let mut polled = 0;
        while polled < max
            && let Some(report) = self.poll(id)
        {
            each(report);
            polled += 1;
        }
        polled
    }

    /// Returns the time of the next event; `None` without events.
    pub fn next_event(&mut self) -> Option<Time> {
        match &mut self.channels {
            Channels::Instant(_) => None,
            Channels::Timed(engine) => engine.next_event(),
        }
    }

    /// Advances time to `to`. If `to` is in the past, time does not change.
    pub fn advance(&mut self, to: Time) {
        if let Channels::Timed(engine) = &mut self.channels {
            engine.advance(&mut self.resources, to);
        }
        self.resources.now = self.resources.now.max(to);
    }

    /// Advances time until no event is left.
    pub fn run(&mut self) {
        while let Some(at) = self.next_event() {
            self.advance(at);
        }
    }
}

#[inline]
fn ring(rings: &[Option<Box<TaskRing>>], id: ChannelId) -> Option<&TaskRing> {
    rings.get(id.0 as usize)?.as_deref()
}

#[inline]
fn ring_mut(rings: &mut [Option<Box<TaskRing>>], id: ChannelId) -> Option<&mut TaskRing> {
    rings.get_mut(id.0 as usize)?.as_deref_mut()
}
