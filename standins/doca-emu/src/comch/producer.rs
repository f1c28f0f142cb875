//! Producers: contexts that send messages to consumers of the other end.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::cell::Cell;
use std::ptr;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use super::calls::comch;
use super::connection::Connection;
use super::consumer::{POLL, max_list_len, max_size};
use super::fast_path::{FastPath, Taken};
use super::wire::{IMMEDIATE, Immediate, Piece};
use crate::buf::{Buf, unpin};
use crate::c_abi::{Handle, INVALID, In, Mark, NO_DATA, Out, Outcome, c, c_calls, getters, object, require};
use crate::ctx::{Context, Ctx, State, as_ctx, destroy};
use crate::dev::Info;
use crate::pe::Ready;
use crate::task::{self, Head, Submit, Task, TaskCallback, Tasks, as_task, fields};

#[derive(Default)]
pub(crate) struct Message {
    pub(super) buf: Cell<Handle<Buf>>,
    /// The program gets the address of this field.
    pub(super) immediate: Cell<Immediate>,
    pub(super) consumer: Cell<u32>,
}

/// A producer: `struct doca_comch_producer`.
pub(crate) struct Producer {
    mark: Mark,
    pub(super) ctx: Ctx,
    pub(super) fast: Arc<FastPath>,
    pub(super) id: u32,
    pub(super) tasks: Tasks<Message>,
}

object!(Producer, 0xcc_04_00_01);

