//! The calls of `doca_comch.h`.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::ffi::c_void;
use std::ptr;
use std::rc::Rc;

use super::connection::{Connection, Link};
use super::endpoint::{Endpoint, Send, SendConf};
use super::{ReceiveCallback, SendCallback, StatusCallback};
use crate::config::{ComchConfig, Side};
use crate::dev::{Dev, Info};
use crate::door::{Code, Handle, INVALID, Out, Outcome, Text, answer, c, require};
use crate::rep::Rep;
use crate::task::Task;

/// Told that a consumer came or went, which none does here.
type ConsumerCallback =
    unsafe extern "C" fn(*mut c::doca_comch_event_consumer, *mut c::doca_comch_connection, u32);

/// The server that a handle stands for.
fn server(endpoint: &Handle<Endpoint>) -> Outcome<&Endpoint> {
    let endpoint = endpoint.get()?;
    require(endpoint.is_server(), INVALID)?;
    Ok(endpoint)
}

/// The client that a handle stands for.
fn client(endpoint: &Handle<Endpoint>) -> Outcome<&Endpoint> {
    let endpoint = endpoint.get()?;
    require(!endpoint.is_server(), INVALID)?;
    Ok(endpoint)
}

/// Which side a handle must be of.
type Find = for<'a> fn(&'a Handle<Endpoint>) -> Outcome<&'a Endpoint>;

fn is_supported(info: &Info, side: Side) -> Outcome {
    require(info.function().comch && info.function().side == side, c::DOCA_ERROR_NOT_SUPPORTED)
}

fn capability(devinfo: Handle<Info>, value: &Out<u32>, limit: fn(&ComchConfig) -> u32) -> Code {
    answer(|| {
        value.check()?;
        let info = devinfo.get()?;
        require(info.function().comch, c::DOCA_ERROR_NOT_SUPPORTED)?;
        value.put(limit(&info.card.config.comch))
    })
}

/// A name that is not too long, its NUL counted, and not empty.
fn check_name<'a>(dev: &Dev, name: &'a Text) -> Outcome<&'a str> {
    let name = name.str()?;
    let room = dev.card().config.comch.max_name_len as usize;
    require(!name.is_empty() && name.len() < room, INVALID)?;
    Ok(name)
}

/// Makes a server for the host's function that the representor stands for. `NOT_SUPPORTED` on a device that is not the
/// DPU's.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_server_create(
    dev: Handle<Dev>,
    repr: Handle<Rep>,
    name: Text,
    comch_server: Out<Handle<Endpoint>>,
) -> Code {
    answer(|| {
        comch_server.check()?;
        let (dev, rep) = (dev.arc()?, repr.arc()?);
        let name = check_name(&dev, &name)?;
        is_supported(&dev.info, Side::Dpu)?;
        comch_server.put(Handle::give_rc(Endpoint::new(dev, Some(rep), name)))
    })
}

/// Makes a client. `NOT_SUPPORTED` on a device that is not the host's.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_client_create(
    dev: Handle<Dev>,
    name: Text,
    comch_client: Out<Handle<Endpoint>>,
) -> Code {
    answer(|| {
        comch_client.check()?;
        let dev = dev.arc()?;
        let name = check_name(&dev, &name)?;
        is_supported(&dev.info, Side::Host)?;
        comch_client.put(Handle::give_rc(Endpoint::new(dev, None, name)))
    })
}

fn destroy(endpoint: Handle<Endpoint>, find: Find) -> Code {
    answer(|| {
        find(&endpoint)?.ctx.disconnect()?;
        endpoint.take_rc().map(drop)
    })
}

/// Destroys a server that is idle; otherwise `IN_USE`.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_server_destroy(comch_server: Handle<Endpoint>) -> Code {
    destroy(comch_server, server)
}

/// Destroys a client that is idle; otherwise `IN_USE`.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_client_destroy(comch_client: Handle<Endpoint>) -> Code {
    destroy(comch_client, client)
}

fn as_ctx(endpoint: &Handle<Endpoint>, find: Find) -> *mut c::doca_ctx {
    find(endpoint).map_or(ptr::null_mut(), |endpoint| Handle::of(&endpoint.ctx).cast())
}

/// The server as a context.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_server_as_ctx(comch_server: Handle<Endpoint>) -> *mut c::doca_ctx {
    as_ctx(&comch_server, server)
}

