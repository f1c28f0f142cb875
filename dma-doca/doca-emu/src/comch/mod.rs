//! The comm channel: messages between a server on the DPU and clients on its host.
//!
//! Server and client are contexts that meet over a Unix socket, in one process or two. The socket's name is made of the
//! card, the host's function (which the server knows by its representor) and the name that both were given. It is
//! abstract, so that nothing is left behind; peers of other users are turned away.
//!
//! Producers and consumers of a connection have a [way of their own](fast).

mod address;
mod connection;
mod consumer;
mod context;
mod door;
mod door_connection;
mod door_consumer;
mod door_producer;
mod door_send;
mod endpoint;
mod fast;
mod frame;
mod parcel;
mod producer;
mod traffic;

use crate::door::c;

/// Told how a message was sent.
type SendCallback = unsafe extern "C" fn(*mut c::doca_comch_task_send, c::doca_data, c::doca_data);
/// Given a message.
type ReceiveCallback =
    unsafe extern "C" fn(*mut c::doca_comch_event_msg_recv, *mut u8, u32, *mut c::doca_comch_connection);
/// Told that a consumer of the other end came or went.
type ConsumerCallback =
    unsafe extern "C" fn(*mut c::doca_comch_event_consumer, *mut c::doca_comch_connection, u32);
/// Told how a consumer's task ended.
type ReceivedCallback =
    unsafe extern "C" fn(*mut c::doca_comch_consumer_task_post_recv, c::doca_data, c::doca_data);
/// Told how a producer's task ended.
type SentCallback = unsafe extern "C" fn(*mut c::doca_comch_producer_task_send, c::doca_data, c::doca_data);
/// Told that a client came or went.
type StatusCallback = unsafe extern "C" fn(
    *mut c::doca_comch_event_connection_status_changed,
    *mut c::doca_comch_connection,
    u8,
);
