//! The implementation of [`Context`](crate::ctx::Context) for [`Event`].

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::event::{Compare, Event, Use};
use super::job::{Job, Kind, is_mask};
use crate::c_abi::{Code, Handle, INVALID, Outcome, c, require};
use crate::ctx::{Context, Ctx, State};
use crate::pe::Ready;
use crate::task::{Head, Submit, Task};

/// Poll interval while the program sleeps. Changes by another process are not signaled, so they
/// must be polled.
pub(crate) const POLL: Duration = Duration::from_micros(100);

impl Event {
    pub(super) fn alloc(
        &self,
        kind: Kind,
        user_data: c::doca_data,
        set_up: impl FnOnce(&Job),
    ) -> Outcome<Handle<Task<Job>>> {
        require(self.usage.get() == Use::Context, c::DOCA_ERROR_BAD_STATE)?;
        self.ctx.require_running()?;
        self.tasks.of(kind).alloc(user_data, |job| {
            job.reset();
            set_up(job);
        })
    }

    /// Returns the result of a task in flight. `None` if the task has not ended.
    fn result(&self, kind: Kind, job: &Job) -> Option<Code> {
        if self.ctx.state() == State::Stopping {
            return Some(if kind.waits() { c::DOCA_ERROR_IO_FAILED } else { job.status.get() });
        }
        let compare = match kind {
            Kind::WaitEq => Compare::Equal,
            Kind::WaitNeq => Compare::NotEqual,
            Kind::WaitGt => Compare::Greater,
            _ => return Some(job.status.get()),
        };
        self.waited(compare, job.operand.get(), job.mask.get())
    }

    fn report(&self, kind: Kind, index: u32, status: Code) {
        self.tasks.of(kind).report(&self.ctx, index, status, |job| {
            if status == c::DOCA_SUCCESS && !kind.waits() {
                job.deliver();
            }
        });
    }
}

impl Context for Event {
    fn ctx(&self) -> &Ctx {
        &self.ctx
    }

    fn start(&self) -> Outcome<State> {
        self.require_complete()?;
        Kind::ALL.iter().for_each(|&kind| self.tasks.of(kind).prepare());
        Ok(State::Running)
    }

    fn is_drained(&self) -> bool {
        Kind::ALL.iter().all(|&kind| self.tasks.of(kind).is_drained())
    }

    fn progress(&self) -> bool {
        let count = self.queue.borrow().len();
        for _ in 0..count {
            let Some((kind, index)) = self.queue.borrow_mut().pop_front() else { return false };
            let ended = self.tasks.of(kind).pool().at(index).and_then(|task| self.result(kind, &task.body));
            if let Some(status) = ended {
                self.report(kind, index, status);
                return true;
            }
            self.queue.borrow_mut().push_back((kind, index));
        }
        false
    }

    fn submit(&self, head: &Head, _how: Submit) -> Outcome {
        let pools = Kind::ALL.map(|kind| (kind, self.tasks.of(kind).pool()));
        let found = pools.iter().find_map(|(kind, pool)| pool.find(head).map(|task| (*kind, &task.body)));
        let (kind, job) = found.ok_or(INVALID)?;
        require(!kind.waits() || is_mask(job.mask.get()), INVALID)?;
        let value = self.value();
        // Tasks other than waits are executed now, and reported by a later progress call.
        let checked = if kind.waits() { Ok(()) } else { value.check() };
        let number = value.number();
        let result = match kind {
            _ if checked.is_err() => 0,
            Kind::Get => number.load(Ordering::SeqCst),
            Kind::NotifyAdd => number.fetch_add(job.operand.get(), Ordering::SeqCst),
            Kind::NotifySet => {
                number.store(job.operand.get(), Ordering::SeqCst);
                0
            }
            Kind::WaitEq | Kind::WaitNeq | Kind::WaitGt => 0,
        };
        job.finish(checked.err().unwrap_or(c::DOCA_SUCCESS), result);
        self.ctx.take(head);
        self.queue.borrow_mut().push_back((kind, head.index));
        Ok(())
    }

    fn put(&self, head: &Head) {
        Kind::ALL.iter().any(|&kind| self.tasks.of(kind).put(head));
    }

    fn ready(&self) -> Ready {
        let queue = self.queue.borrow();
        let ended = |&(kind, index): &(Kind, u32)| {
            let pool = self.tasks.of(kind).pool();
            pool.at(index).is_some_and(|task| self.result(kind, &task.body).is_some())
        };
        if queue.iter().any(ended)
            || self.ctx.state() == State::Stopping && queue.is_empty() && self.is_drained()
        {
            Ready::Now
        } else if queue.is_empty() {
            Ready::WhenWoken
        } else {
            Ready::After(POLL)
        }
    }
}
