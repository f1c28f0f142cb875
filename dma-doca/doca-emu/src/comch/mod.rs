//! The comm channel: messages between a server on the DPU and clients on its host.
//!
//! Server and client are contexts that meet over a Unix socket, in one process or two. The socket's name is made of the
//! card, the host's function (which the server knows by its representor) and the name that both were given. It is
//! abstract, so that nothing is left behind; peers of other users are turned away.

mod address;
mod connection;
mod door;
mod endpoint;
mod frame;

use crate::door::c;

/// Told how a message was sent.
type SendCallback = unsafe extern "C" fn(*mut c::doca_comch_task_send, c::doca_data, c::doca_data);
/// Given a message.
type ReceiveCallback =
    unsafe extern "C" fn(*mut c::doca_comch_event_msg_recv, *mut u8, u32, *mut c::doca_comch_connection);
/// Told that a client came or went.
type StatusCallback = unsafe extern "C" fn(
    *mut c::doca_comch_event_connection_status_changed,
    *mut c::doca_comch_connection,
    u8,
);
