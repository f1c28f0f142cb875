//! The engine that all timed channels share, and its calendar of events.

mod costs;
mod faults;

use std::collections::VecDeque;
use std::fmt::Write as _;

use dma_core::Descriptor;

use crate::model::channel::{Channel, ChannelError, ChannelId, ChannelState, Stage};
use crate::model::check;
use crate::model::events::{Calendar, DeviceEvent};
use crate::model::fault::{Fault, FaultInjector, FaultPlan, FaultRule, Faults, When};
use crate::model::motion::Tearing;
use crate::model::profile::{Direction, Found, OnFailure, Profile, Reporting};
use crate::model::remote_memory::{corrupt, move_part};
use crate::model::resources::Resources;
use crate::model::task::{HaltCause, Refused, Status, TaskError, TaskReport};
use crate::model::time::Time;
use crate::model::trace;

/// A server of the engine. It serves one task at a time, and is shared by all channels.
#[derive(Debug, Default)]
struct Server {
    free_at: Time,
    /// Channels with tasks that wait for the server, in the order of their turns.
    turns: VecDeque<u32>,
    scheduled: bool,
}

/// Returns the server of a direction. Each direction has its own server, except on a device whose
/// tasks end in order: there, all directions share one server.
fn server_of(profile: &Profile, direction: Direction) -> usize {
    if profile.in_order { 0 } else { direction as usize }
}

/// Timed channels, their shared engine, and the calendar of future events.
#[derive(Debug)]
pub(super) struct TimedEngine {
    channels: Vec<Option<Box<Channel>>>,
    servers: [Server; 3],
    calendar: Calendar,
    injector: FaultInjector,
    /// Fault rules that need no task: at its time, each applies to whole channels.
    timed: Vec<FaultRule>,
    gone: bool,
    /// True if the device is gone without reports of the tasks in flight.
    dead: bool,
    seed: u64,
    tearing: bool,
}

