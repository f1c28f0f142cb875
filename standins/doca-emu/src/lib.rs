//! A stand-in for the DOCA SDK: the DOCA C interface on a software DMA device.
//!
//! C programs link the libraries that `install` makes from this crate. Rust programs link this crate and
//! declare the functions, as `doca_sys::bindings` does. The README describes installation and configuration.
//! From Rust, [`use_config`] gives a thread devices of its own, and [`model_time`] reads a card's clock.
//!
//! A program that follows the public DOCA 3.0 reference (<https://docs.nvidia.com/doca/>) sees the behaviour
//! that the reference describes. If the reference is silent, the stand-in does as real libraries were
//! reported to do. If no report exists, the choice is listed under [Divergences](#divergences).
//!
//! # Supported
//!
//! Every function of `doca_error.h`, `doca_version.h`, `doca_dev.h`, `doca_mmap.h`, `doca_buf.h`,
//! `doca_buf_inventory.h`, `doca_buf_pool.h`, `doca_ctx.h`, `doca_pe.h`, `doca_dma.h`, `doca_graph.h`,
//! `doca_mmap_advise.h`, `doca_log.h`, `doca_argp.h`, `doca_comch.h`, `doca_comch_consumer.h`,
//! `doca_comch_producer.h`, `doca_sync_event.h` and `doca_clock.h`, if it needs no hardware that the stand-in
//! lacks.
//!
//! - *Devices*: any number of cards, each with functions on the DPU and on the host, and representors of the
//!   host's functions. All functions of a card share one engine.
//! - *Memory*: any memory of the program, or the memory of a dma-buf. A memfd or a udmabuf can be used as the
//!   dma-buf. Rights; limits on devices and on locked bytes; user data; the free function; counting of
//!   buffers, unless thread safety is enabled. Exports over PCI can be imported by this process, or by
//!   another process of the same user. They are revoked when the map is stopped or the process ends: tasks
//!   then fail, and no other memory is accessed. Exports over a network can be imported, but DMA refuses
//!   them.
//! - *Buffers*: windows, data that grows as the device writes, lists, reference counts to 65535.
//! - *Contexts and tasks*: the states, with their callbacks; tasks that are reused without limit; doorbells
//!   by `DOCA_TASK_SUBMIT_FLAG_FLUSH` and `doca_ctx_flush_tasks`; coalesced reports, where a last task
//!   without a report of its own stays unreported; failures that stop the context, and its restart. Callbacks
//!   may submit, free, stop and destroy.
//! - *Sleeping* on the notification handle, in real and in virtual time.
//! - *Graphs* of tasks of any contexts, of functions and of other graphs. A task whose context is full is
//!   submitted again later.
//! - *Cache invalidation*, which takes no time and has no effect.
//! - *The comm channel* between processes of one user, or within one: servers on the DPU, clients on the
//!   host, messages, connections that end or die, counters.
//! - *Producers and consumers* of a connection, on any threads: messages of up to 1 GiB and 32 bytes of
//!   immediate data, from buffers or lists into buffers or lists that the other side posted. Sending needs no
//!   progress of other contexts. Each end can have several producers and consumers.
//! - *Sync events* of the CPU and of the other side of the card, in another process. They are used by calls
//!   or by tasks. The number of an event is in memory of its own, at an address of the program or in a
//!   buffer.
//! - *Clocks* of the host and of the device, which uses the host's clocks too.
//! - *The log*: sources, all kinds of backends, limits and strict limits. This library logs only to the SDK's
//!   backends, as the real library does.
//! - *Command lines*: flags, JSON files (with the comments and trailing commas of NVIDIA's files), commands,
//!   usage.
//!
//! # Rejected
//!
//! - GPU and DPA data paths, and memory of GPUs and DPAs: `DOCA_ERROR_NOT_SUPPORTED`. Calls that return the
//!   GPU or DPA handle of a context: `DOCA_ERROR_BAD_STATE`, because no context has such a data path.
//! - Batches of tasks, because no context of these headers has batches: `DOCA_ERROR_NOT_SUPPORTED`.
//! - Producers and consumers on a DPA, and their message queues, which have no header here:
//!   `DOCA_ERROR_NOT_SUPPORTED`.
//! - Sync events of a GPU, a DPA or a network, and exports of events whose number is in the program's memory:
//!   `DOCA_ERROR_NOT_SUPPORTED`. Flags of the type `DOCA_ARGP_TYPE_JSON_OBJ`, whose values are objects of the
//!   vendor's JSON library: `DOCA_ERROR_NOT_SUPPORTED`.
//! - `doca_pe_set_notification_handle`, which is for Windows: `DOCA_ERROR_NOT_SUPPORTED`.
//!
//! # Divergences
//!
//! These differences from the real library are known:
//!
//! - Each process has its own DMA engine, even if two processes open the same card.
//! - Descriptors of exported memory work between processes of one machine and one user. They have a checksum.
//!   The import returns `INVALID_VALUE` if the descriptor was altered or truncated, is for another card, or
//!   if its export was revoked. It returns `NOT_PERMITTED` if the exporter runs as another user.
//! - A call with a destroyed handle returns `INVALID_VALUE`, as long as the handle's memory is not reused.
//!   With the real library, the behaviour is undefined. A buffer that is released while a task has it returns
//!   to its inventory when the task ends.
//!
//! Choices of ours, where no public source describes the real library:
//!
//! - Tasks with a mistake that only the engine detects end with `IO_FAILED`, or with `NOT_PERMITTED` if a
//!   right is missing. Flushed tasks end with `IO_FAILED` too. The context's state distinguishes them: it is
//!   running during the callback of the failed task, and stopping during the callbacks of flushed tasks.
//! - A task is refused with `INVALID_VALUE` if a buffer is missing, is not the head of its list, or belongs
//!   to a map without the context's device, or if a list is too long. `doca_task_try_submit` also checks the
//!   data and the rights. It returns `INVALID_VALUE` if the data is empty, outside of its buffer's window,
//!   longer than the destination's room or longer than the device's limit, and `NOT_PERMITTED` if a right is
//!   missing.
//! - Source and destination may overlap. The profile `ideal` reads each byte before it overwrites it; the
//!   other profiles move the bytes in chunks, in any order.
//! - Submitting a submitted task returns `BAD_STATE`. A submitted task that is freed returns to its pool
//!   after its callback, because NVIDIA's Secure Channel application relies on that. Until then, its buffers
//!   cannot be changed.
//! - `doca_dma_set_ordered_completions` of 3.2 makes a context report its tasks in the order of submission.
//!   It orders only the reports: a task may still run before an earlier one has ended. It is off by default,
//!   and returns `BAD_STATE` while the context runs.
//! - A context that has failed still accepts tasks until the program's callback for the failed task has run.
//!   It flushes these tasks.
//! - Starting a context without configured tasks returns `BAD_STATE`. Stopping an idle context succeeds,
//!   because NVIDIA's samples rely on that. Stopping a context that is already stopping returns
//!   `IN_PROGRESS`.
//! - Destroying a context that is not idle returns `IN_USE`. Closing a device that a map or a context uses
//!   returns `IN_USE` too.
//! - A right to write over PCI or a network includes the right to local writing, because programs rely on
//!   this behaviour of the hardware. Reading over PCI and writing over PCI exclude each other
//!   (`INVALID_VALUE`).
//! - `doca_pe_clear_notification` ignores the value of the handle.
//! - A map without permissions set can be read and written by its devices, and `doca_dev_close` of NULL
//!   succeeds, because NVIDIA's samples rely on both.
//! - Memory must be mapped when its map is started (`INVALID_VALUE`), and writable if the device will write
//!   it (`NOT_PERMITTED`), and must stay mapped and writable until the map is stopped. The stand-in does not
//!   pin memory. If the program unmaps memory earlier, a copy of that memory fails.
//! - `doca_buf_inventory_set_user_data` needs a started inventory, as its text in the reference says. The
//!   reference's text of `doca_buf_inventory_start` says the contrary.
//! - Starting a map without memory or devices returns `INVALID_VALUE`. Starting a started map that is not
//!   exported, and stopping a stopped map, return `BAD_STATE`. An imported map cannot be stopped
//!   (`NOT_PERMITTED`), only destroyed. The default limit is 8 devices.
//! - `PCI_RELAXED_ORDERING` together with a right over PCI returns `INVALID_VALUE`, as a library of 3.2 was
//!   seen to do.
//! - Making a buffer returns `INVALID_VALUE` if its window is not within the map, or its data not within the
//!   window. Setting a buffer's data later does not check these ranges.
//! - Calls that need a started inventory, pool or map return `BAD_STATE` if it is not started.
//! - `doca_mmap_get_mkey` returns a number that differs for each map and device, and that nothing else
//!   uses. A map that is not started returns `NOT_PERMITTED`, and a device that the map lacks `NOT_FOUND`,
//!   as with the handle for a data path accelerator. No public header states its errors.
//! - The unit of `doca_devinfo_get_active_rate` is bits per second.
//! - A client searches for its server for 3 seconds, then stops. When it has found the server, it waits
//!   without a time limit for the server to accept. Starting a second server with the same name, card and
//!   function returns `IN_USE`. A connection needs two file descriptors on each side, so 512 clients need a
//!   limit above 1024.
//! - A message is copied at submission, and counts as sent when the socket has taken it. Messages that the
//!   socket has no room for wait in the context, in the order of submission, so `AGAIN` does not occur. The
//!   size of the receive queue is stored, but has no effect. The longest message is the smaller of both
//!   sides' limits. Sending on an ended connection returns `NOT_CONNECTED`. A message that waits when the
//!   connection ends fails with `CONNECTION_ABORTED`. The server's callback reports the end of a connection
//!   as successful, regardless of the side that ended it.
//! - A consumer runs when the other side's server or client has made progress and answered. Until then, the
//!   consumer and the connection's own server or client need progress. Each end numbers its consumers and
//!   producers from 1, and reuses numbers. By default a consumer accepts 32 bytes of immediate data. While it
//!   runs, its memory map cannot be stopped (`NOT_PERMITTED`).
//! - Submitting a producer's task returns `AGAIN` while the consumer has no buffer posted. The task ends with
//!   `TOO_BIG` if the message is longer than the next posted buffer, and with `NOT_CONNECTED` if the consumer
//!   does not exist. Otherwise, a task ends when its message is in the consumer's memory. A task may have
//!   only a buffer or only immediate data; with neither, it is refused with `INVALID_VALUE`.
//! - When a consumer stops, its tasks that have no message end with `IO_FAILED`. When a connection ends, its
//!   producers and consumers stop by themselves. A program that sleeps on a progress engine with a producer
//!   or consumer wakes every millisecond; with the real library, it cannot sleep on such an engine.
//! - The functions and callbacks of a graph run only in progress calls of the graph's progress engine. An
//!   instance ends when all nodes have ended, or when a node has failed and the running nodes have ended. If
//!   the first root task cannot be submitted, the submission of the instance returns that error.
//! - When two clocks are read together, the error margin has the unit of the primary clock, because NVIDIA's
//!   sample prints it so.
//! - Starting a sync event without a publisher or without a subscriber returns `BAD_STATE`, as do calls on an
//!   event that is not started. An imported event cannot be configured or exported (`NOT_PERMITTED`). Waits
//!   and calls on an imported event fail with `IO_FAILED` when the exporter has destroyed the event or has
//!   died.
//! - A log line has the number of the thread, and `DOCA` as its source, as published transcripts show.
//!   Setting a limit that shows more messages than a strict limit returns `NOT_PERMITTED`. If it is set for
//!   all backends, backends with a strict limit do not change. Logging with an unregistered source returns
//!   `INVALID_VALUE`.
//! - For `-h`, `doca_argp_start` prints the usage and exits. After a mistake, it prints the mistake on
//!   standard error, prints the usage, and returns an error. Without a callback, `-v` prints the SDK's
//!   version and exits. The command line overrides a JSON file. If a program has commands, its command line
//!   must contain one.

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
mod notifier;
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
