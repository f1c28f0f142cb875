//! The calls of `doca_comch.h` for sending, and for what happens.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::ffi::c_void;
use std::ptr;

use super::connection::Connection;
use super::door::{Find, client, configure, server};
use super::endpoint::{Endpoint, Send, SendConf};
use super::{ConsumerCallback, ReceiveCallback, SendCallback, StatusCallback};
use crate::door::{Code, Handle, INVALID, Out, answer, c, require};
use crate::task::Task;

fn set_send_conf(
    endpoint: &Handle<Endpoint>,
    find: Find,
    completed: Option<SendCallback>,
    failed: Option<SendCallback>,
    tasks: u32,
) -> Code {
    configure(endpoint, find, |endpoint| {
        let (completed, failed) = (completed.ok_or(INVALID)?, failed.ok_or(INVALID)?);
        require((1..=endpoint.limits().max_send_tasks).contains(&tasks), INVALID)?;
        endpoint.send_conf.set(Some(SendConf { completed, failed, tasks }));
        Ok(())
    })
}

/// How many send tasks there are, and who is told how they ended.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_server_task_send_set_conf(
    comch_server: Handle<Endpoint>,
    completed: Option<SendCallback>,
    failed: Option<SendCallback>,
    tasks: u32,
) -> Code {
    set_send_conf(&comch_server, server, completed, failed, tasks)
}

/// How many send tasks there are, and who is told how they ended.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_client_task_send_set_conf(
    comch_client: Handle<Endpoint>,
    completed: Option<SendCallback>,
    failed: Option<SendCallback>,
    tasks: u32,
) -> Code {
    set_send_conf(&comch_client, client, completed, failed, tasks)
}

fn alloc(
    endpoint: &Handle<Endpoint>,
    find: Find,
    peer: Handle<Connection>,
    msg: *const c_void,
    len: u32,
    task: &Out<Handle<Task<Send>>>,
) -> Code {
    answer(|| {
        task.check()?;
        task.put(find(endpoint)?.alloc(peer, msg, len)?)
    })
}

/// A task that sends a message, which stays where it is until the task ends. `NO_MEMORY` if all tasks are taken.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_server_task_send_alloc_init(
    comch_server: Handle<Endpoint>,
    peer: Handle<Connection>,
    msg: *const c_void,
    len: u32,
    task: Out<Handle<Task<Send>>>,
) -> Code {
    alloc(&comch_server, server, peer, msg, len, &task)
}

/// A task that sends a message, which stays where it is until the task ends. `NO_MEMORY` if all tasks are taken.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_client_task_send_alloc_init(
    comch_client: Handle<Endpoint>,
    peer: Handle<Connection>,
    msg: *const c_void,
    len: u32,
    task: Out<Handle<Task<Send>>>,
) -> Code {
    alloc(&comch_client, client, peer, msg, len, &task)
}

/// The task as a task of any kind.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_task_send_as_task(task: Handle<Task<Send>>) -> *mut c::doca_task {
    task.get().map_or(ptr::null_mut(), |task| Handle::of(&task.head).cast())
}

fn set_receive(endpoint: &Handle<Endpoint>, find: Find, callback: Option<ReceiveCallback>) -> Code {
    configure(endpoint, find, |endpoint| {
        endpoint.on_message.set(Some(callback.ok_or(INVALID)?));
        Ok(())
    })
}

/// Who is given messages.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_server_event_msg_recv_register(
    comch_server: Handle<Endpoint>,
    callback: Option<ReceiveCallback>,
) -> Code {
    set_receive(&comch_server, server, callback)
}

/// Who is given messages.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_client_event_msg_recv_register(
    comch_client: Handle<Endpoint>,
    callback: Option<ReceiveCallback>,
) -> Code {
    set_receive(&comch_client, client, callback)
}

/// Who is told of clients that come and go.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_server_event_connection_status_changed_register(
    comch_server: Handle<Endpoint>,
    on_connect: Option<StatusCallback>,
    on_disconnect: Option<StatusCallback>,
) -> Code {
    configure(&comch_server, server, |endpoint| {
        let (on_connect, on_disconnect) = (on_connect.ok_or(INVALID)?, on_disconnect.ok_or(INVALID)?);
        endpoint.on_connect.set(Some(on_connect));
        endpoint.on_disconnect.set(Some(on_disconnect));
        Ok(())
    })
}

fn set_consumer(
    endpoint: &Handle<Endpoint>,
    find: Find,
    came: Option<ConsumerCallback>,
    went: Option<ConsumerCallback>,
) -> Code {
    configure(endpoint, find, |endpoint| {
        let (came, went) = (came.ok_or(INVALID)?, went.ok_or(INVALID)?);
        endpoint.on_consumer.set(Some((came, went)));
        Ok(())
    })
}

/// Who is told of consumers of the other end that come and go.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_server_event_consumer_register(
    comch_server: Handle<Endpoint>,
    came: Option<ConsumerCallback>,
    went: Option<ConsumerCallback>,
) -> Code {
    set_consumer(&comch_server, server, came, went)
}

/// Who is told of consumers of the other end that come and go.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_client_event_consumer_register(
    comch_client: Handle<Endpoint>,
    came: Option<ConsumerCallback>,
    went: Option<ConsumerCallback>,
) -> Code {
    set_consumer(&comch_client, client, came, went)
}
