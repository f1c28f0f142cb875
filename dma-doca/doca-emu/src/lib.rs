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
//! Every function of `doca_error.h`, `doca_version.h`, `doca_dev.h`, `doca_mmap.h`, `doca_buf.h`, `doca_buf_inventory.h`, `doca_buf_pool.h`,
//! `doca_ctx.h`, `doca_pe.h`, `doca_dma.h`, `doca_graph.h`, `doca_mmap_advise.h`, `doca_log.h`, `doca_argp.h`, `doca_comch.h`,
//! `doca_comch_consumer.h`, `doca_comch_producer.h` and `doca_sync_event.h`, as far as it needs no hardware that is not here.
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
//! - *Graphs* of tasks of any contexts, of functions and of other graphs. What finds its context full is tried again.
//! - *Cache invalidation*, which takes no time and does nothing.
//! - *The comm channel* between processes of one user, or within one: servers on the DPU, clients on the host, messages, connections that end or
//!   die, counters.
//! - *Producers and consumers* of a connection, on any threads: messages of up to 1 GiB and 32 bytes of immediate data, from buffers or lists
//!   into buffers or lists that the other side posted. Sending needs no progress of anything else. Several of either on each end.
//! - *Sync events* of the CPU and of the other side of the card, in another process: called from threads, or as tasks; in memory of their own, at
//!   an address or in a buffer.
//! - *The log*: sources, all kinds of backends, limits, strict ones too. This library logs to the SDK's backends only, as the real one does.
//! - *Command lines*: flags, JSON files (with the comments and last commas of those that NVIDIA's programs come with), commands, usage.
//! - *Faults* of the plan that `dma_sim::model::FaultPlan` describes.
//!
//! # Rejected
//!
//! - GPU and DPA data paths, and memory of theirs: `DOCA_ERROR_NOT_SUPPORTED`.
//! - Batches of tasks: no context of these headers makes any. `DOCA_ERROR_NOT_SUPPORTED`.
//! - Producers and consumers on a DPA, and the message queues for those, which have no header here: `DOCA_ERROR_NOT_SUPPORTED`.
//! - Sync events of a GPU, a DPA or a network, and the export of one that lies in memory of the program: `DOCA_ERROR_NOT_SUPPORTED`. Flags of
//!   `DOCA_ARGP_TYPE_JSON_OBJ`, which are objects of the vendor's JSON library, likewise.
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
//!
//! Choices where nothing public says how the real library answers:
//!
//! - What only the engine finds ends with `IO_FAILED`, but for a missing right, which ends with `NOT_PERMITTED`. Tasks that are flushed end with
//!   `IO_FAILED` as well. A program tells them from the one that failed by the state of the context: it is still running when the callback of the
//!   one that failed is called, and stopping when those of flushed ones are.
//! - A task is refused with `INVALID_VALUE` if a buffer is missing, is not the head of its list, or is of a map that does not have the context's
//!   device; a list that is too long too. `doca_task_try_submit` refuses data outside of a buffer's window, no data, more data than room,
//!   more than the device takes (`INVALID_VALUE`), and missing rights (`NOT_PERMITTED`).
//! - A task that is submitted already is `BAD_STATE`. Freed then, it returns to its pool when it has ended and its callback has been called,
//!   as NVIDIA's Secure Channel application relies on. Its buffers cannot be changed then.
//! - A context that fails goes on taking tasks until the program has been told, and flushes them.
//! - A context that has no tasks configured does not start: `BAD_STATE`. Stopping an idle one succeeds, since NVIDIA's samples do it;
//!   stopping one that is stopping already is `IN_PROGRESS`.
//! - Destroying a context that is not idle is `IN_USE`. So is closing a device that a map or a context has.
//! - A right to write over PCI or a network is one to write locally too, as with the hardware, and programs rely on that; reading over
//!   PCI and writing over PCI exclude each other (`INVALID_VALUE`).
//! - The value of the handle that `doca_pe_clear_notification` is given says nothing.
//! - A map whose permissions are not set can be read and written by its devices, since NVIDIA's samples rely on that. `doca_dev_close` of NULL succeeds, for
//!   the same reason.
//! - Memory must be mapped when its map is started (`INVALID_VALUE`), writable if the device is to write it (`NOT_PERMITTED`), and stay so until
//!   the map is stopped: nothing is pinned here, so what the program unmaps earlier is missing when the device copies.
//! - A map without memory or devices does not start: `INVALID_VALUE`. Starting a started one, and stopping a stopped one, is `BAD_STATE`. An imported
//!   map cannot be stopped: `NOT_PERMITTED`; it is destroyed. A map can have 8 devices unless it is told otherwise.
//! - `PCI_RELAXED_ORDERING` together with a right over PCI is `INVALID_VALUE`, as a 3.2 library was seen to answer.
//! - Windows outside of their map, and data outside of its window, are `INVALID_VALUE` when a buffer is made. When its data is set they are not looked at.
//! - Elements and maps that are not started are `BAD_STATE`. User data of an inventory can be set at any time.
//! - `doca_devinfo_get_active_rate` counts bits a second.
//! - A client looks for its server for 3 seconds, then goes to stopping and idle; once it has found it, it waits to be let in as long as that
//!   takes. A second server of the same name, card and function does not start: `IN_USE`.
//! - A message is copied when its task is submitted, and has been sent when the system has it. What it has no room for waits in the context, in the
//!   order of submission, so `AGAIN` does not come; the size of the receive queue is stored and changes nothing. The longest message is what both
//!   sides allow. A message on a connection that has ended is `NOT_CONNECTED`; one that was waiting then fails with `CONNECTION_ABORTED`. Whoever
//!   ends a connection, the server is told that it ended successfully.
//! - A consumer starts when the other side's server or client has progressed and knows of it; it and the connection's own progress engine have to
//!   turn until then. Numbers of consumers and producers count from 1 on each end, and are used again. Unless told otherwise a consumer takes
//!   32 bytes of immediate data. Its memory map cannot be stopped while it runs (`NOT_PERMITTED`).
//! - A producer's task is `AGAIN` at submission as long as the consumer has nothing posted; one that is longer than what is posted next ends with
//!   `TOO_BIG`, one for a consumer that is not there with `NOT_CONNECTED`. It has ended when its message lies in the consumer's memory. With a
//!   buffer or immediate data missing, the other is sent alone; without both it is `INVALID_VALUE`.
//! - A consumer that stops flushes what nothing came for with `IO_FAILED`. When a connection ends its producers and consumers go to stopping by
//!   themselves. Who sleeps on a progress engine with one of them is woken every millisecond: the real ones do not support sleeping at all.
//! - A graph's functions, and its callbacks, are called by progress of its progress engine alone. An instance ends when a node failed and what runs
//!   has ended, or when all have; a failure of the first task that waits for none is the submission's.
//! - A sync event needs a publisher and a subscriber to start, whatever they are: `BAD_STATE`. Calls on one that is not started are `BAD_STATE`
//!   too. An imported one cannot be set up or exported: `NOT_PERMITTED`. When whoever made it has destroyed it or died, waits and calls on
//!   an imported one fail with `IO_FAILED`.
//! - A line of the log has the number of the thread, and DOCA for its source, as published transcripts show. A strict limit that would be widened is
//!   `NOT_PERMITTED` when set on its backend, and stays as it is when set for all. A message of a source that is not registered is `INVALID_VALUE`.
//! - `doca_argp_start` prints the usage and ends the program for `-h`; after a mistake it names that on standard error, prints the usage and returns
//!   a code. Without a callback of the program's, `-v` prints the SDK's version and ends it. The command line has the last word over a JSON file.
//!   A program with commands must be given one.

mod argp;
mod buf;
mod buf_pool;
mod card;
mod comch;
mod config;
mod ctx;
mod dev;
mod dma;
mod door;
mod error;
mod graph;
mod inventory;
mod list;
mod log;
mod mmap;
mod mmap_advise;
mod notify;
mod pci;
mod pe;
mod rep;
mod sync_event;
mod task;
mod world;

pub use config::{ConfigError, VERSION, model_time, use_config};
