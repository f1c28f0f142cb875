//! Submits tasks and polls completions.

use std::fmt::Write as _;

use super::faults::strike;
use super::{ChannelError, ChannelId, Device};
use crate::model::channel::{ChannelState, Marks};
use crate::model::check;
use crate::model::fault::Fault;
use crate::model::motion::Tearing;
use crate::model::profile::{Found, Reporting};
use crate::model::task::{Completion, Descriptor, Refused, TaskError};
use crate::model::time::Time;
use crate::model::trace;

impl Device {
    /// Submits a task. It starts only after a [doorbell](Self::doorbell).
    ///
    /// # Errors
    ///
    /// Returns the reason if the task was not accepted. Nothing of it was kept.
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
            self.trace.record(self.now, Some(id.0), |line| {
                write!(line, "refuse token={token} why={}", trace::refusal(why))
            });
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
            // Only a fault could accept it.
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
            Some(first) if self.tearing && task.operation.writes() => {
                Tearing::new(len, first.offset, task.chance)
            }
            _ => Tearing::default(),
        };
        task.number = number;
        task.coalesce = descriptor.coalesce && self.profile.reporting == Reporting::Each { coalescing: true };
        (task.marks, task.slow) = (marks, slow);
        self.memory.pin(&task.src);
        self.memory.pin(&task.dst);
        channel.enqueue();
        channel.stats.submitted += 1;
        let (memory, task) = (&self.memory, &channel.tasks[slot as usize]);
        self.trace.record(self.now, Some(id.0), |line| {
            let Descriptor { token, operation, src, dst, fence, coalesce } = *descriptor;
            let (op, from, to) = (operation.name(), src.len(), dst.len());
            write!(line, "submit task={number} token={token} op={op} len={len} segments={from}x{to}")?;
            for (name, pieces) in [("src", &task.src), ("dst", &task.dst)] {
                if let Some(piece) = pieces.first() {
                    write!(line, " {name}={}+{}", memory.key(piece), piece.offset)?;
                }
            }
            line.write_str(if fence { " fence" } else { "" })?;
            line.write_str(if coalesce { " coalesce" } else { "" })
        });
        Ok(())
    }

    /// Releases all submitted tasks of a channel to the device. Returns their number. Stuck and halted
    /// channels accept doorbells.
    ///
    /// # Errors
    ///
    /// There is no such channel.
    #[inline]
    pub fn doorbell(&mut self, id: ChannelId) -> Result<u32, ChannelError> {
        match &mut self.rings {
            Some(rings) => match rings.get_mut(id.0 as usize) {
                Some(Some(ring)) => {
                    Ok(ring.doorbell(&self.profile, &mut self.memory, &mut self.bounce, self.now))
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
        self.trace.record(self.now, Some(id.0), |line| write!(line, "doorbell tasks={tasks}"));
        self.start_ready(id.0);
        Ok(tasks)
    }

    /// Returns the next completion of a channel, if any. Time does not pass.
    #[inline]
    pub fn poll(&mut self, id: ChannelId) -> Option<Completion> {
        match &mut self.rings {
            Some(rings) => rings.get_mut(id.0 as usize)?.as_mut()?.pop(),
            None => self.poll_timed(id),
        }
    }

    /// Calls `each` with up to `max` completions of a channel, as [`poll`](Self::poll) returns them. Returns
    /// their number.
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
        self.trace.record(self.now, Some(id.0), |line| write!(line, "report task={task} token={token}"));
        Some(completion)
    }
}
