//! A consumer, as a context: messages arrive in the buffers that it posts.
#![expect(unsafe_code, reason = "the program's callbacks")]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use super::ReceivedCallback;
use super::fast::{Arrival, Fast, Inbox};
use super::parcel::{IMMEDIATE, Immediate, Name, PIECES, Piece};
use crate::buf::Buf;
use crate::ctx::{Context, Ctx, Ready, State};
use crate::door::{Code, Handle, INVALID, Mark, Object, Outcome, c, require};
use crate::mmap::{Lent, Registered};
use crate::task::{Head, Holder, Pool, Submit, Task};

/// How often who sleeps looks at the fast path, which has no descriptor of its own.
pub(super) const LOOK: Duration = Duration::from_millis(1);

/// Buffers in a list that a message can be of, at most.
pub(super) fn max_list_len(card: &crate::card::Card) -> u32 {
    card.limits.max_list_len.min(PIECES as u32)
}

/// What a task waits for a message with, and what came.
pub(crate) struct Receive {
    pub(super) buf: Cell<Handle<Buf>>,
    pub(super) producer: Cell<u32>,
    /// Stays in place: the program is given its address.
    pub(super) immediate: Cell<[u8; IMMEDIATE]>,
    pub(super) immediate_len: Cell<u32>,
}

impl Receive {
    fn empty() -> Self {
        Self {
            buf: Cell::new(Handle::null()),
            producer: Cell::new(0),
            immediate: Cell::new([0; IMMEDIATE]),
            immediate_len: Cell::new(0),
        }
    }

    fn set(&self, producer: u32, immediate: &Immediate) {
        self.producer.set(producer);
        self.immediate.set(immediate.bytes);
        self.immediate_len.set(immediate.len);
    }
}

/// How tasks are set up.
#[derive(Clone, Copy)]
pub(super) struct ReceiveConf {
    pub(super) completed: ReceivedCallback,
    pub(super) failed: ReceivedCallback,
    pub(super) tasks: u32,
}

/// From a start to the next stop.
struct Run {
    name: Name,
    inbox: Arc<Inbox>,
    lent: Lent,
    announced: Cell<bool>,
}

/// A consumer: `struct doca_comch_consumer`.
pub(crate) struct Consumer {
    mark: Mark,
    pub(super) ctx: Ctx,
    this: Weak<dyn Context>,
    pub(super) fast: Arc<Fast>,
    memory: Arc<Registered>,
    pub(super) id: u32,
    pub(super) immediate_len: Cell<u32>,
    pub(super) conf: Cell<Option<ReceiveConf>>,
    pool: RefCell<Rc<Pool<Receive>>>,
    run: RefCell<Option<Run>>,
    /// Tasks that no message came for.
    flushed: RefCell<VecDeque<(u32, Code)>>,
}

impl Object for Consumer {
    const MARK: u32 = 0xcc_03_00_01;

    fn mark(&self) -> &Mark {
        &self.mark
    }
}

impl Consumer {
    pub(super) fn new(fast: Arc<Fast>, memory: Arc<Registered>) -> Outcome<Rc<Self>> {
        let id = fast.new_consumer_id()?;
        Ok(Rc::new_cyclic(|this: &Weak<Self>| {
            let this: Weak<dyn Context> = this.clone();
            Self {
                mark: Mark::new(Self::MARK),
                ctx: Ctx::new(this.clone()),
                pool: RefCell::new(Rc::new(Pool::new(0, &this, Receive::empty))),
                this,
                fast,
                memory,
                id,
                immediate_len: Cell::new(IMMEDIATE as u32),
                conf: Cell::new(None),
                run: RefCell::new(None),
                flushed: RefCell::default(),
            }
        }))
    }

    fn pool(&self) -> Rc<Pool<Receive>> {
        Rc::clone(&self.pool.borrow())
    }

    pub(super) fn alloc(&self, buf: Handle<Buf>) -> Outcome<Handle<Task<Receive>>> {
        require(self.ctx.state() == State::Running, c::DOCA_ERROR_BAD_STATE)?;
        let pool = self.pool();
        let task = pool.take(c::doca_data { u64_: 0 }).ok_or(c::DOCA_ERROR_NO_MEMORY)?;
        task.body.buf.set(buf);
        task.body.set(0, &Immediate::default());
        Ok(Handle::of(task))
    }

    /// Where a message for the buffer goes; nowhere without one, for messages of immediate data alone.
    fn room(&self, lent: &Lent, buf: Handle<Buf>) -> Outcome<Vec<Piece>> {
        if buf.is_null() {
            return Ok(Vec::new());
        }
        let buf = buf.get()?;
        require(!buf.is_chained() && buf.count() <= max_list_len(self.fast.dev.card()), INVALID)?;
        let piece = |buf: &Buf| {
            let (addr, len) = buf.room_range();
            require(buf.is_sound() && lent.contains(addr, len), INVALID)?;
            Ok((addr as u64, len as u64))
        };
        buf.iter().map(piece).collect()
    }

    /// Ends a task and tells the program.
    fn report(&self, index: u32, status: Code) {
        let pool = self.pool();
        let Some(task) = pool.at(index).filter(|task| task.head.is_submitted()) else {
            return;
        };
        self.ctx.in_flight.set(self.ctx.in_flight.get() - 1);
        task.body.buf.get().unpin();
        let Some(conf) = self.conf.get() else { return };
        let callback = if status == c::DOCA_SUCCESS { conf.completed } else { conf.failed };
        let user_data = task.head.user_data.get();
        let this = Handle::of(task).cast();
        // SAFETY: the program gave the function to be called with a task of this context.
        task.head.end(status, || unsafe { callback(this, user_data, self.ctx.user_data()) });
    }

