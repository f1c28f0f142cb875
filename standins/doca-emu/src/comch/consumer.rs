//! Consumers: contexts that post buffers, in which messages arrive.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use super::fast_path::{Arrival, FastPath, Inbox};
use super::wire::{IMMEDIATE, Immediate, Name, PIECES, Piece};
use crate::buf::{Buf, unpin};
use crate::c_abi::{Handle, INVALID, Mark, NO_DATA, Outcome, c, object, require};
use crate::ctx::{Context, Ctx, State};
use crate::mmap::{ExportedMap, Registered};
use crate::pe::Ready;
use crate::task::{Head, Submit, Task, Tasks};

/// Poll interval of the fast path while the program sleeps. The fast path has no descriptor that could wake
/// the program.
pub(super) const POLL: Duration = Duration::from_millis(1);

/// Returns the maximum number of buffers in a list for one message.
pub(super) fn max_list_len(card: &crate::card::Card) -> u32 {
    card.limits.max_list_len.min(PIECES as u32)
}

/// Returns the maximum length of a message, in bytes.
pub(super) fn max_size(limits: &crate::config::ComchConfig) -> u32 {
    u32::try_from(limits.max_fast_size.0).unwrap_or(u32::MAX)
}

#[derive(Default)]
pub(crate) struct Receive {
    pub(super) buf: Cell<Handle<Buf>>,
    pub(super) producer: Cell<u32>,
    /// The program gets the address of this field.
    pub(super) immediate: Cell<[u8; IMMEDIATE]>,
    pub(super) immediate_len: Cell<u32>,
}

impl Receive {
    fn set(&self, producer: u32, immediate: &Immediate) {
        self.producer.set(producer);
        self.immediate.set(immediate.bytes);
        self.immediate_len.set(immediate.len);
    }
}

struct Run {
    name: Name,
    inbox: Arc<Inbox>,
    exported: ExportedMap,
}

/// A consumer: `struct doca_comch_consumer`.
pub(crate) struct Consumer {
    mark: Mark,
    pub(super) ctx: Ctx,
    pub(super) fast: Arc<FastPath>,
    memory: Arc<Registered>,
    pub(super) id: u32,
    pub(super) immediate_len: Cell<u32>,
    pub(super) tasks: Tasks<Receive>,
    run: RefCell<Option<Run>>,
}

object!(Consumer, 0xcc_03_00_01);

impl Consumer {
    pub(super) fn new(fast: Arc<FastPath>, memory: Arc<Registered>) -> Outcome<Rc<Self>> {
        let id = fast.new_consumer_id()?;
        Ok(Rc::new_cyclic(|this: &Weak<Self>| Self {
            mark: Mark::of::<Self>(),
            ctx: Ctx::new(this.clone()),
            tasks: Tasks::new(this.clone()),
            fast,
            memory,
            id,
            immediate_len: Cell::new(IMMEDIATE as u32),
            run: RefCell::new(None),
        }))
    }

    pub(super) fn alloc(&self, buf: Handle<Buf>) -> Outcome<Handle<Task<Receive>>> {
        self.ctx.require_running()?;
        self.tasks.alloc(NO_DATA, |receive| {
            receive.buf.set(buf);
            receive.set(0, &Immediate::default());
        })
    }

    /// Returns the free memory after the data of `buf`. Returns no memory for NULL, because a task without a
    /// buffer receives only immediate data.
    fn room(&self, exported: &ExportedMap, buf: Handle<Buf>) -> Outcome<Vec<Piece>> {
        if buf.is_null() {
            return Ok(Vec::new());
        }
        let buf = buf.get()?;
        require(!buf.is_chained() && buf.count() <= max_list_len(self.fast.dev.card()), INVALID)?;
        let piece = |buf: &Buf| {
            let (addr, len) = buf.room_range();
            require(buf.is_sound() && exported.contains(addr, len), INVALID)?;
            Ok((addr as u64, len as u64))
        };
        buf.iter().map(piece).collect()
    }

    fn receive(&self) -> bool {
        let arrival = match &*self.run.borrow() {
            Some(run) => run.inbox.next(),
            None => None,
        };
        let Some(arrival) = arrival else { return false };
        let pool = self.tasks.pool();
        let Some(task) = pool.at(arrival.slot).filter(|task| task.head.is_submitted()) else {
            return false;
        };
        take_in(&task.body, &arrival);
        self.tasks.report(&self.ctx, arrival.slot, c::DOCA_SUCCESS, release);
        true
    }
}

