//! [`ReplayMemory`]: the memory of a queue, and checks that copies arrived in it. [`Staging`]: access to the
//! bytes of device memory.

use std::sync::Arc;
use std::time::Duration;

use dma_core::{
    DmaEngine, DmaEngineExt, Error, ErrorKind, MemoryRequest, Place, Queue, QueueOptions, RegionInfo, Result,
    Segment, Window, racy_copy,
};

use super::requirements::{Requirements, unsupported};
use super::result::Mismatch;
use crate::record::{Kind, Span};
use crate::wrapper::for_each_pair;

/// Number of bytes that are processed on the stack at a time.
const CHUNK: usize = 1024;

/// The content of fresh memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Pseudo-random bytes that differ from offset to offset.
    Distinct,
    Zero,
}

/// The memory that a queue's operations name.
#[derive(Debug)]
pub(super) struct ReplayMemory {
    /// Parts of regions, sorted by region.
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    region: usize,
    /// The offset of the first byte in the recorded region.
    base: usize,
    info: RegionInfo,
    /// Keeps the memory alive.
    window: Window,
    /// A copy in host memory, for device memory.
    copy: Option<Window>,
}

/// Time after which a transfer between device memory and its copy in host memory counts as hanging.
const STAGING_STALL: Duration = Duration::from_secs(10);

impl ReplayMemory {
    /// Allocates the memory of all queues.
    pub(super) fn allocate(
        engine: &Arc<dyn DmaEngine>,
        requirements: &Requirements,
        places: &[Place],
        limit: u64,
    ) -> Result<Vec<Self>> {
        let on_device = |region: usize| places.get(region) == Some(&Place::Device);
        let device_bytes = requirements.bytes(on_device);
        if device_bytes > 0 && engine.info().places().all(|place| place != Place::Device) {
            let message =
                format!("the trace has {device_bytes} bytes of device memory, and the engine has none");
            return Err(unsupported(message).with_hint(
                "replay on an engine with memory of its own, such as cuda or sim:device_memory=1G",
            ));
        }
        // Device memory counts twice, because it has a copy in host memory.
        let bytes = requirements.bytes(|_| true).saturating_add(device_bytes);
        let enough = usize::try_from(bytes).ok().filter(|_| bytes <= limit);
        let hint = "record a run that uses less memory, or allow more if the machine has it";
        let Some(len) = enough else {
            return Err(Error::new(ErrorKind::OutOfMemory, "bytes of memory that the trace needs")
                .with_numbers(bytes, limit)
                .with_hint(hint));
        };
        dma_process::check_headroom(len).map_err(|e| Error::from(e).with_hint(hint))?;
        let mut all = Vec::new();
        for regions in &requirements.regions {
            let mut parts = Vec::new();
            for (&region, part) in regions {
                let host = engine.allocate_window(&MemoryRequest::new(part.len()))?;
                if !host.region().is_cpu_visible() {
                    return Err(unsupported("the CPU does not reach the engine's memory".to_owned())
                        .with_hint("replay on an engine whose memory can be compared"));
                }
                let (window, copy) = if on_device(region) {
                    let request = MemoryRequest::new(part.len()).with_place(Place::Device);
                    (engine.allocate_window(&request)?, Some(host))
                } else {
                    (host, None)
                };
                let info = *window.region().as_raw().info();
                parts.push(Part { region, base: part.start, info, window, copy });
            }
            all.push(Self { parts });
        }
        Ok(all)
    }

    /// Returns the segment of a span that the requirements include.
    #[inline]
    pub(super) fn segment(&self, span: &Span) -> Segment {
        let at = match &self.parts[..] {
            [only] if only.region == span.region => 0,
            parts => parts.partition_point(|part| part.region < span.region),
        };
        let part = &self.parts[at];
        part.info.segment(span.offset - part.base, span.len)
    }

    /// Leaks the memory, because a device that did not stop may still use it.
    pub(super) fn leak(&self) {
        self.parts.iter().for_each(|part| std::mem::forget(part.window.clone()));
    }

