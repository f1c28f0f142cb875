//! The event as a context with tasks.
#![expect(unsafe_code, reason = "the program's callbacks")]

use std::rc::{Rc, Weak};
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::event::{Compare, Event, Use};
use super::tasks::{Job, Kind, Kinds, is_mask};
use crate::ctx::{Context, Ctx, Ready, State};
use crate::door::{Code, Handle, INVALID, Outcome, c, require};
use crate::task::{Head, Holder, Pool, Submit, Task};

/// How often a program that sleeps looks at the number: nobody tells when another process changes it.
const LOOK_AGAIN: Duration = Duration::from_micros(100);

impl Event {
    fn pools(&self) -> Rc<Kinds<Pool<Job>>> {
        Rc::clone(&self.pools.borrow())
    }

    /// A task of this kind, the program's.
    pub(super) fn alloc(
        &self,
        kind: Kind,
        user_data: c::doca_data,
        set_up: impl FnOnce(&Job),
    ) -> Outcome<Handle<Task<Job>>> {
        require(
            self.usage.get() == Use::Context && self.ctx.state() == State::Running,
            c::DOCA_ERROR_BAD_STATE,
        )?;
        let pools = self.pools();
        let task = pools.of(kind).take(user_data).ok_or(c::DOCA_ERROR_NO_MEMORY)?;
        task.body.reset();
        set_up(&task.body);
        Ok(Handle::of(task))
    }

    /// Whether a task in flight has ended, and how.
    fn look(&self, kind: Kind, job: &Job) -> Option<Code> {
        if self.ctx.state() == State::Stopping {
            return Some(if kind.waits() { c::DOCA_ERROR_IO_FAILED } else { job.status() });
        }
        let compare = match kind {
            Kind::WaitEq => Compare::Equal,
            Kind::WaitNeq => Compare::NotEqual,
            _ => return Some(job.status()),
        };
        let value = self.value();
        let number = value.number().load(Ordering::SeqCst);
        if compare.holds(number, job.mask(), job.operand()) {
            return Some(c::DOCA_SUCCESS);
        }
        value.check().err()
    }

    fn report(&self, kind: Kind, index: u32, status: Code) {
        let pools = self.pools();
        let Some(task) = pools.of(kind).at(index) else { return };
        self.ctx.in_flight.set(self.ctx.in_flight.get() - 1);
        if status == c::DOCA_SUCCESS && !kind.waits() {
            task.body.deliver();
        }
        let Some(conf) = self.conf.of(kind).get() else { return };
        let callback = if status == c::DOCA_SUCCESS { conf.completed } else { conf.failed };
        let (this, user_data) = (Handle::of(task).cast(), task.head.user_data.get());
        // SAFETY: the program gave the function to be called with a task of this context.
        task.head.end(status, || unsafe { callback(this, user_data, self.ctx.user_data()) });
    }
}

impl Context for Event {
    fn ctx(&self) -> &Ctx {
        &self.ctx
    }

    fn start(&self) -> Outcome<State> {
        self.require_complete()?;
        let context: Weak<dyn Context> = self.this.clone();
        let tasks = |kind| self.conf.of(kind).get().map_or(0, |conf| conf.tasks);
        if Kind::ALL.iter().any(|&kind| self.pools().of(kind).len() != tasks(kind) as usize) {
            self.pools.replace(Rc::new(Kinds::new(|kind| Pool::new(tasks(kind), &context, Job::default))));
        }
        Ok(State::Running)
    }

    fn stop(&self) {}

    fn is_drained(&self) -> bool {
        let pools = self.pools();
        Kind::ALL.iter().all(|&kind| pools.of(kind).taken() == 0)
    }

    fn release(&self) {}

    fn progress(&self) -> bool {
        let count = self.queue.borrow().len();
        for _ in 0..count {
            let Some((kind, index)) = self.queue.borrow_mut().pop_front() else { return false };
            let ended = self.pools().of(kind).at(index).and_then(|task| self.look(kind, &task.body));
            if let Some(status) = ended {
                self.report(kind, index, status);
                return true;
            }
            self.queue.borrow_mut().push_back((kind, index));
        }
        false
    }

    fn submit(&self, head: &Head, _how: Submit) -> Outcome {
        require(self.ctx.state() == State::Running, c::DOCA_ERROR_BAD_STATE)?;
        let pools = self.pools();
        let found = Kind::ALL.iter().find_map(|&kind| pools.of(kind).find(head).map(|task| (kind, task)));
        let (kind, task) = found.ok_or(INVALID)?;
        let job = &task.body;
        require(!kind.waits() || is_mask(job.mask()), INVALID)?;
        let value = self.value();
        // What is no wait happens now; the callback tells of it.
        let checked = if kind.waits() { Ok(()) } else { value.check() };
        let number = value.number();
        let result = match kind {
            _ if checked.is_err() => 0,
            Kind::Get => number.load(Ordering::SeqCst),
            Kind::NotifyAdd => number.fetch_add(job.operand(), Ordering::SeqCst),
            Kind::NotifySet => {
                number.store(job.operand(), Ordering::SeqCst);
                0
            }
            Kind::WaitEq | Kind::WaitNeq => 0,
        };
        job.finish(checked.err().unwrap_or(c::DOCA_SUCCESS), result);
        head.holder.set(Holder::Device);
        self.ctx.in_flight.set(self.ctx.in_flight.get() + 1);
        self.queue.borrow_mut().push_back((kind, head.index));
        Ok(())
    }

    fn free(&self, head: &Head) {
        let pools = self.pools();
        if let Some(pool) =
            Kind::ALL.iter().map(|&kind| pools.of(kind)).find(|pool| pool.find(head).is_some())
        {
            pool.put(head);
        }
    }

    fn ready(&self) -> Ready {
        let queue = self.queue.borrow();
        let pools = self.pools();
        let ended = |&(kind, index): &(Kind, u32)| {
            pools.of(kind).at(index).is_some_and(|task| self.look(kind, &task.body).is_some())
        };
        if queue.iter().any(ended)
            || self.ctx.state() == State::Stopping && queue.is_empty() && self.is_drained()
        {
            Ready::Now
        } else if queue.is_empty() {
            Ready::WhenWoken
        } else {
            Ready::After(LOOK_AGAIN)
        }
    }
}
