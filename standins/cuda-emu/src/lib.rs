//! A stand-in for NVIDIA's `libcuda.so.1`: GPUs in software, on the device model of `dma-sim`, for programs
//! that allocate, copy and launch kernels by CUDA's driver API.
//!
//! The `install` script beside this crate installs the stand-in as the driver's library. The README describes
//! the configuration, and lists the calls that are supported and refused. The crate's Rust interface is
//! [`use_config`] and [`symbol`]; all other functions have C's interface.
//!
//! # Supported
//!
//! - *Devices and contexts*: primary ones and others, the stack of each thread, peer access.
//! - *Memory*: device memory, which the CPU cannot touch; pinned and registered host memory; attributes of
//!   pointers; managed memory; pools of all three, whose allocations begin and end in the order of a stream;
//!   memory in another process, by handles (`cuIpcGetMemHandle`) and by pools with file descriptors.
//! - *Copies and fills*: in all directions, also between devices; of rows; batches of CUDA 12.8 and of 13.0.
//! - *Kernels*: modules of PTX text, and launches. The README lists the part of PTX that the interpreter
//!   knows. A kernel takes the time in which the device's copy engine would move its bytes, and the time of
//!   one short copy. An access outside the memory that the context reaches is an illegal address.
//! - *Order*: streams, the default streams, events, also those of other processes, host functions, which
//!   run on a thread of the driver, and values in memory that streams write and wait for.
//! - *Failures*, which a plan defines. A failure that a device reports ends its context, as on real devices.
//!
//! # Rejected
//!
//! - Instructions and directives that the interpreter lacks: the error names the line of the text.
//! - Modules that are compiled for a device (cubin, fat binary): `CUDA_ERROR_NO_BINARY_FOR_GPU`.
//! - Libraries, linking, cooperative launches, clusters, graphs, arrays, textures, virtual memory,
//!   dma-bufs, stream capture: `CUDA_ERROR_NOT_SUPPORTED`. The README has the whole list.
//! - The runtime's private tables (`cuGetExportTable`): programs of the runtime API do not run.
//!
//! # Divergences
//!
//! - *Blocks of a kernel* run one after another, and threads of a block in turns. A block that waits for a
//!   later block never ends.
//! - *The interpreter* is slower than the device of a profile with times. Events of the same stream do not
//!   count the difference; the program's clock does.
//! - *Kernels* run outside the model's channels, so kernels and copies of different streams do not slow each
//!   other down.
//! - *Copies of pageable memory* always end before the call returns.
//! - *Fills by rows* of 4 bytes take no time.
//! - *Pools* return freed memory to the device when the stream frees it, whatever their release threshold.
//!   So the reserved memory of a pool is its used memory. Copies need no access right of a pool.
//! - *Managed memory* is host memory, which devices and the CPU may access at the same time. Prefetches and
//!   advice have no effect, except that the attributes of ranges report them. Discards overwrite the bytes.
//! - *Host memory* is on no particular NUMA node. Each machine has node 0, the node of all devices.
//! - *An imported pool* gives its process access to all memory in the owner's file: for a pool of device
//!   memory, that of the device.
//! - *Copies to and from memory of other processes* take as long as copies of host memory. The memory stays
//!   mapped after its owner has freed it; its bytes are undefined then.
//! - *A failure ends one context.* NVIDIA's documentation says that the process has to end.
//! - *Freed primary contexts* are removed completely, whatever their state.

mod advice;
mod c_abi;
mod calls;
mod codes;
mod config;
mod driver;
mod gpu;
mod host_call;
mod memory;
mod peer_memory;
mod pool;
mod profile;
mod shared_event;

pub use calls::symbol;
pub use config::{ConfigError, use_config};
