//! The calls of `doca_comch.h`.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::ptr;
use std::rc::Rc;

use super::connection::Connection;
use super::endpoint::{Endpoint, Send};
use super::{ConsumerCallback, OnMessage, ReceiveCallback, StatusCallback};
use crate::c_abi::{
    Handle, INVALID, In, NO_DATA, Out, Outcome, TaskBytes, Text, c, c_calls, getters, pointer_to, require,
};
use crate::config::{ComchConfig, Side};
use crate::ctx::destroy;
use crate::dev::{Dev, Info};
use crate::rep::Rep;
use crate::task::{Task, TaskCallback, as_task};

/// Returns the handle's endpoint, which must be a server.
pub(super) fn server(endpoint: &Handle<Endpoint>) -> Outcome<&Endpoint> {
    let endpoint = endpoint.get()?;
    require(endpoint.is_server(), INVALID)?;
    Ok(endpoint)
}

/// Returns the handle's endpoint, which must be a client.
pub(super) fn client(endpoint: &Handle<Endpoint>) -> Outcome<&Endpoint> {
    let endpoint = endpoint.get()?;
    require(!endpoint.is_server(), INVALID)?;
    Ok(endpoint)
}

pub(super) fn is_supported(info: &Info, side: Side) -> Outcome {
    require(info.function().comch && info.function().side == side, c::DOCA_ERROR_NOT_SUPPORTED)
}

/// Returns the limits of the comm channel. `NOT_SUPPORTED` if the function lacks the comm channel.
pub(super) fn comch(info: &Info) -> Outcome<&ComchConfig> {
    require(info.function().comch, c::DOCA_ERROR_NOT_SUPPORTED)?;
    Ok(&info.card.config.comch)
}

/// Checks that the name is not empty, and that the name and its NUL do not exceed the limit.
pub(super) fn check_name<'a>(dev: &Dev, name: &'a Text) -> Outcome<&'a str> {
    let name = name.str()?;
    let room = dev.card().config.comch.max_name_len as usize;
    require(!name.is_empty() && name.len() < room, INVALID)?;
    Ok(name)
}

fn as_ctx(endpoint: Outcome<&Endpoint>) -> *mut c::doca_ctx {
    endpoint.map_or(ptr::null_mut(), |endpoint| pointer_to(&endpoint.ctx))
}

pub(super) fn get<T>(endpoint: &Endpoint, out: &Out<T>, value: impl FnOnce(&Endpoint) -> T) -> Outcome {
    out.check()?;
    out.put(value(endpoint))
}

