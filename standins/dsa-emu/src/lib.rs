//! A stand-in for Intel DSA: work queues in software, which programs use like those of the hardware.
//!
//! The `install` script beside this crate installs `dsa-emu-run`, which starts any program on these work
//! queues. The README describes the configuration. [`Emu`] creates work queues within a process, for Rust
//! tests.
//!
//! # Function
//!
//! Temporary folders replace `/dev/dsa` and `/sys/bus/dsa`. The file of a work queue is empty, so that each
//! store to a mapping of it traps. The signal handler decodes MOVDIR64B and ENQCMD, passes the 64 bytes to
//! the thread of the work queue, and skips the instruction. This method works on processors with and without
//! these instructions. On a processor that lacks them, the handler also emulates them on ordinary memory, and
//! emulates UMONITOR, UMWAIT and TPAUSE.
//!
//! # Supported
//!
//! - *Submission*: MOVDIR64B to dedicated work queues, ENQCMD to shared ones, `write()` to both.
//! - *Operations*: nop, batch, drain, copy, fill, compare, compare with a pattern, create and apply a delta
//!   record, dualcast, CRC-32C, copy with CRC-32C, DIF check, insert, strip and update, cache flush (which
//!   does nothing).
//! - *Completion records*: statuses, results, bytes done; page faults on unmapped memory, on memory without
//!   the required right, and injected ones.
//!
//! # Divergences
//!
//! - *Order*: one work queue runs its descriptors one after the other, in their order unless the
//!   configuration says otherwise. The hardware has several engines.
//! - *Time*: operations take as long as the CPU takes, and a store to a portal takes microseconds. The
//!   profile `dsa` of `dma-sim` has the times of the hardware.
//! - *A page that is mapped but not present* causes no page fault, because the access of the stand-in's
//!   thread makes it present.
//! - *ENQCMD to ordinary memory* reports a refusal. Intel's manual does not define this case.
//! - *UMWAIT* returns early where the processor lacks it.
//! - *Entries of a work queue* are free as soon as its engine takes the descriptor.
//! - *Clients* of a dedicated work queue are counted in the C library's open calls: a second client gets
//!   EBUSY. Rust tests, and programs that make the system call themselves, can open it twice.
//! - *A forked child* keeps the portals of its parent. The child has no worker thread, so it runs each
//!   descriptor during the store.
//! - *A delta record* may be at any address, because Intel's dsa-perf-micros packs records. Intel's DML
//!   refuses addresses that are not multiples of 8.
//! - *A delta record with no room for the next entry* ends with the result 2 and the size so far.
//! - *DIF*: bits of the application tag that the mask contains are not compared, and are written as 0. If the
//!   descriptor asks for detection, a field whose bits are all 1 is not checked. The record always has the
//!   tags of the next block. An operation that ends at a wrong field or page fault has written all earlier
//!   blocks.
//! - *`write()` of a program* runs a descriptor of up to 4 KiB before it returns, if nothing waits.
//! - *Interrupts* are refused: a descriptor that asks for one has an invalid flag.
//!
//! This crate is empty except on Linux on x86-64 with the GNU C library.

#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]

mod config;
mod decode;
mod delta;
mod descriptor;
mod dif;
mod emu;
mod memory;
mod operations;
mod queue;
mod ring;
mod signals;
mod trap;
mod tree;

pub use config::ConfigError;
pub use emu::{Emu, StartError, lay_out};

/// Parts that the preloaded library uses.
#[doc(hidden)]
pub mod preload {
    pub use crate::config::{Config, Mode};
    pub use crate::descriptor::SIZE;
    pub use crate::emu::serve;
    pub use crate::memory::read;
    pub use crate::queue::Queue;
    pub use crate::signals::{Calls, set_calls, without_traps};
    pub use crate::trap::{change, queue_of, queues, with_link};
    pub use crate::tree::{DEVICE_NUMBERS, Tree};
}
