//! The calls of `doca_comch.h`.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::ptr;

use super::connection::Connection;
use super::endpoint::Endpoint;
use crate::card::Card;
use crate::config::{ComchConfig, Side};
use crate::dev::{Dev, Info};
use crate::door::{Code, Handle, INVALID, Out, Outcome, Text, answer, c, require};
use crate::rep::Rep;

/// The server that a handle stands for.
pub(super) fn server(endpoint: &Handle<Endpoint>) -> Outcome<&Endpoint> {
    let endpoint = endpoint.get()?;
    require(endpoint.is_server(), INVALID)?;
    Ok(endpoint)
}

/// The client that a handle stands for.
pub(super) fn client(endpoint: &Handle<Endpoint>) -> Outcome<&Endpoint> {
    let endpoint = endpoint.get()?;
    require(!endpoint.is_server(), INVALID)?;
    Ok(endpoint)
}

/// Which side a handle must be of.
pub(super) type Find = for<'a> fn(&'a Handle<Endpoint>) -> Outcome<&'a Endpoint>;

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

/// What the fast path of a device can do.
pub(super) fn fast_capability(devinfo: Handle<Info>, value: &Out<u32>, limit: fn(&Card) -> u32) -> Code {
    answer(|| {
        value.check()?;
        let info = devinfo.get()?;
        require(info.function().comch, c::DOCA_ERROR_NOT_SUPPORTED)?;
        value.put(limit(&info.card))
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

pub(super) fn configure(
    endpoint: &Handle<Endpoint>,
    find: Find,
    set: impl FnOnce(&Endpoint) -> Outcome,
) -> Code {
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

/// Ends a connection. The other side is told, and the program by its callback. `AGAIN` if there is no room to tell, `IN_USE` if this side has
/// consumers or producers of it.
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
