//! A context's queue to the device: a channel of the card's engine.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;

use dma_sim::model::{
    ChannelError, ChannelId, Descriptor, Device, HaltCause, Profile, Refused, Segment, Status, TaskError,
    TaskReport,
};

use crate::c_abi::{Code, Outcome, c};
use crate::config::Clock;
use crate::dev::Dev;
use crate::notifier::Timer;
use crate::pe::Ready;

/// Maximum number of model events that one call handles, so that it returns soon.
const EVENTS_PER_CALL: u32 = 4_096;

#[derive(Clone, Copy)]
pub(super) struct Staged {
    pub(super) task: u32,
    /// If set, the task copies lists of buffers, and `from` and `to` are not used.
    pub(super) listed: bool,
    pub(super) coalesce: bool,
    pub(super) from: Segment,
    pub(super) to: Segment,
}

#[derive(Clone, Copy)]
pub(super) struct Report {
    pub(super) task: u32,
    pub(super) status: Code,
    pub(super) end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Done,
    Failed,
    /// The task ended because its context was stopped.
    Flushed,
}

impl Report {
    fn failed(task: u32, error: TaskError) -> Self {
        let status = match error {
            TaskError::Denied { .. } => c::DOCA_ERROR_NOT_PERMITTED,
            _ => c::DOCA_ERROR_IO_FAILED,
        };
        Self { task, status, end: End::Failed }
    }

    const fn flushed(task: u32) -> Self {
        Self { task, status: c::DOCA_ERROR_IO_FAILED, end: End::Flushed }
    }
}

/// Adds the source and destination segments of a task with lists to the two vectors.
type Lists<'a> = dyn Fn(u32, &mut Vec<Segment>, &mut Vec<Segment>) + 'a;

pub(super) struct Queue {
    dev: Arc<Dev>,
    channel: Cell<Option<ChannelId>>,
    /// Tasks that were submitted without a doorbell. The device does not have them yet.
    staged: RefCell<Vec<Staged>>,
    /// Ended tasks that are not reported yet.
    reports: RefCell<VecDeque<Report>>,
    /// Tasks in the order of submission. `None` if tasks are reported in the order in which they end.
    order: RefCell<Option<VecDeque<u32>>>,
    lists: RefCell<(Vec<Segment>, Vec<Segment>)>,
}

impl Queue {
    pub(super) fn new(dev: Arc<Dev>) -> Self {
        Self {
            dev,
            channel: Cell::new(None),
            staged: RefCell::default(),
            reports: RefCell::default(),
            order: RefCell::default(),
            lists: RefCell::default(),
        }
    }

    /// Selects reports in the order of submission, or in the order in which tasks end. Call it only while no
    /// task is in flight.
    pub(super) fn set_ordered(&self, ordered: bool) {
        *self.order.borrow_mut() = ordered.then(VecDeque::new);
    }

    /// Opens a channel of the engine, or restarts the one that the queue has.
    pub(super) fn open(&self) -> Outcome {
        let mut engine = self.dev.card().engine();
        let opened = match self.channel.get() {
            Some(channel) => engine.restart(channel).map(|()| channel),
            None => engine.open_channel(Profile::DEPTH_MAX),
        };
        let channel = opened.map_err(|error| match error {
            ChannelError::NoneFree { .. } => c::DOCA_ERROR_NO_MEMORY,
            _ => c::DOCA_ERROR_INITIALIZATION,
        })?;
        self.channel.set(Some(channel));
        Ok(())
    }

    /// Accepts a task. If `flush` is set, rings the doorbell for this task and for all earlier ones.
    #[inline]
    pub(super) fn submit(&self, task: Staged, flush: bool, lists: &Lists<'_>) -> Outcome {
        let card = self.dev.card();
        if !flush && !card.eager {
            self.staged.borrow_mut().push(task);
            self.note(task.task);
            return Ok(());
        }
        let channel = self.channel.get().ok_or(c::DOCA_ERROR_BAD_STATE)?;
        let mut engine = card.engine();
        self.give_staged(&mut engine, channel, lists);
        self.give(&mut engine, channel, &task, lists)?;
        self.note(task.task);
        if flush {
            // This cannot fail, because the channel exists.
            let _ = engine.doorbell(channel);
            self.collect(&mut engine, channel);
        }
        Ok(())
    }

    /// Rings the doorbell for tasks that were submitted without a doorbell.
    pub(super) fn flush(&self, lists: &Lists<'_>) {
        let Some(channel) = self.channel.get() else { return };
        let mut engine = self.dev.card().engine();
        self.give_staged(&mut engine, channel, lists);
        let _ = engine.doorbell(channel);
        self.collect(&mut engine, channel);
    }

    #[inline]
    fn give_staged(&self, engine: &mut Device, channel: ChannelId, lists: &Lists<'_>) {
        let mut staged = self.staged.borrow_mut();
        for task in &*staged {
            // Every accepted task must end with a report.
            if self.give(engine, channel, task, lists).is_err() {
                self.report(Report::flushed(task.task));
            }
        }
        staged.clear();
    }

