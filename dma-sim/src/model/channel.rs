//! A channel's queue and its tasks.

use std::collections::VecDeque;

use dma_core::Descriptor;

use super::fault::Faults;
use super::memory::Piece;
use super::motion::Tearing;
use super::profile::{Direction, Profile};
use super::rng::{Purpose, Stream};
use super::task::{HaltCause, Status, TaskError, TaskKind, TaskReport};
use super::time::Time;

/// Identifies a channel of a [`Device`](super::Device). Identifiers are not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub(super) u32);

impl ChannelId {
    /// Returns the channel's number: the number of channels that were opened before it.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.0
    }
}

/// Error of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// No open channel has this identifier.
    #[error("no such channel; it may have been closed")]
    NoSuchChannel,
    /// All channels of the device are open.
    #[error("all {max} channels of the device are open; close one")]
    NoneFree {
        /// Number of channels of the device.
        max: u32,
    },
    /// The depth is 0, or exceeds the device's depth.
    #[error("a depth of {requested} tasks; queues of this device have 1 to {max}")]
    Depth {
        /// The requested depth.
        requested: u32,
        /// The largest depth.
        max: u32,
    },
    /// The channel has tasks whose completions were not polled.
    #[error("the channel still holds {tasks} tasks; stop it and poll their completions")]
    Busy {
        /// Number of tasks whose completions were not polled.
        tasks: u32,
    },
    /// The device is gone.
    #[error("the device is gone")]
    DeviceGone,
}

/// State of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// The slot has no task.
    #[default]
    Free,
    /// Submitted, and not started.
    Waiting,
    /// Started, and not ended.
    Running,
    /// Ended, and its completion is lost.
    Lost,
    /// Ended, and to be reported with a later task.
    Held,
    /// Ended and reported, and not polled.
    Reported,
}

/// A task in a slot of the queue. Slots are reused, so that tasks do not allocate.
#[derive(Debug, Default)]
pub(super) struct Task {
    pub(super) stage: Stage,
    pub(super) faults: Faults,
    pub(super) fence: bool,
    pub(super) coalesce: bool,
    pub(super) remote: bool,
    /// True if some of the memory is remote and has no address in this process.
    pub(super) far: bool,
    pub(super) touched: bool,
    /// Number of parts that were moved.
    pub(super) part: u8,
    pub(super) direction: Direction,
    /// Number of tasks in flight on the channel at the doorbell, including this one.
    pub(super) position: u32,
    pub(super) token: u64,
    /// The task's number on the channel.
    pub(super) number: u64,
    pub(super) len: u64,
    pub(super) kind: TaskKind,
    pub(super) result: u64,
    pub(super) rung: Time,
    pub(super) issued: Time,
    pub(super) due: Time,
    pub(super) ended: Time,
    pub(super) chance: u64,
    pub(super) tearing: Tearing,
    /// The error with which the task will fail.
    pub(super) error: Option<TaskError>,
    pub(super) status: Status,
    pub(super) src: Vec<Piece>,
    pub(super) dst: Vec<Piece>,
}

impl Task {
    #[inline]
    pub(super) fn pieces(&self) -> impl Iterator<Item = &Piece> + Clone {
        self.src.iter().chain(&self.dst)
    }

    /// Fills the slot with the task of a descriptor. [`inspect`](super::check::inspect) has already set the
    /// kind and the pieces, and returned the `error` with which the task will fail, if any.
    #[inline]
    pub(super) fn take(&mut self, descriptor: &Descriptor<'_>, error: Option<TaskError>) {
        let remote = |pieces: &[Piece]| pieces.iter().any(|piece| piece.remote);
        let (pushes, pulls) = if self.kind.writes() {
            (remote(&self.dst), remote(&self.src))
        } else {
            (false, remote(&self.src) || remote(&self.dst))
        };
        self.direction = match (pushes, pulls) {
            (true, _) => Direction::Push,
            (false, true) => Direction::Pull,
            (false, false) => Direction::Local,
        };
        self.remote = pushes || pulls;
        self.far = self.remote && self.pieces().any(|piece| piece.far);
        self.token = descriptor.token();
        self.len = descriptor.len() as u64;
        self.result = self.kind.initial();
        self.fence = descriptor.fence();
        // In the usual case both are `None`, and the assignment is skipped, because it costs more than
        // the check.
        if error.is_some() || self.error.is_some() {
            self.error = error;
        }
        (self.touched, self.part) = (false, 0);
        (self.rung, self.ended) = (Time::ZERO, Time::ZERO);
    }

