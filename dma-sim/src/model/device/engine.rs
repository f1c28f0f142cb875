//! The engine that the channels share, and its clock.

use std::collections::VecDeque;
use std::fmt::Write as _;

use super::{ChannelId, Device};
use crate::model::channel::{Marks, Stage};
use crate::model::events::Event;
use crate::model::profile::{Direction, OnFailure, Profile};
use crate::model::remote_memory::{corrupt, move_part};
use crate::model::rng;
use crate::model::task::{HaltCause, Status, TaskError};
use crate::model::time::Time;
use crate::model::trace;

/// A server of the engine. It serves one task at a time, for all channels.
#[derive(Debug, Default)]
pub(super) struct Server {
    free_at: Time,
    /// Channels with tasks that wait for the server, in turn.
    turns: VecDeque<u32>,
    scheduled: bool,
}

/// Returns the server of a direction: each has its own, but tasks that end in order share one.
fn server_of(profile: &Profile, direction: Direction) -> usize {
    if profile.in_order { 0 } else { direction as usize }
}

impl Device {
    /// Returns the time of the next event; `None` if there is none.
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

    /// Advances time to `to`, or to now if that is past.
    pub fn advance(&mut self, to: Time) {
        while let Some((at, event)) = self.calendar.pop_due(to) {
            // Overdue events happen now.
            self.now = self.now.max(at);
            self.handle(event);
        }
        self.now = self.now.max(to);
    }

