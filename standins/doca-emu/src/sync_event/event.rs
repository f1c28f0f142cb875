//! Sync events. Threads use an event by calls, or as a context with tasks.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use dma_process::lock;

use super::job::{Job, Kind, Kinds};
use super::value::Value;
use crate::c_abi::{Code, INVALID, Mark, Outcome, c, object, require};
use crate::ctx::{Ctx, State};
use crate::descriptor::{Descriptor, Exported, Kind as Export};
use crate::dev::Dev;
use crate::log::sdk_log;
use crate::task::Tasks;

/// Rounds of a busy wait between two checks that the other side is alive.
const ROUNDS: u32 = 1 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Open,
    Alone { started: bool },
    Context,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
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
    /// The place of the number. Locked, because one thread may change the place while others wait.
    value: Mutex<Arc<Value>>,
    /// An imported event can be neither configured nor exported.
    imported: bool,
    pub(super) usage: Cell<Use>,
    publishers: Cell<u32>,
    subscribers: Cell<u32>,
    devs: RefCell<Vec<Arc<Dev>>>,
    /// Exports, one for each card. C may read the descriptors until the event is destroyed.
    exports: RefCell<Vec<Exported>>,
    pub(super) tasks: Kinds<Tasks<Job>>,
    /// Tasks in flight, in the order of the next polls.
    pub(super) queue: RefCell<VecDeque<(Kind, u32)>>,
    /// The event as a context of work queues.
    #[cfg(workq)]
    pub(crate) on_work_queues: std::cell::OnceCell<Rc<crate::workq::Context>>,
}

object!(Event, 0x5e_00_00_01);

impl Event {
    fn with(value: Value, imported: bool) -> Rc<Self> {
        Rc::new_cyclic(|this: &Weak<Self>| Self {
            mark: Mark::of::<Self>(),
            ctx: Ctx::new(this.clone()),
            value: Mutex::new(Arc::new(value)),
            imported,
            usage: Cell::new(Use::Open),
            publishers: Cell::new(0),
            subscribers: Cell::new(0),
            devs: RefCell::default(),
            exports: RefCell::default(),
            tasks: Kinds::new(|_| Tasks::new(this.clone())),
            queue: RefCell::default(),
            #[cfg(workq)]
            on_work_queues: std::cell::OnceCell::new(),
        })
    }

    pub(super) fn new() -> Outcome<Rc<Self>> {
        Ok(Self::with(Value::new()?, false))
    }

    pub(super) fn import(dev: Arc<Dev>, descriptor: &[u8]) -> Outcome<Rc<Self>> {
        let descriptor = Descriptor::parse(descriptor).filter(|descriptor| descriptor.kind == Export::Event);
        let descriptor = descriptor.ok_or_else(|| {
            sdk_log!(ERROR, "sync event: the export descriptor is truncated, altered or of another kind");
            INVALID
        })?;
        if descriptor.serial != dev.card().config.serial {
            sdk_log!(ERROR, "sync event: the export descriptor is of another card, {}", descriptor.serial);
            return Err(INVALID);
        }
        let value = Value::import(&descriptor.remote).inspect_err(|_| {
            sdk_log!(ERROR, "sync event: the other process has destroyed the exported event");
        })?;
        let event = Self::with(value, true);
        event.devs.borrow_mut().push(dev);
        Ok(event)
    }

    pub(super) fn value(&self) -> Arc<Value> {
        Arc::clone(&lock(&self.value))
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

    /// Returns an error if the event is started, or was imported from another process.
    pub(super) fn require_configurable(&self) -> Outcome {
        require(!self.imported, c::DOCA_ERROR_NOT_PERMITTED)?;
        let idle = match self.usage.get() {
            Use::Open => true,
            Use::Alone { started } => !started,
            Use::Context => self.ctx.state() == State::Idle,
        };
        require(idle, c::DOCA_ERROR_BAD_STATE)
    }

    /// Counts a publisher or subscriber: the CPU with a device, or the other side.
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
        *lock(&self.value) = Arc::new(value);
        Ok(())
    }

    pub(super) fn require_complete(&self) -> Outcome {
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

    /// Makes the event a context. Returns `None` if the event was started without a context.
    pub(crate) fn as_ctx(&self) -> Option<&Ctx> {
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
        // Revoke the exports, so that calls on imported events fail.
        self.exports.borrow().iter().for_each(|export| _ = export.revoke());
        Ok(())
    }

    /// Makes a descriptor for the other side of the card. The descriptor is valid until the event is
    /// destroyed.
    pub(super) fn export(&self, dev: &Dev) -> Outcome<(*const u8, usize)> {
        require(!self.imported, c::DOCA_ERROR_NOT_PERMITTED)?;
        require(dev.function().sync_event, c::DOCA_ERROR_NOT_SUPPORTED)?;
        self.require_started()?;
        // This check precedes the search for an earlier export, so that an event whose number was moved to
        // the program's memory after an export is refused too.
        let value = self.value();
        let Value::Own(memory) = &*value else {
            sdk_log!(ERROR, "sync event: memory of the program cannot be exported");
            return Err(c::DOCA_ERROR_NOT_SUPPORTED);
        };
        let mut exports = self.exports.borrow_mut();
        let made = exports.iter().position(|made| made.is_for(Export::Event, dev));
        let place = made.unwrap_or(exports.len());
        if made.is_none() {
            exports.push(Exported::new(Export::Event, dev, (0, 0), 0, Some(Value::export(memory)?)));
        }
        Ok((exports[place].bytes.as_ptr(), exports[place].bytes.len()))
    }

    pub(crate) fn get(&self) -> Outcome<u64> {
        self.require_started()?;
        let value = self.value();
        value.check()?;
        Ok(value.number().load(Ordering::SeqCst))
    }

    pub(crate) fn add(&self, by: u64) -> Outcome<u64> {
        self.require_started()?;
        let value = self.value();
        value.check()?;
        Ok(value.number().fetch_add(by, Ordering::SeqCst))
    }

    pub(crate) fn set(&self, to: u64) -> Outcome {
        self.require_started()?;
        let value = self.value();
        value.check()?;
        value.number().store(to, Ordering::SeqCst);
        Ok(())
    }

    /// Returns the result of a wait. `None` while the wait continues.
    pub(crate) fn waited(&self, compare: Compare, threshold: u64, mask: u64) -> Option<Code> {
        let value = self.value();
        if compare.holds(value.number().load(Ordering::SeqCst), mask, threshold) {
            return Some(c::DOCA_SUCCESS);
        }
        value.check().err()
    }

    /// Blocks until the comparison holds, or the other side has ended.
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
