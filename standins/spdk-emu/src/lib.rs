//! A stand-in for SPDK's env and I/OAT libraries, without the hardware. It has the C interface of
//! `spdk/env.h` and `spdk/ioat.h` on the device model of `dma-sim`. It also has the engine's registers, for
//! drivers that map them.
//!
//! The `install` script of this crate installs the stand-in as SPDK's libraries and headers. The README
//! describes the configuration. The crate's only Rust function is [`use_config`]. All others are C functions,
//! which `spdk_sys::bindings` declares.
//!
//! # Supported
//!
//! - *Environment*: options of 23.05 to 26.x, core masks, lists and lcore maps, huge pages or none, memory
//!   sizes, IOVA modes, allow and block lists; DMA memory, memzones, pools, rings; threads bound to cores;
//!   ticks; `spdk_vtophys`, registration of the program's pages, `spdk_mem_map`.
//! - *PCI*: enumeration for the I/OAT driver and for drivers that the program registers; attaching and
//!   detaching; configuration space (identity, command, serial number, CHANERR_INT); BAR 0.
//! - *Channels*: probe, attach, detach; copies and fills, built or submitted, which are split at the maximum
//!   transfer length and where memory is not contiguous for devices; rings with back-pressure; doorbells;
//!   halted channels.
//! - *The engine*: CHANCNT, XFERCAP, CBVER, DMACAPABILITY, CHANCMD (suspend, reset), DMACOUNT, CHANSTS,
//!   CHAINADDR, CHANCMP, CHANERR; copy, fill and null descriptors; completion updates; errors of source,
//!   destination, chain, completion address, length and control. SPDK's own driver, `lib/ioat/ioat.c`, runs
//!   on this engine, as do `examples/ioat/perf` and `verify`. Linux's `ioatdma` runs on `examples/pci_proxy`.
//! - *Log, strings, arithmetic*: those calls of `log.h`, `string.h`, `util.h` and `cpuset.h` that programs
//!   for I/OAT use.
//!
//! # Rejected
//!
//! - Interrupts (`-ENOTSUP`), because SPDK polls. The interrupt bit of a descriptor has no effect.
//! - XOR, PQ and DIF descriptors: the engine halts with a control error. The capability register does not
//!   have them.
//! - Several processes with one environment (`shm_id`), because each process has its own channels.
//! - The rest of SPDK: threads, event framework, accel, block devices, the calls of `string.h` and `fd.h`
//!   that only these use, and DPDK's statistics of its heap.
//!
//! # Divergences
//!
//! - *Attaching again.* A function that was detached, or declined by a probe, is offered by the next probe.
//!   SPDK 23.05 to 26.x treats every function that a probe saw as attached. SPDK offers such a function again
//!   only after `spdk_pci_device_detach`, and then only by a probe at least two seconds after the first probe
//!   that sees it again. `reattach = "spdk"` does the same.
//! - *Cores that the machine lacks* are accepted, and share the cores that it has.
//! - *Registered memory* must be mapped (otherwise `-EFAULT`), in whole pages of 2 MiB, or of 4 KiB in
//!   releases from 26.05 on.
//! - *Detaching with work in flight* drops the work. SPDK frees the ring while the engine may still use it.
//! - Calls on *a detached channel's handle* return `-EINVAL`. In SPDK the handle is freed memory.
//! - *`process_events` within a callback* returns 0. In SPDK, that call runs the same callback again,
//!   endlessly.
//! - *Delays sleep*: `spdk_delay_us` yields the CPU, because the engine is a thread that may need it.
//! - *CHANERR*: writing ones clears bits only if the written value differs from the register's. Writing the
//!   same value cannot be detected in plain memory, so these bits stay set until the next reset.
//! - *Ordering of register accesses*: registers are plain memory. On x86-64, accesses to them are seen in
//!   order. On AArch64, a driver needs barriers, as for a device that is mapped without the device
//!   attribute.
//! - *The engine takes no time*: profiles apply to `ioat.h` only. The engine reacts to its registers within
//!   tens of microseconds.
//! - *Fill patterns* begin at the first byte of each piece, independent of its alignment.
//! - *Log lines* contain the local time.

use std::sync::{Mutex, MutexGuard, PoisonError};

mod c_abi;
mod channel;
mod config;
mod cpuset;
mod engine;
mod env;
mod init;
mod ioat;
mod log;
mod pci;
mod pci_addr;
mod socket;
mod string;
mod util;

pub use config::{ConfigError, use_config};

/// Locks a mutex. Poisoning is ignored, because no holder leaves the data inconsistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