impl TimedEngine {
    pub(super) fn new(mut plan: FaultPlan, seed: u64, tearing: bool) -> Self {
        let mut calendar = Calendar::default();
        let timed: Vec<_> = plan.rules.extract_if(.., |rule| rule.needs_no_task()).collect();
        for (i, rule) in (0..).zip(&timed) {
            if let When::At(at) = rule.when {
                calendar.add(at, DeviceEvent::Fault { rule: i });
            }
        }
        Self {
            channels: Vec::new(),
            servers: Default::default(),
            calendar,
            injector: FaultInjector::new(plan, seed),
            timed,
            gone: false,
            dead: false,
            seed,
            tearing,
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead
    }

    /// Returns the number of channels that were ever opened.
    pub(super) fn opened(&self) -> usize {
        self.channels.len()
    }

    pub(super) fn channel(&self, id: ChannelId) -> Option<&Channel> {
        self.channels.get(id.0 as usize)?.as_deref()
    }

    fn channel_mut(&mut self, id: ChannelId) -> Option<&mut Channel> {
        self.channels.get_mut(id.0 as usize)?.as_deref_mut()
    }

    pub(super) fn open(&mut self, resources: &mut Resources, depth: u32) {
        let index = self.channels.len() as u32;
        let channel = Channel::new(&resources.profile, depth, self.seed, index, resources.now);
        self.channels.push(Some(Box::new(channel)));
        resources.record(Some(index), |line| write!(line, "open depth={depth}"));
    }

    pub(super) fn close(&mut self, resources: &mut Resources, id: ChannelId) {
        self.channels[id.0 as usize] = None;
        resources.record(Some(id.0), |line| line.write_str("close"));
    }

    pub(super) fn restart(&mut self, resources: &mut Resources, id: ChannelId) -> Result<(), ChannelError> {
        let gone = self.gone;
        let channel = self.channel_mut(id).ok_or(ChannelError::NoSuchChannel)?;
        if gone {
            return Err(ChannelError::DeviceGone);
        }
        if channel.state != ChannelState::Running {
            channel.restart(resources.now);
            resources.record(Some(id.0), |line| line.write_str("restart"));
        }
        Ok(())
    }

    pub(super) fn submit(
        &mut self,
        resources: &mut Resources,
        id: ChannelId,
        descriptor: &Descriptor<'_>,
        coalesced: bool,
    ) -> Result<(), Refused> {
        let outcome = self.try_submit(resources, id, descriptor, coalesced);
        if let Err(why) = outcome {
            if let Some(channel) = self.channel_mut(id) {
                channel.stats.refused += 1;
            }
            let token = descriptor.token();
            resources
                .record(Some(id.0), |line| write!(line, "refuse token={token} why={}", trace::refusal(why)));
        }
        outcome
    }

    fn try_submit(
        &mut self,
        resources: &mut Resources,
        id: ChannelId,
        descriptor: &Descriptor<'_>,
        coalesced: bool,
    ) -> Result<(), Refused> {
        let now = resources.now;
        let Resources { profile, memory, trace, .. } = resources;
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
        let mut error = check::inspect(profile, memory, descriptor, task).map_err(Refused::Invalid)?;
        let (len, max) = (descriptor.len() as u64, profile.max_task);
        let oversize = len > max;
        let too_long = TaskError::TooLong { len, max };
        // Some devices refuse too long tasks at submission. They accept one only because of a fault rule.
        let refused = oversize && profile.oversize == Found::AtSubmit;
        if refused && !self.injector.may(Fault::Oversize) {
            return Err(Refused::Invalid(too_long));
        }

        let number = channel.number + 1;
        let mut faults = Faults::default();
        if !self.injector.is_empty() {
            faults = self.injector.strike_at(id.0, number, now);
        }
        if oversize {
            if refused && !faults.has(Fault::Oversize) {
                return Err(Refused::Invalid(too_long));
            }
            error = error.or(Some(too_long));
        } else {
            faults.remove(Fault::Oversize);
        }
        channel.number = number;
        if faults.has(Fault::Refuse) {
            return Err(Refused::Rejected);
        }

        let task = &mut channel.tasks[slot as usize];
        task.take(descriptor, error);
        task.chance = channel.chances.bits();
        task.tearing = match task.dst.first() {
            Some(first) if self.tearing && task.kind.writes() => Tearing::new(len, first.offset, task.chance),
            _ => Tearing::default(),
        };
        task.number = number;
        task.coalesce = coalesced && profile.reporting == Reporting::Each { coalescing: true };
        task.faults = faults;
        memory.pin(&task.src);
        memory.pin(&task.dst);
        channel.enqueue();
        channel.stats.submitted += 1;
        let task = &channel.tasks[slot as usize];
        trace.record(now, Some(id.0), |line| {
            let (token, op, from, to) = (task.token, task.kind.name(), task.src.len(), task.dst.len());
            write!(line, "submit task={number} token={token} op={op} len={len} segments={from}x{to}")?;
            for (name, pieces) in [("src", &task.src), ("dst", &task.dst)] {
                if let Some(piece) = pieces.first() {
                    write!(line, " {name}={}+{}", memory.key_name(piece), piece.offset)?;
                }
            }
            line.write_str(if task.fence { " fence" } else { "" })?;
            line.write_str(if coalesced { " coalesce" } else { "" })
        });
        Ok(())
    }

    pub(super) fn doorbell(&mut self, resources: &mut Resources, id: ChannelId) -> Result<u32, ChannelError> {
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
            task.rung = resources.now;
            if resources.profile.reporting == Reporting::PerDoorbell {
                task.coalesce = i + 1 < channel.pending.len();
            }
        }
        channel.rung = channel.pending.len();
        channel.doorbell_due += resources.profile.doorbell;
        channel.stats.doorbells += 1;
        resources.record(Some(id.0), |line| write!(line, "doorbell tasks={tasks}"));
        self.start_ready(resources, id.0);
        Ok(tasks)
    }

    pub(super) fn poll(&mut self, resources: &mut Resources, id: ChannelId) -> Option<TaskReport> {
        let (report, task) = self.channel_mut(id)?.pop()?;
        let token = report.token;
        resources.record(Some(id.0), |line| write!(line, "report task={task} token={token}"));
        Some(report)
    }

    pub(super) fn next_event(&mut self) -> Option<Time> {
        loop {
            let (at, event) = self.calendar.first()?;
            if self.is_valid(event) {
                return Some(at);
            }
            self.calendar.pop();
            self.unschedule(event);
        }
    }

    /// Handles all events up to `to`.
    pub(super) fn advance(&mut self, resources: &mut Resources, to: Time) {
        while let Some((at, event)) = self.calendar.pop_due(to) {
            // An event whose time has already passed is handled at the current time.
            resources.now = resources.now.max(at);
            self.handle(resources, event);
        }
    }

    fn is_valid(&self, event: DeviceEvent) -> bool {
        match event {
            DeviceEvent::Issue { channel, epoch }
            | DeviceEvent::Move { channel, epoch, .. }
            | DeviceEvent::Finish { channel, epoch, .. } => {
                self.channel(ChannelId(channel)).is_some_and(|channel| channel.epoch == epoch)
            }
            DeviceEvent::ServerFree { place } => !self.servers[place as usize].turns.is_empty(),
            DeviceEvent::Fault { .. } => !self.gone,
        }
    }

    /// Records that an event was removed from the calendar.
    fn unschedule(&mut self, event: DeviceEvent) {
        if let DeviceEvent::ServerFree { place } = event {
            self.servers[place as usize].scheduled = false;
        }
    }