/// Declares the calls that exist for both servers and clients.
macro_rules! pairs {
    ($($(#[$doc:meta])* $server:ident $(| $old_server:ident)*, $client:ident $(| $old_client:ident)*;
        |$endpoint:ident| ($($arg:ident: $type:ty),*) $body:block)*) => {
        $crate::c_abi::c_calls! {
            $(
                $(#[$doc])*
                fn $server $(| $old_server)*(comch_server: Handle<Endpoint>, $($arg: $type),*) {
                    let $endpoint = $crate::comch::calls::server(&comch_server)?;
                    $body
                }
                $(#[$doc])*
                fn $client $(| $old_client)*(comch_client: Handle<Endpoint>, $($arg: $type),*) {
                    let $endpoint = $crate::comch::calls::client(&comch_client)?;
                    $body
                }
            )*
        }
    };
}
pub(super) use pairs;

pairs! {
    /// Sets the maximum length of a message, up to the limit of the device.
    doca_comch_server_set_max_msg_size, doca_comch_client_set_max_msg_size; |endpoint| (size: u32) {
        endpoint.ctx.require_idle()?;
        require((1..=endpoint.limits().max_msg_size).contains(&size), INVALID)?;
        endpoint.max_msg_size.set(size);
        Ok(())
    }
    doca_comch_server_get_max_msg_size, doca_comch_client_get_max_msg_size; |endpoint| (size: Out<u32>) {
        get(endpoint, &size, |endpoint| endpoint.max_msg_size.get())
    }
    /// Sets the number of messages that the receive queue holds, up to the limit of the device.
    doca_comch_server_set_recv_queue_size, doca_comch_client_set_recv_queue_size; |endpoint| (size: u32) {
        endpoint.ctx.require_idle()?;
        require((1..=endpoint.limits().max_recv_queue_size).contains(&size), INVALID)?;
        endpoint.recv_queue_size.set(size);
        Ok(())
    }
    doca_comch_server_get_recv_queue_size, doca_comch_client_get_recv_queue_size; |endpoint| (size: Out<u32>) {
        get(endpoint, &size, |endpoint| endpoint.recv_queue_size.get())
    }
    doca_comch_server_get_device | doca_cc_server_get_device,
    doca_comch_client_get_device | doca_cc_client_get_device; |endpoint| (dev: Out<Handle<Dev>>) {
        // SAFETY: the endpoint keeps its device open, and C uses this handle only while the endpoint exists.
        get(endpoint, &dev, |endpoint| unsafe { Handle::of(&*endpoint.dev) })
    }
}

fn endpoint_of(connection: &Handle<Connection>, is_server: bool) -> *const Endpoint {
    let endpoint = connection.get().ok().and_then(|connection| connection.endpoint.upgrade());
    let endpoint = endpoint.and_then(|endpoint| endpoint.downcast::<Endpoint>().ok());
    let endpoint = endpoint.filter(|endpoint| endpoint.is_server() == is_server);
    endpoint.map_or(ptr::null(), |endpoint| Rc::as_ptr(&endpoint))
}

getters! {
    doca_comch_cap_get_max_name_len
        | doca_cc_cap_get_max_name_len(info: Info) -> u32 { comch(info)?.max_name_len }
    doca_comch_cap_get_max_msg_size(info: Info) -> u32 { comch(info)?.max_msg_size }
    doca_comch_cap_get_max_recv_queue_size(info: Info) -> u32 { comch(info)?.max_recv_queue_size }
    doca_comch_cap_get_max_clients(info: Info) -> u32 { comch(info)?.max_clients }
    doca_comch_cap_get_max_send_tasks(info: Info) -> u32 { comch(info)?.max_send_tasks }
}

c_calls! {
    fn doca_comch_connection_set_user_data
        | doca_cc_connection_set_user_data(connection: Handle<Connection>, user_data: c::doca_data) {
        connection.get().map(|connection| connection.user_data.set(user_data))
    }
    /// Returns a connection's user data. Returns 0 for NULL.
    fn doca_comch_connection_get_user_data
        | doca_cc_connection_get_user_data(connection: Handle<Connection>) -> c::doca_data {
        connection.get().map_or(NO_DATA, |connection| connection.user_data.get())
    }
    /// Returns the server of a connection. Returns NULL if this end of the connection is a client.
    fn doca_comch_server_get_server_ctx
        | doca_cc_server_get_server_ctx(it: Handle<Connection>) -> *const Endpoint { endpoint_of(&it, true) }
    /// Returns the client of a connection. Returns NULL if this end of the connection is a server.
    fn doca_comch_client_get_client_ctx
        | doca_cc_client_get_client_ctx(it: Handle<Connection>) -> *const Endpoint { endpoint_of(&it, false) }
    /// Makes a server for the host's function that the representor stands for. Returns `NOT_SUPPORTED` on
    /// a device of the host.
    fn doca_comch_server_create | doca_cc_server_create(
        dev: Handle<Dev>,
        repr: Handle<Rep>,
        name: Text,
        comch_server: Out<Handle<Endpoint>>,
    ) {
        comch_server.check()?;
        let (dev, rep) = (dev.arc()?, repr.arc()?);
        let name = check_name(&dev, &name)?;
        is_supported(&dev.info, Side::Dpu)?;
        comch_server.put(Handle::give_rc(Endpoint::new(dev, Some(rep), name)))
    }
    /// Destroys a server. Returns `IN_USE` unless the server is idle.
    fn doca_comch_server_destroy
        | doca_cc_server_destroy(it: Handle<Endpoint>) { server(&it).and_then(|_| destroy(it)) }
    fn doca_comch_cap_server_is_supported
        | doca_cc_cap_server_is_supported(devinfo: Handle<Info>) { is_supported(devinfo.get()?, Side::Dpu) }
    fn doca_comch_server_get_device_rep
        | doca_cc_server_get_device_repr(comch_server: Handle<Endpoint>, rep: Out<Handle<Rep>>) {
        get(server(&comch_server)?, &rep, |endpoint| {
            // SAFETY: the endpoint keeps its representor open, and C uses this handle only while the endpoint
            // exists.
            endpoint.rep.as_ref().map_or(Handle::NULL, |rep| unsafe { Handle::of(&**rep) })
        })
    }
    fn doca_comch_server_as_ctx
        | doca_cc_server_as_ctx(it: Handle<Endpoint>) -> *mut c::doca_ctx { as_ctx(server(&it)) }
    /// Ends a connection. Sends a notice to the peer, and later calls the program's callback. Returns `AGAIN`
    /// if the socket has no room for the notice, `IN_USE` if this side has consumers or producers of the
    /// connection.
    fn doca_comch_server_disconnect(comch_server: Handle<Endpoint>, connection: Handle<Connection>) {
        let server = server(&comch_server)?;
        server.disconnect(&*server.own(connection)?)
    }
    /// Makes a client. Returns `NOT_SUPPORTED` on a device of the DPU.
    fn doca_comch_client_create
        | doca_cc_client_create(dev: Handle<Dev>, name: Text, comch_client: Out<Handle<Endpoint>>) {
        comch_client.check()?;
        let dev = dev.arc()?;
        let name = check_name(&dev, &name)?;
        is_supported(&dev.info, Side::Host)?;
        comch_client.put(Handle::give_rc(Endpoint::new(dev, None, name)))
    }
    /// Destroys a client. Returns `IN_USE` unless the client is idle.
    fn doca_comch_client_destroy
        | doca_cc_client_destroy(it: Handle<Endpoint>) { client(&it).and_then(|_| destroy(it)) }
    fn doca_comch_cap_client_is_supported
        | doca_cc_cap_client_is_supported(devinfo: Handle<Info>) { is_supported(devinfo.get()?, Side::Host) }
    fn doca_comch_client_as_ctx
        | doca_cc_client_as_ctx(it: Handle<Endpoint>) -> *mut c::doca_ctx { as_ctx(client(&it)) }
    /// Writes the client's connection. Returns `BAD_STATE` before the client is started.
    fn doca_comch_client_get_connection
        | doca_cc_client_get_connection(comch_client: Handle<Endpoint>, connection: Out<Handle<Connection>>) {
        connection.make(|| {
            let own = client(&comch_client)?.client_connection()?;
            // SAFETY: the client keeps its connection, and C uses this handle only while the client is
            // connected.
            Ok(unsafe { Handle::of(&*own) })
        })
    }
    /// Updates the counters that `get_counter` reads. Returns an error unless the connection is open.
    fn doca_comch_connection_update_info | doca_cc_connection_update_info(connection: Handle<Connection>) {
        let connection = connection.get()?;
        connection.shown.set(connection.counters.get());
        connection.link_outcome()
    }
    /// Writes the value that a counter had at the last update.
    fn doca_comch_connection_get_counter | doca_cc_connection_get_counter(
        connection: Handle<Connection>,
        counter: c::doca_comch_counter,
        value: Out<u64>,
    ) {
        value.check()?;
        let counters = connection.get()?.shown.get();
        let which = counter.checked_sub(c::DOCA_COMCH_COUNTER_SENT_MESSAGES).ok_or(INVALID)?;
        value.put(*counters.get(which as usize).ok_or(INVALID)?)
    }
}

pairs! {
    /// Sets the number of send tasks and their callbacks.
    doca_comch_server_task_send_set_conf, doca_comch_client_task_send_set_conf;
    |endpoint| (completed: Option<TaskCallback>, failed: Option<TaskCallback>, tasks: u32) {
        endpoint.ctx.require_idle()?;
        endpoint.tasks.configure(completed, failed, tasks, 1..=endpoint.limits().max_send_tasks)
    }
    /// Takes a task for a message that must not change until the task ends. Returns `NO_MEMORY` if all
    /// tasks are in use.
    doca_comch_server_task_send_alloc_init, doca_comch_client_task_send_alloc_init;
    |endpoint| (peer: Handle<Connection>, msg: In<u8>, len: u32, task: Out<Handle<Task<Send>>>) {
        // SAFETY: C passes the message's length beside it, and does not change or free the message until the
        // task ends.
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
    /// Sets the callbacks for consumers of the peer that are created and destroyed.
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
    /// Sets the callbacks for clients that connect and disconnect.
    fn doca_comch_server_event_connection_status_changed_register
        | doca_comch_server_event_connection_register
        | doca_cc_server_event_connection_register(
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
