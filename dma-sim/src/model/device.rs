//! The device: channels, the engine they share, and the passing of time.
#![expect(unsafe_code, reason = "registering memory is a promise of the caller's; moving bytes relies on it")]

use std::collections::VecDeque;
use std::sync::Arc;

use super::channel::{Channel, ChannelState, ChannelStats, Marks, Stage};
use super::check;
use super::events::{Calendar, Event};
use super::far::Carrier;
use super::fault::{Fault, FaultPlan, FaultPlanError, FaultRule, When};
use super::instant::Ring;
use super::memory::{MemoryTable, PeerAccess, PeerError, RegionError, RegionKey, RegionSpec, Rights};
use super::motion::{self, Tearing};
use super::profile::{Direction, Found, OnFailure, Profile, ProfileError, Reporting};
use super::rng;
use super::task::{Completion, Descriptor, HaltCause, Operation, Refused, Status, TaskError};
use super::time::Time;
use super::trace::{Happening, Trace, TraceEvent, TraceMode};

/// What a device is to be like.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// Which device is modelled.
    pub profile: Profile,
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// What goes wrong.
    pub faults: FaultPlan,
    /// What is recorded.
    pub trace: TraceMode,
    /// Bytes of a task move in parts. Otherwise all at its end.
    pub tearing: bool,
}

impl DeviceConfig {
    /// The device of a profile: seed 0, no faults, no trace, tearing.
    #[must_use]
    pub const fn new(profile: Profile) -> Self {
        Self { profile, seed: 0, faults: FaultPlan::none(), trace: TraceMode::Off, tearing: true }
    }

    /// The same with another seed.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The same with these faults.
    #[must_use]
    pub fn with_faults(self, faults: FaultPlan) -> Self {
        Self { faults, ..self }
    }

    /// The same with this much recorded.
    #[must_use]
    pub fn with_trace(self, trace: TraceMode) -> Self {
        Self { trace, ..self }
    }
}

/// A device that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// Because of its profile.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// Because of its faults.
    #[error(transparent)]
    Faults(#[from] FaultPlanError),
}

/// A channel of a [`Device`]. The name of a closed channel is not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(u32);

impl ChannelId {
    /// The channel's number: how many were opened before it.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.0
    }
}

/// Why a channel did not do as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// No open channel has this name.
    #[error("no such channel; it may have been closed")]
    NoSuchChannel,
    /// All channels are taken.
    #[error("all {max} channels of the device are open; close one")]
    NoneFree {
        /// How many the device has.
        max: u32,
    },
    /// The device's queues are not as deep, or the depth is 0.
    #[error("a queue of {asked} tasks; the device's hold 1 to {max}")]
    Depth {
        /// The depth asked for.
        asked: u32,
        /// The deepest there is.
        max: u32,
    },
    /// The channel has tasks whose completions were not polled.
    #[error("the channel still holds {tasks} tasks; stop it and poll their completions")]
    Busy {
        /// How many.
        tasks: u32,
    },
    /// The device is gone.
    #[error("the device is gone; open another")]
    DeviceGone,
}

/// A part of the engine that serves one task at a time, for all channels.
#[derive(Debug, Default)]
struct Lane {
    free_at: Time,
    /// Channels with tasks waiting for the lane, in turn.
    turns: VecDeque<u32>,
    scheduled: bool,
}

/// Which lane serves a direction: each has its own, but tasks that end in order share one.
fn lane_of(profile: &Profile, direction: Direction) -> usize {
    if profile.in_order { 0 } else { direction as usize }
}

