//! One API for hardware memory copies.
//!
//! A program written against [`DmaEngine`] runs on any engine. [`open`] opens an engine by name.
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
//! // The buffers move into the operation. The wait returns them when the device has completed it.
//! let (src, dst) = queue.copy(src, dst)?.wait()?;
//! assert_eq!(src[..], dst[..]);
//! # Ok::<(), dma::Error>(())
//! ```
//!
//! | name | engine |
//! |---|---|
//! | `auto` | [`layers::auto::AutoEngine`]: chooses between the CPU and the devices found, for each copy |
//! | `cpu` | [`cpu::CpuEngine`]: copies with the CPU's fastest instructions, on all cores; the default |
//! | `sim` | [`sim::SimEngine`]: a deterministic simulated device, with the faults of real devices |
//! | `doca:03:00.0` | `doca::DocaEngine`: an NVIDIA BlueField through its SDK, which is loaded at run time |
//! | `ioat:00:04.0` | `ioat::IoatEngine`: Intel I/OAT through SPDK, which is loaded at run time |
//! | `dsa:wq0.0` | `dsa::DsaEngine`: Intel DSA through the work queues of the kernel |
//! | `rdma:mlx5_0` | `rdma::RdmaEngine`: an RDMA NIC through libibverbs, which is loaded at run time |
//! | `cuda:0` | `cuda::CudaEngine`: an NVIDIA GPU through its driver, which is loaded at run time |
//!
//! [`discover`] lists the engines of this machine. [`doctor`] lists the reasons why the other engines cannot
//! be used. [`backends`] lists the names and their options, and [`register`] adds a program's own backend.
//! The documentation of `dma-core` describes the contract and the safe API, which this crate re-exports. The
//! crates `dma-sim`, `dma-doca`, `dma-ioat`, `dma-dsa`, `dma-rdma` and `dma-cuda` describe their engines.
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
//! | `metrics` | no | [`layers::meter`] passes counters of `meter+NAME` to the recorder of `metrics` |
//! | `files` | no | `dma::files`: files in registered and device memory, by io_uring |
//! | `serde` | no | serde reads and writes options and engine names, and writes descriptions and counters |
//! | `schemars` | no | JSON schemas of options and engine names, for configuration files |
//! | `compio`, `tokio-uring` | no | I/O of these runtimes with [`Buffer`] and [`BufferMut`] |
//! | `vm-memory` | no | `HostMemory::from_guest_region`: registers memory of a virtual machine |
//! | `conformance` | no | `dma::conformance` and `dma::conformance_tests!`: tests for your own backend |
//!
//! With `serde`, sizes and durations in configuration files have units (`"64K"`, `"50us"`). Keys that are
//! left out have their default values. An unknown key is refused, and the error names the closest valid key.
//! The example `17_configured_server` reads a configuration file.
//!
//! Building this crate needs no vendor SDK, because vendors' libraries are loaded when an engine is opened.
//! Without default features, only `auto`, `cpu` and `sim` are available.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod auto;
mod doctor;
mod registry;
mod wrappers;

#[cfg(feature = "conformance")]
pub use dma_conformance as conformance;
#[cfg(feature = "conformance")]
pub use dma_conformance::conformance_tests;
#[cfg(feature = "compio")]
pub use dma_core::CompioBufMut;
#[doc(inline)]
pub use dma_core::{
    Access, Answer, Backend, Batch, Buffer, BufferMut, BufferPool, BufferWriter, CacheHint, Capabilities,
    Counters, Destination, DeviceMemory, Discovered, DmaEngine, DmaEngineExt, Driver, EngineId, EngineInfo,
    EngineName, Error, ErrorKind, Export, ExportDescriptor, Finding, HostMemory, IdleMemory,
    IdleMemoryReport, Limits, MemoryRequest, NameFormat, NativeError, NumaNodes, OpError, OpFailure,
    OptionInfo, OptionValue, PciAddress, Place, PoolClass, PoolGet, PoolOptions, PoolReport, Queue,
    QueueOptions, Region, RegistrationCache, RegistrationCacheCounters, RegistrationCacheOptions, Result,
    Retry, RetryPolicy, Rows, SharedQueue, SharedQueueOptions, SharedReady, SharedResult, SharedTransfer,
    Source, StaticBackend, SubmitResult, Transfer, Verdict, Window, WindowPool, pools,
};
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
pub use dma_process as process;
#[cfg(feature = "rdma")]
pub use dma_rdma as rdma;
pub use dma_sim as sim;
pub use doctor::{Diagnosis, doctor};
pub use registry::{backends, discover, open, open_name, parse_untrusted, register};

/// The code of the guide, which is compiled and run as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/guide.md")]
struct Guide;

/// The contract and its helpers, for authors of engines.
pub mod contract {
    #[doc(inline)]
    pub use dma_core::{
        Completion, Descriptor, DeviceAddr, ForwardEngine, InlineCopy, InlineExecutor, Operation, Outcome,
        PageMemory, QueueEvents, QueueStats, RawExport, RawQueue, RawRegion, RegionInfo, RegionKey, Segment,
        closest_name, deferred_log, guarded, guarded_log, options, parse_cores, parse_size, racy_copy,
        with_deferred_log,
    };
}

/// The traits and types that most programs need.
pub mod prelude {
    pub use dma_core::{
        Access, Batch, Buffer, BufferMut, BufferPool, CacheHint, DmaEngine, DmaEngineExt, Error, ErrorKind,
        ExportDescriptor, HostMemory, MemoryRequest, PoolOptions, Queue, QueueOptions, Result, Rows,
        SharedQueue, SharedQueueOptions, Transfer, Window, WindowPool,
    };
}
