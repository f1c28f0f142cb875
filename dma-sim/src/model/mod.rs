//! The device model: a DMA engine in software, down to its queues, its time and its faults.
//!
//! The model accepts the contract's [descriptors](Descriptor). A simulator, a stand-in for a vendor's
//! library, or a test adds its own interface.
//!
//! **Scope.** A [`Device`] has [channels](Device::open_channel), a shared engine, and a table of registered
//! memory. A task is [submitted](Device::submit) to a channel as a [`Descriptor`], starts after a
//! [doorbell](Device::doorbell), takes the time that the [`Profile`] states, moves its bytes in parts, ends,
//! and is [reported](Device::poll) in any order that the device allows. A [`FaultPlan`] injects faults. Tasks
//! access only registered memory, regardless of their descriptors.
//!
//! **Time** is virtual and passes only in [`Device::advance`]. The caller advances time from event to event,
//! by chosen amounts, or along a real clock.
//!
//! **Chance** comes from one seed. A seed and a sequence of calls determine every byte of the [`Trace`] on
//! every machine, provided that regions are at the same offsets from cache lines.
//!
//! ```
//! use dma_sim::model::*;
//!
//! let mut device = Device::new(DeviceConfig::new(Profile::bluefield3()).with_seed(7))?;
//! let src = device.allocate(4096, Rights::LOCAL_READ, None)?;
//! let dst = device.allocate(4096, Rights::LOCAL_WRITE, None)?;
//! let (from, _) = device.range(src).unwrap();
//! let (to, _) = device.range(dst).unwrap();
//! device.write(src, from, &[7; 4096])?;
//!
//! let channel = device.open_channel(32)?;
//! let src = Segment { key: src, addr: DeviceAddr(from), len: 4096 };
//! let dst = Segment { key: dst, addr: DeviceAddr(to), len: 4096 };
//! device.submit(channel, &Descriptor::copy(1, src, dst))?;
//! device.doorbell(channel)?;
//! assert_eq!(device.poll(channel), None);
//!
//! device.run();
//! let report = device.poll(channel).unwrap();
//! assert_eq!((report.token, report.status), (1, Status::Done));
//! assert!(device.now() > Time::from_us(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod channel;
mod check;
mod curve;
mod device;
mod events;
mod fault;
mod imported;
mod instant;
mod memory;
mod motion;
mod profile;
pub mod published;
mod region;
mod remote_memory;
mod resources;
mod rng;
mod task;
mod time;
mod trace;

pub use channel::{ChannelError, ChannelId, ChannelState, ChannelStats};
pub use curve::{Curve, CurveError};
pub use device::{Device, DeviceConfig, DeviceError};
pub use dma_core::{Descriptor, DeviceAddr, Operation, RegionKey, Segment};
pub use fault::{Fault, FaultInjector, FaultPlan, FaultPlanError, FaultRule, Faults, When};
pub use profile::{
    ChannelCosts, Costs, Direction, Found, OnFailure, Profile, ProfileError, Reporting, ZeroLength,
};
pub use region::{FarMemory, PeerAccess, PeerError, RegionError, RegionMemory, RegionSpec, Rights};
pub use task::{HaltCause, Refused, Status, TaskError, TaskReport};
pub use time::{ParseTimeError, Time};
pub use trace::{Trace, TraceEvent, TraceMode};
