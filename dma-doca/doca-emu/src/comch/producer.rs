//! Producers: contexts that send messages to consumers of the other end.

use std::cell::Cell;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use super::consumer::{POLL, max_list_len};
use super::fast::{Fast, Taken};
use super::parcel::{Immediate, Piece};
use crate::buf::Buf;
use crate::c_abi::{Handle, INVALID, Mark, NO_DATA, Outcome, c, object, require};
use crate::ctx::{Context, Ctx, State};
use crate::pe::Ready;
use crate::task::{Head, Submit, Task, Tasks};

/// A message to a consumer.
#[derive(Default)]
pub(crate) struct Message {
    pub(super) buf: Cell<Handle<Buf>>,
    /// The program gets its address.
    pub(super) immediate: Cell<Immediate>,
    pub(super) consumer: Cell<u32>,
}

/// A producer: `struct doca_comch_producer`.
pub(crate) struct Producer {
    mark: Mark,
    pub(super) ctx: Ctx,
    pub(super) fast: Arc<Fast>,
    pub(super) id: u32,
    pub(super) tasks: Tasks<Message>,
}

object!(Producer, 0xcc_04_00_01);

impl Producer {
    pub(super) fn new(fast: Arc<Fast>) -> Outcome<Rc<Self>> {
        let id = fast.new_producer_id()?;
        Ok(Rc::new_cyclic(|this: &Weak<Self>| Self {
            mark: Mark::of::<Self>(),
            ctx: Ctx::new(this.clone()),
            tasks: Tasks::new(this.clone()),
            fast,
            id,
        }))
    }

    pub(super) fn alloc(
        &self,
        buf: Handle<Buf>,
        immediate: Immediate,
        consumer: u32,
    ) -> Outcome<Handle<Task<Message>>> {
        self.ctx.require_running()?;
        self.tasks.alloc(NO_DATA, |message| {
            message.buf.set(buf);
            message.immediate.set(immediate);
            message.consumer.set(consumer);
        })
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
}

/// Copies the data of a list of buffers into `room`, which is large enough.
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
        self.tasks.require_configured()?;
        require(self.fast.is_open(), c::DOCA_ERROR_NOT_CONNECTED)?;
        self.tasks.prepare();
        Ok(State::Running)
    }

    fn is_drained(&self) -> bool {
        self.tasks.is_drained()
    }

    fn progress(&self) -> bool {
        if self.tasks.report_next(&self.ctx, |message| message.buf.get().unpin()) {
            return true;
        }
        if self.ctx.state() != State::Running {
            return false;
        }
        self.fast.look();
        // A producer ends with its connection.
        let over = !self.fast.is_open();
        if over {
            self.ctx.begin_stop();
        }
        over
    }

    fn submit(&self, head: &Head, _how: Submit) -> Outcome {
        let pool = self.tasks.pool();
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
        self.ctx.take(head);
        self.tasks.end(head.index, sent.err().unwrap_or(c::DOCA_SUCCESS));
        Ok(())
    }

    fn put(&self, head: &Head) {
        self.tasks.put(head);
    }

    fn ready(&self) -> Ready {
        match self.ctx.state() {
            _ if self.tasks.has_ended() => Ready::Now,
            State::Stopping if self.is_drained() => Ready::Now,
            State::Running => Ready::After(POLL),
            _ => Ready::WhenWoken,
        }
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.fast.drop_producer_id(self.id);
    }
}
