//! Channels of a timeless device: tasks end within their doorbell.
//!
//! The results equal those of a timed device without costs, faults, trace or reordering. Such a device uses a
//! calendar of events. Here, a task is an entry of a ring with four counters.
#![expect(unsafe_code, reason = "moves bytes between places that were checked at submission")]

use dma_core::{Descriptor, Operation, RegionKey};

use super::channel::{ChannelState, ChannelStats, Task};
use super::memory::{Memory, MemoryTable};
use super::profile::{Found, OnFailure, Reporting};
use super::region::{self, Rights};
use super::remote_memory::move_part;
use super::resources::Resources;
use super::task::{HaltCause, Refused, Status, TaskError, TaskReport};
use super::time::Time;
use super::{check, motion};

/// Marks an entry without a [`Task`]. Entries with lists, a peer's memory or an error have a `Task`.
const NO_TASK: u32 = u32::MAX;
/// Initial number of entries of a ring.
const FIRST_ENTRIES: usize = 64;

/// A task in a ring. An entry fills a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct TaskEntry {
    token: u64,
    len: u64,
    src: Memory,
    dst: Memory,
    /// Time of the doorbell or the abort.
    at: Time,
    src_region: u32,
    dst_region: u32,
    /// Index of the entry's [`Task`], or [`NO_TASK`].
    task: u32,
    coalesce: bool,
    rung: bool,
    aborted: Option<HaltCause>,
}

impl TaskEntry {
    const FREE: Self = Self {
        token: 0,
        len: 0,
        src: Memory::NOWHERE,
        dst: Memory::NOWHERE,
        at: Time::ZERO,
        src_region: 0,
        dst_region: 0,
        task: NO_TASK,
        coalesce: false,
        rung: false,
        aborted: None,
    };
}

/// A channel, as a ring of tasks.
#[derive(Debug, Default)]
pub(super) struct TaskRing {
    pub(super) state: ChannelState,
    pub(super) stats: ChannelStats,
    depth: u32,
    /// The entries. Their number is a power of two, and task `n` is in entry `n` modulo this number.
    entries: Vec<TaskEntry>,
    /// Number of the first task that is not polled.
    polled: u64,
    /// Number of the first task that is not reported.
    reported: u64,
    /// Number of the first task that has not ended.
    ended: u64,
    /// Number of the next task to submit.
    submitted: u64,
    tasks: Vec<Task>,
    free: Vec<u32>,
}

impl TaskRing {
    pub(super) fn new(depth: u32) -> Self {
        let first = (depth as usize).next_power_of_two().min(FIRST_ENTRIES);
        Self { depth, entries: vec![TaskEntry::FREE; first], ..Self::default() }
    }

    /// Returns the number of tasks that are submitted and not polled.
    #[inline]
    pub(super) fn used(&self) -> u32 {
        // The difference is at most the depth.
        (self.submitted - self.polled) as u32
    }

    #[inline]
    pub(super) fn has_reports(&self) -> bool {
        self.polled < self.reported
    }

    /// Returns the number of segments of unfinished tasks that name a region. Pinned segments do not count,
    /// because the region counts them itself.
    pub(super) fn segments_naming(&self, key: RegionKey) -> u32 {
        let (index, _) = region::parts(key);
        let entries = (self.ended..self.submitted).map(|number| &self.entries[self.place(number)]);
        let named = |entry: &TaskEntry| match entry.task {
            NO_TASK => u32::from(entry.src_region == index) + u32::from(entry.dst_region == index),
            _ => 0,
        };
        entries.map(named).sum()
    }

    #[inline]
    fn place(&self, number: u64) -> usize {
        number as usize & (self.entries.len() - 1)
    }

    /// Submits a task. If it is `coalesced`, it is reported with a later task.
    #[inline]
    pub(super) fn submit(
        &mut self,
        resources: &mut Resources,
        descriptor: &Descriptor<'_>,
        coalesced: bool,
    ) -> Result<(), Refused> {
        let Resources { profile, memory, .. } = resources;
        if let Operation::Copy { src, dst } = descriptor.operation()
            && self.state == ChannelState::Running
            && self.used() < self.depth
            && (src.len as u64).wrapping_sub(1) < profile.max_task
            && let Some(from) = memory.local(src, Rights::LOCAL_READ)
            && let Some(to) = memory.local(dst, Rights::LOCAL_WRITE)
        {
            let entry = self.enter();
            // The fields are written one by one, because moving a whole entry would double the cost here.
            entry.token = descriptor.token();
            entry.len = src.len as u64;
            (entry.src, entry.dst) = (from, to);
            (entry.src_region, entry.dst_region) = (region::parts(src.key).0, region::parts(dst.key).0);
            entry.task = NO_TASK;
            (entry.coalesce, entry.rung, entry.aborted) = (coalesced, false, None);
            return Ok(());
        }
        self.submit_any(resources, descriptor, coalesced)
    }

    /// Adds an entry for the caller to fill.
    #[inline]
    fn enter(&mut self) -> &mut TaskEntry {
        if self.used() as usize == self.entries.len() {
            self.grow();
        }
        let place = self.place(self.submitted);
        self.submitted += 1;
        self.stats.submitted += 1;
        &mut self.entries[place]
    }

    #[cold]
    fn grow(&mut self) {
        let mut grown = vec![TaskEntry::FREE; self.entries.len() * 2];
        let mask = grown.len() - 1;
        for number in self.polled..self.submitted {
            grown[number as usize & mask] = self.entries[self.place(number)];
        }
        self.entries = grown;
    }