    #[inline]
    fn report(&self) -> TaskReport {
        let Self { token, status, len, result, touched, rung, ended, .. } = *self;
        TaskReport { token, status, len, result, touched, rung, ended }
    }
}

/// Counters of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelStats {
    /// Accepted tasks.
    pub submitted: u64,
    /// Refused tasks, for any reason.
    pub refused: u64,
    /// Doorbells that released tasks.
    pub doorbells: u64,
    /// Tasks that were done, including tasks whose completion was lost.
    pub done: u64,
    /// Bytes of tasks that were done.
    pub bytes: u64,
    /// Failed tasks.
    pub failed: u64,
    /// Aborted tasks, including tasks whose completion was lost before.
    pub aborted: u64,
    /// Tasks whose completion was lost.
    pub lost: u64,
    /// Polled completions.
    pub polled: u64,
}

/// State of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChannelState {
    /// The channel runs. A stuck channel also has this state.
    #[default]
    Running,
    /// The channel is down, and accepts no tasks until it is restarted.
    Halted(HaltCause),
}

#[derive(Debug, Default)]
pub(super) struct Channel {
    pub(super) state: ChannelState,
    pub(super) stuck: bool,
    /// Number of the current epoch. Events of earlier epochs are ignored.
    pub(super) epoch: u32,
    pub(super) depth: u32,
    /// Number of occupied slots.
    pub(super) used: u32,
    /// Number of tasks that a doorbell released and that have not ended.
    pub(super) outstanding: u32,
    /// Number of tasks that have started and not ended.
    pub(super) running: u32,
    pub(super) tasks: Vec<Task>,
    free: Vec<u32>,
    /// Slots of tasks that are submitted and not started, in order. A doorbell has released the first
    /// `rung` of them.
    pub(super) pending: VecDeque<u32>,
    pub(super) rung: usize,
    /// Slots of started tasks that wait for each server of the engine.
    pub(super) at_server: [VecDeque<u32>; 3],
    /// Time at which the channel can start its next task.
    pub(super) issue_free: Time,
    pub(super) issue_scheduled: bool,
    /// True if the next task has a fence, and waits for running tasks to end.
    pub(super) fence_waits: bool,
    /// Time of the doorbells since the last task was started. It is added to the time of starting the next
    /// task.
    pub(super) doorbell_due: Time,
    pub(super) last_due: Time,
    /// Slots of tasks that have ended, in the order in which they will be polled.
    reports: VecDeque<u32>,
    /// Number of reports so far.
    pushed: u64,
    /// Number of polled reports.
    popped: u64,
    /// Reports before this number are not reordered.
    floor: u64,
    held: Vec<u32>,
    /// Coalesced tasks up to this number may be reported.
    released: u64,
    /// Number of the last task, including refused tasks.
    pub(super) number: u64,
    pub(super) chances: Stream,
    order: Stream,
    in_order: bool,
    pub(super) stats: ChannelStats,
}

impl Channel {
    pub(super) fn new(profile: &Profile, depth: u32, seed: u64, index: u32, now: Time) -> Self {
        Self {
            depth,
            issue_free: now,
            last_due: now,
            chances: Stream::new(seed, index, Purpose::Tasks),
            order: Stream::new(seed, index, Purpose::Reports),
            in_order: profile.in_order,
            ..Self::default()
        }
    }