#[derive(Debug)]
struct Rule {
    rule: FaultRule,
    fired: bool,
}

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

    // ---- Memory ----

    /// Registers memory, so that tasks may name it.
    ///
    /// # Errors
    ///
    /// The addresses do not exist.
    ///
    /// # Safety
    ///
    /// From now until [`unregister`](Self::unregister) returns `Ok` or the device is dropped, the memory is
    /// valid for reads, and for writes if the rights include any, from whatever thread drives the device;
    /// except memory of a peer, which need be so only while leave to touch it is [had](PeerAccess::acquire), and
    /// [far](super::FarMemory) memory, which has no address.
    /// While a task in flight names bytes of it, no Rust reference to them is used, but for shared ones to
    /// bytes that are only read.
    pub unsafe fn register(&mut self, spec: RegionSpec) -> Result<RegionKey, RegionError> {
        // SAFETY: the caller's promise.
        let key = unsafe { self.memory.register(spec.clone()) }?;
        let remote = spec.is_remote();
        self.trace.record(self.now, None, || Happening::Register {
            key,
            len: spec.len,
            rights: spec.rights,
            remote,
        });
        Ok(key)
    }

    /// Allocates `len` zeroed bytes and registers them. They belong to the device, which frees them when they
    /// are unregistered; their addresses are made up, the same in every run, and found with
    /// [`range`](Self::range). With a `peer` they count as that peer's memory.
    ///
    /// # Errors
    ///
    /// There is not enough memory.
    pub fn allocate(
        &mut self,
        len: u64,
        rights: Rights,
        peer: Option<Arc<dyn PeerAccess>>,
    ) -> Result<RegionKey, RegionError> {
        let remote = peer.is_some();
        let key = self.memory.allocate(len, rights, peer)?;
        self.trace.record(self.now, None, || Happening::Register { key, len, rights, remote });
        Ok(key)
    }

    /// Unregisters a region.
    ///
    /// # Errors
    ///
    /// There is no such region, or tasks in flight name it. A task names its regions until it ends, even
    /// when its completion is polled later; one whose completion was lost until its channel is taken down.
    pub fn unregister(&mut self, key: RegionKey) -> Result<(), RegionError> {
        let rings = self.rings.iter().flatten().flatten();
        self.memory.unregister(key, rings.map(|ring| ring.names(key)).sum())?;
        self.trace.record(self.now, None, || Happening::Unregister { key });
        Ok(())
    }

    /// A region's first address and length in bytes, if there is such a region.
    #[must_use]
    pub fn range(&self, key: RegionKey) -> Option<(u64, u64)> {
        self.memory.range(key)
    }

    /// Copies bytes from `addr` on out of a region that the device [allocated](Self::allocate).
    ///
    /// # Errors
    ///
    /// There is no such region, it is not the device's own, or the bytes are not all within.
    pub fn read(&self, key: RegionKey, addr: u64, out: &mut [u8]) -> Result<(), RegionError> {
        self.memory.peek(key, addr, out)
    }

    /// Copies bytes into a region that the device [allocated](Self::allocate), from `addr` on.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read).
    pub fn write(&mut self, key: RegionKey, addr: u64, bytes: &[u8]) -> Result<(), RegionError> {
        self.memory.poke(key, addr, bytes)
    }

    // ---- Channels ----

    /// Opens a channel whose queue holds `depth` tasks.
    ///
    /// # Errors
    ///
    /// No channel is free, the depth is 0 or more than the profile's, or the device is gone.
    pub fn open_channel(&mut self, depth: u32) -> Result<ChannelId, ChannelError> {
        if self.gone {
            return Err(ChannelError::DeviceGone);
        }
        let max = self.profile.depth;
        if depth == 0 || depth > max {
            return Err(ChannelError::Depth { asked: depth, max });
        }
        let opened = self.rings.as_ref().map_or(self.channels.len(), Vec::len);
        if self.open == self.profile.channels || opened == u32::MAX as usize {
            return Err(ChannelError::NoneFree { max: self.profile.channels });
        }
        if let Some(rings) = &mut self.rings {
            rings.push(Some(Box::new(Ring::new(depth))));
            self.open += 1;
            return Ok(ChannelId(opened as u32));
        }
        let index = self.channels.len() as u32;
        let channel = Channel::new(&self.profile, depth, self.seed, index, self.now);
        self.channels.push(Some(Box::new(channel)));
        self.open += 1;
        self.trace.record(self.now, Some(index), || Happening::Open { depth });
        Ok(ChannelId(index))
    }

    /// Closes a channel. To do so with tasks in flight [stop](Self::stop) it and poll first.
    ///
    /// # Errors
    ///
    /// There is no such channel, or it holds tasks.
    pub fn close_channel(&mut self, id: ChannelId) -> Result<(), ChannelError> {
        let used = self.ring(id).map(Ring::used).or(self.channel(id).map(|channel| channel.used));
        match used.ok_or(ChannelError::NoSuchChannel)? {
            0 => {}
            tasks => return Err(ChannelError::Busy { tasks }),
        }
        self.open -= 1;
        if let Some(rings) = &mut self.rings {
            rings[id.0 as usize] = None;
            return Ok(());
        }
        self.channels[id.0 as usize] = None;
        self.trace.record(self.now, Some(id.0), || Happening::Close);
        Ok(())
    }

    /// Whether a channel runs, if there is such a channel.
    #[must_use]
    pub fn state(&self, id: ChannelId) -> Option<ChannelState> {
        self.ring(id).map(|ring| ring.state).or(self.channel(id).map(|channel| channel.state))
    }

    /// How many tasks a channel holds, submitted and not yet polled. 0 if there is no such channel.
    #[must_use]
    pub fn in_flight(&self, id: ChannelId) -> u32 {
        self.ring(id).map_or_else(|| self.channel(id).map_or(0, |channel| channel.used), Ring::used)
    }

    /// How many tasks of a channel were released by a doorbell and did not end. 0 if there is no such channel.
    #[must_use]
    pub fn running(&self, id: ChannelId) -> u32 {
        self.channel(id).map_or(0, |channel| channel.outstanding)
    }

    /// What a channel did so far, if there is such a channel.
    #[must_use]
    pub fn stats(&self, id: ChannelId) -> Option<ChannelStats> {
        self.ring(id).map(|ring| ring.stats).or(self.channel(id).map(|channel| channel.stats))
    }

    /// Whether [`poll`](Self::poll) would return a completion.
    #[must_use]
    pub fn has_completion(&self, id: ChannelId) -> bool {
        match &self.rings {
            Some(_) => self.ring(id).is_some_and(Ring::has_reports),
            None => self.channel(id).is_some_and(Channel::has_reports),
        }
    }

    #[inline]
    fn ring(&self, id: ChannelId) -> Option<&Ring> {
        self.rings.as_ref()?.get(id.0 as usize)?.as_deref()
    }

    fn channel(&self, id: ChannelId) -> Option<&Channel> {
        self.channels.get(id.0 as usize)?.as_deref()
    }

    /// Submits a task. It starts only after a [doorbell](Self::doorbell).
    ///
    /// # Errors
    ///
    /// The task was not accepted, and nothing of it was kept.
    #[inline]
    pub fn submit(&mut self, id: ChannelId, descriptor: &Descriptor<'_>) -> Result<(), Refused> {
        match &mut self.rings {
            Some(rings) => match rings.get_mut(id.0 as usize) {
                Some(Some(ring)) => ring.submit(&self.profile, &mut self.memory, descriptor),
                _ => Err(Refused::NoSuchChannel),
            },
            None => self.submit_timed(id, descriptor),
        }
    }

    fn submit_timed(&mut self, id: ChannelId, descriptor: &Descriptor<'_>) -> Result<(), Refused> {
        let outcome = self.try_submit(id, descriptor);
        if let Err(why) = outcome {
            if let Some(Some(channel)) = self.channels.get_mut(id.0 as usize) {
                channel.stats.refused += 1;
            }
            let token = descriptor.token;
            self.trace.record(self.now, Some(id.0), || Happening::Refuse { token, why });
        }
        outcome
    }

    fn try_submit(&mut self, id: ChannelId, descriptor: &Descriptor<'_>) -> Result<(), Refused> {
        let Some(Some(channel)) = self.channels.get_mut(id.0 as usize) else {
            return Err(Refused::NoSuchChannel);
        };
        if self.gone {
            return Err(Refused::DeviceGone);
        }
        if let ChannelState::Halted(cause) = channel.state {
            return Err(Refused::Halted(cause));
        }
        if channel.used >= channel.depth {
            return Err(Refused::Full { depth: channel.depth });
        }

        let slot = channel.free_place();
        let task = &mut channel.tasks[slot as usize];
        let (len, mut error) =
            check::inspect(&self.profile, &self.memory, descriptor, task).map_err(Refused::Invalid)?;
        let max = self.profile.max_task;
        let oversize = len > max;
        if oversize && self.profile.oversize == Found::AtSubmit {
            // Only a fault could still let it pass.
            let may_pass = self.rules.iter().any(|rule| rule.rule.fault == Fault::Oversize);
            if !may_pass {
                return Err(Refused::Invalid(TaskError::TooLong { len, max }));
            }
        }

        let number = channel.number + 1;
        let (mut marks, mut slow) = (Marks::empty(), Time::ZERO);
        if !self.rules.is_empty() {
            (marks, slow) = strike(&mut self.rules, &mut channel.faults, id.0, number, self.now);
        }
        if oversize {
            if self.profile.oversize == Found::AtSubmit && !marks.contains(Marks::OVERSIZE) {
                return Err(Refused::Invalid(TaskError::TooLong { len, max }));
            }
            error = error.or(Some(TaskError::TooLong { len, max }));
        } else {
            marks.remove(Marks::OVERSIZE);
        }
        channel.number = number;
        if marks.contains(Marks::REFUSE) {
            return Err(Refused::Rejected);
        }

        let task = &mut channel.tasks[slot as usize];
        task.take(descriptor, len, error);
        task.chance = channel.chances.bits();
        task.tearing = match task.dst.first() {
            Some(first) if self.tearing => Tearing::new(len, first.offset, task.chance),
            _ => Tearing::none(),
        };
        task.number = number;
        task.coalesce = descriptor.coalesce && self.profile.reporting == Reporting::Each { coalescing: true };
        (task.marks, task.slow) = (marks, slow);
        self.memory.pin(&task.src);
        self.memory.pin(&task.dst);
        channel.enqueue();
        channel.stats.submitted += 1;
        let memory = &self.memory;
        self.trace.record(self.now, Some(id.0), || Happening::Submit {
            task: number,
            token: task_token(channel, slot),
            fill: descriptor.operation != Operation::Copy,
            len,
            sources: descriptor.src.len() as u32,
            destinations: descriptor.dst.len() as u32,
            src: channel.tasks[slot as usize].src.first().map(|piece| (memory.key(piece), piece.offset)),
            dst: channel.tasks[slot as usize].dst.first().map(|piece| (memory.key(piece), piece.offset)),
            fence: descriptor.fence,
            coalesce: descriptor.coalesce,
        });
        Ok(())
    }

    /// Releases all submitted tasks of a channel to the device; returns how many. A stuck or halted channel
    /// takes the doorbell like any other.
    ///
    /// # Errors
    ///
    /// There is no such channel.
    #[inline]
    pub fn doorbell(&mut self, id: ChannelId) -> Result<u32, ChannelError> {
        match &mut self.rings {
            Some(rings) => match rings.get_mut(id.0 as usize) {
                Some(Some(ring)) => {
                    Ok(ring.doorbell(&self.profile, &mut self.memory, &mut self.carrier, self.now))
                }
                _ => Err(ChannelError::NoSuchChannel),
            },
            None => self.doorbell_timed(id),
        }
    }

    fn doorbell_timed(&mut self, id: ChannelId) -> Result<u32, ChannelError> {
        let Some(Some(channel)) = self.channels.get_mut(id.0 as usize) else {
            return Err(ChannelError::NoSuchChannel);
        };
        let tasks = (channel.pending.len() - channel.rung) as u32;
        if tasks == 0 {
            return Ok(0);
        }
        for i in channel.rung..channel.pending.len() {
            let task = &mut channel.tasks[channel.pending[i] as usize];
            channel.outstanding += 1;
            task.position = channel.outstanding;
            task.rung = self.now;
            if self.profile.reporting == Reporting::PerDoorbell {
                task.coalesce = i + 1 < channel.pending.len();
            }
        }
        channel.rung = channel.pending.len();
        channel.doorbell_due += self.profile.doorbell;
        channel.stats.doorbells += 1;
        self.trace.record(self.now, Some(id.0), || Happening::Doorbell { tasks });
        self.start_ready(id.0);
        Ok(tasks)
    }

    /// The next completion of a channel, if one is there. Time does not pass.
    #[inline]
    pub fn poll(&mut self, id: ChannelId) -> Option<Completion> {
        match &mut self.rings {
            Some(rings) => rings.get_mut(id.0 as usize)?.as_mut()?.pop(),
            None => self.poll_timed(id),
        }
    }

    /// Calls `each` with up to `max` completions of a channel, as [`poll`](Self::poll) returns them; returns how many
    /// that were.
    #[inline]
    pub fn poll_each(&mut self, id: ChannelId, max: usize, mut each: impl FnMut(Completion)) -> usize {
        let mut polled = 0;
        while polled < max
            && let Some(completion) = self.poll(id)
        {
            each(completion);
            polled += 1;
        }
        polled
    }

    fn poll_timed(&mut self, id: ChannelId) -> Option<Completion> {
        let channel = self.channels.get_mut(id.0 as usize)?.as_mut()?;
        let (completion, task) = channel.pop()?;
        let token = completion.token;
        self.trace.record(self.now, Some(id.0), || Happening::Report { task, token });
        Some(completion)
    }

    /// Takes a channel down: everything in flight on it ends as aborted, to be polled, and nothing more is
    /// accepted until it is [restarted](Self::restart). Nothing happens if it is down already.
    ///
    /// # Errors
    ///
    /// There is no such channel.
    pub fn stop(&mut self, id: ChannelId) -> Result<(), ChannelError> {
        match self.state(id) {
            None => Err(ChannelError::NoSuchChannel),
            Some(ChannelState::Halted(_)) => Ok(()),
            Some(ChannelState::Running) => {
                match &mut self.rings {
                    Some(rings) => {
                        if let Some(ring) = &mut rings[id.0 as usize] {
                            ring.halt(&mut self.memory, HaltCause::Stopped, self.now);
                        }
                    }
                    None => self.halt(id.0, HaltCause::Stopped),
                }
                Ok(())
            }
        }
    }

    /// Lets a halted channel run again. Completions that were not polled stay. Nothing happens if it runs.
    ///
    /// # Errors
    ///
    /// There is no such channel, or the device is gone.
    pub fn restart(&mut self, id: ChannelId) -> Result<(), ChannelError> {
        if let Some(rings) = &mut self.rings {
            let Some(Some(ring)) = rings.get_mut(id.0 as usize) else {
                return Err(ChannelError::NoSuchChannel);
            };
            ring.state = ChannelState::Running;
            return Ok(());
        }
        let Some(Some(channel)) = self.channels.get_mut(id.0 as usize) else {
            return Err(ChannelError::NoSuchChannel);
        };
        if self.gone {
            return Err(ChannelError::DeviceGone);
        }
        if channel.state != ChannelState::Running {
            channel.restart(self.now);
            self.trace.record(self.now, Some(id.0), || Happening::Restart);
        }
        Ok(())
    }

    /// [Stops](Self::stop) and [restarts](Self::restart) a channel.
    ///
    /// # Errors
    ///
    /// There is no such channel, or the device is gone.
    pub fn reset(&mut self, id: ChannelId) -> Result<(), ChannelError> {
        self.stop(id)?;
        self.restart(id)
    }

    // ---- Time ----

    /// When something will happen next; `None` if nothing will, however long one waits.
    pub fn next_event(&mut self) -> Option<Time> {
        loop {
            let (at, event) = self.calendar.first()?;
            if self.is_valid(event) {
                return Some(at);
            }
            self.calendar.pop();
            self.unschedule(event);
        }
    }

    /// Lets time pass until `to`; if that is past already, until now.
    pub fn advance(&mut self, to: Time) {
        while let Some((at, event)) = self.calendar.pop_due(to) {
            // What was scheduled for the past happens now.
            self.now = self.now.max(at);
            self.handle(event);
        }
        self.now = self.now.max(to);
    }

    /// Lets time pass until nothing more will happen.
    pub fn run(&mut self) {
        while let Some(at) = self.next_event() {
            self.advance(at);
        }
    }

    fn is_valid(&self, event: Event) -> bool {
        match event {
            Event::Issue { channel, epoch }
            | Event::Move { channel, epoch, .. }
            | Event::Finish { channel, epoch, .. } => {
                self.channel(ChannelId(channel)).is_some_and(|channel| channel.epoch == epoch)
            }
            Event::LaneFree { lane } => !self.lanes[lane as usize].turns.is_empty(),
            Event::Fault { .. } => !self.gone,
        }
    }

    /// An event left the calendar.
    fn unschedule(&mut self, event: Event) {
        if let Event::LaneFree { lane } = event {
            self.lanes[lane as usize].scheduled = false;
        }
    }

    fn handle(&mut self, event: Event) {
        self.unschedule(event);
        if !self.is_valid(event) {
            return;
        }
        match event {
            Event::Issue { channel, .. } => {
                if let Some(channel) = &mut self.channels[channel as usize] {
                    channel.issue_scheduled = false;
                }
                self.start_ready(channel);
            }
            Event::LaneFree { lane } => self.lane_free(lane),
            Event::Move { channel, epoch, slot } => self.move_some(channel, epoch, slot),
            Event::Finish { channel, slot, .. } => self.finish(channel, slot),
            Event::Fault { rule } => self.timed_fault(rule),
        }
    }

    /// Starts what can start on a channel.
    fn start_ready(&mut self, index: u32) {
        loop {
            let Some(channel) = &mut self.channels[index as usize] else { return };
            // An event that is scheduled brings us back here.
            if channel.stuck || channel.rung == 0 || channel.issue_scheduled {
                return;
            }
            let slot = channel.pending[0];
            let task = &mut channel.tasks[slot as usize];
            channel.fence_waits = task.fence && channel.running > 0;
            if channel.fence_waits {
                return; // until the last of those ends
            }
            if channel.issue_free > self.now {
                channel.issue_scheduled = true;
                let event = Event::Issue { channel: index, epoch: channel.epoch };
                self.calendar.add(channel.issue_free, event);
                return;
            }
            channel.pending.pop_front();
            channel.rung -= 1;
            channel.running += 1;
            task.stage = Stage::Running;
            task.issued = self.now;
            let costs = self.profile.costs(task.direction);
            let mine = if task.coalesce { &costs.coalesced } else { &costs.reported };
            let extra =
                self.profile.segment.as_ps().saturating_mul(extra_segments(task.src.len(), task.dst.len()));
            let busy = mine.issue.at(task.len) + Time::from_ps(extra) + channel.doorbell_due;
            channel.doorbell_due = Time::ZERO;
            channel.issue_free = self.now + busy;
            let number = task.number;
            self.trace.record(self.now, Some(index), || Happening::Start { task: number });
            if task.marks.contains(Marks::STICK) {
                return self.stick(index);
            }

            let occupied = costs.engine.at(task.len);
            let lane = lane_of(&self.profile, task.direction);
            let (line, server) = (&mut channel.at_lane[lane], &mut self.lanes[lane]);
            let idle = server.free_at <= self.now && server.turns.is_empty();
            let unhindered = occupied == Time::ZERO && (!self.profile.in_order || line.is_empty());
            if idle || unhindered {
                self.run_task(index, slot, occupied);
                continue;
            }
            line.push_back(slot);
            if line.len() == 1 {
                server.turns.push_back(index);
            }
            if !server.scheduled {
                server.scheduled = true;
                self.calendar.add(server.free_at, Event::LaneFree { lane: lane as u32 });
            }
        }
    }

    /// A lane of the engine takes the next task, of the next channel in turn.
    fn lane_free(&mut self, lane: u32) {
        let event = Event::LaneFree { lane };
        let lane = lane as usize;
        let server = &mut self.lanes[lane];
        if server.free_at > self.now {
            server.scheduled = true;
            return self.calendar.add(server.free_at, event);
        }
        let Some(index) = server.turns.pop_front() else { return };
        let Some(channel) = &mut self.channels[index as usize] else { return };
        let Some(slot) = channel.at_lane[lane].pop_front() else { return };
        if !channel.at_lane[lane].is_empty() {
            server.turns.push_back(index);
        }
        let task = &channel.tasks[slot as usize];
        let occupied = self.profile.costs(task.direction).engine.at(task.len);
        self.run_task(index, slot, occupied);
        let server = &mut self.lanes[lane];
        if !server.turns.is_empty() {
            server.scheduled = true;
            self.calendar.add(server.free_at, event);
        }
    }

    /// The task's lane of the engine, which is free, takes it and is `occupied` for so long.
    fn run_task(&mut self, index: u32, slot: u32, occupied: Time) {
        let Some(channel) = &mut self.channels[index as usize] else { return };
        let task = &mut channel.tasks[slot as usize];
        let served = self.now + occupied;
        if occupied > Time::ZERO {
            self.lanes[lane_of(&self.profile, task.direction)].free_at = served;
        }
        let costs = self.profile.costs(task.direction);
        let mine = if task.coalesce { &costs.coalesced } else { &costs.reported };
        let contention = mine.contention.at(u64::from(task.position));
        let extra =
            self.profile.segment.as_ps().saturating_mul(extra_segments(task.src.len(), task.dst.len()));
        let latency = costs.latency.at(task.len) + Time::from_ps(extra);
        let latest = (task.rung + latency + contention).max(task.issued + latency);
        let jittered = jitter(latest, costs.latency.at(0) + contention, self.profile.jitter, task.chance);
        let mut due = jittered.max(served) + task.slow;
        if self.profile.in_order {
            due = due.max(channel.last_due);
            channel.last_due = due;
        }
        // Never before now, however the jitter fell.
        task.due = due.max(self.now);
        let (due, epoch) = (task.due, channel.epoch);
        if task.tearing.parts > 1 {
            let at = part_time(self.now, due, 1, task.tearing.parts);
            self.calendar.add(at, Event::Move { channel: index, epoch, slot });
        }
        self.calendar.add(due, Event::Finish { channel: index, epoch, slot });
    }

    /// One part of a task moves, not the last one.
    fn move_some(&mut self, index: u32, epoch: u32, slot: u32) {
        let Some(channel) = &mut self.channels[index as usize] else { return };
        let task = &mut channel.tasks[slot as usize];
        let lost_leave = matches!(task.error, Some(TaskError::Revoked | TaskError::PeerGone));
        if task.stage != Stage::Running || lost_leave {
            return;
        }
        task.part += 1;
        let (number, part, parts) = (task.number, task.part, task.tearing.parts);
        self.trace.record(self.now, Some(index), || Happening::Move { task: number, part, parts });
        if let Err(error) = move_part(&self.memory, &mut self.carrier, task, part) {
            task.error = Some(error.into());
            return;
        }
        if part + 1 < parts {
            let at = part_time(self.now, task.due, 1, parts - part);
            self.calendar.add(at, Event::Move { channel: index, epoch, slot });
        }
    }

    /// A task ends.
    fn finish(&mut self, index: u32, slot: u32) {
        let Some(channel) = &mut self.channels[index as usize] else { return };
        let task = &mut channel.tasks[slot as usize];
        if task.stage != Stage::Running {
            return;
        }
        if task.marks.contains(Marks::GONE) {
            return self.vanish();
        }
        if task.error.is_none() && task.marks.intersects(Marks::FAIL | Marks::RESET) {
            task.error = Some(TaskError::Engine);
        }
        while task.error.is_none() && task.part < task.tearing.parts {
            task.part += 1;
            if let Err(error) = move_part(&self.memory, &mut self.carrier, task, task.part) {
                task.error = Some(error.into());
            }
        }
        task.ended = self.now;
        channel.running -= 1;
        channel.outstanding -= 1;
        if task.error.is_some() {
            return self.fail(index, slot);
        }
        task.status = Status::Done;
        channel.stats.done += 1;
        channel.stats.bytes += task.len;
        let number = task.number;
        if task.marks.contains(Marks::CORRUPT) && task.len > 0 {
            let byte = corrupt(&self.memory, &mut self.carrier, task);
            if let Some(byte) = byte {
                self.trace.record(self.now, Some(index), || Happening::Corrupt { task: number, byte });
            }
        }
        let status = Status::Done;
        self.trace.record(self.now, Some(index), || Happening::End { task: number, status });
        if task.marks.contains(Marks::LOSE) {
            task.stage = Stage::Lost;
            channel.stats.lost += 1;
            self.trace.record(self.now, Some(index), || Happening::Lose { task: number });
        } else {
            self.memory.unpin(&task.src);
            self.memory.unpin(&task.dst);
            channel.report(slot);
        }
        if channel.fence_waits {
            self.start_ready(index);
        }
    }

    /// A task ends with its error set, and takes its channel down if that is the device's manner.
    #[cold]
    fn fail(&mut self, index: u32, slot: u32) {
        let Some(channel) = &mut self.channels[index as usize] else { return };
        let task = &mut channel.tasks[slot as usize];
        let (number, status) = (task.number, task.error.map_or(Status::Done, Status::Failed));
        task.status = status;
        channel.stats.failed += 1;
        self.trace.record(self.now, Some(index), || Happening::End { task: number, status });
        self.memory.unpin(&task.src);
        self.memory.unpin(&task.dst);
        let reset = task.marks.intersects(Marks::RESET | Marks::OVERSIZE);
        channel.report(slot);
        if reset {
            self.halt(index, HaltCause::Reset);
        } else if self.profile.on_failure == OnFailure::Halt {
            self.halt(index, HaltCause::TaskFailed);
        } else {
            self.start_ready(index);
        }
    }

    fn timed_fault(&mut self, rule: u32) {
        let Some(Rule { rule, fired }) = self.rules.get_mut(rule as usize) else { return };
        *fired = true;
        let rule = *rule;
        if rule.fault == Fault::Gone {
            return self.vanish();
        }
        for index in 0..self.channels.len() as u32 {
            if rule.channel.is_some_and(|only| only != index) {
                continue;
            }
            if self.state(ChannelId(index)) == Some(ChannelState::Running) {
                match rule.fault {
                    Fault::Reset => self.halt(index, HaltCause::Reset),
                    _ => self.stick(index),
                }
            }
        }
    }

    fn vanish(&mut self) {
        self.gone = true;
        self.trace.record(self.now, None, || Happening::Gone);
        for index in 0..self.channels.len() as u32 {
            if self.channels[index as usize].is_some() {
                self.halt(index, HaltCause::DeviceGone);
            }
        }
    }

    fn stick(&mut self, index: u32) {
        self.leave_lanes(index);
        if let Some(channel) = &mut self.channels[index as usize] {
            channel.stick();
            self.trace.record(self.now, Some(index), || Happening::Stick);
        }
    }

    fn leave_lanes(&mut self, index: u32) {
        for lane in &mut self.lanes {
            lane.turns.retain(|turn| *turn != index);
        }
    }

    /// Takes a channel down and ends what is in flight on it.
    fn halt(&mut self, index: u32, cause: HaltCause) {
        self.leave_lanes(index);
        let Some(channel) = &mut self.channels[index as usize] else { return };
        self.trace.record(self.now, Some(index), || Happening::Halt { cause });
        channel.state = ChannelState::Halted(cause);
        for slot in channel.clear() {
            let task = &mut channel.tasks[slot as usize];
            if task.stage != Stage::Held {
                let (number, status) = (task.number, Status::Aborted(cause));
                (task.status, task.ended) = (status, self.now);
                self.memory.unpin(&task.src);
                self.memory.unpin(&task.dst);
                channel.stats.aborted += 1;
                self.trace.record(self.now, Some(index), || Happening::End { task: number, status });
            }
            channel.report_now(slot);
        }
    }
}