    /// Fills all memory. No device uses it at this time.
    pub(super) fn fill(&self, engine: &Arc<dyn DmaEngine>, content: Content) -> Result<()> {
        let mut chunk = [0; CHUNK];
        let mut state = 0_u64;
        for part in &self.parts {
            for at in (0..part.info.len).step_by(CHUNK) {
                if content == Content::Distinct {
                    for word in chunk.chunks_exact_mut(8) {
                        // splitmix64.
                        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
                        let z = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
                        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
                        word.copy_from_slice(&(z ^ z >> 31).to_le_bytes());
                    }
                }
                let len = CHUNK.min(part.info.len - at);
                let host = part.copy.as_ref().unwrap_or(&part.window);
                host.write_at(at, &chunk[..len]).expect("the CPU reaches the memory, which is long enough");
            }
        }
        let Some(staging) = Staging::open(engine, self)? else { return Ok(()) };
        let device = self.parts.iter().filter_map(|part| Some((part.copy.clone()?, part.window.clone())));
        device.into_iter().try_for_each(|(copy, window)| staging.copy(copy, window))
    }
}

/// Transfers bytes between device memory and its copies in host memory. Checks read and write only these
/// copies.
pub(super) struct Staging<'a> {
    queue: Queue,
    memory: &'a ReplayMemory,
}

impl<'a> Staging<'a> {
    /// Opens a queue for these transfers. Returns `None` if there is only host memory.
    pub(super) fn open(engine: &Arc<dyn DmaEngine>, memory: &'a ReplayMemory) -> Result<Option<Self>> {
        if memory.parts.iter().all(|part| part.copy.is_none()) {
            return Ok(None);
        }
        let options = QueueOptions::new().with_depth(1).with_stall_timeout(STAGING_STALL);
        Ok(Some(Self { queue: engine.open_queue(&options)?, memory }))
    }

    /// Copies one window to another, and waits until the copy has ended.
    fn copy(&self, from: Window, to: Window) -> Result<()> {
        self.queue.copy(from, to)?.wait()?;
        Ok(())
    }

    /// Returns the device memory of a segment, and its copy. Returns `None` for host memory.
    fn windows(&self, segment: &Segment) -> Option<(Window, Window)> {
        let part = self.memory.parts.iter().find(|part| part.info.key == segment.key)?;
        let at = (segment.addr.0 - part.info.addr.0) as usize;
        let range = at..at + segment.len;
        Some((part.window.slice(range.clone()), part.copy.as_ref()?.slice(range)))
    }

    /// Returns the check with operands in host memory: copies the bytes of operands in device memory to host
    /// memory, and refers to those copies.
    pub(super) fn on_host(&self, check: &Check) -> Result<Check> {
        let copies = |segments: &[Segment]| -> Result<Vec<Segment>> {
            let one = |segment: &Segment| match self.windows(segment) {
                None => Ok(*segment),
                Some((window, copy)) => {
                    let addr = copy.region().as_raw().info().addr;
                    let at = segment.addr.0 - window.region().as_raw().info().addr.0;
                    self.copy(window, copy)?;
                    Ok(Segment { addr: addr.offset(at as usize), ..*segment })
                }
            };
            segments.iter().map(one).collect()
        };
        let Check { operation, kind, src, dst, byte } = check;
        Ok(Check { operation: *operation, kind: *kind, src: copies(src)?, dst: copies(dst)?, byte: *byte })
    }

    /// Makes each byte of the destination wrong, as [`Check::spoil`] does.
    pub(super) fn spoil(&self, check: &Check) -> Result<()> {
        self.on_host(check)?.spoil();
        for (window, copy) in check.dst.iter().filter_map(|segment| self.windows(segment)) {
            self.copy(copy, window)?;
        }
        Ok(())
    }
}