/// The client as a context.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_client_as_ctx(comch_client: Handle<Endpoint>) -> *mut c::doca_ctx {
    as_ctx(&comch_client, client)
}

/// Whether a server can run on the device.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_cap_server_is_supported(devinfo: Handle<Info>) -> Code {
    answer(|| is_supported(devinfo.get()?, Side::Dpu))
}

/// Whether a client can run on the device.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_cap_client_is_supported(devinfo: Handle<Info>) -> Code {
    answer(|| is_supported(devinfo.get()?, Side::Host))
}

/// The longest name, its NUL counted.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_cap_get_max_name_len(devinfo: Handle<Info>, max_name_len: Out<u32>) -> Code {
    capability(devinfo, &max_name_len, |limits| limits.max_name_len)
}

/// The longest message in bytes.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_cap_get_max_msg_size(devinfo: Handle<Info>, size: Out<u32>) -> Code {
    capability(devinfo, &size, |limits| limits.max_msg_size)
}

/// The most messages that a receive queue holds.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_cap_get_max_recv_queue_size(devinfo: Handle<Info>, size: Out<u32>) -> Code {
    capability(devinfo, &size, |limits| limits.max_recv_queue_size)
}

/// The most clients of one server.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_cap_get_max_clients(devinfo: Handle<Info>, num_clients: Out<u32>) -> Code {
    capability(devinfo, &num_clients, |limits| limits.max_clients)
}

/// The most send tasks of one server or client.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_cap_get_max_send_tasks(devinfo: Handle<Info>, max_send_tasks: Out<u32>) -> Code {
    capability(devinfo, &max_send_tasks, |limits| limits.max_send_tasks)
}

fn configure(endpoint: &Handle<Endpoint>, find: Find, set: impl FnOnce(&Endpoint) -> Outcome) -> Code {
    answer(|| {
        let endpoint = find(endpoint)?;
        endpoint.ctx.require_idle()?;
        set(endpoint)
    })
}

fn set_max_msg_size(endpoint: &Handle<Endpoint>, find: Find, size: u32) -> Code {
    configure(endpoint, find, |endpoint| {
        require((1..=endpoint.limits().max_msg_size).contains(&size), INVALID)?;
        endpoint.max_msg_size.set(size);
        Ok(())
    })
}

fn set_recv_queue_size(endpoint: &Handle<Endpoint>, find: Find, size: u32) -> Code {
    configure(endpoint, find, |endpoint| {
        require((1..=endpoint.limits().max_recv_queue_size).contains(&size), INVALID)?;
        endpoint.recv_queue_size.set(size);
        Ok(())
    })
}

/// The longest message, up to what the device can do.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_server_set_max_msg_size(comch_server: Handle<Endpoint>, size: u32) -> Code {
    set_max_msg_size(&comch_server, server, size)
}

/// The longest message, up to what the device can do.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_client_set_max_msg_size(comch_client: Handle<Endpoint>, size: u32) -> Code {
    set_max_msg_size(&comch_client, client, size)
}

/// How many messages wait to be received.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_server_set_recv_queue_size(comch_server: Handle<Endpoint>, size: u32) -> Code {
    set_recv_queue_size(&comch_server, server, size)
}

/// How many messages wait to be received.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_client_set_recv_queue_size(comch_client: Handle<Endpoint>, size: u32) -> Code {
    set_recv_queue_size(&comch_client, client, size)
}

fn get<T>(endpoint: &Handle<Endpoint>, find: Find, out: &Out<T>, value: impl FnOnce(&Endpoint) -> T) -> Code {
    answer(|| {
        out.check()?;
        out.put(value(find(endpoint)?))
    })
}

/// The longest message.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_server_get_max_msg_size(comch_server: Handle<Endpoint>, size: Out<u32>) -> Code {
    get(&comch_server, server, &size, |endpoint| endpoint.max_msg_size.get())
}

/// The longest message.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_client_get_max_msg_size(comch_client: Handle<Endpoint>, size: Out<u32>) -> Code {
    get(&comch_client, client, &size, |endpoint| endpoint.max_msg_size.get())
}

/// How many messages wait to be received.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_server_get_recv_queue_size(comch_server: Handle<Endpoint>, size: Out<u32>) -> Code {
    get(&comch_server, server, &size, |endpoint| endpoint.recv_queue_size.get())
}

/// How many messages wait to be received.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_client_get_recv_queue_size(comch_client: Handle<Endpoint>, size: Out<u32>) -> Code {
    get(&comch_client, client, &size, |endpoint| endpoint.recv_queue_size.get())
}