    /// Submits a task that is not a plain local copy.
    #[cold]
    fn submit_any(
        &mut self,
        resources: &mut Resources,
        descriptor: &Descriptor<'_>,
        coalesced: bool,
    ) -> Result<(), Refused> {
        let outcome = self.try_submit_any(resources, descriptor, coalesced);
        self.stats.refused += u64::from(outcome.is_err());
        outcome
    }

    fn try_submit_any(
        &mut self,
        Resources { profile, memory, .. }: &mut Resources,
        descriptor: &Descriptor<'_>,
        coalesced: bool,
    ) -> Result<(), Refused> {
        if let ChannelState::Halted(cause) = self.state {
            return Err(Refused::Halted(cause));
        }
        if self.used() >= self.depth {
            return Err(Refused::Full { depth: self.depth });
        }
        if self.free.is_empty() {
            self.free.push(self.tasks.len() as u32);
            self.tasks.push(Task::default());
        }
        let Some(&slot) = self.free.last() else { return Err(Refused::Full { depth: self.depth }) };
        let task = &mut self.tasks[slot as usize];
        let mut error = check::inspect(profile, memory, descriptor, task).map_err(Refused::Invalid)?;
        let (len, max) = (descriptor.len() as u64, profile.max_task);
        if len > max {
            let too_long = TaskError::TooLong { len, max };
            if profile.oversize == Found::AtSubmit {
                return Err(Refused::Invalid(too_long));
            }
            error = error.or(Some(too_long));
        }
        self.free.pop();
        task.take(descriptor, error);
        memory.pin(&task.src);
        memory.pin(&task.dst);
        *self.enter() =
            TaskEntry { token: descriptor.token(), len, task: slot, coalesce: coalesced, ..TaskEntry::FREE };
        Ok(())
    }

    /// Executes all submitted tasks. Returns their number.
    #[inline]
    pub(super) fn doorbell(&mut self, resources: &mut Resources) -> u32 {
        let last = self.submitted;
        let tasks = (last - self.ended) as u32;
        if tasks == 0 {
            return 0;
        }
        self.stats.doorbells += 1;
        let per_doorbell = resources.profile.reporting == Reporting::PerDoorbell;
        let mut bytes = 0;
        let mut done = 0;
        let mut number = self.ended;
        while number < last {
            let place = self.place(number);
            let entry = &mut self.entries[place];
            entry.at = resources.now;
            entry.rung = true;
            if per_doorbell {
                entry.coalesce = number + 1 < last;
            }
            if entry.task != NO_TASK {
                self.ended = number;
                if !self.end_task(resources, place) {
                    break;
                }
                number = self.ended;
                continue;
            }
            // SAFETY: at submission, both ranges of this length were found to lie in registered regions.
            // Regions that tasks in the ring name stay registered.
            unsafe { motion::move_bytes(entry.dst.ptr(), entry.src.ptr(), entry.len as usize) };
            bytes += entry.len;
            done += 1;
            number += 1;
            if !entry.coalesce {
                self.reported = number;
            }
        }
        self.ended = self.ended.max(number);
        self.stats.done += done;
        self.stats.bytes += bytes;
        tasks
    }

    /// Executes the first unfinished task, which is in the entry at `place`. Returns false if the task failed
    /// and halted the channel.
    #[cold]
    fn end_task(&mut self, resources: &mut Resources, place: usize) -> bool {
        let Resources { profile, memory, bounce, .. } = resources;
        let entry = self.entries[place];
        let task = &mut self.tasks[entry.task as usize];
        if task.error.is_none()
            && let Err(error) = move_part(memory, bounce, task, 1)
        {
            task.error = Some(error.into());
        }
        memory.unpin(&task.src);
        memory.unpin(&task.dst);
        task.status = task.error.map_or(Status::Done, Status::Failed);
        let failed = task.error.is_some();
        self.ended += 1;
        if failed || !entry.coalesce {
            self.reported = self.ended;
        }
        if failed {
            self.stats.failed += 1;
        } else {
            self.stats.done += 1;
            self.stats.bytes += entry.len;
        }
        if failed && profile.on_failure == OnFailure::Halt {
            for number in self.ended..self.submitted {
                let place = self.place(number);
                self.entries[place].rung = true;
                self.entries[place].at = entry.at;
            }
            self.halt(memory, HaltCause::TaskFailed, entry.at);
            return false;
        }
        true
    }

    /// Takes the channel down and aborts its tasks in flight.
    #[cold]
    pub(super) fn halt(&mut self, memory: &mut MemoryTable, cause: HaltCause, now: Time) {
        self.state = ChannelState::Halted(cause);
        for number in self.ended..self.submitted {
            let place = self.place(number);
            let entry = &mut self.entries[place];
            entry.aborted = Some(cause);
            entry.at = now;
            if let Some(task) = self.tasks.get_mut(entry.task as usize) {
                memory.unpin(&task.src);
                memory.unpin(&task.dst);
                task.status = Status::Aborted(cause);
            }
            self.stats.aborted += 1;
        }
        self.ended = self.submitted;
        self.reported = self.submitted;
    }

    /// Returns the next report.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<TaskReport> {
        if !self.has_reports() {
            return None;
        }
        let entry = &self.entries[self.place(self.polled)];
        self.polled += 1;
        self.stats.polled += 1;
        let (status, touched, result) = match (entry.task, entry.aborted) {
            (NO_TASK, None) => (Status::Done, true, 0),
            (NO_TASK, Some(cause)) => (Status::Aborted(cause), false, 0),
            (slot, _) => {
                self.free.push(slot);
                let task = &self.tasks[slot as usize];
                (task.status, task.touched, task.result)
            }
        };
        let rung = if entry.rung { entry.at } else { Time::ZERO };
        let TaskEntry { token, len, at: ended, .. } = *entry;
        Some(TaskReport { token, status, len, result, touched, rung, ended })
    }
}
