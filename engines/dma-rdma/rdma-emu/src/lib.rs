//! A stand-in for rdma-core's `libibverbs.so.1`: an RDMA device in software, for programs that copy by verbs.
//!
//! The `install` script beside this crate lays it out as rdma-core's library; its README has the
//! configuration. Tests in Rust make a [`Nic`] and hand its [table](Nic::verbs) to the code under test;
//! everything else is C.
//!
//! # Supported
//!
//! - *RC queue pairs*: the steps of `ibv_modify_qp` with the attributes that each needs, RDMA reads and
//!   writes of one piece, completion queues with channels, asynchronous events.
//! - *Rights*: keys, ranges, protection domains and access flags are checked for each request.
//! - *Failures*: the configuration and a [`Nic`] choose requests and calls that fail. A failure
//!   takes the queue pair to the error state, and flushes what is behind it.
//!
//! # Rejected
//!
//! - Sends and receives, atomics, immediate data, shared receive queues, queue pairs that are not RC,
//!   lists of several pieces: `EINVAL`.
//!
//! # Divergences
//!
//! - *Requests run while they are polled*, or when the completion queue is armed, in no time.
//! - *Queue pairs of other processes* are reached if these run on this machine, as this user, in this network
//!   namespace. Their requests run one at a time for each queue pair, and their bytes pass a socket.
//! - *Events that were not acknowledged* make `ibv_destroy_cq` fail, where rdma-core waits.

mod calls;
mod config;
mod device;
mod network;

pub use device::{Nic, State, wc};
