//! The calls of `doca_cc.h`, `doca_cc_consumer.h` and `doca_cc_producer.h` of DOCA 2.5: those of the comm
//! channel under the names of that time. Lengths are of the type `size_t`, numbers of tasks powers of two.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use super::calls::{self, comch, get, pairs};
use super::connection::Connection;
use super::consumer::{Consumer, Receive, max_size};
use super::endpoint::{Endpoint, Send};
use super::parcel::Immediate;
use super::producer::{Message, Producer};
use super::{CcReceiveCallback, ConsumerCallback, OnMessage, StatusCallback};
use super::{consumer_calls, producer_calls, send_calls};
use crate::buf::Buf;
use crate::c_abi::{Code, Handle, INVALID, In, Out, Text, c, c_calls, getters, older_calls, renamed};
use crate::dev::{Dev, Info};
use crate::mmap::Mmap;
use crate::rep::Rep;
use crate::task::{Task, TaskCallback};

/// A length as later versions pass it. Those that they cannot are beyond every limit.
fn len(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

/// The number of tasks of this logarithm.
fn tasks(log: impl TryInto<u32>) -> u32 {
    log.try_into().ok().and_then(|log| 1_u32.checked_shl(log)).unwrap_or(u32::MAX)
}

/// Exports calls that pass changed arguments to those of later versions.
macro_rules! converted {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(,)?) = $now:path, ($($given:expr),*);)*) => {
        older_calls! {
            $(fn $name($($arg: $type),*) -> Code {
                // SAFETY: the caller's promise is that of the other call.
                unsafe { $now($($given),*) }
            })*
        }
    };
}

