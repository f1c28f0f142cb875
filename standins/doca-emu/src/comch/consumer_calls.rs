//! The calls of `doca_comch_consumer.h`.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::ptr;
use std::sync::Arc;

use super::calls::comch;
use super::connection::Connection;
use super::consumer::{Consumer, Receive, max_list_len, max_size};
use super::wire::IMMEDIATE;
use crate::buf::Buf;
use crate::c_abi::{Code, Handle, INVALID, Out, Outcome, c, c_calls, getters, require};
use crate::ctx::{as_ctx, destroy};
use crate::dev::Info;
use crate::mmap::Mmap;
use crate::task::{self, Task, TaskCallback, as_task, fields};

fn configure(consumer: &Handle<Consumer>, set: impl FnOnce(&Consumer) -> Outcome) -> Outcome {
    let consumer = consumer.get()?;
    consumer.ctx.require_idle()?;
    set(consumer)
}

type Completion = *const c::doca_comch_consumer_completion;

/// Declares calls that take a DPA completion. The stand-in has no data path accelerator, so a program has no
/// handle of a DPA completion to pass.
macro_rules! completion_calls {
    ($($name:ident($($arg:ident: $type:ty)?);)*) => {
        c_calls! {
            $(
                fn $name(completion: Completion, $($arg: $type)?) -> Code {
                    if completion.is_null() { INVALID } else { c::DOCA_ERROR_NOT_SUPPORTED }
                }
            )*
        }
    };
}

completion_calls! {
    doca_comch_consumer_completion_set_dpa_thread(_thread: *mut c::doca_dpa_thread);
    doca_comch_consumer_completion_destroy();
    doca_comch_consumer_completion_start();
    doca_comch_consumer_completion_stop();
    doca_comch_consumer_completion_get_dpa_handle(_handle: *mut u64);
    doca_comch_consumer_completion_set_max_num_consumers(_max: u32);
    doca_comch_consumer_completion_get_max_num_consumers(_max: *mut u32);
    doca_comch_consumer_completion_set_max_num_recv(_max: u32);
    doca_comch_consumer_completion_get_max_num_recv(_max: *mut u32);
    doca_comch_consumer_completion_set_imm_data_len(_len: u32);
    doca_comch_consumer_completion_get_imm_data_len(_len: *mut u32);
}

fn no_dpa(consumer: &Handle<Consumer>) -> Outcome {
    consumer.get().and(Err(c::DOCA_ERROR_NOT_SUPPORTED))
}

getters! {
    /// Writes the number by which producers of the other end address the consumer.
    doca_comch_consumer_get_id | doca_cc_consumer_get_id(consumer: Consumer) -> u32 { consumer.id }
    doca_comch_consumer_cap_get_max_num_tasks(info: Info) -> u32 { comch(info)?.max_fast_tasks }
    doca_comch_consumer_cap_get_max_buf_size(info: Info) -> u32 { max_size(comch(info)?) }
    doca_comch_consumer_cap_get_max_buf_list_len(info: Info) -> u32 {
        comch(info).map(|_| max_list_len(&info.card))?
    }
    doca_comch_consumer_cap_get_max_consumers(info: Info) -> u32 { comch(info)?.max_consumers }
    doca_comch_consumer_cap_get_max_imm_data_len(info: Info) -> u32 { comch(info).map(|_| IMMEDIATE as u32)? }
    doca_comch_consumer_get_imm_data_len(consumer: Consumer) -> u32 { consumer.immediate_len.get() }
}