    /// Reports a message, if one came.
    fn receive(&self) -> bool {
        let arrival = match &*self.run.borrow() {
            Some(run) => run.inbox.next(),
            None => None,
        };
        let Some(arrival) = arrival else { return false };
        let pool = self.pool();
        let Some(task) = pool.at(arrival.slot).filter(|task| task.head.is_submitted()) else {
            return false;
        };
        take_in(&task.body, &arrival);
        self.report(arrival.slot, c::DOCA_SUCCESS);
        true
    }

    /// Has the other end told of the consumer, until it answers; whether it did.
    fn is_welcome(&self) -> bool {
        match &*self.run.borrow() {
            Some(run) => {
                if !run.announced.get() {
                    run.announced.set(self.fast.announce(run.name, &run.lent, self.immediate_len.get()));
                }
                run.inbox.is_welcome()
            }
            None => false,
        }
    }
}

/// Tells a task's buffer of a message that lies in it, by the other side's word: no longer than the room.
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
        let conf = self.conf.get().ok_or(c::DOCA_ERROR_BAD_STATE)?;
        require(self.fast.is_open(), c::DOCA_ERROR_NOT_CONNECTED)?;
        let lent = Lent::new(&self.memory)?;
        if self.pool().len() != conf.tasks as usize {
            self.pool.replace(Rc::new(Pool::new(conf.tasks, &self.this, Receive::empty)));
        }
        let (name, inbox) = self.fast.begin(self.id);
        self.run.replace(Some(Run { name, inbox, lent, announced: Cell::new(false) }));
        self.is_welcome();
        Ok(State::Starting)
    }

    fn stop(&self) {
        let Some(Run { name, inbox, lent, announced }) = self.run.take() else { return };
        // Once this returns no producer writes any more, and each has said what it has written.
        drop(lent);
        self.fast.end(name, announced.get());
        let pool = self.pool();
        let arrived: Vec<_> = std::iter::from_fn(|| inbox.next()).collect();
        let mut flushed = self.flushed.borrow_mut();
        for arrival in &arrived {
            let Some(task) = pool.at(arrival.slot) else { continue };
            take_in(&task.body, arrival);
            flushed.push_back((arrival.slot, c::DOCA_SUCCESS));
        }
        let is_waiting = |index: &u32| {
            pool.at(*index).is_some_and(|task| task.head.is_submitted())
                && !arrived.iter().any(|arrival| arrival.slot == *index)
        };
        let waiting = (0..pool.len() as u32).filter(is_waiting);
        flushed.extend(waiting.map(|index| (index, c::DOCA_ERROR_IO_FAILED)));
    }

    fn is_drained(&self) -> bool {
        self.flushed.borrow().is_empty() && self.pool().taken() == 0
    }

    fn release(&self) {}

    fn progress(&self) -> bool {
        let next = self.flushed.borrow_mut().pop_front();
        if let Some((index, status)) = next {
            self.report(index, status);
            return true;
        }
        match self.ctx.state() {
            State::Idle | State::Stopping => return false,
            State::Starting => {
                self.fast.look();
                if self.is_welcome() {
                    self.ctx.enter(State::Running);
                    return true;
                }
            }
            State::Running => {
                if self.receive() {
                    return true;
                }
                self.fast.look();
                if self.receive() {
                    return true;
                }
            }
        }
        // With its connection a consumer is over.
        let over = !self.fast.is_open();
        if over {
            self.ctx.begin_stop();
        }
        over
    }

    fn submit(&self, head: &Head, _how: Submit) -> Outcome {
        require(self.ctx.state() == State::Running, c::DOCA_ERROR_BAD_STATE)?;
        let pool = self.pool();
        let task = pool.find(head).ok_or(INVALID)?;
        let run = self.run.borrow();
        let run = run.as_ref().ok_or(c::DOCA_ERROR_BAD_STATE)?;
        let buf = task.body.buf.get();
        let room = self.room(&run.lent, buf)?;
        if let Ok(buf) = buf.get() {
            buf.pin();
        }
        task.body.set(0, &Immediate::default());
        head.holder.set(Holder::Device);
        self.ctx.in_flight.set(self.ctx.in_flight.get() + 1);
        self.fast.post(run.name, head.index, room);
        Ok(())
    }

    fn free(&self, head: &Head) {
        let pool = self.pool();
        if pool.find(head).is_some() {
            pool.put(head);
            if self.ctx.state() == State::Stopping
                && self.is_drained()
                && let Some(pe) = self.ctx.pe()
            {
                pe.wake();
            }
        }
    }

    fn ready(&self) -> Ready {
        match self.ctx.state() {
            State::Idle => Ready::WhenWoken,
            State::Stopping if self.is_drained() || !self.flushed.borrow().is_empty() => Ready::Now,
            State::Stopping => Ready::WhenWoken,
            State::Starting | State::Running => {
                let came = self.run.borrow().as_ref().is_some_and(|run| !run.inbox.is_empty());
                if came { Ready::Now } else { Ready::After(LOOK) }
            }
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.fast.drop_consumer_id(self.id);
    }
}
