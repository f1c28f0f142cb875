//! A stand-in for Intel DSA: work queues in software, which programs use as they use those of the hardware.
//!
//! The `install` script beside this crate lays out `dsa-emu-run`, which starts any program on them; the
//! README has the configuration. [`Emu`] has them within a process, for tests in Rust.
//!
//! # Function
//!
//! Folders stand for `/dev/dsa` and `/sys/bus/dsa`. The file of a work queue is empty, so that each store to
//! a mapping of it traps. The handler takes MOVDIR64B and ENQCMD apart, passes the 64 bytes to the thread of
//! the work queue, and steps over the instruction. That holds on processors with and without these
//! instructions. On a processor that lacks them, the handler also runs them on
//! other addresses, and runs UMONITOR, UMWAIT and TPAUSE.
//!
//! # Supported
//!
//! - *Submission*: MOVDIR64B to dedicated work queues, ENQCMD to shared ones, `write()` to both.
//! - *Operations*: nop, batch, drain, copy, fill, compare, compare with a pattern, create and apply a delta
//!   record, dualcast, CRC-32C, copy with CRC-32C, DIF check, insert, strip and update, cache flush (which
//!   does nothing).
//! - *Completion records*: statuses, results, bytes done, page faults of memory that is not mapped, of memory
//!   without the right, and injected ones.
//!
//! # Divergences
//!
//! - *Order*: one work queue runs its descriptors one after the other, in their order unless the
//!   configuration says otherwise. The hardware has several engines.
//! - *Time*: operations take as long as the CPU takes, and a store to a portal takes microseconds. The
//!   profile `dsa` of `dma-sim` has the times of the hardware.
//! - *A page that is mapped and not present* causes no page fault, because the thread that reads it faults it
//!   in.
//! - *ENQCMD to ordinary memory* reports that it was refused. Intel's manual does not say.
//! - *UMWAIT* returns early where the processor lacks it.
//! - *Entries* are free as soon as the engine takes the descriptor.
//! - *Clients* of a dedicated work queue are counted where the C library opens it: a second one gets EBUSY.
//!   In tests in Rust, and for programs that make the system call themselves, it may be opened twice.
//! - *A forked child* keeps the portals of its parent. Without a thread of its own, it runs each descriptor
//!   while it is stored.
//! - *A delta record with no room for the next entry* ends with the result 2 and the size so far.
//! - *DIF*: bits of the application tag that the mask has are not compared, and written as 0. A field of ones
//!   alone is not checked if the descriptor asks for its detection. The record has the tags of the next block
//!   after each end. An operation that meets a wrong field or a page fault has written the blocks before it.
//! - *`write()` of a program* runs a descriptor of up to 4 KiB before it returns, if nothing waits.
//! - *Interrupts* are refused, as a flag that the device lacks.
//!
//! On other systems than Linux on x86-64 with the GNU C library, this crate is empty.

#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]

mod config;
mod decode;
mod delta;
mod descriptor;
mod dif;
mod emu;
mod memory;
mod operations;
#[cfg(feature = "preload")]
mod preload;
mod queue;
mod ring;
mod trap;
mod tree;

pub use config::ConfigError;
pub use emu::{Emu, StartError, lay_out};