renamed! {
    fn doca_cc_connection_set_user_data(it: Handle<Connection>, user_data: c::doca_data)
        = calls::doca_comch_connection_set_user_data;
    fn doca_cc_connection_get_user_data(it: Handle<Connection>) -> c::doca_data
        = calls::doca_comch_connection_get_user_data;
    fn doca_cc_server_get_server_ctx(it: Handle<Connection>) -> *const Endpoint
        = calls::doca_comch_server_get_server_ctx;
    fn doca_cc_client_get_client_ctx(it: Handle<Connection>) -> *const Endpoint
        = calls::doca_comch_client_get_client_ctx;
    fn doca_cc_cap_get_max_name_len(devinfo: Handle<Info>, len: Out<u32>)
        = calls::doca_comch_cap_get_max_name_len;
    fn doca_cc_server_create(dev: Handle<Dev>, rep: Handle<Rep>, name: Text, server: Out<Handle<Endpoint>>)
        = calls::doca_comch_server_create;
    fn doca_cc_server_destroy(server: Handle<Endpoint>) = calls::doca_comch_server_destroy;
    fn doca_cc_cap_server_is_supported(devinfo: Handle<Info>) = calls::doca_comch_cap_server_is_supported;
    fn doca_cc_server_get_device(server: Handle<Endpoint>, dev: Out<Handle<Dev>>)
        = calls::doca_comch_server_get_device;
    fn doca_cc_server_get_device_repr(server: Handle<Endpoint>, rep: Out<Handle<Rep>>)
        = calls::doca_comch_server_get_device_rep;
    fn doca_cc_server_as_ctx(server: Handle<Endpoint>) -> *mut c::doca_ctx = calls::doca_comch_server_as_ctx;
    fn doca_cc_client_create(dev: Handle<Dev>, name: Text, client: Out<Handle<Endpoint>>)
        = calls::doca_comch_client_create;
    fn doca_cc_client_destroy(client: Handle<Endpoint>) = calls::doca_comch_client_destroy;
    fn doca_cc_cap_client_is_supported(devinfo: Handle<Info>) = calls::doca_comch_cap_client_is_supported;
    fn doca_cc_client_get_device(client: Handle<Endpoint>, dev: Out<Handle<Dev>>)
        = calls::doca_comch_client_get_device;
    fn doca_cc_client_as_ctx(client: Handle<Endpoint>) -> *mut c::doca_ctx = calls::doca_comch_client_as_ctx;
    fn doca_cc_client_get_connection(client: Handle<Endpoint>, connection: Out<Handle<Connection>>)
        = calls::doca_comch_client_get_connection;
    fn doca_cc_send_task_as_task(task: Handle<Task<Send>>) -> *mut c::doca_task
        = send_calls::doca_comch_task_send_as_task;
    fn doca_cc_server_event_connection_register(
        server: Handle<Endpoint>, came: Option<StatusCallback>, went: Option<StatusCallback>,
    ) = send_calls::doca_comch_server_event_connection_status_changed_register;
    fn doca_cc_connection_update_info(it: Handle<Connection>) = calls::doca_comch_connection_update_info;
    fn doca_cc_connection_get_counter(
        it: Handle<Connection>, counter: c::doca_comch_counter, value: Out<u64>,
    ) = calls::doca_comch_connection_get_counter;
    fn doca_cc_server_event_consumer_register(
        server: Handle<Endpoint>, came: Option<ConsumerCallback>, went: Option<ConsumerCallback>,
    ) = send_calls::doca_comch_server_event_consumer_register;
    fn doca_cc_client_event_consumer_register(
        client: Handle<Endpoint>, came: Option<ConsumerCallback>, went: Option<ConsumerCallback>,
    ) = send_calls::doca_comch_client_event_consumer_register;
    fn doca_cc_consumer_create(
        connection: Handle<Connection>, buf_mmap: Handle<Mmap>, consumer: Out<Handle<Consumer>>,
    ) = consumer_calls::doca_comch_consumer_create;
    fn doca_cc_consumer_destroy(it: Handle<Consumer>) = consumer_calls::doca_comch_consumer_destroy;
    fn doca_cc_cap_is_consumer_supported(devinfo: Handle<Info>)
        = consumer_calls::doca_comch_consumer_cap_is_supported;
    fn doca_cc_consumer_get_id(it: Handle<Consumer>, id: Out<u32>) = consumer_calls::doca_comch_consumer_get_id;
    fn doca_cc_consumer_as_ctx(it: Handle<Consumer>) -> *mut c::doca_ctx
        = consumer_calls::doca_comch_consumer_as_ctx;
    fn doca_cc_consumer_post_recv_task_alloc_init(
        it: Handle<Consumer>, buf: Handle<Buf>, task: Out<Handle<Task<Receive>>>,
    ) = consumer_calls::doca_comch_consumer_task_post_recv_alloc_init;
    fn doca_cc_consumer_post_recv_task_get_buf(task: Handle<Task<Receive>>) -> Handle<Buf>
        = consumer_calls::doca_comch_consumer_task_post_recv_get_buf;
    fn doca_cc_consumer_post_recv_task_set_buf(task: Handle<Task<Receive>>, buf: Handle<Buf>) -> ()
        = consumer_calls::doca_comch_consumer_task_post_recv_set_buf;
    fn doca_cc_consumer_post_recv_task_as_task(task: Handle<Task<Receive>>) -> *mut c::doca_task
        = consumer_calls::doca_comch_consumer_task_post_recv_as_task;
    fn doca_cc_producer_create(connection: Handle<Connection>, producer: Out<Handle<Producer>>)
        = producer_calls::doca_comch_producer_create;
    fn doca_cc_producer_destroy(it: Handle<Producer>) = producer_calls::doca_comch_producer_destroy;
    fn doca_cc_cap_is_producer_supported(devinfo: Handle<Info>)
        = producer_calls::doca_comch_producer_cap_is_supported;
    fn doca_cc_producer_as_ctx(it: Handle<Producer>) -> *mut c::doca_ctx
        = producer_calls::doca_comch_producer_as_ctx;
    fn doca_cc_producer_send_task_get_buf(task: Handle<Task<Message>>) -> Handle<Buf>
        = producer_calls::doca_comch_producer_task_send_get_buf;
    fn doca_cc_producer_send_task_set_buf(task: Handle<Task<Message>>, buf: Handle<Buf>) -> ()
        = producer_calls::doca_comch_producer_task_send_set_buf;
    fn doca_cc_producer_send_task_get_consumer_id(task: Handle<Task<Message>>) -> u32
        = producer_calls::doca_comch_producer_task_send_get_consumer_id;
    fn doca_cc_producer_send_task_set_consumer_id(task: Handle<Task<Message>>, consumer_id: u32) -> ()
        = producer_calls::doca_comch_producer_task_send_set_consumer_id;
    fn doca_cc_producer_send_task_as_task(task: Handle<Task<Message>>) -> *mut c::doca_task
        = producer_calls::doca_comch_producer_task_send_as_task;
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
    ) = send_calls::doca_comch_server_task_send_set_conf, (server, completed, failed, tasks(log));
    fn doca_cc_client_send_task_set_conf(
        client: Handle<Endpoint>, completed: Option<TaskCallback>, failed: Option<TaskCallback>, log: u8,
    ) = send_calls::doca_comch_client_task_send_set_conf, (client, completed, failed, tasks(log));
    fn doca_cc_server_send_task_alloc_init(
        server: Handle<Endpoint>, peer: Handle<Connection>, msg: In<u8>, size: usize,
        task: Out<Handle<Task<Send>>>,
    ) = send_calls::doca_comch_server_task_send_alloc_init, (server, peer, msg, len(size), task);
    fn doca_cc_client_send_task_alloc_init(
        client: Handle<Endpoint>, peer: Handle<Connection>, msg: In<u8>, size: usize,
        task: Out<Handle<Task<Send>>>,
    ) = send_calls::doca_comch_client_task_send_alloc_init, (client, peer, msg, len(size), task);
    fn doca_cc_consumer_post_recv_task_set_conf(
        it: Handle<Consumer>, completed: Option<TaskCallback>, failed: Option<TaskCallback>, log: usize,
    ) = consumer_calls::doca_comch_consumer_task_post_recv_set_conf, (it, completed, failed, tasks(log));
    fn doca_cc_producer_send_task_set_conf(
        it: Handle<Producer>, completed: Option<TaskCallback>, failed: Option<TaskCallback>, log: usize,
    ) = producer_calls::doca_comch_producer_task_send_set_conf, (it, completed, failed, tasks(log));
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
    doca_cc_server_get_max_msg_size, doca_cc_client_get_max_msg_size |endpoint| (size: Out<usize>) {
        get(endpoint, &size, |endpoint| endpoint.max_msg_size.get() as usize)
    }
    doca_cc_server_get_recv_queue_size, doca_cc_client_get_recv_queue_size |endpoint| (size: Out<usize>) {
        get(endpoint, &size, |endpoint| endpoint.recv_queue_size.get() as usize)
    }
    doca_cc_server_event_msg_recv_register, doca_cc_client_event_msg_recv_register
    |endpoint| (callback: Option<CcReceiveCallback>) {
        endpoint.ctx.require_idle()?;
        endpoint.on_message.set(Some(OnMessage::Cc(callback.ok_or(INVALID)?)));
        Ok(())
    }
}

c_calls! {
    /// Takes a task that sends the buffer's data. `NO_MEMORY` if all are taken.
    fn doca_cc_producer_send_task_alloc_init(
        producer: Handle<Producer>,
        buf: Handle<Buf>,
        consumer_id: u32,
        task: Out<Handle<Task<Message>>>,
    ) {
        task.make(|| producer.get()?.alloc(buf, Immediate::default(), consumer_id))
    }
}
