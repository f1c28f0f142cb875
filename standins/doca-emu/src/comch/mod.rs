//! The comm channel: messages between a server on the DPU and clients on its host.
//!
//! Server and client are contexts that connect by a Unix socket, in one process or in two processes. The
//! socket's name is made from the card, the host's function (which the server gets from its representor) and
//! the name that the program gave to both. The socket is abstract, so it leaves no file. Peers that run as
//! other users are refused.
//!
//! Producers and consumers of a connection have a [fast path](fast_path).

mod calls;
mod cc_calls;
mod channel;
mod channel_calls;
mod connection;
mod consumer;
mod consumer_calls;
mod context;
mod endpoint;
mod fast_path;
mod producer;
mod traffic;
mod wire;

use crate::c_abi::c;

type ReceiveCallback =
    unsafe extern "C" fn(*mut c::doca_comch_event_msg_recv, *mut u8, u32, *mut c::doca_comch_connection);
/// The [`ReceiveCallback`] of DOCA 2.5, whose length has another type.
type CcReceiveCallback =
    unsafe extern "C" fn(*mut c::doca_comch_event_msg_recv, *mut u8, usize, *mut c::doca_comch_connection);

#[derive(Clone, Copy)]
enum OnMessage {
    Comch(ReceiveCallback),
    Cc(CcReceiveCallback),
}

/// Called when a consumer of the peer was created or destroyed.
type ConsumerCallback =
    unsafe extern "C" fn(*mut c::doca_comch_event_consumer, *mut c::doca_comch_connection, u32);
/// Called when a client connected or disconnected.
type StatusCallback = unsafe extern "C" fn(
    *mut c::doca_comch_event_connection_status_changed,
    *mut c::doca_comch_connection,
    u8,
);
