//! The calls of `doca_comch_consumer.h`.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::ptr;
use std::sync::Arc;

use super::ReceivedCallback;
use super::connection::Connection;
use super::consumer::{Consumer, Receive, ReceiveConf, max_list_len};
use super::door::fast_capability;
use super::parcel::IMMEDIATE;
use crate::buf::Buf;
use crate::dev::Info;
use crate::door::{Code, Handle, INVALID, Out, Outcome, answer, c, require};
use crate::mmap::Mmap;
use crate::task::Task;

/// Makes a consumer, whose messages go to buffers of the memory map, which is started. `BAD_STATE` if the connection is not
/// open, `NO_MEMORY` if it has as many consumers as it can.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_consumer_create(
    comch_connection: Handle<Connection>,
    buf_mmap: Handle<Mmap>,
    consumer: Out<Handle<Consumer>>,
) -> Code {
    answer(|| {
        consumer.check()?;
        let memory = buf_mmap.get()?.registered().ok_or(c::DOCA_ERROR_BAD_STATE)?;
        let fast = Arc::clone(&comch_connection.get()?.fast);
        consumer.put(Handle::give_rc(Consumer::new(fast, memory)?))
    })
}

/// Destroys a consumer that is idle; otherwise `IN_USE`.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_consumer_destroy(consumer: Handle<Consumer>) -> Code {
    answer(|| {
        consumer.get()?.ctx.disconnect()?;
        consumer.take_rc().map(drop)
    })
}

/// Whether a consumer can run on the device.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_consumer_cap_is_supported(devinfo: Handle<Info>) -> Code {
    answer(|| require(devinfo.get()?.function().comch, c::DOCA_ERROR_NOT_SUPPORTED))
}

/// The most tasks of a consumer.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_consumer_cap_get_max_num_tasks(devinfo: Handle<Info>, max: Out<u32>) -> Code {
    fast_capability(devinfo, &max, |card| card.config.comch.max_fast_tasks)
}

/// The longest message in bytes.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_consumer_cap_get_max_buf_size(devinfo: Handle<Info>, max: Out<u32>) -> Code {
    fast_capability(devinfo, &max, |card| {
        u32::try_from(card.config.comch.max_fast_size.0).unwrap_or(u32::MAX)
    })
}

/// The most buffers in a list that a message is received in.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_consumer_cap_get_max_buf_list_len(devinfo: Handle<Info>, max: Out<u32>) -> Code {
    fast_capability(devinfo, &max, max_list_len)
}

/// The most consumers of one end of a connection.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_consumer_cap_get_max_consumers(devinfo: Handle<Info>, max: Out<u32>) -> Code {
    fast_capability(devinfo, &max, |card| card.config.comch.max_consumers)
}

/// The most bytes of immediate data.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_consumer_cap_get_max_imm_data_len(devinfo: Handle<Info>, max: Out<u32>) -> Code {
    fast_capability(devinfo, &max, |_| IMMEDIATE as u32)
}

fn configure(consumer: &Handle<Consumer>, set: impl FnOnce(&Consumer) -> Outcome) -> Code {
    answer(|| {
        let consumer = consumer.get()?;
        consumer.ctx.require_idle()?;
        set(consumer)
    })
}

/// The number by which producers of the other end name it.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_consumer_get_id(consumer: Handle<Consumer>, id: Out<u32>) -> Code {
    answer(|| id.put(consumer.get()?.id))
}

/// The most bytes of immediate data that it takes.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_consumer_get_imm_data_len(consumer: Handle<Consumer>, len: Out<u32>) -> Code {
    answer(|| len.put(consumer.get()?.immediate_len.get()))
}

/// The most bytes of immediate data that it takes, up to what the device can do.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_consumer_set_imm_data_len(consumer: Handle<Consumer>, len: u32) -> Code {
    configure(&consumer, |consumer| {
        require(len as usize <= IMMEDIATE, INVALID)?;
        consumer.immediate_len.set(len);
        Ok(())
    })
}

/// The consumer as a context.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_consumer_as_ctx(consumer: Handle<Consumer>) -> *mut c::doca_ctx {
    consumer.get().map_or(ptr::null_mut(), |consumer| Handle::of(&consumer.ctx).cast())
}

/// How many tasks there are, and who is told how they ended.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_consumer_task_post_recv_set_conf(
    consumer: Handle<Consumer>,
    completed: Option<ReceivedCallback>,
    failed: Option<ReceivedCallback>,
    tasks: u32,
) -> Code {
    configure(&consumer, |consumer| {
        let (completed, failed) = (completed.ok_or(INVALID)?, failed.ok_or(INVALID)?);
        let limit = consumer.fast.dev.card().config.comch.max_fast_tasks;
        require((1..=limit).contains(&tasks), INVALID)?;
        consumer.conf.set(Some(ReceiveConf { completed, failed, tasks }));
        Ok(())
    })
}

/// A task that waits for a message in the buffer; without one, for immediate data alone. `NO_MEMORY` if all tasks are taken.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_consumer_task_post_recv_alloc_init(
    consumer: Handle<Consumer>,
    buf: Handle<Buf>,
    task: Out<Handle<Task<Receive>>>,
) -> Code {
    answer(|| {
        task.check()?;
        task.put(consumer.get()?.alloc(buf)?)
    })
}