    fn handle(&mut self, resources: &mut Resources, event: DeviceEvent) {
        self.unschedule(event);
        if !self.is_valid(event) {
            return;
        }
        match event {
            DeviceEvent::Issue { channel, .. } => {
                if let Some(channel) = &mut self.channels[channel as usize] {
                    channel.issue_scheduled = false;
                }
                self.start_ready(resources, channel);
            }
            DeviceEvent::ServerFree { place } => self.server_free(resources, place),
            DeviceEvent::Move { channel, epoch, slot } => self.move_some(resources, channel, epoch, slot),
            DeviceEvent::Finish { channel, slot, .. } => self.finish(resources, channel, slot),
            DeviceEvent::Fault { rule } => self.timed_fault(resources, rule),
        }
    }

    /// Starts all tasks that can start on a channel.
    fn start_ready(&mut self, resources: &mut Resources, index: u32) {
        loop {
            let Some(channel) = &mut self.channels[index as usize] else { return };
            // If an event is scheduled, it will call this function again.
            if channel.stuck || channel.rung == 0 || channel.issue_scheduled {
                return;
            }
            let slot = channel.pending[0];
            let task = &mut channel.tasks[slot as usize];
            channel.fence_waits = task.fence && channel.running > 0;
            if channel.fence_waits {
                return; // the end of the last running task calls this function again
            }
            if channel.issue_free > resources.now {
                channel.issue_scheduled = true;
                let event = DeviceEvent::Issue { channel: index, epoch: channel.epoch };
                self.calendar.add(channel.issue_free, event);
                return;
            }
            channel.pending.pop_front();
            channel.rung -= 1;
            channel.running += 1;
            task.stage = Stage::Running;
            task.issued = resources.now;
            let doorbell = std::mem::replace(&mut channel.doorbell_due, Time::ZERO);
            channel.issue_free = resources.now + costs::issue(&resources.profile, task) + doorbell;
            let number = task.number;
            resources.trace.record(resources.now, Some(index), |line| write!(line, "start task={number}"));
            if task.faults.has(Fault::Stick) {
                return self.stick(resources, index);
            }

            let occupied = costs::engine(&resources.profile, task);
            let place = server_of(&resources.profile, task.direction);
            let (waiting, server) = (&mut channel.at_server[place], &mut self.servers[place]);
            let idle = server.free_at <= resources.now && server.turns.is_empty();
            let unhindered = occupied == Time::ZERO && (!resources.profile.in_order || waiting.is_empty());
            if idle || unhindered {
                self.run_task(resources, index, slot, occupied);
                continue;
            }
            waiting.push_back(slot);
            if waiting.len() == 1 {
                server.turns.push_back(index);
            }
            if !server.scheduled {
                server.scheduled = true;
                self.calendar.add(server.free_at, DeviceEvent::ServerFree { place: place as u32 });
            }
        }
    }

    /// Serves the next task of the channel whose turn it is.
    fn server_free(&mut self, resources: &mut Resources, place: u32) {
        let event = DeviceEvent::ServerFree { place };
        let place = place as usize;
        let server = &mut self.servers[place];
        if server.free_at > resources.now {
            server.scheduled = true;
            return self.calendar.add(server.free_at, event);
        }
        let Some(index) = server.turns.pop_front() else { return };
        let Some(channel) = &mut self.channels[index as usize] else { return };
        let Some(slot) = channel.at_server[place].pop_front() else { return };
        if !channel.at_server[place].is_empty() {
            server.turns.push_back(index);
        }
        let task = &channel.tasks[slot as usize];
        let occupied = costs::engine(&resources.profile, task);
        self.run_task(resources, index, slot, occupied);
        let server = &mut self.servers[place];
        if !server.turns.is_empty() {
            server.scheduled = true;
            self.calendar.add(server.free_at, event);
        }
    }

    /// Removes a channel from the lists of channels that wait for a server.
    fn leave_servers(&mut self, index: u32) {
        for server in &mut self.servers {
            server.turns.retain(|turn| *turn != index);
        }
    }

    /// Runs a task on its free server, which is busy for the time `occupied`.
    fn run_task(&mut self, resources: &mut Resources, index: u32, slot: u32, occupied: Time) {
        let Some(channel) = &mut self.channels[index as usize] else { return };
        let task = &mut channel.tasks[slot as usize];
        let served = resources.now + occupied;
        if occupied > Time::ZERO {
            self.servers[server_of(&resources.profile, task.direction)].free_at = served;
        }
        let mut due = costs::end(&resources.profile, task).max(served) + task.faults.slow;
        if resources.profile.in_order {
            due = due.max(channel.last_due);
            channel.last_due = due;
        }
        // Jitter must not move the end into the past.
        task.due = due.max(resources.now);
        let (due, epoch) = (task.due, channel.epoch);
        if task.tearing.parts > 1 {
            let at = part_time(resources.now, due, 1, task.tearing.parts);
            self.calendar.add(at, DeviceEvent::Move { channel: index, epoch, slot });
        }
        self.calendar.add(due, DeviceEvent::Finish { channel: index, epoch, slot });
    }