    /// Advances time until no event is left.
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
            Event::ServerFree { place } => !self.servers[place as usize].turns.is_empty(),
            Event::Fault { .. } => !self.gone,
        }
    }

    /// Notes that an event left the calendar.
    fn unschedule(&mut self, event: Event) {
        if let Event::ServerFree { place } = event {
            self.servers[place as usize].scheduled = false;
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
            Event::ServerFree { place } => self.server_free(place),
            Event::Move { channel, epoch, slot } => self.move_some(channel, epoch, slot),
            Event::Finish { channel, slot, .. } => self.finish(channel, slot),
            Event::Fault { rule } => self.timed_fault(rule),
        }
    }

    /// Starts all tasks that can start on a channel.
    pub(super) fn start_ready(&mut self, index: u32) {
        loop {
            let Some(channel) = &mut self.channels[index as usize] else { return };
            // A scheduled event calls this again.
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
            self.trace.record(self.now, Some(index), |line| write!(line, "start task={number}"));
            if task.marks.contains(Marks::STICK) {
                return self.stick(index);
            }

            let occupied = costs.engine.at(task.len);
            let place = server_of(&self.profile, task.direction);
            let (waiting, server) = (&mut channel.at_server[place], &mut self.servers[place]);
            let idle = server.free_at <= self.now && server.turns.is_empty();
            let unhindered = occupied == Time::ZERO && (!self.profile.in_order || waiting.is_empty());
            if idle || unhindered {
                self.run_task(index, slot, occupied);
                continue;
            }
            waiting.push_back(slot);
            if waiting.len() == 1 {
                server.turns.push_back(index);
            }
            if !server.scheduled {
                server.scheduled = true;
                self.calendar.add(server.free_at, Event::ServerFree { place: place as u32 });
            }
        }
    }

    /// Serves the next task, of the next channel in turn.
    fn server_free(&mut self, place: u32) {
        let event = Event::ServerFree { place };
        let place = place as usize;
        let server = &mut self.servers[place];
        if server.free_at > self.now {
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
        let occupied = self.profile.costs(task.direction).engine.at(task.len);
        self.run_task(index, slot, occupied);
        let server = &mut self.servers[place];
        if !server.turns.is_empty() {
            server.scheduled = true;
            self.calendar.add(server.free_at, event);
        }
    }

    /// Removes a channel from all servers' turns.
    pub(super) fn leave_servers(&mut self, index: u32) {
        for server in &mut self.servers {
            server.turns.retain(|turn| *turn != index);
        }
    }

    /// Runs a task on its free server, which is `occupied` for so long.
    fn run_task(&mut self, index: u32, slot: u32, occupied: Time) {
        let Some(channel) = &mut self.channels[index as usize] else { return };
        let task = &mut channel.tasks[slot as usize];
        let served = self.now + occupied;
        if occupied > Time::ZERO {
            self.servers[server_of(&self.profile, task.direction)].free_at = served;
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
        // Jitter must not move it before now.
        task.due = due.max(self.now);
        let (due, epoch) = (task.due, channel.epoch);
        if task.tearing.parts > 1 {
            let at = part_time(self.now, due, 1, task.tearing.parts);
            self.calendar.add(at, Event::Move { channel: index, epoch, slot });
        }
        self.calendar.add(due, Event::Finish { channel: index, epoch, slot });
    }

    /// Moves a part of a task, not the last one.
    fn move_some(&mut self, index: u32, epoch: u32, slot: u32) {
        let Some(channel) = &mut self.channels[index as usize] else { return };
        let task = &mut channel.tasks[slot as usize];
        let lost_leave = matches!(task.error, Some(TaskError::Revoked | TaskError::PeerGone));
        if task.stage != Stage::Running || lost_leave {
            return;
        }
        task.part += 1;
        let (number, part, parts) = (task.number, task.part, task.tearing.parts);
        self.trace
            .record(self.now, Some(index), |line| write!(line, "move task={number} part={part}/{parts}"));
        if let Err(error) = move_part(&self.memory, &mut self.bounce, task, part) {
            task.error = Some(error.into());
            return;
        }
        if part + 1 < parts {
            let at = part_time(self.now, task.due, 1, parts - part);
            self.calendar.add(at, Event::Move { channel: index, epoch, slot });
        }
    }

    /// Ends a task.
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
            if let Err(error) = move_part(&self.memory, &mut self.bounce, task, task.part) {
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
        if task.marks.contains(Marks::CORRUPT)
            && task.len > 0
            && let Ok(byte) = corrupt(&self.memory, task)
        {
            self.trace.record(self.now, Some(index), |line| match byte {
                Some(byte) => write!(line, "corrupt task={number} byte={byte}"),
                None => write!(line, "corrupt task={number} result"),
            });
        }
        self.trace.record(self.now, Some(index), |line| trace::end(line, number, Status::Done));
        if task.marks.contains(Marks::LOSE) {
            task.stage = Stage::Lost;
            channel.stats.lost += 1;
            self.trace.record(self.now, Some(index), |line| write!(line, "lose task={number}"));
        } else {
            self.memory.unpin(&task.src);
            self.memory.unpin(&task.dst);
            channel.report(slot);
        }
        if channel.fence_waits {
            self.start_ready(index);
        }
    }

    /// Ends a task with its error set, and takes its channel down if the profile says so.
    #[cold]
    fn fail(&mut self, index: u32, slot: u32) {
        let Some(channel) = &mut self.channels[index as usize] else { return };
        let task = &mut channel.tasks[slot as usize];
        let (number, status) = (task.number, task.error.map_or(Status::Done, Status::Failed));
        task.status = status;
        channel.stats.failed += 1;
        self.trace.record(self.now, Some(index), |line| trace::end(line, number, status));
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
}

const fn extra_segments(src: usize, dst: usize) -> u64 {
    (src.saturating_sub(1) + dst.saturating_sub(1)) as u64
}

/// Returns `at`, shifted by up to `thousandths` of `span` as `chance` says.
fn jitter(at: Time, span: Time, thousandths: u32, chance: u64) -> Time {
    let reach = span.as_ps().saturating_mul(u64::from(thousandths)) / 1_000;
    // The low bits of the chance decide the tearing.
    at + Time::from_ps(rng::scale(rng::mix(chance), reach.saturating_mul(2))) - Time::from_ps(reach)
}

/// Returns the end of part `part` of `parts` equal ones between two times.
fn part_time(from: Time, to: Time, part: u8, parts: u8) -> Time {
    Time::from_ps(from.as_ps() + (to - from).as_ps() / u64::from(parts) * u64::from(part))
}
