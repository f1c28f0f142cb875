//! The calls of `doca_cc.h`, `doca_cc_consumer.h` and `doca_cc_producer.h` of DOCA 2.5: the comm channel's
//! calls under the names of that version. Lengths have the type `size_t`, and numbers of tasks are powers of
//! two.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use super::calls::{self, comch, get, pairs};
use super::connection::Connection;
use super::consumer::{Consumer, max_size};
use super::endpoint::{Endpoint, Send};
use super::producer::{Message, Producer};
use super::wire::Immediate;
use super::{CcReceiveCallback, OnMessage, consumer_calls, producer};
use crate::buf::Buf;
use crate::c_abi::{Code, Handle, INVALID, In, Out, c_calls, getters};
use crate::dev::Info;
use crate::task::{Task, TaskCallback};

/// Converts a length to the type of later versions. A length that does not fit becomes the maximum, which
/// exceeds every limit.
fn len(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

fn tasks(log: impl TryInto<u32>) -> u32 {
    log.try_into().ok().and_then(|log| 1_u32.checked_shl(log)).unwrap_or(u32::MAX)
}

/// Exports calls that convert their arguments and call the function of later versions.
macro_rules! converted {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(,)?) = $now:path, ($($given:expr),*);)*) => {
        c_calls! {
            $(fn $name($($arg: $type),*) -> Code {
                // SAFETY: both functions require the same promise for these arguments, which this function's
                // caller makes.
                unsafe { $now($($given),*) }
            })*
        }
    };
}

converted! {
    fn doca_cc_server_set_max_msg_size(server: Handle<Endpoint>, size: usize)
        = calls::doca_comch_server_set_max_msg_size, (server, len(size));
    fn doca_cc_client_set_max_msg_size(client: Handle<Endpoint>, size: usize)
        = calls::doca_comch_client_set_max_msg_size, (client, len(size));
    fn doca_cc_server_set_recv_queue_size(server: Handle<Endpoint>, size: usize)
        = calls::doca_comch_server_set_recv_queue_size, (server, len(size));
    fn doca_cc_client_set_recv_queue_size(client: Handle<Endpoint>, size: usize)
        = calls::doca_comch_client_set_recv_queue_size, (client, len(size));
    fn doca_cc_server_send_task_set_conf(
        server: Handle<Endpoint>, completed: Option<TaskCallback>, failed: Option<TaskCallback>, log: u8,
    ) = calls::doca_comch_server_task_send_set_conf, (server, completed, failed, tasks(log));
    fn doca_cc_client_send_task_set_conf(
        client: Handle<Endpoint>, completed: Option<TaskCallback>, failed: Option<TaskCallback>, log: u8,
    ) = calls::doca_comch_client_task_send_set_conf, (client, completed, failed, tasks(log));
    fn doca_cc_server_send_task_alloc_init(
        server: Handle<Endpoint>, peer: Handle<Connection>, msg: In<u8>, size: usize,
        task: Out<Handle<Task<Send>>>,
    ) = calls::doca_comch_server_task_send_alloc_init, (server, peer, msg, len(size), task);
    fn doca_cc_client_send_task_alloc_init(
        client: Handle<Endpoint>, peer: Handle<Connection>, msg: In<u8>, size: usize,
        task: Out<Handle<Task<Send>>>,
    ) = calls::doca_comch_client_task_send_alloc_init, (client, peer, msg, len(size), task);
    fn doca_cc_consumer_post_recv_task_set_conf(
        it: Handle<Consumer>, completed: Option<TaskCallback>, failed: Option<TaskCallback>, log: usize,
    ) = consumer_calls::doca_comch_consumer_task_post_recv_set_conf, (it, completed, failed, tasks(log));
    fn doca_cc_producer_send_task_set_conf(
        it: Handle<Producer>, completed: Option<TaskCallback>, failed: Option<TaskCallback>, log: usize,
    ) = producer::doca_comch_producer_task_send_set_conf, (it, completed, failed, tasks(log));
}

getters! {
    doca_cc_cap_get_max_msg_size(info: Info) -> usize { comch(info)?.max_msg_size as usize }
    doca_cc_cap_get_max_recv_queue_size(info: Info) -> usize { comch(info)?.max_recv_queue_size as usize }
    doca_cc_cap_get_max_clients(info: Info) -> usize { comch(info)?.max_clients as usize }
    doca_cc_cap_get_max_send_tasks(info: Info) -> usize { comch(info)?.max_send_tasks as usize }
    doca_cc_consumer_cap_get_max_log_num_tasks(info: Info) -> usize {
        comch(info)?.max_fast_tasks.ilog2() as usize
    }
    doca_cc_consumer_cap_get_max_buf_size(info: Info) -> usize { max_size(comch(info)?) as usize }
    doca_cc_producer_cap_get_max_log_num_tasks(info: Info) -> usize {
        comch(info)?.max_fast_tasks.ilog2() as usize
    }
    doca_cc_producer_cap_get_max_buf_size(info: Info) -> usize { max_size(comch(info)?) as usize }
}

pairs! {
    doca_cc_server_get_max_msg_size, doca_cc_client_get_max_msg_size; |endpoint| (size: Out<usize>) {
        get(endpoint, &size, |endpoint| endpoint.max_msg_size.get() as usize)
    }
    doca_cc_server_get_recv_queue_size, doca_cc_client_get_recv_queue_size; |endpoint| (size: Out<usize>) {
        get(endpoint, &size, |endpoint| endpoint.recv_queue_size.get() as usize)
    }
    doca_cc_server_event_msg_recv_register, doca_cc_client_event_msg_recv_register;
    |endpoint| (callback: Option<CcReceiveCallback>) {
        endpoint.ctx.require_idle()?;
        endpoint.on_message.set(Some(OnMessage::Cc(callback.ok_or(INVALID)?)));
        Ok(())
    }
}

c_calls! {
    /// Takes a task that sends the buffer's data. Returns `NO_MEMORY` if all tasks are in use.
    fn doca_cc_producer_send_task_alloc_init(
        producer: Handle<Producer>,
        buf: Handle<Buf>,
        consumer_id: u32,
        task: Out<Handle<Task<Message>>>,
    ) {
        task.make(|| producer.get()?.alloc(buf, Immediate::default(), consumer_id))
    }
}