    /// Moves the next part of a task, but not the last part, which [`finish`](Self::finish) moves.
    fn move_some(&mut self, resources: &mut Resources, index: u32, epoch: u32, slot: u32) {
        let Some(channel) = &mut self.channels[index as usize] else { return };
        let task = &mut channel.tasks[slot as usize];
        let access_lost = matches!(task.error, Some(TaskError::Revoked | TaskError::PeerGone));
        if task.stage != Stage::Running || access_lost {
            return;
        }
        task.part += 1;
        let (number, part, parts) = (task.number, task.part, task.tearing.parts);
        resources.record(Some(index), |line| write!(line, "move task={number} part={part}/{parts}"));
        if let Err(error) = move_part(&resources.memory, &mut resources.bounce, task, part) {
            task.error = Some(error.into());
            return;
        }
        if part + 1 < parts {
            let at = part_time(resources.now, task.due, 1, parts - part);
            self.calendar.add(at, DeviceEvent::Move { channel: index, epoch, slot });
        }
    }

    /// Ends a task.
    fn finish(&mut self, resources: &mut Resources, index: u32, slot: u32) {
        let Some(channel) = &mut self.channels[index as usize] else { return };
        let task = &mut channel.tasks[slot as usize];
        if task.stage != Stage::Running {
            return;
        }
        if task.faults.has(Fault::Gone) {
            return self.vanish(resources);
        }
        if task.faults.has(Fault::Dead) {
            return self.die(resources);
        }
        if task.error.is_none() && (task.faults.has(Fault::Fail) || task.faults.has(Fault::Reset)) {
            task.error = Some(TaskError::Engine);
        }
        while task.error.is_none() && task.part < task.tearing.parts {
            task.part += 1;
            if let Err(error) = move_part(&resources.memory, &mut resources.bounce, task, task.part) {
                task.error = Some(error.into());
            }
        }
        task.ended = resources.now;
        channel.running -= 1;
        channel.outstanding -= 1;
        if task.error.is_some() {
            return self.fail(resources, index, slot);
        }
        task.status = Status::Done;
        channel.stats.done += 1;
        channel.stats.bytes += task.len;
        let number = task.number;
        if task.faults.has(Fault::Corrupt)
            && task.len > 0
            && let Ok(byte) = corrupt(&resources.memory, task)
        {
            resources.record(Some(index), |line| match byte {
                Some(byte) => write!(line, "corrupt task={number} byte={byte}"),
                None => write!(line, "corrupt task={number} result"),
            });
        }
        resources.record(Some(index), |line| trace::end(line, number, Status::Done));
        if task.faults.has(Fault::Lose) {
            task.stage = Stage::Lost;
            channel.stats.lost += 1;
            resources.record(Some(index), |line| write!(line, "lose task={number}"));
        } else {
            resources.memory.unpin(&task.src);
            resources.memory.unpin(&task.dst);
            channel.report(slot);
        }
        if channel.fence_waits {
            self.start_ready(resources, index);
        }
    }

    /// Ends a task, whose error is set, as failed. Takes its channel down if the profile requires
    /// it.
    #[cold]
    fn fail(&mut self, resources: &mut Resources, index: u32, slot: u32) {
        let Some(channel) = &mut self.channels[index as usize] else { return };
        let task = &mut channel.tasks[slot as usize];
        let (number, status) = (task.number, task.error.map_or(Status::Done, Status::Failed));
        task.status = status;
        channel.stats.failed += 1;
        resources.record(Some(index), |line| trace::end(line, number, status));
        resources.memory.unpin(&task.src);
        resources.memory.unpin(&task.dst);
        let reset = task.faults.has(Fault::Reset) || task.faults.has(Fault::Oversize);
        channel.report(slot);
        if reset {
            self.halt(resources, index, HaltCause::Reset);
        } else if resources.profile.on_failure == OnFailure::Halt {
            self.halt(resources, index, HaltCause::TaskFailed);
        } else {
            self.start_ready(resources, index);
        }
    }
}

/// Returns the end of part `part` of `parts` equal parts between two times.
fn part_time(from: Time, to: Time, part: u8, parts: u8) -> Time {
    Time::from_ps(from.as_ps() + (to - from).as_ps() / u64::from(parts) * u64::from(part))
}