    #[inline]
    fn give(&self, engine: &mut Device, channel: ChannelId, task: &Staged, lists: &Lists<'_>) -> Outcome {
        let mut spelt;
        let token = task.task.into();
        let copy = if task.listed {
            spelt = self.lists.borrow_mut();
            let (from, to) = &mut *spelt;
            from.clear();
            to.clear();
            lists(task.task, from, to);
            Descriptor::copy_lists(token, from, to)
        } else {
            Descriptor::copy(token, task.from, task.to)
        };
        let submitted = if task.coalesce {
            engine.submit_coalesced(channel, &copy)
        } else {
            engine.submit(channel, &copy)
        };
        match submitted {
            Ok(()) => Ok(()),
            Err(why) => self.refused(task.task, why),
        }
    }

    /// Handles a refusal by the device. If the device is halted or gone, or has found a mistake, the refusal
    /// becomes the task's report. Otherwise returns the error for the program.
    #[cold]
    fn refused(&self, task: u32, why: Refused) -> Outcome {
        match why {
            Refused::Full { .. } | Refused::Rejected => return Err(c::DOCA_ERROR_AGAIN),
            Refused::Halted(_) | Refused::DeviceGone => self.report(Report::flushed(task)),
            Refused::Invalid(error) => self.report(Report::failed(task, error)),
            _ => return Err(c::DOCA_ERROR_BAD_STATE),
        }
        Ok(())
    }

    /// Records the position of an accepted task in the order of submission.
    #[inline]
    fn note(&self, task: u32) {
        if let Some(order) = &mut *self.order.borrow_mut() {
            order.push_back(task);
        }
    }

    /// Returns the next ended task that may be reported.
    #[inline]
    fn take(&self) -> Option<Report> {
        let mut reports = self.reports.borrow_mut();
        match &mut *self.order.borrow_mut() {
            None => reports.pop_front(),
            Some(order) => {
                let first = order.front()?;
                let place = reports.iter().position(|report| report.task == *first)?;
                order.pop_front();
                reports.remove(place)
            }
        }
    }

    /// Returns true if an ended task may be reported now.
    fn has_report(&self) -> bool {
        let reports = self.reports.borrow();
        match &*self.order.borrow() {
            None => !reports.is_empty(),
            Some(order) => {
                order.front().is_some_and(|first| reports.iter().any(|report| report.task == *first))
            }
        }
    }

    fn report(&self, report: Report) {
        self.reports.borrow_mut().push_back(report);
    }

    #[inline]
    fn collect(&self, engine: &mut Device, channel: ChannelId) {
        let mut reports = self.reports.borrow_mut();
        while let Some(TaskReport { token, status, .. }) = engine.poll(channel) {
            let task = token as u32;
            reports.push_back(match status {
                Status::Failed(error) => Report::failed(task, error),
                Status::Aborted(cause) => {
                    if cause == HaltCause::DeviceGone {
                        self.dev.card().wake_all();
                    }
                    Report::flushed(task)
                }
                _ => Report { task, status: c::DOCA_SUCCESS, end: End::Done },
            });
        }
    }

    #[inline]
    pub(super) fn next(&self) -> Option<Report> {
        self.take().or_else(|| self.poll())
    }

    fn poll(&self) -> Option<Report> {
        let channel = self.channel.get()?;
        let card = self.dev.card();
        let mut engine = card.engine();
        self.collect(&mut engine, channel);
        if card.clock == Clock::Virtual {
            for _ in 0..EVENTS_PER_CALL {
                if self.has_report() || engine.running(channel) == 0 {
                    break;
                }
                let Some(at) = engine.next_event() else { break };
                engine.advance(at);
                self.collect(&mut engine, channel);
            }
        }
        drop(engine);
        self.take()
    }

    pub(super) fn stop(&self) {
        for task in self.staged.borrow_mut().drain(..) {
            self.report(Report::flushed(task.task));
        }
        if let Some(channel) = self.channel.get() {
            let mut engine = self.dev.card().engine();
            // This cannot fail, because the channel exists.
            let _ = engine.stop(channel);
            self.collect(&mut engine, channel);
        }
    }

    /// Registers `timer`, which rings when the card has vanished. Only configured faults cause
    /// that.
    pub(super) fn sleep(&self, timer: &Arc<Timer>) {
        if self.dev.card().eager {
            self.dev.card().sleep(timer);
        }
    }

    /// Returns the time of the next report.
    pub(super) fn ready(&self) -> Ready {
        let Some(channel) = self.channel.get() else { return Ready::WhenWoken };
        if self.has_report() {
            return Ready::Now;
        }
        let card = self.dev.card();
        let mut engine = card.engine();
        self.collect(&mut engine, channel);
        if self.has_report() {
            return Ready::Now;
        }
        if engine.running(channel) == 0 {
            return Ready::WhenWoken;
        }
        match (engine.next_event(), card.clock) {
            (None, _) => Ready::WhenWoken,
            // `doca_pe_progress` advances the virtual time, so there is work now.
            (Some(_), Clock::Virtual) => Ready::Now,
            (Some(at), Clock::Real) => Ready::After(card.until(at)),
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if let Some(channel) = self.channel.get() {
            let mut engine = self.dev.card().engine();
            // This cannot fail, because the channel exists. Stopping it ends all tasks in flight.
            let _ = engine.stop(channel);
            while engine.poll(channel).is_some() {}
            let closed = engine.close_channel(channel);
            debug_assert!(closed.is_ok(), "{closed:?}");
        }
    }
}
