//! A producer, as a context: sends messages to the other end's consumers.
#![expect(unsafe_code, reason = "the program's callbacks")]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use super::SentCallback;
use super::consumer::{LOOK, max_list_len};
use super::fast::{Fast, Taken};
use super::parcel::{Immediate, Piece};
use crate::buf::Buf;
use crate::ctx::{Context, Ctx, Ready, State};
use crate::door::{Code, Handle, INVALID, Mark, Object, Outcome, c, require};
use crate::task::{Head, Holder, Pool, Submit, Task};

/// What a task sends, and to whom.
pub(crate) struct Message {
    pub(super) buf: Cell<Handle<Buf>>,
    /// Stays in place: the program is given its address.
    pub(super) immediate: Cell<Immediate>,
    pub(super) consumer: Cell<u32>,
}

impl Message {
    fn empty() -> Self {
        Self {
            buf: Cell::new(Handle::null()),
            immediate: Cell::new(Immediate::default()),
            consumer: Cell::new(0),
        }
    }
}

/// How tasks are set up.
#[derive(Clone, Copy)]
pub(super) struct MessageConf {
    pub(super) completed: SentCallback,
    pub(super) failed: SentCallback,
    pub(super) tasks: u32,
}

/// A producer: `struct doca_comch_producer`.
pub(crate) struct Producer {
    mark: Mark,
    pub(super) ctx: Ctx,
    this: Weak<dyn Context>,
    pub(super) fast: Arc<Fast>,
    pub(super) id: u32,
    pub(super) conf: Cell<Option<MessageConf>>,
    pool: RefCell<Rc<Pool<Message>>>,
    /// Tasks that ended and are to be reported.
    ended: RefCell<VecDeque<(u32, Code)>>,
}

impl Object for Producer {
    const MARK: u32 = 0xcc_04_00_01;

    fn mark(&self) -> &Mark {
        &self.mark
    }
}

impl Producer {
    pub(super) fn new(fast: Arc<Fast>) -> Outcome<Rc<Self>> {
        let id = fast.new_producer_id()?;
        Ok(Rc::new_cyclic(|this: &Weak<Self>| {
            let this: Weak<dyn Context> = this.clone();
            Self {
                mark: Mark::new(Self::MARK),
                ctx: Ctx::new(this.clone()),
                pool: RefCell::new(Rc::new(Pool::new(0, &this, Message::empty))),
                this,
                fast,
                id,
                conf: Cell::new(None),
                ended: RefCell::default(),
            }
        }))
    }

    fn pool(&self) -> Rc<Pool<Message>> {
        Rc::clone(&self.pool.borrow())
    }

    pub(super) fn alloc(
        &self,
        buf: Handle<Buf>,
        immediate: Immediate,
        consumer: u32,
    ) -> Outcome<Handle<Task<Message>>> {
        require(self.ctx.state() == State::Running, c::DOCA_ERROR_BAD_STATE)?;
        let pool = self.pool();
        let task = pool.take(c::doca_data { u64_: 0 }).ok_or(c::DOCA_ERROR_NO_MEMORY)?;
        task.body.buf.set(buf);
        task.body.immediate.set(immediate);
        task.body.consumer.set(consumer);
        Ok(Handle::of(task))
    }

    /// Bytes of the buffer's data.
    fn length(&self, buf: &Buf) -> Outcome<u64> {
        let card = self.fast.dev.card();
        require(!buf.is_chained() && buf.count() <= max_list_len(card), INVALID)?;
        require(buf.iter().all(Buf::is_sound), INVALID)?;
        let len = buf.iter().fold(0, |sum: u64, buf| sum.saturating_add(buf.data_len()));
        require(len <= card.config.comch.max_fast_size.0, INVALID)?;
        Ok(len)
    }

    fn send(&self, taken: &Taken, buf: Option<&Buf>, len: u64, immediate: Immediate) -> Outcome {
        self.fast.fill(taken, self.id, len, immediate, |write| match buf {
            Some(buf) => copy(buf, &taken.room, write),
            None => Ok(()),
        })
    }

