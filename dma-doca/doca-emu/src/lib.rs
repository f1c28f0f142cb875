//! A stand-in for the DOCA SDK: the DOCA C interface, on a software DMA device.
//!
//! C programs do not call this crate as Rust: they link the libraries that it is installed as, or a Rust program that links this crate
//! declares the functions, as `doca_sys::bindings` does. The README says how to install and configure it. Rust has a way to give a thread
//! devices of its own, [`use_config`], and to read a card's clock, [`model_time`].
//!
//! What is meant by faithful: a program that keeps to the public DOCA 3.0 reference (<https://docs.nvidia.com/doca/>) sees what the reference
//! says. Where that is silent, what is public about the behaviour of real libraries decides; where that is silent too, a choice was
//! made, and stands below.
//!
//! # Supported
//!
//! Every function of `doca_error.h`, `doca_version.h`, `doca_dev.h`, `doca_mmap.h`, `doca_buf.h`, `doca_buf_inventory.h`, `doca_ctx.h`,
//! `doca_pe.h`, `doca_dma.h`, `doca_log.h`, `doca_argp.h`, `doca_comch.h` and `doca_sync_event.h`, as far as it needs no hardware that is
//! not here.
//!
//! - *Devices*: any number of cards, each with functions on the DPU and on the host, and representors of the latter. All functions of a card
//!   share one engine.
//! - *Memory*: of any kind that the program has, or of a DMA buffer, for which a memfd or a udmabuf stands in. Rights; limits on devices and on
//!   locked bytes; user data; the free function; counting of buffers, or none with thread safety. Exports over PCI are imported by this process
//!   or another one of the same user, and taken back when the map is stopped or the process ends: tasks then fail, and nothing else is touched.
//!   Exports over a network are imported, and refused for DMA.
//! - *Buffers*: windows, data that grows as the device writes, lists, reference counts to 65535.
//! - *Contexts and tasks*: the states, with their callbacks; tasks that are used again for ever; doorbells by
//!   `DOCA_TASK_SUBMIT_FLAG_FLUSH` and `doca_ctx_flush_tasks`; coalesced reports, with the stall of a tail that has no report of its own; failures
//!   that take the context down, and its restart. Callbacks may submit, free, stop and destroy.
//! - *Sleeping* on the notification handle, in real and in virtual time.
//! - *Faults* of the plan that `dma_sim::model::FaultPlan` describes.
//!
//! # Rejected
//!
//! - GPU and DPA data paths, and memory of theirs: `DOCA_ERROR_NOT_SUPPORTED`.
//! - Batches of tasks: no context of these headers makes any. `DOCA_ERROR_NOT_SUPPORTED`.
//! - `doca_pe_set_notification_handle`, which is for Windows: `DOCA_ERROR_NOT_SUPPORTED`.
//!
//! # Divergences
//!
//! From the real library, as far as it is known:
//!
//! - Each process has a DMA engine of its own, though two see the same card.
//! - Descriptors of exported memory work between processes of one machine and one user. They have a checksum: one that was altered or cut
//!   short, is for another card, or whose export was taken back, is `INVALID_VALUE`; one of another user is `NOT_PERMITTED`.
//! - A destroyed handle is an invalid value where that can be told; with the real library it is undefined. A buffer that is released while a
//!   task has it returns to its inventory when the task ends.
//! - A function of the host exports and does not import, one of the DPU does both.
//!
//! Choices where nothing public says how the real library answers:
//!
//! - What only the engine finds ends with `IO_FAILED`; a missing right with `NOT_PERMITTED`. So do the tasks that are flushed: the program tells
//!   them from the one that failed by the state of the context, which is still running when the callback of the latter is called, and stopping
//!   when those of the former are.
//! - A task is refused with `INVALID_VALUE` if a buffer is missing, is not the head of its list, or is of a map that does not have the context's
//!   device; a list that is too long too. `doca_task_try_submit` refuses data outside of a buffer's window, no data, more data than room,
//!   more than the device takes (`INVALID_VALUE`), and missing rights (`NOT_PERMITTED`).
//! - A task that is submitted already is `BAD_STATE`; freeing it then does nothing. Its buffers cannot be changed then.
//! - A context that fails goes on taking tasks until the program has been told, and flushes them.
//! - A context that has no tasks configured does not start: `BAD_STATE`. Stopping an idle one is `BAD_STATE`, stopping one that is stopping already
//!   `IN_PROGRESS`.
//! - Destroying a context that is not idle is `IN_USE`. So is closing a device that a map or a context has.
//! - A map without memory or devices does not start: `INVALID_VALUE`. Starting a started one, and stopping a stopped one, is `BAD_STATE`. An imported
//!   map cannot be stopped: `NOT_PERMITTED`; it is destroyed. A map can have 8 devices unless it is told otherwise.
//! - `PCI_RELAXED_ORDERING` together with a right over PCI is `INVALID_VALUE`, as a 3.2 library was seen to answer.
//! - Windows outside of their map, and data outside of its window, are `INVALID_VALUE` when a buffer is made. When its data is set they are not looked at.
//! - Elements and maps that are not started are `BAD_STATE`. User data of an inventory can be set at any time.
//! - `doca_devinfo_get_active_rate` counts bits a second.

mod argp;
mod buf;
mod card;
mod comch;
mod config;
mod ctx;
mod dev;
mod dma;
mod door;
mod error;
mod inventory;
mod list;
mod log;
mod mmap;
mod notify;
mod pci;
mod pe;
mod rep;
mod sync_event;
mod task;
mod world;

pub use config::{ConfigError, VERSION, model_time, use_config};