fn task_token(channel: &Channel, slot: u32) -> u64 {
    channel.tasks[slot as usize].token
}

/// Which faults strike task `number` of a channel.
#[cold]
fn strike(
    rules: &mut [Rule],
    chances: &mut rng::Stream,
    channel: u32,
    number: u64,
    now: Time,
) -> (Marks, Time) {
    let (mut marks, mut slow) = (Marks::empty(), Time::ZERO);
    for Rule { rule, fired } in rules {
        if rule.channel.is_some_and(|only| only != channel) {
            continue;
        }
        let meant = match rule.when {
            When::Always => true,
            When::Tasks(from, to) => (from..=to).contains(&number),
            When::Every(n) => number.is_multiple_of(n),
            When::At(at) => {
                let by_itself = matches!(rule.fault, Fault::Reset | Fault::Stick | Fault::Gone);
                !by_itself && at <= now && !std::mem::replace(fired, true)
            }
        };
        if !meant || (rule.chance < 1.0 && !chances.chance(rule.chance)) {
            continue;
        }
        marks |= match rule.fault {
            Fault::Refuse => Marks::REFUSE,
            Fault::Fail => Marks::FAIL,
            Fault::Reset => Marks::RESET,
            Fault::Lose => Marks::LOSE,
            Fault::Stick => Marks::STICK,
            Fault::Gone => Marks::GONE,
            Fault::Corrupt => Marks::CORRUPT,
            Fault::Oversize => Marks::OVERSIZE,
            Fault::Slow(by) => {
                slow += by;
                Marks::empty()
            }
        };
    }
    (marks, slow)
}

