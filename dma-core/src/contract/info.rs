//! Descriptions of engines: identity, capabilities and limits.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use bitflags::bitflags;
use dma_process::ForkMark;

use crate::{Error, ErrorKind, Place, Result};

/// The id of an opened engine in this process. The engine's regions and queues have the same id.
// The number is the engine's tag with all bits set, because every copy compares it with tags of regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EngineId(u64);

impl EngineId {
    /// Returns an id that no other call in this process has returned.
    #[must_use]
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // The number fits into 60 bits, because no process opens 2^60 engines.
        Self(NEXT.fetch_add(1, Ordering::Relaxed) << 4 | Self::ALL)
    }

    /// All bits of a [tag](Self::tag) that do not belong to the id.
    const ALL: u64 = Self::CPU_VISIBLE | Access::all().bits() as u64;

    /// The bit of a [tag](Self::tag) that is set if the CPU can reach the memory.
    pub(crate) const CPU_VISIBLE: u64 = 1 << 3;

    /// Combines the id, the rights, and whether the CPU can reach the memory into one number. Every copy
    /// compares this number.
    pub(crate) const fn tag(self, access: Access, is_cpu_visible: bool) -> u64 {
        // Unknown bits of the rights are removed, because they would change the id.
        let cpu = if is_cpu_visible { Self::CPU_VISIBLE } else { 0 };
        self.0 & !Self::ALL | cpu | (access.bits() & Access::all().bits()) as u64
    }

    /// Returns the engine's [tag](Self::tag) for all rights of memory that the CPU can reach.
    #[inline]
    pub(crate) const fn full_tag(self) -> u64 {
        self.0
    }
}

/// The description of an engine.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct EngineInfo {
    /// The backend's short name, as in engine names: `cpu`, `sim`, `doca`, `ioat`.
    pub backend: &'static str,
    /// The device: a PCI address, or a description of a software device.
    pub device: String,
    /// The version of the library or driver that the engine uses.
    pub version: String,
    /// For a modelled device: the profile's name and source, and the changes to the profile. `None` for other
    /// engines.
    pub model: Option<String>,
    /// The NUMA node that the device is attached to. `None` for software engines, on machines with one node,
    /// and if the system does not report it. [`NumaNodes::cores`](crate::NumaNodes::cores) lists the node's
    /// cores.
    pub numa_node: Option<u32>,
    /// The engine's native capabilities.
    pub capabilities: Capabilities,
    /// The engine's limits.
    pub limits: Limits,
    /// The process that opened the engine.
    #[cfg_attr(feature = "serde", serde(skip))]
    process: ForkMark,
}

impl EngineInfo {
    /// Makes the description of an engine that only copies, with default [`Limits`]. Call this when the
    /// engine is opened: a process that is forked afterwards cannot open queues of the engine.
    #[must_use]
    pub fn new(backend: &'static str, device: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            backend,
            device: device.into(),
            version: version.into(),
            model: None,
            numa_node: None,
            capabilities: Capabilities::empty(),
            limits: Limits::default(),
            process: ForkMark::new(),
        }
    }

    /// Checks that this process has opened the engine. Locks of a parent's engine may be held for ever in a
    /// forked child, so the child must not call the engine.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the engine belongs to the parent of this forked process.
    pub(crate) fn check_process(&self) -> Result<()> {
        if !self.process.is_child() {
            return Ok(());
        }
        let message = "the engine belongs to the parent of this forked process";
        Err(Error::new(ErrorKind::Unsupported, message).with_hint("open the engine in the forked process"))
    }

    crate::contract::setters::setters! {
        /// Sets the capabilities.
        with_capabilities(capabilities: Capabilities);
        /// Sets the limits.
        with_limits(limits: Limits);
        /// Sets the NUMA node.
        with_numa_node(numa_node: Option<u32>);
    }

    /// Returns the places that the engine allocates memory in.
    pub fn places(&self) -> impl Iterator<Item = Place> + use<> {
        let capabilities = self.capabilities;
        Place::ALL.into_iter().filter(move |place| capabilities.contains(Capabilities::allocate_in(*place)))
    }

    /// Marks the device as a model and describes what it models.
    #[must_use]
    pub fn with_model(mut self, model: impl Into<String>) -> Self {
        self.model = Some(model.into());
        self
    }
}