    /// Returns a free slot, which stays free until its stage is set. The queue must not be full.
    #[inline]
    pub(super) fn free_place(&mut self) -> u32 {
        if let Some(slot) = self.free.last() {
            return *slot;
        }
        let slot = self.tasks.len() as u32;
        self.tasks.push(Task::default());
        self.free.push(slot);
        slot
    }

    /// Occupies the slot that [`Channel::free_place`] returned.
    #[inline]
    pub(super) fn enqueue(&mut self) {
        if let Some(slot) = self.free.pop() {
            self.tasks[slot as usize].stage = Stage::Waiting;
            self.pending.push_back(slot);
            self.used += 1;
        }
    }

    /// Reports an ended task, whose status is set. A coalesced success is held back until a later task of the
    /// channel is reported.
    #[inline]
    pub(super) fn report(&mut self, slot: u32) {
        let task = &mut self.tasks[slot as usize];
        let number = task.number;
        if number > self.released {
            if task.coalesce && task.status == Status::Done {
                task.stage = Stage::Held;
                return self.held.push(slot);
            }
            self.released = number;
            if !self.held.is_empty() {
                self.release_held();
            }
        }
        self.push_report(slot);
    }

    fn release_held(&mut self) {
        let mut kept = 0;
        for i in 0..self.held.len() {
            let slot = self.held[i];
            if self.tasks[slot as usize].number < self.released {
                self.push_report(slot);
            } else {
                self.held[kept] = slot;
                kept += 1;
            }
        }
        self.held.truncate(kept);
    }

    #[inline]
    pub(super) fn push_report(&mut self, slot: u32) {
        let task = &mut self.tasks[slot as usize];
        task.stage = Stage::Reported;
        if task.fence {
            self.floor = self.pushed;
        }
        self.reports.push_back(slot);
        self.pushed += 1;
        if self.in_order {
            return;
        }
        // Unpolled reports after the last fence may be in any order.
        let first = self.floor.max(self.popped);
        let choices = self.pushed - first;
        if choices > 1 {
            let place = (first - self.popped + self.order.below(choices)) as usize;
            let last = self.reports.len() - 1;
            self.reports.swap(place, last);
        }
    }

    /// Returns the next report and the task's number.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<(TaskReport, u64)> {
        let slot = self.reports.pop_front()?;
        self.popped += 1;
        self.used -= 1;
        self.stats.polled += 1;
        self.free.push(slot);
        let task = &mut self.tasks[slot as usize];
        task.stage = Stage::Free;
        Some((task.report(), task.number))
    }

    pub(super) fn has_reports(&self) -> bool {
        !self.reports.is_empty()
    }

    /// Drops all work. Returns the slots of tasks that have not ended, or ended without a report, in the
    /// order of their numbers.
    pub(super) fn clear(&mut self) -> Vec<u32> {
        self.epoch = self.epoch.wrapping_add(1);
        self.stuck = false;
        self.pending.clear();
        self.at_server.iter_mut().for_each(VecDeque::clear);
        self.held.clear();
        (self.rung, self.running, self.outstanding) = (0, 0, 0);
        (self.issue_scheduled, self.fence_waits) = (false, false);
        self.doorbell_due = Time::ZERO;
        let unreported = |slot: &u32| {
            let stage = self.tasks[*slot as usize].stage;
            matches!(stage, Stage::Waiting | Stage::Running | Stage::Lost | Stage::Held)
        };
        let mut slots: Vec<_> = (0..self.tasks.len() as u32).filter(unreported).collect();
        slots.sort_unstable_by_key(|slot| self.tasks[*slot as usize].number);
        slots
    }

    /// Stops the channel's progress.
    pub(super) fn stick(&mut self) {
        self.stuck = true;
        self.epoch = self.epoch.wrapping_add(1);
        self.at_server.iter_mut().for_each(VecDeque::clear);
        self.issue_scheduled = false;
    }

    pub(super) fn restart(&mut self, now: Time) {
        self.state = ChannelState::Running;
        self.issue_free = now;
        self.last_due = now;
    }
}
