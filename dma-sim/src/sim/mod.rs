//! The simulator: a [modelled device](crate::model) as an engine.
//!
//! [`SimEngine`] implements the contract on the device model, so that code for a DMA device can be tested
//! without the device. It has the latency, reordering and faults of real devices, and is reproducible by its
//! seed. [`SimOptions`] selects the device, the seed, the faults and the clock.
//!
//! # Supported
//!
//! - Devices: `ideal`, and models of BlueField-2 and BlueField-3 (DOCA DMA), I/OAT and DSA made from
//!   published measurements; see [`Profile`](crate::model::Profile) and
//!   [`published`](crate::model::published). The profile determines operations, limits, capabilities and
//!   behaviour: for example, a BlueField has neither fill nor fence, and an I/OAT completes in order and has
//!   no wake-ups.
//! - Copies and fills, gathered and scattered within the profile's limits; fences; doorbells, with [coalesced
//!   reports](SimOptions::coalesce); queue depth and number of queues.
//! - Comparisons, CRC-32C, copies with CRC-32C and copies to two destinations, on `dsa` and `ideal`.
//! - Bytes that move while time passes: an operation in flight can be observed half done, and is complete
//!   before it is reported.
//! - Completions in any order that the device allows, selected by the seed.
//! - Faults, according to a [plan](crate::model::FaultPlan), with these effects:
//!
//!   | fault | the operation | the queue |
//!   |---|---|---|
//!   | `refuse` | fails: `OutOfResources` | continues |
//!   | `fail` | fails: `DeviceFault` | continues or is reset, depending on the profile |
//!   | `reset` | fails: `DeviceFault` | is reset: its other operations in flight are `Aborted`, and it
//!   restarts |
//!   | `lose` | never ends, until the queue is closed | continues with one slot less |
//!   | `stick` | never ends, until the queue is closed | makes no progress |
//!   | `gone` | fails: `DeviceLost` | all other and all later operations fail as well |
//!   | `dead` | is never reported; waits fail with `DeviceLost` | the same; memory in flight is leaked |
//!   | `slow` | ends later | continues |
//!   | `corrupt` | is done, with one bit wrong; a comparison or a CRC has a wrong result | continues |
//!   | `oversize` | over the limit: `DeviceFault`; see [`SimOptions::claimed_max_transfer`] | is reset |
//!
//! - Memory of other processes on the same machine, exported and imported; see [`dma_ipc`]. A copy to or from
//!   memory that was revoked, or whose process ended, fails: `Revoked`. On a device whose failures reset the
//!   queue, such a failure also resets the queue.
//! - The device's own memory ([`SimOptions::device_memory`]), at addresses that the CPU cannot access: a load
//!   or store ends the process by SIGSEGV. It can also be registered by its address, like memory that another
//!   library has allocated on a real device.
//! - Sleeping on a file descriptor, on every clock, if the profile has wake-ups (Linux).
//!
//! # Rejected
//!
//! - All requests that the contract rejects on every engine.
//! - Exporting device memory, registered memory or imported memory, and importing memory that another backend
//!   exported: `Unsupported`.
//!
//! # Divergences
//!
//! Differences from real devices:
//!
//! - Device memory is as fast as host memory. Its dma-buf is a memfd. The kernel's dma-buf calls refuse it,
//!   and the stand-ins map it.
//! - Memory is not pinned and has no memlock limit. Registering takes no time, and there are no page faults.
//!   Alignment does not influence the speed.
//! - One device is one engine: two engines of one profile do not share bandwidth.
//! - A restart after a reset takes no time.
//! - In each direction, the engine executes one descriptor at a time, and serves the queues in turn. Real
//!   engines interleave descriptors, so the order in which descriptors overtake each other is approximate.
//! - The directions do not slow each other down. Load on the host's CPUs and memory has no influence.
//! - `lose` models bugs of drivers and firmware. On real devices it is rarer than in any plan.
//! - On the virtual clock, only polling advances time, so a waiter that does not poll waits forever. The
//!   deadline of a wait is on the computer's clock and does not depend on the device's time.
//! - If several threads use one engine, the same seed gives the same trace only if the threads' calls come in
//!   the same order.
//! - On the real clock, the device makes progress only during calls. Completions still have the device's
//!   time.

mod device_memory;
mod engine;
mod error;
mod event;
mod options;
mod queue;
mod region;
mod shared_device;

pub use engine::{DeviceView, SimEngine};
pub use options::{Clock, SimOptions};

/// The engine's name, in errors and in export descriptors.
pub(crate) const NAME: &str = "sim";