bitflags! {
    /// Native capabilities of an engine. Copying is not listed: every engine copies.
    ///
    /// If an operation is missing, the safe API emulates it by copies or by the CPU. If `FENCE` is missing,
    /// it waits for earlier operations. If lists are missing (see [`Limits::max_segments`]), it submits
    /// several descriptors. Requests that need any other missing capability fail with `Unsupported`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Capabilities: u32 {
        /// Fills memory with a pattern of 8 bytes.
        const FILL = 1 << 0;
        /// The device itself executes a descriptor's fence.
        const FENCE = 1 << 1;
        /// Allocates [host](crate::Place::Host) memory.
        const ALLOCATE = 1 << 2;
        /// Registers the caller's memory.
        const REGISTER = 1 << 3;
        /// Exports memory to a peer.
        const EXPORT = 1 << 4;
        /// Imports a peer's memory.
        const IMPORT = 1 << 5;
        /// The CPU makes the copies, and a doorbell costs no more than a function call. Therefore operations
        /// do not wait to share a doorbell (see
        /// [`QueueOptions::doorbell_delay`](crate::QueueOptions::doorbell_delay)).
        const CPU_COPIES = 1 << 6;
        /// Allocates [device](crate::Place::Device) memory.
        const ALLOCATE_DEVICE = 1 << 7;
        /// Completions of one queue are reported in the order of submission. The conformance suite checks
        /// this. Only direct users of [`RawQueue`](crate::RawQueue) may rely on this order. Memory accesses
        /// are not ordered; use a fence to order them.
        const IN_ORDER = 1 << 8;
        /// Compares memory: [`Operation::Compare`](crate::Operation::Compare).
        const COMPARE = 1 << 9;
        /// Computes CRC-32C: [`Operation::Crc32c`](crate::Operation::Crc32c).
        const CRC32C = 1 << 10;
        /// Computes CRC-32C while it copies: [`Operation::CopyCrc32c`](crate::Operation::CopyCrc32c).
        const COPY_CRC32C = 1 << 11;
        /// Copies one source to two destinations: [`Operation::CopyToBoth`](crate::Operation::CopyToBoth).
        const COPY_TO_BOTH = 1 << 12;
        /// Registers device memory that another library has allocated, by address.
        const REGISTER_DEVICE = 1 << 13;
        /// Registers memory of other devices by dma-buf, without a CPU mapping.
        const REGISTER_DMABUF = 1 << 14;
    }
}

impl Capabilities {
    /// Returns the capability to allocate memory in `place`.
    #[must_use]
    pub const fn allocate_in(place: Place) -> Self {
        match place {
            Place::Host => Self::ALLOCATE,
            Place::Device => Self::ALLOCATE_DEVICE,
        }
    }
}

/// Writes the names, separated by commas: `fill, fence`.
fn write_names<'a>(f: &mut fmt::Formatter<'_>, names: impl Iterator<Item = &'a str>) -> fmt::Result {
    let mut first = true;
    for name in names {
        write!(f, "{}{}", if first { "" } else { ", " }, name.to_lowercase().replace('_', " "))?;
        first = false;
    }
    if first { f.write_str("none") } else { Ok(()) }
}

impl fmt::Display for Capabilities {
    /// Writes the names, such as `fill, copy to both`, or `none` if the value is empty.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_names(f, self.iter_names().map(|(name, _)| name))
    }
}

impl fmt::Display for Access {
    /// Writes the rights, such as `read, write`, or `none` if the value is empty.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_names(f, self.iter_names().map(|(name, _)| name))
    }
}

#[cfg(feature = "serde")]
mod serialized {
    use serde::{Serialize, Serializer};

    /// Serializes as a list of names, such as `COPY_TO_BOTH`.
    impl Serialize for super::Capabilities {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_seq(self.iter_names().map(|(name, _)| name))
        }
    }
}