/// The buffer, or NULL.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_consumer_task_post_recv_get_buf(task: Handle<Task<Receive>>) -> Handle<Buf> {
    task.get().map_or(Handle::null(), |task| task.body.buf.get())
}

/// Another buffer, for the next submission.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_consumer_task_post_recv_set_buf(task: Handle<Task<Receive>>, buf: Handle<Buf>) {
    if let Ok(task) = task.get()
        && !task.head.is_submitted()
    {
        task.body.buf.set(buf);
    }
}

/// The producer that the message is of; 0 if none came.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_consumer_task_post_recv_get_producer_id(task: Handle<Task<Receive>>) -> u32 {
    task.get().map_or(0, |task| task.body.producer.get())
}

/// The immediate data that came, or NULL.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_consumer_task_post_recv_get_imm_data(task: Handle<Task<Receive>>) -> *const u8 {
    match task.get() {
        Ok(task) if task.body.immediate_len.get() > 0 => task.body.immediate.as_ptr().cast(),
        _ => ptr::null(),
    }
}

/// Bytes of immediate data that came.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_consumer_task_post_recv_get_imm_data_len(task: Handle<Task<Receive>>) -> u32 {
    task.get().map_or(0, |task| task.body.immediate_len.get())
}

/// The task as a task of any kind.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_consumer_task_post_recv_as_task(task: Handle<Task<Receive>>) -> *mut c::doca_task {
    task.get().map_or(ptr::null_mut(), |task| Handle::of(&task.head).cast())
}

// There is no data path accelerator here, and so nothing of it that could be passed.

fn no_completion(completion: *const c::doca_comch_consumer_completion) -> Code {
    if completion.is_null() { INVALID } else { c::DOCA_ERROR_NOT_SUPPORTED }
}

fn elsewhere(consumer: &Handle<Consumer>) -> Code {
    answer(|| {
        consumer.get()?;
        Err(c::DOCA_ERROR_NOT_SUPPORTED)
    })
}

/// There is no data path accelerator here.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_consumer_completion_create(
    completion: Out<*mut c::doca_comch_consumer_completion>,
) -> Code {
    answer(|| {
        completion.check()?;
        Err(c::DOCA_ERROR_NOT_SUPPORTED)
    })
}

/// There is no data path accelerator here.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_consumer_completion_set_dpa_thread(
    completion: *mut c::doca_comch_consumer_completion,
    _thread: *mut c::doca_dpa_thread,
) -> Code {
    no_completion(completion)
}

/// There is no data path accelerator here.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_consumer_completion_destroy(
    completion: *mut c::doca_comch_consumer_completion,
) -> Code {
    no_completion(completion)
}

/// There is no data path accelerator here.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_consumer_completion_start(
    completion: *mut c::doca_comch_consumer_completion,
) -> Code {
    no_completion(completion)
}

/// There is no data path accelerator here.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_consumer_completion_stop(
    completion: *mut c::doca_comch_consumer_completion,
) -> Code {
    no_completion(completion)
}

/// There is no data path accelerator here.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_consumer_completion_get_dpa_handle(
    completion: *mut c::doca_comch_consumer_completion,
    _handle: *mut u64,
) -> Code {
    no_completion(completion)
}

/// There is no data path accelerator here.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_consumer_completion_set_max_num_consumers(
    completion: *mut c::doca_comch_consumer_completion,
    _max: u32,
) -> Code {
    no_completion(completion)
}

/// There is no data path accelerator here.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_consumer_completion_get_max_num_consumers(
    completion: *const c::doca_comch_consumer_completion,
    _max: *mut u32,
) -> Code {
    no_completion(completion)
}

/// There is no data path accelerator here.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_consumer_completion_set_max_num_recv(
    completion: *mut c::doca_comch_consumer_completion,
    _max: u32,
) -> Code {
    no_completion(completion)
}

/// There is no data path accelerator here.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_consumer_completion_get_max_num_recv(
    completion: *const c::doca_comch_consumer_completion,
    _max: *mut u32,
) -> Code {
    no_completion(completion)
}

/// There is no data path accelerator here.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_consumer_completion_set_imm_data_len(
    completion: *mut c::doca_comch_consumer_completion,
    _len: u32,
) -> Code {
    no_completion(completion)
}

/// There is no data path accelerator here.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_consumer_completion_get_imm_data_len(
    completion: *const c::doca_comch_consumer_completion,
    _len: *mut u32,
) -> Code {
    no_completion(completion)
}

/// There is no data path accelerator here.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_consumer_set_dev_max_num_recv(consumer: Handle<Consumer>, _max: u32) -> Code {
    elsewhere(&consumer)
}

/// There is no data path accelerator here.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_consumer_set_completion(
    consumer: Handle<Consumer>,
    _completion: *mut c::doca_comch_consumer_completion,
    _user_data: u32,
) -> Code {
    elsewhere(&consumer)
}

/// There is no data path accelerator here, so no consumer is on one.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_consumer_get_dpa_handle(consumer: Handle<Consumer>, handle: Out<u64>) -> Code {
    answer(|| {
        handle.check()?;
        consumer.get()?;
        Err(c::DOCA_ERROR_BAD_STATE)
    })
}
