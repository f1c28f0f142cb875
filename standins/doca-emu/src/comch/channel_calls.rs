//! The calls of `doca_comm_channel.h`, of DOCA 1.5 to 2.5.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::Arc;

use super::calls::{check_name, comch, is_supported};
use super::channel::{Active, Channel, Peer, lock};
use crate::c_abi::{Handle, INVALID, In, Out, Outcome, Text, c, c_calls, require};
use crate::config::{ComchConfig, Side};
use crate::dev::{Dev, Info};
use crate::notifier::Notifier;
use crate::rep::Rep;

fn limit(info: &Handle<Info>, out: &Out<u32>, limit: impl FnOnce(&ComchConfig) -> u32) -> Outcome {
    out.make(|| comch(info.get()?).map(limit))
}

fn get<T>(ep: &Handle<Channel>, out: &Out<T>, get: impl FnOnce(&Channel) -> T) -> Outcome {
    out.make(|| ep.get().map(get))
}

/// Changes a property of an endpoint. The endpoint must not be active.
fn set(ep: &Handle<Channel>, set: impl FnOnce(&Channel)) -> Outcome {
    let ep = ep.get()?;
    ep.require_idle()?;
    set(ep);
    Ok(())
}

/// Rounds the size of a queue up to a power of two.
fn queue_size(size: u16) -> Outcome<u16> {
    size.checked_next_power_of_two().filter(|_| size > 0).ok_or(INVALID)
}

fn counter(peer: &Handle<Peer>, out: &Out<u64>, which: usize) -> Outcome {
    out.make(|| Ok(peer.get()?.shown.get()[which]))
}

/// Returns the listening service of an endpoint. `NOT_SUPPORTED` for a client.
fn service(ep: &Handle<Channel>) -> Outcome<Rc<Active>> {
    let active = ep.get()?.active()?;
    require(active.endpoint.is_server(), c::DOCA_ERROR_NOT_SUPPORTED)?;
    Ok(active)
}

fn number(notifier: &Notifier) -> c::doca_event_handle_t {
    notifier.fd().as_raw_fd()
}

/// Returns the device of an endpoint that is about to listen or connect. The endpoint must not be active, and
/// its device must be on this side.
fn ready(ep: &Channel, name: &Text, side: Side) -> Outcome<Arc<Dev>> {
    name.value()?;
    require(ep.active().is_err(), c::DOCA_ERROR_NOT_PERMITTED)?;
    let dev = ep.dev.borrow().clone().ok_or(c::DOCA_ERROR_BAD_STATE)?;
    is_supported(&dev.info, side)
        .map_err(|code| if cfg!(feature = "generation-1-5") { c::DOCA_ERROR_NOT_PERMITTED } else { code })?;
    Ok(dev)
}

/// Exports calls that hold the lock of the comm channel.
macro_rules! locked_calls {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block)*) => {
        c_calls! {
            $($(#[$doc])* fn $name($($arg: $type),*) {
                let _lock = lock();
                $body
            })*
        }
    };
}

