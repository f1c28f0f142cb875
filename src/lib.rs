//! One API for hardware memory copies.
//!
//! Write a copy once, against [`DmaEngine`], and run it on any engine: chosen by name, by [`open`].
//!
//! ```
//! use dma::prelude::*;
//!
//! let engine = dma::open("auto")?;
//! let queue = engine.open_queue(&QueueOptions::new())?;
//!
//! let mut src = engine.allocate(1 << 20)?;
//! src.fill(7);
//! let dst = engine.allocate(1 << 20)?;
//!
//! // The buffers move into the operation and come back when the device is done with them.
//! let (src, dst) = queue.copy(src, dst)?.wait()?;
//! assert_eq!(src[..], dst[..]);
//! # Ok::<(), dma::Error>(())
//! ```
//!
//! | name | engine |
//! |---|---|
//! | `auto` | the CPU and the devices found, as [`layers::auto::AutoEngine`]: the cheapest for each copy |
//! | `cpu` | [`cpu::CpuEngine`]: copies on all CPUs with their fastest instructions; the default |
//! | `sim` | [`sim::SimEngine`]: a simulated device, deterministic, with the faults of real ones |
//! | `doca:03:00.0` | `doca::DocaEngine`: an NVIDIA BlueField through its SDK, which is loaded at run time |
//! | `ioat:00:04.0` | `ioat::IoatEngine`: Intel I/OAT through SPDK, which is loaded at run time |
//! | `dsa:wq0.0` | `dsa::DsaEngine`: Intel DSA through the work queues of the kernel |
//! | `rdma:mlx5_0` | `rdma::RdmaEngine`: an RDMA NIC through libibverbs, which is loaded at run time |
//! | `cuda:0` | `cuda::CudaEngine`: an NVIDIA GPU through its driver, which is loaded at run time |
//!
//! [`discover`] lists the engines of this machine, [`doctor`] the obstacles to the others. [`backends`] lists
//! the names and their options; a program adds names of its own with [`register`]. The documentation of
//! `dma-core` describes the contract and the safe API, all of which is re-exported here; those of `dma-sim`,
//! `dma-doca`, `dma-ioat`, `dma-dsa`, `dma-rdma` and `dma-cuda` the engines.
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `doca` | yes | the backend `doca`: `dma::doca` |
//! | `ioat` | yes | the backend `ioat`: `dma::ioat` |
//! | `dsa` | yes | the backend `dsa`: `dma::dsa` |
//! | `rdma` | yes | the backend `rdma`: `dma::rdma` |
//! | `cuda` | yes | the backend `cuda`: `dma::cuda` |
//! | `metrics` | no | [`layers::meter`]: counts of `meter+NAME` for the recorder of the crate `metrics` |
//! | `files` | no | `dma::files`: files read into registered memory and written from it, by io_uring |
//! | `serde` | no | options and engine names read and written by serde; descriptions and counters written |
//! | `schemars` | no | the schema of the former, for configuration files |
//! | `arrow` | no | `arrow_buffer::Buffer` from [`Buffer`], without a copy |
//! | `compio`, `tokio-uring` | no | [`Buffer`] and [`BufferMut`] in files and sockets of these runtimes |
//! | `vm-memory` | no | `HostMemory::from_guest_region`: memory of a virtual machine |
//! | `conformance` | no | `dma::conformance` and `dma::conformance_tests!`: tests for a backend of your own |
//!
//! With `serde`, a configuration file has sizes and durations as people write them (`"64K"`, `"50us"`).
//! Keys that are left out have their defaults, and an unknown key is refused with the closest valid one. The
//! example `17_configured_server` reads one.
//!
//! Engines need nothing to be installed before they are opened. Without default features there are `cpu` and
//! `sim`.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod auto;
mod doctor;
mod registry;
mod wrappers;

#[doc(inline)]
pub use dma_core::*;
pub use dma_cpu as cpu;
#[cfg(feature = "cuda")]
pub use dma_cuda as cuda;
#[cfg(feature = "doca")]
pub use dma_doca as doca;
#[cfg(feature = "dsa")]
pub use dma_dsa as dsa;
#[cfg(feature = "files")]
pub use dma_files as files;
#[cfg(feature = "ioat")]
pub use dma_ioat as ioat;
pub use dma_ipc as ipc;
pub use dma_layers as layers;
#[cfg(feature = "rdma")]
pub use dma_rdma as rdma;
pub use dma_sim as sim;
pub use doctor::{Diagnosis, doctor};
pub use registry::{backends, discover, open, open_name, parse_untrusted, register};

/// The code of the guide, which is compiled and run as tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../docs/guide.md")]
struct Guide;

/// The traits and types that most programs need.
pub mod prelude {
    pub use dma_core::{
        Access, Batch, Buffer, BufferMut, BufferPool, CacheHint, DmaEngine, DmaEngineExt, ErrorKind,
        ExportDescriptor, HostMemory, MemoryRequest, PoolOptions, QueueOptions, Rows, SharedQueue,
        SharedQueueOptions, Window, WindowPool,
    };
}