fn release(task: &Receive) {
    unpin(task.buf.get());
}

/// Adds a message to the data of a task's buffer. The other side states the message's length, so the length
/// is limited to the buffer's room.
fn take_in(task: &Receive, arrival: &Arrival) {
    if let Ok(buf) = task.buf.get().get() {
        let room = buf.iter().fold(0, |sum: u64, buf| sum.saturating_add(buf.room_len()));
        buf.grow_list(arrival.len.min(room));
    }
    task.set(arrival.producer, &arrival.immediate);
}

impl Context for Consumer {
    fn ctx(&self) -> &Ctx {
        &self.ctx
    }

    fn start(&self) -> Outcome<State> {
        self.tasks.require_configured()?;
        require(self.fast.is_open(), c::DOCA_ERROR_NOT_CONNECTED)?;
        let exported = ExportedMap::new(&self.memory)?;
        self.tasks.prepare();
        let (name, inbox) = self.fast.begin(self.id, &exported, self.immediate_len.get());
        self.run.replace(Some(Run { name, inbox, exported }));
        Ok(State::Starting)
    }

    fn stop(&self) {
        let Some(Run { name, inbox, exported }) = self.run.take() else { return };
        // The drop revokes the memory. On return, no producer writes to it, and each producer has announced
        // its messages.
        drop(exported);
        self.fast.end(name);
        let pool = self.tasks.pool();
        let arrived: Vec<_> = std::iter::from_fn(|| inbox.next()).collect();
        for arrival in &arrived {
            let Some(task) = pool.at(arrival.slot) else { continue };
            take_in(&task.body, arrival);
            self.tasks.end(arrival.slot, c::DOCA_SUCCESS);
        }
        let is_waiting = |index: &u32| {
            pool.at(*index).is_some_and(|task| task.head.is_submitted())
                && !arrived.iter().any(|arrival| arrival.slot == *index)
        };
        let waiting = (0..pool.len() as u32).filter(is_waiting);
        waiting.for_each(|index| self.tasks.end(index, c::DOCA_ERROR_IO_FAILED));
    }

    fn is_drained(&self) -> bool {
        self.tasks.is_drained()
    }

    fn progress(&self) -> bool {
        if self.tasks.report_next(&self.ctx, release) {
            return true;
        }
        match self.ctx.state() {
            State::Idle | State::Stopping => return false,
            State::Starting => {
                self.fast.receive();
                if self.run.borrow().as_ref().is_some_and(|run| run.inbox.is_welcome()) {
                    self.ctx.enter(State::Running);
                    return true;
                }
            }
            State::Running => {
                if self.receive() {
                    return true;
                }
                self.fast.receive();
                if self.receive() {
                    return true;
                }
            }
        }
        // A consumer stops when its connection ends.
        let over = !self.fast.is_open();
        if over {
            self.ctx.begin_stop();
        }
        over
    }

    fn submit(&self, head: &Head, _how: Submit) -> Outcome {
        let pool = self.tasks.pool();
        let task = pool.find(head).ok_or(INVALID)?;
        let run = self.run.borrow();
        let run = run.as_ref().ok_or(c::DOCA_ERROR_BAD_STATE)?;
        let buf = task.body.buf.get();
        let room = self.room(&run.exported, buf)?;
        if let Ok(buf) = buf.get() {
            buf.pin();
        }
        task.body.set(0, &Immediate::default());
        self.ctx.take(head);
        self.fast.post(run.name, head.index, room);
        Ok(())
    }

    fn put(&self, head: &Head) {
        self.tasks.put(head);
    }

    fn ready(&self) -> Ready {
        match self.ctx.state() {
            State::Idle => Ready::WhenWoken,
            State::Stopping if self.is_drained() || self.tasks.has_ended() => Ready::Now,
            State::Stopping => Ready::WhenWoken,
            State::Starting | State::Running => {
                let came = self.run.borrow().as_ref().is_some_and(|run| !run.inbox.is_empty());
                if came { Ready::Now } else { Ready::After(POLL) }
            }
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.fast.drop_consumer_id(self.id);
    }
}