c_calls! {
    /// Makes a consumer that receives messages into buffers of the memory map. The map must be started.
    /// Returns `BAD_STATE` if the connection is not open, `NO_MEMORY` if this end has the maximum
    /// number of consumers.
    fn doca_comch_consumer_create | doca_cc_consumer_create(
        comch_connection: Handle<Connection>,
        buf_mmap: Handle<Mmap>,
        consumer: Out<Handle<Consumer>>,
    ) {
        consumer.check()?;
        let memory = buf_mmap.get()?.registered()?;
        let fast = Arc::clone(&comch_connection.get()?.fast);
        consumer.put(Handle::give_rc(Consumer::new(fast, memory)?))
    }
    /// Destroys a consumer. Returns `IN_USE` unless the consumer is idle.
    fn doca_comch_consumer_destroy
        | doca_cc_consumer_destroy(consumer: Handle<Consumer>) { destroy(consumer) }
    fn doca_comch_consumer_cap_is_supported
        | doca_cc_cap_is_consumer_supported(devinfo: Handle<Info>) { comch(devinfo.get()?).map(drop) }
    /// Sets the maximum length of immediate data, in bytes, up to the limit of the device.
    fn doca_comch_consumer_set_imm_data_len(consumer: Handle<Consumer>, len: u32) {
        configure(&consumer, |consumer| {
            require(len as usize <= IMMEDIATE, INVALID)?;
            consumer.immediate_len.set(len);
            Ok(())
        })
    }
    fn doca_comch_consumer_as_ctx
        | doca_cc_consumer_as_ctx(consumer: Handle<Consumer>) -> *mut c::doca_ctx { as_ctx(&consumer) }
    fn doca_comch_consumer_completion_create(completion: Out<Completion>) {
        completion.check().and(Err(c::DOCA_ERROR_NOT_SUPPORTED))
    }
    fn doca_comch_consumer_set_dev_max_num_recv(consumer: Handle<Consumer>, _max: u32) { no_dpa(&consumer) }
    fn doca_comch_consumer_set_completion(
        consumer: Handle<Consumer>,
        _completion: Completion,
        _user_data: u32,
    ) {
        no_dpa(&consumer)
    }
    /// Returns `BAD_STATE`, because no consumer runs on a data path accelerator.
    fn doca_comch_consumer_get_dpa_handle(consumer: Handle<Consumer>, handle: Out<u64>) {
        handle.check().and(consumer.get()).and(Err(c::DOCA_ERROR_BAD_STATE))
    }
    /// Sets the number of tasks and their callbacks.
    fn doca_comch_consumer_task_post_recv_set_conf(
        consumer: Handle<Consumer>,
        completed: Option<TaskCallback>,
        failed: Option<TaskCallback>,
        tasks: u32,
    ) {
        configure(&consumer, |consumer| {
            let limit = consumer.fast.dev.card().config.comch.max_fast_tasks;
            consumer.tasks.configure(completed, failed, tasks, 1..=limit)
        })
    }
    /// Takes a task that receives into the buffer. If the buffer is NULL, the task receives only immediate
    /// data. Returns `NO_MEMORY` if all tasks are in use.
    fn doca_comch_consumer_task_post_recv_alloc_init | doca_cc_consumer_post_recv_task_alloc_init(
        consumer: Handle<Consumer>,
        buf: Handle<Buf>,
        task: Out<Handle<Task<Receive>>>,
    ) {
        task.make(|| consumer.get()?.alloc(buf))
    }
    /// Returns the number of the message's producer, or 0 if there is no message.
    fn doca_comch_consumer_task_post_recv_get_producer_id(task: Handle<Task<Receive>>) -> u32 {
        task::get(&task, 0, |task| task.producer.get())
    }
    /// Returns the received immediate data, or NULL if there is none.
    fn doca_comch_consumer_task_post_recv_get_imm_data(task: Handle<Task<Receive>>) -> *const u8 {
        match task.get() {
            Ok(task) if task.body.immediate_len.get() > 0 => task.body.immediate.as_ptr().cast(),
            _ => ptr::null(),
        }
    }
    fn doca_comch_consumer_task_post_recv_get_imm_data_len(task: Handle<Task<Receive>>) -> u32 {
        task::get(&task, 0, |task| task.immediate_len.get())
    }
    fn doca_comch_consumer_task_post_recv_as_task
        | doca_cc_consumer_post_recv_task_as_task(task: Handle<Task<Receive>>) -> *mut c::doca_task {
        as_task(&task)
    }
}

fields! {
    Receive:
    doca_comch_consumer_task_post_recv_set_buf | doca_cc_consumer_post_recv_task_set_buf,
    doca_comch_consumer_task_post_recv_get_buf | doca_cc_consumer_post_recv_task_get_buf(buf: Handle<Buf>);
}
