//! A stand-in for rdma-core's `libibverbs.so.1`: an RDMA device in software, for programs that copy with
//! verbs.
//!
//! The `install` script beside this crate installs the stand-in as rdma-core's library. The README describes
//! the configuration. Rust tests make a [`Nic`] and pass its [table](Nic::verbs) to the code under test; all
//! other functions have C's interface.
//!
//! # Supported
//!
//! - *RC queue pairs*: the steps of `ibv_modify_qp` with the attributes that each needs, RDMA reads and
//!   writes of one piece, completion queues with channels, asynchronous events.
//! - *Rights*: keys, ranges, protection domains and access flags are checked for each request.
//! - *Failures*: the configuration and a [`Nic`] choose requests and calls that fail. A failure
//!   moves the queue pair to the error state, and flushes later requests.
//!
//! # Rejected
//!
//! - Sends and receives, atomics, immediate data, shared receive queues, queue pairs that are not RC,
//!   lists of several pieces: `EINVAL`.
//!
//! # Divergences
//!
//! - *Requests run* during a poll, or when the completion queue is armed, and take no time.
//! - *Queue pairs of other processes* can be reached if the processes run on this machine, as this user, in
//!   this network namespace. Requests to them run one at a time for each queue pair, and their bytes pass
//!   through a socket.
//! - *Events that were not acknowledged* make `ibv_destroy_cq` fail, where rdma-core waits.

mod abi;
mod calls;
mod config;
mod device;
mod network;
mod refused;
mod requests;
#[cfg(test)]
mod tests;
mod text;

pub use device::{Nic, State, wc};
