//! An event, as an object that threads call and as a context.
#![expect(unsafe_code, reason = "the program's callbacks, and where it wants results")]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::export::Descriptor;
use super::tasks::{Job, Kind, Kinds, TaskConf, is_mask};
use super::value::{Shared, Value};
use crate::ctx::{Context, Ctx, Ready, State};
use crate::dev::Dev;
use crate::door::{Code, Handle, INVALID, Mark, Object, Outcome, c, require};
use crate::log::sdk_log;
use crate::task::{Head, Holder, Pool, Submit};

/// How often a program that sleeps looks at the number: nobody tells when another process changes it.
const LOOK_AGAIN: Duration = Duration::from_micros(100);
/// Rounds of a busy wait between looks at whether the other side still lives.
const ROUNDS: u32 = 1 << 10;

/// What an event is used as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// Not said yet.
    Open,
    /// An object of its own.
    Alone { started: bool },
    /// A context.
    Context,
}

/// How a number is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compare {
    Greater,
    Equal,
    NotEqual,
}

impl Compare {
    pub(super) fn holds(self, number: u64, mask: u64, value: u64) -> bool {
        match self {
            Self::Greater => number & mask > value,
            Self::Equal => number & mask == value,
            Self::NotEqual => number & mask != value,
        }
    }
}

/// An event: `struct doca_sync_event`.
pub(crate) struct Event {
    mark: Mark,
    pub(super) ctx: Ctx,
    this: Weak<Self>,
    /// Behind a lock: while one thread waits for the number, another may change it.
    value: Mutex<Arc<Value>>,
    /// Made from another's descriptor: it cannot be set up, or exported again.
    imported: bool,
    usage: Cell<Use>,
    publishers: Cell<u32>,
    subscribers: Cell<u32>,
    devs: RefCell<Vec<Arc<Dev>>>,
    /// Where C may look at the last descriptor, until the event is destroyed.
    exports: RefCell<Vec<Box<[u8]>>>,
    pub(super) conf: Kinds<Cell<Option<TaskConf>>>,
    pools: RefCell<Rc<Kinds<Pool<Job>>>>,
    /// Tasks in flight, the one to be looked at next first.
    queue: RefCell<VecDeque<(Kind, u32)>>,
}

impl Object for Event {
    const MARK: u32 = 0x5e_00_00_01;

    fn mark(&self) -> &Mark {
        &self.mark
    }
}

impl Event {
    fn with(value: Value, imported: bool) -> Rc<Self> {
        Rc::new_cyclic(|this: &Weak<Self>| {
            let context: Weak<dyn Context> = this.clone();
            Self {
                mark: Mark::new(Self::MARK),
                pools: RefCell::new(Rc::new(Kinds::new(|_| Pool::new(0, &context, Job::default)))),
                ctx: Ctx::new(context),
                this: this.clone(),
                value: Mutex::new(Arc::new(value)),
                imported,
                usage: Cell::new(Use::Open),
                publishers: Cell::new(0),
                subscribers: Cell::new(0),
                devs: RefCell::default(),
                exports: RefCell::default(),
                conf: Kinds::new(|_| Cell::new(None)),
                queue: RefCell::default(),
            }
        })
    }

    pub(super) fn new() -> Outcome<Rc<Self>> {
        Ok(Self::with(Value::Shared(Shared::new()?), false))
    }

    /// The event that a descriptor tells of.
    pub(super) fn import(dev: Arc<Dev>, descriptor: &[u8]) -> Outcome<Rc<Self>> {
        let descriptor = Descriptor::parse(descriptor).ok_or_else(|| {
            sdk_log!(ERROR, "sync event: the export descriptor is truncated, altered or none");
            INVALID
        })?;
        if descriptor.serial != dev.card().config.serial {
            sdk_log!(ERROR, "sync event: the export descriptor is of another card, {}", descriptor.serial);
            return Err(INVALID);
        }
        let shared = Shared::open(&descriptor).inspect_err(|_| {
            sdk_log!(ERROR, "sync event: what process {} exported is gone", descriptor.pid);
        })?;
        let event = Self::with(Value::Shared(shared), true);
        event.devs.borrow_mut().push(dev);
        Ok(event)
    }