/// The device that the server was made on.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_server_get_device(comch_server: Handle<Endpoint>, dev: Out<Handle<Dev>>) -> Code {
    get(&comch_server, server, &dev, |endpoint| Handle::of(&*endpoint.dev))
}

/// The device that the client was made on.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_client_get_device(comch_client: Handle<Endpoint>, dev: Out<Handle<Dev>>) -> Code {
    get(&comch_client, client, &dev, |endpoint| Handle::of(&*endpoint.dev))
}

/// The representor that the server was made for.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_server_get_device_rep(
    comch_server: Handle<Endpoint>,
    rep: Out<Handle<Rep>>,
) -> Code {
    get(&comch_server, server, &rep, |endpoint| {
        endpoint.rep.as_ref().map_or(Handle::null(), |rep| Handle::of(&**rep))
    })
}

/// The client's connection; `BAD_STATE` before it is started.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_client_get_connection(
    comch_client: Handle<Endpoint>,
    connection: Out<Handle<Connection>>,
) -> Code {
    answer(|| {
        connection.check()?;
        connection.put(Handle::of(&*client(&comch_client)?.client_connection()?))
    })
}

/// Ends a connection. The other side is told, and the program by its callback. `AGAIN` if there is no room to tell.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_server_disconnect(
    comch_server: Handle<Endpoint>,
    connection: Handle<Connection>,
) -> Code {
    answer(|| {
        let server = server(&comch_server)?;
        server.disconnect(&*server.own(connection)?)
    })
}

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
    // There are no producers and consumers in these headers, so none ever comes.
    configure(endpoint, find, |_| require(came.is_some() && went.is_some(), INVALID))
}

/// Accepted, and never called: these headers have no consumers.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_server_event_consumer_register(
    comch_server: Handle<Endpoint>,
    came: Option<ConsumerCallback>,
    went: Option<ConsumerCallback>,
) -> Code {
    set_consumer(&comch_server, server, came, went)
}

/// Accepted, and never called: these headers have no consumers.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_client_event_consumer_register(
    comch_client: Handle<Endpoint>,
    came: Option<ConsumerCallback>,
    went: Option<ConsumerCallback>,
) -> Code {
    set_consumer(&comch_client, client, came, went)
}

/// What the program attaches to a connection.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_connection_set_user_data(
    connection: Handle<Connection>,
    user_data: c::doca_data,
) -> Code {
    answer(|| {
        connection.get()?.user_data.set(user_data);
        Ok(())
    })
}

/// What the program attached to a connection; 0 for NULL.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_connection_get_user_data(connection: Handle<Connection>) -> c::doca_data {
    connection.get().map_or(c::doca_data { u64_: 0 }, |connection| connection.user_data.get())
}

fn endpoint_of(connection: &Handle<Connection>, is_server: bool) -> *const Endpoint {
    let endpoint = connection.get().ok().and_then(|connection| connection.endpoint.upgrade());
    endpoint
        .filter(|endpoint| endpoint.is_server() == is_server)
        .map_or(ptr::null(), |endpoint| Rc::as_ptr(&endpoint))
}

/// The server that the connection is of, or NULL.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_server_get_server_ctx(connection: Handle<Connection>) -> *const Endpoint {
    endpoint_of(&connection, true)
}

/// The client that the connection is of, or NULL.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_client_get_client_ctx(connection: Handle<Connection>) -> *const Endpoint {
    endpoint_of(&connection, false)
}

/// Takes the counters as they are now.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_connection_update_info(connection: Handle<Connection>) -> Code {
    answer(|| {
        let connection = connection.get()?;
        connection.shown.set(connection.counters.get());
        match connection.link.get() {
            Link::Greeting => Err(c::DOCA_ERROR_CONNECTION_INPROGRESS),
            Link::Open => Ok(()),
            Link::Closed => Err(c::DOCA_ERROR_CONNECTION_ABORTED),
        }
    })
}

/// A counter, as of the last update.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_connection_get_counter(
    connection: Handle<Connection>,
    counter: c::doca_comch_counter,
    value: Out<u64>,
) -> Code {
    answer(|| {
        value.check()?;
        let counters = connection.get()?.shown.get();
        let which = counter.checked_sub(c::DOCA_COMCH_COUNTER_SENT_MESSAGES).ok_or(INVALID)?;
        value.put(*counters.get(which as usize).ok_or(INVALID)?)
    })
}
