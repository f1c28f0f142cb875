//! RDMA NICs (InfiniBand and RoCE) as an engine of the `dma` crate, through rdma-core's `libibverbs.so.1`,
//! for copies within one host and between hosts.
//!
//! The library is loaded when the first engine is opened, so a build does not need it. If the library is
//! missing, or no device has an active port, [`RdmaEngine::open`] and [`discover`] return errors with the
//! remedy. The README describes the set-up of a machine.
//!
//! The main properties (the README has more):
//!
//! - **A queue is a queue pair connected to itself.** A copy is an RDMA read of the source into the
//!   destination, because only a read's completion promises that the bytes are in place for the CPU.
//! - **Memory of another host** is imported by the export's descriptor, and can be the source or destination
//!   of copies like other memory. After a revocation, copies end with
//!   [`Revoked`](dma_core::ErrorKind::Revoked).
//! - **Memory of other devices**, such as a GPU's, is registered by its dma-buf (`ibv_reg_dmabuf_mr`),
//!   without a mapping for the CPU: [`Window::dmabuf`](dma_core::Window::dmabuf) and
//!   [`register_device`](dma_core::DmaEngineExt::register_device). Such memory can then be copied and
//!   exported like host memory. We tested this only on the stand-in: no NIC was available, and Soft-RoCE does
//!   not support dma-bufs.
//! - **The device enforces rights.** The NIC checks each request against the rights of the region.
//!   Registering pins memory (`ulimit -l`), which is slow, so register at the start.
//! - **Errors.** The first failure stops the queue pair. The failed descriptor has its own status, later ones
//!   are [`Aborted`](dma_core::ErrorKind::Aborted), and the queue pair is connected again inside `poll`.
//! - **Forks.** Queues and regions belong to the process that opened them. On kernels before 5.12, set
//!   `RDMAV_FORK_SAFE=1` in programs that start others.

mod backend;
mod device;
mod doctor;
mod engine;
mod engine_state;
mod error;
mod export;
mod gid;
mod granted;
mod handle;
mod import;
mod imported;
mod library;
mod options;
mod queue;
mod queue_pair;
mod queue_pairs;
mod region;
mod registration;
mod remote_copies;
mod ring;
mod route;
mod service;
#[cfg(test)]
mod tests;
mod wire;

pub use backend::BACKEND;
pub use engine::{RdmaEngine, discover};
pub use options::RdmaOptions;
use verbs_sys as verbs;