const fn extra_segments(src: usize, dst: usize) -> u64 {
    (src.saturating_sub(1) + dst.saturating_sub(1)) as u64
}

/// `at`, off by up to `thousandths` of `span` as `chance` says.
fn jitter(at: Time, span: Time, thousandths: u32, chance: u64) -> Time {
    let reach = span.as_ps().saturating_mul(u64::from(thousandths)) / 1_000;
    // The low bits of the chance decide the tearing.
    at + Time::from_ps(rng::scale(rng::mix(chance), reach.saturating_mul(2))) - Time::from_ps(reach)
}

/// When part `part` of `parts` equal ones between two times is over.
fn part_time(from: Time, to: Time, part: u8, parts: u8) -> Time {
    Time::from_ps(from.as_ps() + (to - from).as_ps() / u64::from(parts) * u64::from(part))
}

/// Moves a part of a task, with leave of the peers that its memory belongs to.
pub(super) fn move_part(
    memory: &MemoryTable,
    carrier: &mut Carrier,
    task: &mut super::channel::Task,
    part: u8,
) -> Result<(), PeerError> {
    if task.dst.is_empty() || task.len == 0 {
        return Ok(());
    }
    if task.remote {
        memory.acquire(task.pieces())?;
    }
    task.touched = true;
    let moved = if task.far {
        // SAFETY: as below.
        unsafe { carrier.move_part(memory, task, part) }
    } else {
        // SAFETY: the pieces were made from registered regions, which stay registered as long as they are
        // pinned: from submission to the end. Leave for remote ones was had just now. The lengths were checked
        // at submission.
        unsafe { motion::move_part(task.operation, &task.src, &task.dst, task.len, &task.tearing, part) };
        Ok(())
    };
    if task.remote {
        memory.release(task.pieces());
    }
    moved
}

/// Makes one bit of a task's destination wrong; returns in which byte. `None` if a peer does not let us.
fn corrupt(memory: &MemoryTable, carrier: &mut Carrier, task: &super::channel::Task) -> Option<u64> {
    let byte = rng::scale(rng::mix(!task.chance), task.len);
    if task.remote {
        memory.acquire(task.pieces()).ok()?;
    }
    let flipped = if task.far {
        // SAFETY: as below.
        unsafe { carrier.flip_bit(memory, &task.dst, byte, task.chance >> 8) }.is_ok()
    } else {
        // SAFETY: as in `move_part`; the byte is less than the task's length.
        unsafe { motion::flip_bit(&task.dst, byte, task.chance >> 8) };
        true
    };
    if task.remote {
        memory.release(task.pieces());
    }
    flipped.then_some(byte)
}