impl Producer {
    pub(super) fn new(fast: Arc<FastPath>) -> Outcome<Rc<Self>> {
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

/// Copies the data of a list of buffers into `room`, which must be large enough.
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
        if self.tasks.report_next(&self.ctx, |message| unpin(message.buf.get())) {
            return true;
        }
        if self.ctx.state() != State::Running {
            return false;
        }
        self.fast.receive();
        // A producer stops when its connection ends.
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
            // These errors refuse the submission. Every other error becomes the task's result.
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

/// Copies the immediate data; NULL stands for no data.
///
/// # Safety
///
/// C promised `len` bytes.
unsafe fn immediate(data: &In<u8>, len: u32) -> Outcome<Immediate> {
    require(len as usize <= IMMEDIATE, INVALID)?;
    if len == 0 {
        return Ok(Immediate::default());
    }
    // SAFETY: the caller guarantees that the bytes are valid and do not change during the call.
    Immediate::new(unsafe { data.slice(len as usize) }?).ok_or(INVALID)
}

getters! {
    /// Writes the number by which consumers of the other end know the producer.
    doca_comch_producer_get_id(producer: Producer) -> u32 { producer.id }
    doca_comch_producer_cap_get_max_num_tasks(info: Info) -> u32 { comch(info)?.max_fast_tasks }
    doca_comch_producer_cap_get_max_buf_size(info: Info) -> u32 { max_size(comch(info)?) }
    doca_comch_producer_cap_get_max_buf_list_len(info: Info) -> u32 {
        comch(info).map(|_| max_list_len(&info.card))?
    }
    doca_comch_producer_cap_get_max_producers(info: Info) -> u32 { comch(info)?.max_producers }
}

c_calls! {
    /// Makes a producer. Returns `BAD_STATE` if the connection is not open, `NO_MEMORY` if this end has the
    /// maximum number of producers.
    fn doca_comch_producer_create
        | doca_cc_producer_create(comch_connection: Handle<Connection>, producer: Out<Handle<Producer>>) {
        producer.check()?;
        let fast = Arc::clone(&comch_connection.get()?.fast);
        producer.put(Handle::give_rc(Producer::new(fast)?))
    }
    /// Destroys a producer. Returns `IN_USE` unless the producer is idle.
    fn doca_comch_producer_destroy
        | doca_cc_producer_destroy(producer: Handle<Producer>) { destroy(producer) }
    fn doca_comch_producer_cap_is_supported
        | doca_cc_cap_is_producer_supported(devinfo: Handle<Info>) { comch(devinfo.get()?).map(drop) }
    fn doca_comch_producer_as_ctx
        | doca_cc_producer_as_ctx(producer: Handle<Producer>) -> *mut c::doca_ctx { as_ctx(&producer) }
    /// Returns `NOT_SUPPORTED`, because the stand-in has no data path accelerator.
    fn doca_comch_producer_set_dev_max_num_send(producer: Handle<Producer>, _max: u32) {
        producer.get().and(Err(c::DOCA_ERROR_NOT_SUPPORTED))
    }
    /// Returns `NOT_SUPPORTED`, because the stand-in has no data path accelerator.
    fn doca_comch_producer_dpa_completion_attach(
        producer: Handle<Producer>,
        _completion: *mut c::doca_dpa_completion,
    ) {
        producer.get().and(Err(c::DOCA_ERROR_NOT_SUPPORTED))
    }
    /// Returns `BAD_STATE`, because no producer runs on a data path accelerator.
    fn doca_comch_producer_get_dpa_handle(producer: Handle<Producer>, handle: Out<u64>) {
        handle.check().and(producer.get()).and(Err(c::DOCA_ERROR_BAD_STATE))
    }
    /// Sets the number of tasks and their callbacks.
    fn doca_comch_producer_task_send_set_conf(
        producer: Handle<Producer>,
        completed: Option<TaskCallback>,
        failed: Option<TaskCallback>,
        tasks: u32,
    ) {
        let producer = producer.get()?;
        producer.ctx.require_idle()?;
        let limit = producer.fast.dev.card().config.comch.max_fast_tasks;
        producer.tasks.configure(completed, failed, tasks, 1..=limit)
    }
    /// Takes a task that sends the buffer's data, immediate data, or both. Returns `NO_MEMORY` if all
    /// tasks are in use.
    fn doca_comch_producer_task_send_alloc_init(
        producer: Handle<Producer>,
        buf: Handle<Buf>,
        imm_data: In<u8>,
        imm_data_len: u32,
        consumer_id: u32,
        task: Out<Handle<Task<Message>>>,
    ) {
        task.check()?;
        let producer = producer.get()?;
        // SAFETY: C passes the data's length beside it, and the data is copied during this call.
        let immediate = unsafe { immediate(&imm_data, imm_data_len) }?;
        task.put(producer.alloc(buf, immediate, consumer_id)?)
    }
    /// Returns the task's copy of the immediate data, or NULL if there is none.
    fn doca_comch_producer_task_send_get_imm_data(task: Handle<Task<Message>>) -> *mut u8 {
        match task.get() {
            // `bytes` is the first field, so both have the same address.
            Ok(task) if task.body.immediate.get().len > 0 => task.body.immediate.as_ptr().cast(),
            _ => ptr::null_mut(),
        }
    }
    fn doca_comch_producer_task_send_get_imm_data_len(task: Handle<Task<Message>>) -> u32 {
        task::get(&task, 0, |task| task.immediate.get().len)
    }
    /// Sets the immediate data. Does nothing while the device has the task, or if the data is too long.
    fn doca_comch_producer_task_send_set_imm_data(
        task: Handle<Task<Message>>,
        imm_data: In<u8>,
        imm_data_len: u32,
    ) -> () {
        // SAFETY: C passes the data's length beside it, and the data is copied during this call.
        if let Ok(immediate) = unsafe { immediate(&imm_data, imm_data_len) } {
            task::set(&task, |message| message.immediate.set(immediate));
        }
    }
    fn doca_comch_producer_task_send_as_task
        | doca_cc_producer_send_task_as_task(task: Handle<Task<Message>>) -> *mut c::doca_task {
        as_task(&task)
    }
}

fields! {
    Message:
    doca_comch_producer_task_send_set_buf | doca_cc_producer_send_task_set_buf,
    doca_comch_producer_task_send_get_buf | doca_cc_producer_send_task_get_buf(buf: Handle<Buf>);
    doca_comch_producer_task_send_set_consumer_id | doca_cc_producer_send_task_set_consumer_id,
    doca_comch_producer_task_send_get_consumer_id | doca_cc_producer_send_task_get_consumer_id(consumer: u32);
}