locked_calls! {
    /// Writes the maximum length of a name, which includes the NUL. Cards may be configured with a lower
    /// limit.
    fn doca_comm_channel_get_max_service_name_len(len: Out<u32>) { len.put(ComchConfig::default().max_name_len) }
    fn doca_comm_channel_get_max_message_size(devinfo: Handle<Info>, size: Out<u32>) {
        limit(&devinfo, &size, |limits| limits.max_msg_size)
    }
    fn doca_comm_channel_get_max_send_queue_size(devinfo: Handle<Info>, size: Out<u32>) {
        limit(&devinfo, &size, |limits| limits.max_send_tasks)
    }
    fn doca_comm_channel_get_max_recv_queue_size(devinfo: Handle<Info>, size: Out<u32>) {
        limit(&devinfo, &size, |limits| limits.max_recv_queue_size)
    }
    /// Writes the maximum number of clients of a service. Returns `NOT_SUPPORTED` on the host.
    fn doca_comm_channel_get_service_max_num_connections(devinfo: Handle<Info>, connections: Out<u32>) {
        connections.check()?;
        is_supported(devinfo.get()?, Side::Dpu)?;
        limit(&devinfo, &connections, |limits| limits.max_clients)
    }
    fn doca_comm_channel_ep_create(ep: Out<Handle<Channel>>) { ep.make(|| Ok(Handle::new_rc(Channel::new()))) }
    /// Writes the device, or NULL if the program set none.
    fn doca_comm_channel_ep_get_device(ep: Handle<Channel>, device: Out<Handle<Dev>>) {
        get(&ep, &device, |ep| {
            // SAFETY: the endpoint keeps the device open, and C uses this handle only while the endpoint
            // exists.
            ep.dev.borrow().as_ref().map_or(Handle::NULL, |dev| unsafe { Handle::of(&**dev) })
        })
    }
    /// Writes the representor, or NULL if the program set none.
    fn doca_comm_channel_ep_get_device_rep(ep: Handle<Channel>, device_rep: Out<Handle<Rep>>) {
        get(&ep, &device_rep, |ep| {
            // SAFETY: the endpoint keeps the device open, and C uses this handle only while the endpoint
            // exists.
            ep.rep.borrow().as_ref().map_or(Handle::NULL, |rep| unsafe { Handle::of(&**rep) })
        })
    }
    /// Writes the maximum length of a message: the value that the program set, or the device's limit.
    fn doca_comm_channel_ep_get_max_msg_size(ep: Handle<Channel>, size: Out<u16>) {
        get(&ep, &size, |ep| match (ep.max_msg_size.get(), &*ep.dev.borrow()) {
            (0, Some(dev)) => dev.card().config.comch.max_msg_size.try_into().unwrap_or(u16::MAX),
            (0, None) => ComchConfig::default().max_msg_size as u16,
            (size, _) => size,
        })
    }
    fn doca_comm_channel_ep_get_send_queue_size(ep: Handle<Channel>, size: Out<u16>) {
        get(&ep, &size, |ep| ep.send_queue_size.get())
    }
    fn doca_comm_channel_ep_get_recv_queue_size(ep: Handle<Channel>, size: Out<u16>) {
        get(&ep, &size, |ep| ep.recv_queue_size.get())
    }
    fn doca_comm_channel_ep_set_device(ep: Handle<Channel>, device: Handle<Dev>) {
        let device = device.arc()?;
        set(&ep, |ep| _ = ep.dev.replace(Some(device)))
    }
    fn doca_comm_channel_ep_set_device_rep(ep: Handle<Channel>, device_rep: Handle<Rep>) {
        let device_rep = device_rep.arc()?;
        set(&ep, |ep| _ = ep.rep.replace(Some(device_rep)))
    }
    /// Sets the maximum length of a message. The value is compared with the device's limit when the endpoint
    /// listens or connects.
    fn doca_comm_channel_ep_set_max_msg_size(ep: Handle<Channel>, size: u16) {
        require(size > 0, INVALID)?;
        set(&ep, |ep| ep.max_msg_size.set(size))
    }
    fn doca_comm_channel_ep_set_send_queue_size(ep: Handle<Channel>, size: u16) {
        let size = queue_size(size)?;
        set(&ep, |ep| ep.send_queue_size.set(size))
    }
    fn doca_comm_channel_ep_set_recv_queue_size(ep: Handle<Channel>, size: u16) {
        let size = queue_size(size)?;
        set(&ep, |ep| ep.recv_queue_size.set(size))
    }
    /// Writes the descriptors for room to send and for arrived messages. Each of the two addresses may be
    /// NULL.
    fn doca_comm_channel_ep_get_event_channel(
        local_ep: Handle<Channel>,
        send: Out<c::doca_event_handle_t>,
        recv: Out<c::doca_event_handle_t>,
    ) {
        let ep = local_ep.get()?;
        require(send.check().is_ok() || recv.check().is_ok(), INVALID)?;
        let active = ep.active()?;
        send.put_if(number(&active.room));
        recv.put_if(number(active.pe.notifier()?));
        Ok(())
    }
    /// Writes the descriptor that becomes readable when a client connects or disconnects.
    fn doca_comm_channel_ep_get_service_event_channel(
        local_ep: Handle<Channel>,
        service: Out<c::doca_event_handle_t>,
    ) {
        service.make(|| Ok(number(&self::service(&local_ep)?.changes)))
    }
    /// Does nothing, because the descriptor is always readable while a peer has room.
    fn doca_comm_channel_ep_event_handle_arm_send(local_ep: Handle<Channel>) {
        local_ep.get()?.active().map(drop)
    }
    /// Makes the descriptor readable when the next message arrives, or at once if one has arrived.
    fn doca_comm_channel_ep_event_handle_arm_recv(local_ep: Handle<Channel>) {
        local_ep.get()?.active()?.arm()
    }
    /// Makes the endpoint a service, which clients can connect to. Returns `CONNECTION_ABORTED` if a service
    /// has that name already.
    fn doca_comm_channel_ep_listen(local_ep: Handle<Channel>, name: Text) {
        let ep = local_ep.get()?;
        let dev = ready(ep, &name, Side::Dpu)?;
        let rep = ep.rep.borrow().clone().ok_or(c::DOCA_ERROR_BAD_STATE)?;
        let name = check_name(&dev, &name)?;
        ep.start(dev, Some(rep), name).map(drop)
    }
    /// Connects to a service. Returns `CONNECTION_ABORTED` if no service with this name listens. The service
    /// accepts the connection in its next call.
    fn doca_comm_channel_ep_connect(local_ep: Handle<Channel>, name: Text, peer_addr: Out<Handle<Peer>>) {
        peer_addr.make(|| {
            let ep = local_ep.get()?;
            let dev = ready(ep, &name, Side::Host)?;
            let name = check_name(&dev, &name)?;
            ep.start(dev, None, name)?.server()
        })
    }
    /// Sends a message. Returns `AGAIN` if there is no room or the service has not accepted the
    /// connection yet, `CONNECTION_RESET` if the connection has ended.
    fn doca_comm_channel_ep_sendto(
        local_ep: Handle<Channel>,
        msg: In<u8>,
        len: usize,
        flags: c_int,
        peer_addr: Handle<Peer>,
    ) {
        let ep = local_ep.get()?;
        // SAFETY: C passes the message's length beside it, and does not change the message during the call.
        let message = unsafe { msg.slice(len) }?;
        require(flags == 0, INVALID)?;
        ep.active().map_err(|_| c::DOCA_ERROR_NOT_CONNECTED)?.send(peer_addr, message)
    }
    /// Receives a message, with its source. Returns `AGAIN` if no message has arrived, `INVALID_VALUE` if the
    /// message is longer than the buffer. Returns `CONNECTION_RESET` if the connection of a client has ended.
    fn doca_comm_channel_ep_recvfrom(
        local_ep: Handle<Channel>,
        msg: Out<u8>,
        len: Out<usize>,
        flags: c_int,
        peer_addr: Out<Handle<Peer>>,
    ) {
        let ep = local_ep.get()?;
        msg.check()?;
        peer_addr.check()?;
        let room = len.before().ok_or(INVALID)?;
        require(flags == 0, INVALID)?;
        let active = ep.active().map_err(|_| c::DOCA_ERROR_NOT_CONNECTED)?;
        let received = active.receive(|peer, message| {
            // SAFETY: C passes the length of its buffer in `len`, and the buffer is not memory of this
            // library.
            unsafe { msg.fill(message, room) }?;
            len.put_if(message.len());
            peer_addr.put(peer)
        });
        match (received, active.lost()) {
            (Err(c::DOCA_ERROR_AGAIN), Some(peer)) => {
                peer_addr.put(peer)?;
                Err(c::DOCA_ERROR_CONNECTION_RESET)
            }
            (received, _) => received,
        }
    }
    /// Ends a connection, and notifies the other side.
    fn doca_comm_channel_ep_disconnect(local_ep: Handle<Channel>, peer_addr: Handle<Peer>) {
        local_ep.get()?.disconnect(peer_addr)
    }
    /// Ends all connections. Returns `NOT_CONNECTED` if the endpoint is not active.
    fn doca_comm_channel_ep_destroy(local_ep: Handle<Channel>) {
        local_ep.take_rc().map(drop).map_err(|_| c::DOCA_ERROR_NOT_CONNECTED)
    }
    fn doca_comm_channel_peer_addr_get_user_data(peer_addr: Handle<Peer>, user_data: Out<u64>) {
        user_data.make(|| Ok(peer_addr.get()?.user_data.get()))
    }
    fn doca_comm_channel_peer_addr_set_user_data(peer_addr: Handle<Peer>, user_context: u64) {
        peer_addr.get().map(|peer| peer.user_data.set(user_context))
    }
    /// Updates the counters. Unless the connection is open, returns `CONNECTION_INPROGRESS` or
    /// `CONNECTION_ABORTED`.
    fn doca_comm_channel_peer_addr_update_info(peer_addr: Handle<Peer>) {
        peer_addr.get()?.update()
    }
    fn doca_comm_channel_peer_addr_get_send_messages(peer_addr: Handle<Peer>, messages: Out<u64>) {
        counter(&peer_addr, &messages, 0)
    }
    fn doca_comm_channel_peer_addr_get_send_bytes(peer_addr: Handle<Peer>, bytes: Out<u64>) {
        counter(&peer_addr, &bytes, 1)
    }
    fn doca_comm_channel_peer_addr_get_recv_messages(peer_addr: Handle<Peer>, messages: Out<u64>) {
        counter(&peer_addr, &messages, 2)
    }
    fn doca_comm_channel_peer_addr_get_recv_bytes(peer_addr: Handle<Peer>, bytes: Out<u64>) {
        counter(&peer_addr, &bytes, 3)
    }
    /// Writes 0, because each accepted message has been passed to the system.
    fn doca_comm_channel_peer_addr_get_send_in_flight_messages(peer_addr: Handle<Peer>, messages: Out<u64>) {
        messages.make(|| peer_addr.get().map(|_| 0))
    }
    /// Updates the lists of connections, and arms the descriptor for new and ended connections.
    fn doca_comm_channel_ep_update_service_state_info(local_ep: Handle<Channel>) {
        service(&local_ep).map(|service| service.update())
    }
    /// Writes the connections that were open at the last update, as an array that the next update replaces.
    fn doca_comm_channel_ep_get_peer_addr_list(
        local_ep: Handle<Channel>,
        peers: Out<*const Handle<Peer>>,
        count: Out<u32>,
    ) {
        peers.check()?;
        count.check()?;
        let service = service(&local_ep)?;
        let listed = service.listed.borrow();
        peers.put_if(listed.as_ptr());
        count.put(listed.len() as u32)
    }
    /// Writes the number of connections that had not been accepted at the last update.
    fn doca_comm_channel_ep_get_pending_connections(local_ep: Handle<Channel>, pending: Out<u32>) {
        pending.make(|| Ok(service(&local_ep)?.waiting.get()))
    }
}