    fn report(&self, index: u32, status: Code) {
        let pool = self.pool();
        let Some(task) = pool.at(index) else { return };
        self.ctx.in_flight.set(self.ctx.in_flight.get() - 1);
        task.body.buf.get().unpin();
        let Some(conf) = self.conf.get() else { return };
        let callback = if status == c::DOCA_SUCCESS { conf.completed } else { conf.failed };
        let user_data = task.head.user_data.get();
        let this = Handle::of(task).cast();
        // SAFETY: the program gave the function to be called with a task of this context.
        task.head.end(status, || unsafe { callback(this, user_data, self.ctx.user_data()) });
    }
}

/// Copies the data of a list of buffers into the room that was taken, which is enough.
fn copy(list: &Buf, room: &[Piece], write: &mut dyn FnMut(u64, &[u8]) -> Outcome) -> Outcome {
    let mut room = room.iter().copied();
    let (mut at, mut left) = (0, 0);
    for buf in list.iter() {
        let (addr, len) = buf.data_range();
        let memory = buf.memory().ok_or(INVALID)?;
        memory.read(addr, len, |_, mut bytes| {
            while !bytes.is_empty() {
                if left == 0 {
                    (at, left) = room.next().ok_or(c::DOCA_ERROR_TOO_BIG)?;
                }
                let (piece, rest) =
                    bytes.split_at(bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
                write(at, piece)?;
                at += piece.len() as u64;
                left -= piece.len() as u64;
                bytes = rest;
            }
            Ok(())
        })?;
    }
    Ok(())
}

impl Context for Producer {
    fn ctx(&self) -> &Ctx {
        &self.ctx
    }

    fn start(&self) -> Outcome<State> {
        let conf = self.conf.get().ok_or(c::DOCA_ERROR_BAD_STATE)?;
        require(self.fast.is_open(), c::DOCA_ERROR_NOT_CONNECTED)?;
        if self.pool().len() != conf.tasks as usize {
            self.pool.replace(Rc::new(Pool::new(conf.tasks, &self.this, Message::empty)));
        }
        Ok(State::Running)
    }

    fn stop(&self) {}

    fn is_drained(&self) -> bool {
        self.ended.borrow().is_empty() && self.pool().taken() == 0
    }

    fn release(&self) {}

    fn progress(&self) -> bool {
        let next = self.ended.borrow_mut().pop_front();
        if let Some((index, status)) = next {
            self.report(index, status);
            return true;
        }
        if self.ctx.state() != State::Running {
            return false;
        }
        self.fast.look();
        // With its connection a producer is over.
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
        let (handle, immediate) = (task.body.buf.get(), task.body.immediate.get());
        let buf = if handle.is_null() { None } else { Some(handle.get()?) };
        let len = buf.map_or(Ok(0), |buf| self.length(buf))?;
        require(len > 0 || immediate.len > 0, INVALID)?;
        let sent = match self.fast.take(task.body.consumer.get(), len, &immediate) {
            Ok(taken) => {
                let sent = self.send(&taken, buf, len, immediate);
                if sent.is_err() {
                    self.fast.give_back(taken);
                }
                sent
            }
            // The task can be submitted once more, or is wrong.
            Err(code @ (c::DOCA_ERROR_AGAIN | c::DOCA_ERROR_INVALID_VALUE)) => return Err(code),
            Err(code) => Err(code),
        };
        if let Some(buf) = buf {
            buf.pin();
        }
        head.holder.set(Holder::Device);
        self.ctx.in_flight.set(self.ctx.in_flight.get() + 1);
        self.ended.borrow_mut().push_back((head.index, sent.err().unwrap_or(c::DOCA_SUCCESS)));
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
            _ if !self.ended.borrow().is_empty() => Ready::Now,
            State::Stopping if self.is_drained() => Ready::Now,
            State::Running => Ready::After(LOOK),
            _ => Ready::WhenWoken,
        }
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.fast.drop_producer_id(self.id);
    }
}
