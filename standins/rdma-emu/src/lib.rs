//! A stand-in for rdma-core's `libibverbs.so.1`: an RDMA device in software, for programs that copy with
//! verbs.
//!
//! The `install` script beside this crate installs the stand-in as rdma-core's library. The README describes
//! the configuration. Rust tests make a [`Nic`] and pass its [table](Nic::verbs) to the code under test; all
//! other functions have C's interface.
//!
//! # Supported
//!
//! - *Queue pairs*: RC, UC and UD, the steps of `ibv_modify_qp` with the attributes that each needs.
//! - *Requests*: RDMA reads and writes, sends, immediate data, inline data, atomic operations, lists of up to
//!   16 pieces; posted as lists, or built in place (`ibv_wr_*`).
//! - *Receives*: receive queues of a queue pair, and shared ones with a limit. A send that finds no receive
//!   is repeated as often as `rnr_retry` says, once a millisecond.
//! - *Completion queues* with channels and solicited events; asynchronous events.
//! - *Rights*: keys, ranges, protection domains and access flags are checked for each request.
//! - *Failures*: the configuration and a [`Nic`] choose requests and calls that fail. A failure
//!   moves the queue pair to the error state, and flushes later requests.
//!
//! # Rejected
//!
//! - XRC and raw packets, memory windows, memory on demand, device memory, flows, multicast, extended
//!   completion queues, rates, imports, address handles from completions, changing a registration,
//!   `ibv_*_ece`: `EOPNOTSUPP`, or `EINVAL` for access flags.
//! - Paths to another address than that of the port's GID: `EINVAL`.
//! - The private calls by which rdma-core's providers use a device of the kernel: `EOPNOTSUPP`.
//!
//! # Divergences
//!
//! - *Requests take no time.* In the installed library they run when they are posted. On a [`Nic`] that is
//!   not [networked](State::is_networked), they run during a poll, or when the completion queue is armed.
//! - *A refused read or write* leaves the queue pair of the peer as it was. A failed receive stops it.
//! - *Nothing is in sysfs*: `ibv_read_sysfs_file` fails. The connection manager has no device.
//! - *A datagram* waits until the peer's device has taken or dropped it.
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
