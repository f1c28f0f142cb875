//! A stand-in for the DOCA SDK: the DOCA C interface on a software DMA device.
//!
//! C programs link the libraries that this crate is installed as. Rust programs that link this crate declare
//! the functions, as `doca_sys::bindings` does. The README says how to install and configure it. From Rust,
//! [`use_config`] gives a thread devices of its own, and [`model_time`] reads a card's clock.
//!
//! A program that keeps to the public DOCA 3.0 reference (<https://docs.nvidia.com/doca/>) sees what the
//! reference says. The published behaviour of real libraries decides what the reference leaves open. The
//! choices where both are silent stand under [Divergences](#divergences).
//!
//! # Supported
//!
//! Every function of `doca_error.h`, `doca_version.h`, `doca_dev.h`, `doca_mmap.h`, `doca_buf.h`,
//! `doca_buf_inventory.h`, `doca_buf_pool.h`, `doca_ctx.h`, `doca_pe.h`, `doca_dma.h`, `doca_graph.h`,
//! `doca_mmap_advise.h`, `doca_log.h`, `doca_argp.h`, `doca_comch.h`, `doca_comch_consumer.h`,
//! `doca_comch_producer.h`, `doca_sync_event.h` and `doca_clock.h`, as far as it needs no hardware that is
//! not here.
//!
//! - *Devices*: any number of cards, each with functions on the DPU and on the host, and representors of the
//!   latter. All functions of a card share one engine.
//! - *Memory*: any memory of the program, or that of a DMA buffer, for which a memfd or a udmabuf stands in.
//!   Rights; limits on devices and on locked bytes; user data; the free function; counting of buffers, or
//!   none with thread safety. Exports over PCI are imported by this process or another of the same user.
//!   They are revoked when the map is stopped or the process ends: tasks then fail, and no other memory is
//!   accessed. Exports over a network are imported, and refused for DMA.
//! - *Buffers*: windows, data that grows as the device writes, lists, reference counts to 65535.
//! - *Contexts and tasks*: the states, with their callbacks; tasks that are reused without limit; doorbells
//!   by `DOCA_TASK_SUBMIT_FLAG_FLUSH` and `doca_ctx_flush_tasks`; coalesced reports, with the stall of a tail
//!   that has no report of its own; failures that take the context down, and its restart. Callbacks may
//!   submit, free, stop and destroy.
//! - *Sleeping* on the notification handle, in real and in virtual time.
//! - *Graphs* of tasks of any contexts, of functions and of other graphs. Tasks whose context is full are
//!   retried.
//! - *Cache invalidation*, which takes no time and has no effect.
//! - *The comm channel* between processes of one user, or within one: servers on the DPU, clients on the
//!   host, messages, connections that end or die, counters.
//! - *Producers and consumers* of a connection, on any threads: messages of up to 1 GiB and 32 bytes of
//!   immediate data, from buffers or lists into buffers or lists that the other side posted. Sending needs no
//!   progress of other contexts. Each end can have several producers and consumers.
//! - *Sync events* of the CPU and of the other side of the card, in another process: called from threads, or
//!   as tasks; in memory of their own, at an address or in a buffer.
//! - *Clocks* of the host and of the device, which are the host's too.
//! - *The log*: sources, all kinds of backends, limits, strict ones too. This library logs to the SDK's
//!   backends only, as the real one does.
//! - *Command lines*: flags, JSON files (with the comments and trailing commas of NVIDIA's files), commands,
//!   usage.
//!
//! # Rejected
//!
//! - GPU and DPA data paths, and memory of theirs: `DOCA_ERROR_NOT_SUPPORTED`. Handles of
//!   contexts on such a data path: `DOCA_ERROR_BAD_STATE`, because no context is on one.
//! - Batches of tasks, because no context of these headers makes any: `DOCA_ERROR_NOT_SUPPORTED`.
//! - Producers and consumers on a DPA, and their message queues, which have no header here:
//!   `DOCA_ERROR_NOT_SUPPORTED`.
//! - Sync events of a GPU, a DPA or a network, and the export of one that lies in memory of the program:
//!   `DOCA_ERROR_NOT_SUPPORTED`. Flags of `DOCA_ARGP_TYPE_JSON_OBJ`, which are objects of the vendor's JSON
//!   library, likewise.
//! - `doca_pe_set_notification_handle`, which is for Windows: `DOCA_ERROR_NOT_SUPPORTED`.
//!
//! # Divergences
//!
//! These differences from the real library are known:
//!
//! - Each process has a DMA engine of its own, even if two processes open the same card.
//! - Descriptors of exported memory work between processes of one machine and one user. They have a checksum.
//!   A descriptor that was altered or cut short, is for another card, or whose export was revoked, is
//!   `INVALID_VALUE`. A service of another user is `NOT_PERMITTED`.
//! - A destroyed handle is an invalid value as long as its memory is not reused. With the real library it is
//!   undefined. A buffer that is released while a task has it returns to its inventory when the task ends.
//!
//! Choices where nothing public says how the real library answers:
//!
//! - Mistakes that only the engine finds end with `IO_FAILED`; a missing right ends with `NOT_PERMITTED`.
//!   Flushed tasks end with `IO_FAILED` too. The state of the context tells them apart: it runs during the
//!   callback of the task that failed, and is stopping during those of flushed ones.
//! - A task is refused with `INVALID_VALUE` if a buffer is missing, is not the head of its list, or is of a
//!   map without the context's device, or if a list is too long. `doca_task_try_submit` also refuses data
//!   outside of a buffer's window, no data, more data than room, more than the device takes
//!   (`INVALID_VALUE`), and missing rights (`NOT_PERMITTED`).
//! - Source and destination may overlap. The profile `ideal` reads each byte before it writes its place;
//!   others move the bytes in chunks, in any order.
//! - Submitting a submitted task is `BAD_STATE`. A submitted task that is freed returns to its pool after its
//!   callback, as NVIDIA's Secure Channel application relies on. Its buffers cannot be changed in the
//!   meantime.
//! - `doca_dma_set_ordered_completions` of 3.2 has the ends of a context's tasks reported in the order of
//!   their submission. It orders reports alone: a task may still run before an earlier one has ended. It is
//!   off unless set, and `BAD_STATE` while the context runs.
//! - A context that fails accepts tasks until the program has been told, and flushes them.
//! - A context without configured tasks does not start: `BAD_STATE`. Stopping an idle one succeeds, because
//!   NVIDIA's samples rely on that. Stopping a context that is already stopping is
//!   `IN_PROGRESS`.
//! - Destroying a context that is not idle is `IN_USE`. So is closing a device that a map or a context has.
//! - A right to write over PCI or a network includes local writing, as with the hardware; programs rely on
//!   that. Reading over PCI and writing over PCI exclude each other (`INVALID_VALUE`).
//! - `doca_pe_clear_notification` ignores the value of the handle.
//! - A map without permissions set can be read and written by its devices, and `doca_dev_close` of NULL
//!   succeeds, since NVIDIA's samples rely on both.
//! - Memory must be mapped when its map is started (`INVALID_VALUE`), writable if the device is to write it
//!   (`NOT_PERMITTED`), and stay so until the map is stopped. Nothing is pinned, so memory that the program
//!   unmaps earlier is missing when the device copies.
//! - `doca_buf_inventory_set_user_data` needs a started inventory, as its own text says; the text of
//!   `doca_buf_inventory_start` says the contrary.
//! - A map without memory or devices does not start: `INVALID_VALUE`. Starting a map again that is not
//!   exported, and stopping a stopped map, is `BAD_STATE`. An imported map cannot be stopped
//!   (`NOT_PERMITTED`), only destroyed. The default limit is 8 devices.
//! - `PCI_RELAXED_ORDERING` together with a right over PCI is `INVALID_VALUE`, as a 3.2 library was seen to
//!   answer.
//! - Windows outside of their map, and data outside of its window, are `INVALID_VALUE` when a buffer is made.
//!   Setting a buffer's data later does not check these ranges.
//! - Elements and maps that are not started are `BAD_STATE`.
//! - `doca_devinfo_get_active_rate` counts bits a second.
//! - A client searches its server for 3 seconds, then stops. Once it has found the server, it waits for the
//!   accept without a limit. A second server of the same name, card and function does not start: `IN_USE`.
//!   A connection takes two file descriptors of either side, so 512 clients need a limit above 1024.
//! - A message is copied at submission, and counts as sent when the system has it. Messages without room wait
//!   in the context, in the order of submission, so `AGAIN` does not occur. The size of the receive queue is
//!   stored and has no effect. The longest message is the smaller of both sides' limits. A message on a
//!   connection that has ended is `NOT_CONNECTED`; one that was waiting fails with `CONNECTION_ABORTED`. The
//!   server gets the report that a connection ended successfully, regardless of the side that ended it.
//! - A consumer starts when the other side's server or client has progressed and answered. Until then it and
//!   the connection's own progress engine need progress. Numbers of consumers and producers count from 1 on
//!   each end, and are reused. By default a consumer takes 32 bytes of immediate data. Its memory map cannot
//!   be stopped while it runs (`NOT_PERMITTED`).
//! - A producer's task is `AGAIN` at submission while the consumer has nothing posted. A message longer than
//!   the next posted buffer ends with `TOO_BIG`, one for a missing consumer with `NOT_CONNECTED`. A task ends
//!   when its message lies in the consumer's memory. A task with only a buffer or only immediate data
//!   sends that; a task with neither is `INVALID_VALUE`.
//! - A consumer that stops flushes tasks without a message with `IO_FAILED`. When a connection ends, its
//!   producers and consumers stop by themselves. A program that sleeps on a progress engine with one of them
//!   wakes every millisecond; the real ones do not support sleeping at all.
//! - A graph's functions and callbacks run in progress of its progress engine alone. An instance ends when a
//!   node failed and the running ones have ended, or when all have. The submission reports a failure of the
//!   first root task.
//! - The error margin of two clocks that are read together is in units of the primary one, as NVIDIA's sample
//!   prints it.
//! - A sync event needs a publisher and a subscriber of any kind to start: `BAD_STATE`. Calls on one that is
//!   not started are `BAD_STATE` too. An imported one cannot be configured or exported: `NOT_PERMITTED`.
//!   Waits and calls on an imported one fail with `IO_FAILED` once its maker has destroyed it or died.
//! - A log line has the number of the thread, and DOCA for its source, as published transcripts show.
//!   Widening a strict limit is `NOT_PERMITTED` on its backend, and has no effect on it when set for all. A
//!   message of a source that is not registered is `INVALID_VALUE`.
//! - `doca_argp_start` prints the usage and ends the program for `-h`. After a mistake it prints the
//!   mistake on standard error, prints the usage and returns a code. Without a callback, `-v` prints the
//!   SDK's version and ends the program. The command line overrides a JSON file. If a program has commands,
//!   its command line must contain one.

#![cfg_attr(workq, allow(dead_code, unused_imports, reason = "calls of later versions are left out"))]

mod argp;
mod buf;
mod buf_pool;
mod c_abi;
mod card;
mod clock;
mod comch;
mod config;
mod ctx;
mod descriptor;
mod dev;
mod dma;
mod error;
mod graph;
mod inventory;
mod log;
mod mmap;
mod mmap_advise;
mod pe;
mod rep;
mod sync_event;
mod task;
#[cfg(workq)]
mod workq;
mod world;

pub use config::VERSION;
pub use dma_standin::config::ConfigError;
pub use world::{model_time, use_config};