/// An operation to check, and its operands.
#[derive(Debug, Default)]
pub(super) struct Check {
    pub(super) operation: u64,
    pub(super) kind: Kind,
    pub(super) src: Vec<Segment>,
    pub(super) dst: Vec<Segment>,
    /// The byte of a fill.
    pub(super) byte: u8,
}

impl Check {
    /// Makes each byte of the destination wrong, before the operation starts.
    pub(super) fn spoil(&self) {
        if matches!(self.kind, Kind::Compare | Kind::Crc32c) {
            return;
        }
        let mut bytes = [!self.byte; CHUNK];
        for_each_pair(&self.pairs(), |_, src, dst, len| {
            for at in (0..len).step_by(CHUNK) {
                let len = CHUNK.min(len - at);
                if let Some(src) = src {
                    // SAFETY: the range lies in a window of the `ReplayMemory`, which outlives its checks,
                    // and no references to its bytes exist.
                    unsafe { racy_copy::copy(bytes.as_mut_ptr(), src.wrapping_add(at), len) };
                    bytes[..len].iter_mut().for_each(|byte| *byte = !*byte);
                }
                // SAFETY: the range lies in a window of the `ReplayMemory`, which outlives its checks, and no
                // references to its bytes exist.
                unsafe { racy_copy::copy(dst.wrapping_add(at), bytes.as_ptr(), len) };
            }
            None::<()>
        });
    }

    /// Returns the pairs of source and destination lists that must be equal. A fill has no source.
    fn pairs(&self) -> Vec<(&[Segment], &[Segment])> {
        match self.kind {
            Kind::CopyToBoth => self.dst.chunks(1).map(|dst| (&self.src[..], dst)).collect(),
            _ => vec![(&self.src[..], &self.dst[..])],
        }
    }

    /// Checks the destination and the result of a completed operation of queue `queue`.
    pub(super) fn mismatch(&self, queue: usize, result: u64) -> Option<Mismatch> {
        let wrong = |offset| Mismatch { queue, operation: self.operation, offset };
        let crc = || {
            let one = self.src[0];
            // SAFETY: the range lies in a window of the `ReplayMemory`, which outlives its checks, and no
            // references to its bytes exist.
            u64::from(unsafe { racy_copy::crc32c(0, one.addr.as_ptr(), one.len) })
        };
        if self.kind == Kind::Compare {
            let (a, b) = (self.src[0], self.dst[0]);
            // SAFETY: both ranges lie in windows of the `ReplayMemory`, which outlives its checks, and no
            // references to their bytes exist.
            let first = unsafe { racy_copy::first_difference(a.addr.as_ptr(), b.addr.as_ptr(), a.len) };
            let expected = first.map_or(dma_core::Completion::EQUAL, |at| at as u64);
            return (result != expected).then(|| wrong(None));
        }
        if self.kind != Kind::Crc32c {
            let byte = for_each_pair(&self.pairs(), |offset, src, dst, len| {
                let at = match src {
                    // SAFETY: both ranges lie in windows of the `ReplayMemory`, which outlives its checks,
                    // and no references to their bytes exist.
                    Some(src) => unsafe { racy_copy::first_difference(src, dst, len) },
                    None => self.not_filled(dst, len),
                };
                at.map(|at| offset + at)
            });
            if byte.is_some() {
                return Some(wrong(byte));
            }
        }
        let has_crc = matches!(self.kind, Kind::Crc32c | Kind::CopyCrc32c);
        (has_crc && result != crc()).then(|| wrong(None))
    }

    fn not_filled(&self, dst: *const u8, len: usize) -> Option<usize> {
        let mut bytes = [0; CHUNK];
        (0..len).step_by(CHUNK).find_map(|at| {
            let len = CHUNK.min(len - at);
            // SAFETY: the range lies in a window of the `ReplayMemory`, which outlives its checks, and no
            // references to its bytes exist.
            unsafe { racy_copy::copy(bytes.as_mut_ptr(), dst.wrapping_add(at), len) };
            bytes[..len].iter().position(|byte| *byte != self.byte).map(|wrong| at + wrong)
        })
    }
}
