//! The calls of `doca_comch.h` for sending, and for events.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use super::calls::{pairs, server};
use super::connection::Connection;
use super::endpoint::{Endpoint, Send};
use super::{ConsumerCallback, OnMessage, ReceiveCallback, StatusCallback};
use crate::c_abi::{Handle, INVALID, In, Out, TaskBytes, c, c_calls};
use crate::task::{Task, TaskCallback, as_task};

pairs! {
    /// Sets the number of send tasks and their callbacks.
    doca_comch_server_task_send_set_conf, doca_comch_client_task_send_set_conf;
    |endpoint| (completed: Option<TaskCallback>, failed: Option<TaskCallback>, tasks: u32) {
        endpoint.ctx.require_idle()?;
        endpoint.tasks.configure(completed, failed, tasks, 1..=endpoint.limits().max_send_tasks)
    }
    /// Takes a task for a message that must not change until the task ends. `NO_MEMORY` if all are taken.
    doca_comch_server_task_send_alloc_init, doca_comch_client_task_send_alloc_init;
    |endpoint| (peer: Handle<Connection>, msg: In<u8>, len: u32, task: Out<Handle<Task<Send>>>) {
        // SAFETY: C passes the message's length beside it, and keeps the message until the task ends.
        let message = unsafe { TaskBytes::new(msg, len as usize) };
        task.make(|| endpoint.alloc(peer, message))
    }
    /// Sets the callback for messages.
    doca_comch_server_event_msg_recv_register, doca_comch_client_event_msg_recv_register;
    |endpoint| (callback: Option<ReceiveCallback>) {
        endpoint.ctx.require_idle()?;
        endpoint.on_message.set(Some(OnMessage::Comch(callback.ok_or(INVALID)?)));
        Ok(())
    }
    /// Sets the callbacks for consumers of the other end that come and go.
    doca_comch_server_event_consumer_register | doca_cc_server_event_consumer_register,
    doca_comch_client_event_consumer_register | doca_cc_client_event_consumer_register;
    |endpoint| (came: Option<ConsumerCallback>, went: Option<ConsumerCallback>) {
        endpoint.ctx.require_idle()?;
        endpoint.on_consumer.set(Some((came.ok_or(INVALID)?, went.ok_or(INVALID)?)));
        Ok(())
    }
}

c_calls! {
    fn doca_comch_task_send_as_task
        | doca_cc_send_task_as_task(task: Handle<Task<Send>>) -> *mut c::doca_task { as_task(&task) }
    /// Sets the callbacks for clients that come and go.
    fn doca_comch_server_event_connection_status_changed_register | doca_cc_server_event_connection_register(
        comch_server: Handle<Endpoint>,
        on_connect: Option<StatusCallback>,
        on_disconnect: Option<StatusCallback>,
    ) {
        let endpoint = server(&comch_server)?;
        endpoint.ctx.require_idle()?;
        let (on_connect, on_disconnect) = (on_connect.ok_or(INVALID)?, on_disconnect.ok_or(INVALID)?);
        endpoint.on_connect.set(Some(on_connect));
        endpoint.on_disconnect.set(Some(on_disconnect));
        Ok(())
    }
}
