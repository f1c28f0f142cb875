//! The calls of `doca_comch_producer.h`.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::ptr;
use std::sync::Arc;

use super::calls::comch;
use super::connection::Connection;
use super::consumer::{max_list_len, max_size};
use super::parcel::{IMMEDIATE, Immediate};
use super::producer::{Message, Producer};
use crate::buf::Buf;
use crate::c_abi::{Handle, INVALID, In, Out, Outcome, c, c_calls, getters, require};
use crate::ctx::{as_ctx, destroy};
use crate::dev::Info;
use crate::task::{self, Task, TaskCallback, as_task, fields};

/// Immediate data, which is copied; NULL for none.
///
/// # Safety
///
/// C promised `len` bytes.
unsafe fn immediate(data: &In<u8>, len: u32) -> Outcome<Immediate> {
    require(len as usize <= IMMEDIATE, INVALID)?;
    if len == 0 {
        return Ok(Immediate::default());
    }
    // SAFETY: the caller vouches for them.
    Immediate::new(unsafe { data.slice(len as usize) }?).ok_or(INVALID)
}

getters! {
    /// Number of the producer for consumers of the other end.
    doca_comch_producer_get_id(producer: Producer) -> u32 { producer.id }
    doca_comch_producer_cap_get_max_num_tasks(info: Info) -> u32 { comch(info)?.max_fast_tasks }
    doca_comch_producer_cap_get_max_buf_size(info: Info) -> u32 { max_size(comch(info)?) }
    doca_comch_producer_cap_get_max_buf_list_len(info: Info) -> u32 {
        comch(info).map(|_| max_list_len(&info.card))?
    }
    doca_comch_producer_cap_get_max_producers(info: Info) -> u32 { comch(info)?.max_producers }
}

c_calls! {
    /// `BAD_STATE` if the connection is not open, `NO_MEMORY` if its producers are as many as the limit.
    fn doca_comch_producer_create
        | doca_cc_producer_create(comch_connection: Handle<Connection>, producer: Out<Handle<Producer>>) {
        producer.check()?;
        let fast = Arc::clone(&comch_connection.get()?.fast);
        producer.put(Handle::give_rc(Producer::new(fast)?))
    }
    /// `IN_USE` unless idle.
    fn doca_comch_producer_destroy
        | doca_cc_producer_destroy(producer: Handle<Producer>) { destroy(producer) }
    fn doca_comch_producer_cap_is_supported
        | doca_cc_cap_is_producer_supported(devinfo: Handle<Info>) { comch(devinfo.get()?).map(drop) }
    fn doca_comch_producer_as_ctx
        | doca_cc_producer_as_ctx(producer: Handle<Producer>) -> *mut c::doca_ctx { as_ctx(&producer) }
    /// `NOT_SUPPORTED`: there is no data path accelerator.
    fn doca_comch_producer_set_dev_max_num_send(producer: Handle<Producer>, _max: u32) {
        producer.get().and(Err(c::DOCA_ERROR_NOT_SUPPORTED))
    }
    /// `NOT_SUPPORTED`: there is no data path accelerator.
    fn doca_comch_producer_dpa_completion_attach(
        producer: Handle<Producer>,
        _completion: *mut c::doca_dpa_completion,
    ) {
        producer.get().and(Err(c::DOCA_ERROR_NOT_SUPPORTED))
    }
    /// There is no data path accelerator here, so no producer is on one.
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
    /// Takes a task that sends the buffer's data, immediate data, or both. `NO_MEMORY` if all are taken.
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
        // SAFETY: C passes the data's length beside it.
        let immediate = unsafe { immediate(&imm_data, imm_data_len) }?;
        task.put(producer.alloc(buf, immediate, consumer_id)?)
    }
    /// The task's copy of the immediate data, or NULL.
    fn doca_comch_producer_task_send_get_imm_data(task: Handle<Task<Message>>) -> *mut u8 {
        match task.get() {
            // The bytes are what it begins with.
            Ok(task) if task.body.immediate.get().len > 0 => task.body.immediate.as_ptr().cast(),
            _ => ptr::null_mut(),
        }
    }
    fn doca_comch_producer_task_send_get_imm_data_len(task: Handle<Task<Message>>) -> u32 {
        task::get(&task, 0, |task| task.immediate.get().len)
    }
    /// Ignored while the device has the task, or if the data is too long.
    fn doca_comch_producer_task_send_set_imm_data(
        task: Handle<Task<Message>>,
        imm_data: In<u8>,
        imm_data_len: u32,
    ) -> () {
        // SAFETY: C passes the data's length beside it.
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