    pub(super) fn value(&self) -> Arc<Value> {
        Arc::clone(&self.value.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn is_started(&self) -> bool {
        match self.usage.get() {
            Use::Open => false,
            Use::Alone { started } => started,
            Use::Context => self.ctx.state() == State::Running,
        }
    }

    fn require_started(&self) -> Outcome {
        require(self.is_started(), c::DOCA_ERROR_BAD_STATE)
    }

    /// Not started, and not another's.
    pub(super) fn require_configurable(&self) -> Outcome {
        require(!self.imported, c::DOCA_ERROR_NOT_PERMITTED)?;
        let idle = match self.usage.get() {
            Use::Open => true,
            Use::Alone { started } => !started,
            Use::Context => self.ctx.state() == State::Idle,
        };
        require(idle, c::DOCA_ERROR_BAD_STATE)
    }

    /// Somebody changes the number, or waits for it: the CPU with a device, or the other side.
    pub(super) fn add_location(&self, publisher: bool, dev: Option<Arc<Dev>>) -> Outcome {
        self.require_configurable()?;
        if let Some(dev) = dev {
            require(dev.function().sync_event, c::DOCA_ERROR_NOT_SUPPORTED)?;
            self.devs.borrow_mut().push(dev);
        }
        let count = if publisher { &self.publishers } else { &self.subscribers };
        count.set(count.get() + 1);
        Ok(())
    }

    pub(super) fn set_value(&self, value: Value) -> Outcome {
        self.require_configurable()?;
        *self.value.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
        Ok(())
    }

    fn require_complete(&self) -> Outcome {
        let complete = self.imported || self.publishers.get() > 0 && self.subscribers.get() > 0;
        require(complete, c::DOCA_ERROR_BAD_STATE)
    }

    pub(super) fn start_alone(&self) -> Outcome {
        require(
            matches!(self.usage.get(), Use::Open | Use::Alone { started: false }),
            c::DOCA_ERROR_BAD_STATE,
        )?;
        self.require_complete()?;
        self.usage.set(Use::Alone { started: true });
        Ok(())
    }

    pub(super) fn stop_alone(&self) -> Outcome {
        require(self.usage.get() == Use::Alone { started: true }, c::DOCA_ERROR_BAD_STATE)?;
        self.usage.set(Use::Alone { started: false });
        Ok(())
    }

    /// A context from now on; none if it was started alone.
    pub(super) fn as_ctx(&self) -> Option<&Ctx> {
        match self.usage.get() {
            Use::Alone { .. } => None,
            Use::Open | Use::Context => {
                self.usage.set(Use::Context);
                Some(&self.ctx)
            }
        }
    }

    pub(super) fn close(&self) -> Outcome {
        require(self.usage.get() != Use::Alone { started: true }, c::DOCA_ERROR_IN_USE)?;
        self.ctx.disconnect()?;
        if !self.imported {
            self.value().revoke();
        }
        Ok(())
    }

    /// A descriptor for the other side; where it lies stays until the event is destroyed.
    pub(super) fn export(&self, dev: &Dev) -> Outcome<(*const u8, usize)> {
        require(!self.imported, c::DOCA_ERROR_NOT_PERMITTED)?;
        require(dev.function().sync_event, c::DOCA_ERROR_NOT_SUPPORTED)?;
        self.require_started()?;
        let value = self.value();
        let Value::Shared(shared) = &*value else {
            sdk_log!(ERROR, "sync event: memory of the program cannot be exported");
            return Err(c::DOCA_ERROR_NOT_SUPPORTED);
        };
        let bytes: Box<[u8]> = shared.descriptor(&dev.card().config.serial).encode().into();
        let mut exports = self.exports.borrow_mut();
        if !exports.contains(&bytes) {
            exports.push(bytes.clone());
        }
        let kept = exports.iter().find(|kept| **kept == bytes).ok_or(c::DOCA_ERROR_UNEXPECTED)?;
        Ok((kept.as_ptr(), kept.len()))
    }

    pub(super) fn get(&self) -> Outcome<u64> {
        self.require_started()?;
        let value = self.value();
        value.check()?;
        Ok(value.number().load(Ordering::SeqCst))
    }

    pub(super) fn add(&self, by: u64) -> Outcome<u64> {
        self.require_started()?;
        let value = self.value();
        value.check()?;
        Ok(value.number().fetch_add(by, Ordering::SeqCst))
    }

    pub(super) fn set(&self, to: u64) -> Outcome {
        self.require_started()?;
        let value = self.value();
        value.check()?;
        value.number().store(to, Ordering::SeqCst);
        Ok(())
    }

    /// Blocks until it holds, or the other side is gone.
    pub(super) fn wait(&self, compare: Compare, threshold: u64, mask: u64, pause: impl Fn()) -> Outcome {
        self.require_started()?;
        let value = self.value();
        loop {
            for _ in 0..ROUNDS {
                if compare.holds(value.number().load(Ordering::SeqCst), mask, threshold) {
                    return Ok(());
                }
                pause();
            }
            value.check()?;
        }
    }

    fn pools(&self) -> Rc<Kinds<Pool<Job>>> {
        Rc::clone(&self.pools.borrow())
    }

    /// A task of this kind, the program's.
    pub(super) fn alloc(
        &self,
        kind: Kind,
        user_data: c::doca_data,
        set_up: impl FnOnce(&Job),
    ) -> Outcome<Handle<crate::task::Task<Job>>> {
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
        task.head.end(status);
        if status == c::DOCA_SUCCESS && !kind.waits() {
            task.body.deliver();
        }
        let Some(conf) = self.conf.of(kind).get() else { return };
        let callback = if status == c::DOCA_SUCCESS { conf.completed } else { conf.failed };
        // SAFETY: the program gave the function to be called with a task of this context.
        unsafe { callback(Handle::of(task).cast(), task.head.user_data.get(), self.ctx.user_data()) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_look_at_what_the_mask_leaves() {
        assert!(Compare::Equal.holds(0x1234, 0xff, 0x34) && !Compare::Equal.holds(0x1234, 0xff00, 0x34));
        assert!(
            Compare::NotEqual.holds(0x1234, 0xff00, 0x34) && !Compare::NotEqual.holds(0x1234, 0xff, 0x34)
        );
        assert!(Compare::Greater.holds(0x1234, 0xff, 0x33) && !Compare::Greater.holds(0x1234, 0xff, 0x34));
        assert!(Compare::Greater.holds(u64::MAX, u64::MAX, u64::MAX - 1));
    }
}
