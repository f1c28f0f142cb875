//! The calls of `doca_comch_producer.h`.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::ptr;
use std::sync::Arc;

use super::SentCallback;
use super::connection::Connection;
use super::consumer::max_list_len;
use super::door::fast_capability;
use super::parcel::{IMMEDIATE, Immediate};
use super::producer::{Message, MessageConf, Producer};
use crate::buf::Buf;
use crate::dev::Info;
use crate::door::{Code, Handle, INVALID, In, Out, Outcome, answer, c, require};
use crate::task::Task;

/// Makes a producer. `BAD_STATE` if the connection is not open, `NO_MEMORY` if it has as many producers as it can.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_producer_create(
    comch_connection: Handle<Connection>,
    producer: Out<Handle<Producer>>,
) -> Code {
    answer(|| {
        producer.check()?;
        let fast = Arc::clone(&comch_connection.get()?.fast);
        producer.put(Handle::give_rc(Producer::new(fast)?))
    })
}

/// Destroys a producer that is idle; otherwise `IN_USE`.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_producer_destroy(producer: Handle<Producer>) -> Code {
    answer(|| {
        producer.get()?.ctx.disconnect()?;
        producer.take_rc().map(drop)
    })
}

/// Whether a producer can run on the device.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_producer_cap_is_supported(devinfo: Handle<Info>) -> Code {
    answer(|| require(devinfo.get()?.function().comch, c::DOCA_ERROR_NOT_SUPPORTED))
}

/// The most tasks of a producer.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_producer_cap_get_max_num_tasks(devinfo: Handle<Info>, max: Out<u32>) -> Code {
    fast_capability(devinfo, &max, |card| card.config.comch.max_fast_tasks)
}

/// The longest message in bytes.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_producer_cap_get_max_buf_size(devinfo: Handle<Info>, max: Out<u32>) -> Code {
    fast_capability(devinfo, &max, |card| {
        u32::try_from(card.config.comch.max_fast_size.0).unwrap_or(u32::MAX)
    })
}

/// The most buffers in a list that is a message.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_producer_cap_get_max_buf_list_len(devinfo: Handle<Info>, max: Out<u32>) -> Code {
    fast_capability(devinfo, &max, max_list_len)
}

/// The most producers of one end of a connection.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_producer_cap_get_max_producers(devinfo: Handle<Info>, max: Out<u32>) -> Code {
    fast_capability(devinfo, &max, |card| card.config.comch.max_producers)
}

/// The number that consumers of the other end know it by.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_producer_get_id(producer: Handle<Producer>, id: Out<u32>) -> Code {
    answer(|| id.put(producer.get()?.id))
}

/// The producer as a context.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_producer_as_ctx(producer: Handle<Producer>) -> *mut c::doca_ctx {
    producer.get().map_or(ptr::null_mut(), |producer| Handle::of(&producer.ctx).cast())
}

/// How many tasks there are, and who is told how they ended.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_producer_task_send_set_conf(
    producer: Handle<Producer>,
    completed: Option<SentCallback>,
    failed: Option<SentCallback>,
    tasks: u32,
) -> Code {
    answer(|| {
        let producer = producer.get()?;
        producer.ctx.require_idle()?;
        let (completed, failed) = (completed.ok_or(INVALID)?, failed.ok_or(INVALID)?);
        let limit = producer.fast.dev.card().config.comch.max_fast_tasks;
        require((1..=limit).contains(&tasks), INVALID)?;
        producer.conf.set(Some(MessageConf { completed, failed, tasks }));
        Ok(())
    })
}

/// Immediate data, which is copied; NULL for none.
fn immediate(data: &In<u8>, len: u32) -> Outcome<Immediate> {
    require(len as usize <= IMMEDIATE, INVALID)?;
    if len == 0 {
        return Ok(Immediate::default());
    }
    Immediate::new(data.slice(len as usize)?).ok_or(INVALID)
}

/// A task that sends the buffer's data, immediate data, or both, to a consumer. `NO_MEMORY` if all tasks are taken.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_producer_task_send_alloc_init(
    producer: Handle<Producer>,
    buf: Handle<Buf>,
    imm_data: In<u8>,
    imm_data_len: u32,
    consumer_id: u32,
    task: Out<Handle<Task<Message>>>,
) -> Code {
    answer(|| {
        task.check()?;
        let producer = producer.get()?;
        let immediate = immediate(&imm_data, imm_data_len)?;
        task.put(producer.alloc(buf, immediate, consumer_id)?)
    })
}

/// The buffer, or NULL.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_producer_task_send_get_buf(task: Handle<Task<Message>>) -> Handle<Buf> {
    task.get().map_or(Handle::null(), |task| task.body.buf.get())
}

fn set(task: &Handle<Task<Message>>, set: impl FnOnce(&Message)) {
    if let Ok(task) = task.get()
        && !task.head.is_submitted()
    {
        set(&task.body);
    }
}

/// Another buffer, for the next submission.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_producer_task_send_set_buf(task: Handle<Task<Message>>, buf: Handle<Buf>) {
    set(&task, |message| message.buf.set(buf));
}

/// The consumer that it is for.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_producer_task_send_get_consumer_id(task: Handle<Task<Message>>) -> u32 {
    task.get().map_or(0, |task| task.body.consumer.get())
}

/// Another consumer, for the next submission.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_producer_task_send_set_consumer_id(task: Handle<Task<Message>>, consumer_id: u32) {
    set(&task, |message| message.consumer.set(consumer_id));
}

/// The task's copy of the immediate data, or NULL.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_producer_task_send_get_imm_data(task: Handle<Task<Message>>) -> *mut u8 {
    match task.get() {
        // The bytes are what it begins with.
        Ok(task) if task.body.immediate.get().len > 0 => task.body.immediate.as_ptr().cast(),
        _ => ptr::null_mut(),
    }
}

/// Bytes of immediate data.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_producer_task_send_get_imm_data_len(task: Handle<Task<Message>>) -> u32 {
    task.get().map_or(0, |task| task.body.immediate.get().len)
}

/// Other immediate data, for the next submission; what is too long changes nothing.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_producer_task_send_set_imm_data(
    task: Handle<Task<Message>>,
    imm_data: In<u8>,
    imm_data_len: u32,
) {
    if let Ok(immediate) = immediate(&imm_data, imm_data_len) {
        set(&task, |message| message.immediate.set(immediate));
    }
}

/// The task as a task of any kind.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_producer_task_send_as_task(task: Handle<Task<Message>>) -> *mut c::doca_task {
    task.get().map_or(ptr::null_mut(), |task| Handle::of(&task.head).cast())
}

/// There is no data path accelerator here.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_producer_set_dev_max_num_send(producer: Handle<Producer>, _max: u32) -> Code {
    answer(|| {
        producer.get()?;
        Err(c::DOCA_ERROR_NOT_SUPPORTED)
    })
}

/// There is no data path accelerator here.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_producer_dpa_completion_attach(
    producer: Handle<Producer>,
    _completion: *mut c::doca_dpa_completion,
) -> Code {
    answer(|| {
        producer.get()?;
        Err(c::DOCA_ERROR_NOT_SUPPORTED)
    })
}

/// There is no data path accelerator here, so no producer is on one.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_producer_get_dpa_handle(producer: Handle<Producer>, handle: Out<u64>) -> Code {
    answer(|| {
        handle.check()?;
        producer.get()?;
        Err(c::DOCA_ERROR_BAD_STATE)
    })
}
