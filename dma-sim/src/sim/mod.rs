//! The simulator: a [modelled device](crate::model) as an engine.
//!
//! [`SimEngine`] runs the contract on the device model, so that code for a DMA device can be tested without one: as slow as the device, as
//! reordered, and as broken, and all of it the same again with the same seed. [`SimOptions`] says which device, which seed, which faults, and what
//! passes the time.
//!
//! # Supported
//!
//! - Devices: `ideal`, and models of BlueField-2 and BlueField-3 (DOCA DMA), I/OAT and DSA made from published
//!   measurements; see [`Profile`](crate::model::Profile) and [`published`](crate::model::published). Which operations, limits, capabilities
//!   and manners an engine has is the profile's: a BlueField has neither fill nor fence, an I/OAT completes in order and
//!   wakes nobody.
//! - Copies and fills, gathered and scattered as far as the profile goes; ordering marks; doorbells, with coalesced
//!   reports if [asked for](SimOptions::coalesce); queue depth and number of queues.
//! - Bytes that move while time passes: what is in flight can be seen half done, and is whole before it is reported.
//! - Completions in any order that the device may report them in, picked by the seed.
//! - Faults, by [plan](crate::model::FaultPlan). How each reaches the caller:
//!
//!   | fault | the operation | the queue |
//!   |---|---|---|
//!   | `refuse` | fails: `OutOfResources` | goes on |
//!   | `fail` | fails: `DeviceFault` | goes on, or is reset, as the profile says |
//!   | `reset` | fails: `DeviceFault` | is reset: all others in flight are `Aborted`, safe to submit again; then it runs again by itself |
//!   | `lose` | never ends, until the queue is closed | goes on with one place less |
//!   | `stick` | never ends, until the queue is closed | makes no progress |
//!   | `gone` | fails: `DeviceLost` | all others fail likewise; so does all that follows |
//!   | `slow` | ends later | goes on |
//!   | `corrupt` | is done, with one bit wrong | goes on |
//!   | `oversize` | fails: `DeviceFault`, if it is over the limit, which takes an engine that [claims](SimOptions::claimed_max_transfer) too much | is reset |
//!
//! - Memory of other processes on the same machine, exported and imported; see [`remote`](crate::remote). A copy to or from memory that was
//!   revoked, or whose process ended, fails: `Revoked`. On a device whose failures reset the queue, that resets the queue.
//! - Sleeping on a file descriptor, on every clock, where the profile's device can wake (Linux).
//!
//! # Rejected
//!
//! - What the contract rejects on every engine.
//! - Exporting memory that was registered or imported, and importing what another backend exported: `Unsupported`.
//!
//! # Divergences
//!
//! What real devices do and this one does not, or the other way round:
//!
//! - Memory is not pinned, registering costs nothing, no page faults, no memlock limit; alignment makes no difference to speed.
//! - One device is one engine: two engines of one profile do not share bandwidth.
//! - A restart after a reset takes no time.
//! - The engine serves one descriptor of a direction at a time, in turn by queue, where real ones interleave; what overtakes what is
//!   therefore only roughly as on the device.
//! - Directions do not slow each other down, and the host's CPUs and memory slow nobody down.
//! - `lose` is rarer on real devices than any plan; it stands for bugs of drivers and firmware.
//! - On the virtual clock time passes by polling, so who waits without polling waits for ever, and a wait's deadline, which is on the
//!   computer's clock, has nothing to do with the device's time.
//! - With several threads on one engine, the same seed gives the same trace only if the threads take turns in the same order.
//! - On the real clock the device does its work while somebody calls it, not in between; completions carry the device's time all the same.

mod engine;
mod event;
mod native;
mod options;
mod queue;
mod region;
mod shared;

pub use engine::{DeviceView, SimEngine};
pub use options::{Clock, OptionError, SimOptions};

/// The engine's name, in errors and in export descriptors.
const BACKEND: &str = "sim";