/// The limits of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Limits {
    /// Maximum length of a descriptor, in bytes; at least 64. The safe API splits longer operations.
    pub max_transfer: u64,
    /// Maximum number of segments on each side of one descriptor; at least 1. With 1, the device has no
    /// scatter-gather.
    pub max_segments: usize,
    /// Maximum number of descriptors in flight on one queue; at least 1.
    pub max_queue_depth: usize,
    /// Depth of a queue whose options do not set a depth.
    pub default_queue_depth: usize,
    /// Maximum number of queues open at once; `None` if only memory limits it.
    pub max_queues: Option<usize>,
    /// The alignment, in bytes, that address and length of registered memory must have. A power of two; 1 if
    /// every alignment is valid.
    pub register_alignment: usize,
    /// The smallest alignment, in bytes, at which copies run at full speed. A power of two; 1 if alignment
    /// does not matter.
    pub preferred_alignment: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_transfer: u64::MAX,
            max_segments: 1,
            max_queue_depth: 65_536,
            default_queue_depth: 256,
            max_queues: None,
            register_alignment: 1,
            preferred_alignment: 1,
        }
    }
}

impl fmt::Display for Limits {
    /// Writes one line, such as `transfers to 1048576 bytes, 1 segment, depth 256 of 65536`. Adds the
    /// alignments and the number of queues if the engine limits them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { max_transfer, max_segments, max_queue_depth, default_queue_depth, .. } = self;
        if *max_transfer == u64::MAX {
            f.write_str("transfers of any length")?;
        } else {
            write!(f, "transfers to {max_transfer} bytes")?;
        }
        let s = if *max_segments == 1 { "" } else { "s" };
        write!(f, ", {max_segments} segment{s}, depth {default_queue_depth} of {max_queue_depth}")?;
        if let Some(max_queues) = self.max_queues {
            write!(f, ", {max_queues} queue{}", if max_queues == 1 { "" } else { "s" })?;
        }
        for (what, alignment) in [("registered", self.register_alignment), ("best", self.preferred_alignment)]
        {
            if alignment > 1 {
                write!(f, ", {what} at multiples of {alignment} bytes")?;
            }
        }
        Ok(())
    }
}

impl Limits {
    crate::contract::setters::setters! {
        /// Sets [`max_transfer`](Self::max_transfer), in bytes.
        with_max_transfer(max_transfer: u64);
        /// Sets [`max_segments`](Self::max_segments).
        with_max_segments(max_segments: usize);
    }

    /// Sets [`max_queue_depth`](Self::max_queue_depth) and
    /// [`default_queue_depth`](Self::default_queue_depth), in descriptors.
    #[must_use]
    pub const fn with_queue_depth(mut self, max: usize, default: usize) -> Self {
        self.max_queue_depth = max;
        self.default_queue_depth = default;
        self
    }

    crate::contract::setters::setters! {
        /// Sets [`max_queues`](Self::max_queues).
        with_max_queues(max_queues: Option<usize>);
    }

    /// Sets [`register_alignment`](Self::register_alignment) and
    /// [`preferred_alignment`](Self::preferred_alignment), in bytes.
    #[must_use]
    pub const fn with_alignment(mut self, register: usize, preferred: usize) -> Self {
        self.register_alignment = register;
        self.preferred_alignment = preferred;
        self
    }
}

bitflags! {
    /// Rights to memory. A region has rights for the local device. An export has rights for the peer.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Access: u32 {
        /// The memory may be read, as the source of a copy.
        const READ = 1 << 0;
        /// The memory may be written, as the destination of a copy or a fill.
        const WRITE = 1 << 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_read() {
        assert_eq!((Capabilities::FILL | Capabilities::COPY_TO_BOTH).to_string(), "fill, copy to both");
        assert_eq!((Access::READ | Access::WRITE).to_string(), "read, write");
        assert_eq!(Access::empty().to_string(), "none");
        let limits = Limits::default();
        assert_eq!(limits.to_string(), "transfers of any length, 1 segment, depth 256 of 65536");
        let limits = limits.with_max_transfer(64).with_max_segments(2).with_queue_depth(8, 4);
        let limits = limits.with_max_queues(Some(1)).with_alignment(4096, 1);
        assert_eq!(
            limits.to_string(),
            "transfers to 64 bytes, 2 segments, depth 4 of 8, 1 queue, registered at multiples of 4096 bytes"
        );
    }
}
