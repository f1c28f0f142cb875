//! [`ReferenceEngine`]: the smallest conforming engine, with configurable limits.
#![expect(unsafe_code, reason = "implements the raw traits")]

use std::collections::VecDeque;
use std::sync::Arc;

use crate::{
    Access, Capabilities, Completion, Descriptor, DeviceAddr, DmaEngine, EngineId, EngineInfo, Error,
    ErrorKind, ExportDescriptor, HostMemory, InlineExecutor, Limits, MemoryRequest, NativeError, Operation,
    Outcome, QueueEvents, QueueOptions, QueueStats, RawExport, RawQueue, RawRegion, RegionInfo, RegionKey,
    Result, Segment, racy_copy,
};

/// The limits of a [`ReferenceEngine`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ReferenceOptions {
    /// Maximum length of a descriptor in bytes. Default: 1 MiB.
    pub max_transfer: u64,
    /// Maximum number of segments in a list. Default: 4.
    pub max_segments: usize,
    /// Maximum and default queue depth. Default: 64.
    pub depth: usize,
    /// True if the engine executes every type of operation and orders descriptors by their fences.
    pub native: bool,
    /// Number of descriptors that one poll executes, out of order; at least 1. Default: 3.
    pub per_poll: usize,
    /// Length in bytes of the longest operation that the queues' [`InlineExecutor`] executes. Default: 0, for
    /// no executor.
    pub inline_limit: usize,
}

impl Default for ReferenceOptions {
    fn default() -> Self {
        Self {
            max_transfer: 1 << 20,
            max_segments: 4,
            depth: 64,
            native: false,
            per_poll: 3,
            inline_limit: 0,
        }
    }
}

/// The smallest conforming engine. `poll` executes the copies, a few descriptors at a time and in random
/// order.
///
/// The conformance suite uses this engine as "another engine", and tests of the safe API run on it with tight
/// limits. The engine is also an example of a backend. It is not optimized for speed.
#[derive(Debug)]
pub struct ReferenceEngine {
    id: EngineId,
    info: EngineInfo,
    options: ReferenceOptions,
}

impl ReferenceEngine {
    /// Makes an engine with these limits.
    #[must_use]
    pub fn new(options: ReferenceOptions) -> Self {
        let mut capabilities = Capabilities::ALLOCATE | Capabilities::REGISTER;
        let native = Capabilities::FILL
            | Capabilities::FENCE
            | Capabilities::COMPARE
            | Capabilities::CRC32C
            | Capabilities::COPY_CRC32C
            | Capabilities::COPY_TO_BOTH;
        capabilities.set(native, options.native);
        let limits = Limits::default()
            .with_max_transfer(options.max_transfer)
            .with_max_segments(options.max_segments)
            .with_queue_depth(options.depth, options.depth);
        let info = EngineInfo::new("reference", "memory", env!("CARGO_PKG_VERSION"))
            .with_capabilities(capabilities)
            .with_limits(limits);
        Self { id: EngineId::unique(), info, options }
    }
}

// SAFETY: the queues and `info` use the same options, so every queue accepts the descriptors that `info`
// allows.
unsafe impl DmaEngine for ReferenceEngine {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn id(&self) -> EngineId {
        self.id
    }

    fn allocate_raw(&self, request: &MemoryRequest) -> Result<Box<dyn RawRegion>> {
        if !request.export.is_empty() {
            return Err(Error::new(ErrorKind::Unsupported, "this engine cannot export memory"));
        }
        let memory = HostMemory::allocate_requested(request)?;
        let info =
            RegionInfo::local(self.id, RegionKey::unique(), memory.as_ptr(), request.len, request.access);
        Ok(Box::new(ReferenceRegion { info, _owned: Some(memory) }))
    }

    unsafe fn register_raw(
        &self,
        memory: &HostMemory,
        request: &MemoryRequest,
    ) -> Result<Box<dyn RawRegion>> {
        let info =
            RegionInfo::local(self.id, RegionKey::unique(), memory.as_ptr(), memory.len(), request.access);
        Ok(Box::new(ReferenceRegion { info, _owned: None }))
    }

    fn import_raw(&self, _: &ExportDescriptor) -> Result<Box<dyn RawRegion>> {
        Err(Error::new(ErrorKind::Unsupported, "this engine cannot import memory"))
    }

    fn open_queue_raw(&self, options: &QueueOptions) -> Result<Box<dyn RawQueue>> {
        Ok(Box::new(ReferenceQueue {
            engine: self.id,
            depth: options.depth_on(&self.info.limits)?,
            options: self.options,
            accepted: VecDeque::new(),
            submitted: 0,
            rung: 0,
            reported: 0,
            doorbells: 0,
            seed: 0x2545_f491_4f6c_dd1d,
            stopped: false,
        }))
    }
}

/// Returns an engine for the documentation's examples.
#[doc(hidden)]
#[must_use]
pub fn doc_engine() -> ReferenceEngine {
    ReferenceEngine::new(ReferenceOptions::default())
}

#[derive(Debug)]
struct ReferenceRegion {
    info: RegionInfo,
    _owned: Option<HostMemory>,
}

// SAFETY: `info` never changes. The memory stays mapped until the region is dropped, because the region owns
// it or the caller of `register_raw` ensures it.
unsafe impl RawRegion for ReferenceRegion {
    fn info(&self) -> &RegionInfo {
        &self.info
    }
    unsafe fn export(&self, _: usize, _: usize, _: Access) -> Result<Box<dyn RawExport>> {
        Err(Error::new(ErrorKind::Unsupported, "this engine cannot export memory"))
    }
}

#[derive(Debug)]
struct ReferenceQueue {
    engine: EngineId,
    depth: usize,
    options: ReferenceOptions,
    accepted: VecDeque<(Submission, Work)>,
    submitted: u64,
    rung: u64,
    reported: u64,
    doorbells: u64,
    seed: u64,
    stopped: bool,
}

#[derive(Clone, Copy, Debug)]
struct Submission {
    token: u64,
    number: u64,
    fence: bool,
}

/// An operation.
#[derive(Debug)]
struct Work {
    pattern: Option<[u8; 8]>,
    src: Vec<Segment>,
    dst: Vec<Segment>,
    /// `None` for an operation without a result, `Some(None)` for a comparison, and `Some(Some(crc))` for a
    /// CRC, where `crc` is the CRC of the preceding bytes.
    answer: Option<Option<u32>>,
}

/// Returns the bytes of `list`. The caller of `submit` or `execute` ensures that these bytes can be read
/// until the operation is done.
fn values(list: &[Segment]) -> Vec<u8> {
    let mut bytes = vec![0; list.iter().map(|segment| segment.len).sum()];
    let mut rest = &mut bytes[..];
    for segment in list {
        let (part, behind) = rest.split_at_mut(segment.len);
        // SAFETY: the caller of `submit` or `execute` ensures that the bytes can be read until the operation
        // is done. `part` is a local value of the same length.
        unsafe { racy_copy::copy(part.as_mut_ptr(), segment.addr.as_ptr(), part.len()) };
        rest = behind;
    }
    bytes
}

impl Work {
    fn new(operation: &Operation<'_>) -> Self {
        let (mut pattern, mut answer) = (None, None);
        let (src, dst) = match *operation {
            Operation::Copy { src, dst } => (vec![src], vec![dst]),
            Operation::CopyLists { src, dst } => (src.to_vec(), dst.to_vec()),
            Operation::Fill { pattern: repeated, dst } => {
                pattern = Some(repeated);
                (Vec::new(), dst.to_vec())
            }
            Operation::Compare { a, b } => {
                answer = Some(None);
                (vec![a], vec![b])
            }
            Operation::Crc32c { src, seed } => {
                answer = Some(Some(seed));
                (vec![src], Vec::new())
            }
            Operation::CopyCrc32c { src, dst, seed } => {
                answer = Some(Some(seed));
                (vec![src], vec![dst])
            }
            _ => {
                let Operation::CopyToBoth { src, dst } = *operation else {
                    panic!("the engine does not declare {operation:?}")
                };
                // Read the source twice, once for each destination, as a device may do.
                (vec![src; 2], dst.to_vec())
            }
        };
        Self { pattern, src, dst, answer }
    }

    /// Executes the operation and returns its result.
    fn run(&self) -> u64 {
        let mut bytes = values(&self.src);
        let result = match self.answer {
            None => 0,
            Some(None) => {
                let differs = bytes.iter().zip(values(&self.dst)).position(|(a, b)| *a != b);
                return differs.map_or(Completion::EQUAL, |at| at as u64);
            }
            Some(Some(seed)) => crc32c::crc32c_append(seed, &bytes).into(),
        };
        if let Some(pattern) = self.pattern {
            let len: usize = self.dst.iter().map(|segment| segment.len).sum();
            bytes = pattern.repeat(len.div_ceil(pattern.len()));
        }
        let mut rest = &bytes[..];
        for segment in &self.dst {
            let (part, behind) = rest.split_at(segment.len);
            // SAFETY: the caller of `submit` or `execute` ensures that destinations can be written until the
            // operation is done. `part` is a local value of the same length.
            unsafe { racy_copy::copy(segment.addr.as_ptr(), part.as_ptr(), part.len()) };
            rest = behind;
        }
        result
    }
}

// SAFETY: `poll` executes a descriptor and reports it once. Nothing else in this queue accesses memory.
unsafe impl RawQueue for ReferenceQueue {
    fn engine_id(&self) -> EngineId {
        self.engine
    }

    fn depth(&self) -> usize {
        self.depth
    }

    unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> Result<usize> {
        if self.stopped {
            return Err(Error::bare(ErrorKind::Closed));
        }
        let room = self.depth - self.accepted.len();
        for descriptor in batch.iter().take(room) {
            let work = Work::new(&descriptor.operation());
            let Work { pattern, src, dst, answer } = &work;
            let both = matches!(descriptor.operation(), Operation::CopyToBoth { .. });
            let is_plain = pattern.is_none() && answer.is_none() && !both && !descriptor.fence();
            assert!(
                self.options.native || is_plain,
                "a descriptor needs a capability that the engine does not have"
            );
            assert!(
                descriptor.len() as u64 <= self.options.max_transfer,
                "a descriptor is longer than `max_transfer`"
            );
            assert!(
                both || src.len().max(dst.len()) <= self.options.max_segments,
                "a list has more segments than `max_segments`"
            );
            assert!(dst.iter().chain(src).all(|s| s.len > 0), "an empty segment");
            let (token, number, fence) = (descriptor.token(), self.submitted, descriptor.fence());
            self.accepted.push_back((Submission { token, number, fence }, work));
            self.submitted += 1;
        }
        Ok(room.min(batch.len()))
    }

    fn flush(&mut self) {
        self.rung = self.submitted;
        self.doorbells += 1;
    }

    fn poll(&mut self, completions: &mut [Completion]) -> usize {
        let mut n = 0;
        while n < completions.len().min(self.options.per_poll.max(1)) {
            // An operation may start if its doorbell was rung, and neither the operation itself nor an
            // operation before it has a fence. The oldest operation may start even if it has a fence.
            let fence = self.accepted.iter().position(|(a, _)| a.fence && a.number > self.reported_before());
            let rung = self.accepted.partition_point(|(a, _)| a.number < self.rung || self.stopped);
            let may = fence.map_or(rung, |at| if at == 0 { rung.min(1) } else { rung.min(at) });
            if may == 0 {
                break;
            }
            self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let pick = (self.seed >> 33) as usize % may;
            let Some((accepted, work)) = self.accepted.remove(pick) else { break };
            completions[n] = if self.stopped {
                Completion::ended(accepted.token, Outcome::Aborted, 0)
            } else {
                Completion::done(accepted.token).with_result(work.run())
            };
            self.reported += 1;
            n += 1;
        }
        n
    }

    fn explain(&self, native: i32) -> NativeError {
        NativeError { code: native, name: "".into(), description: "".into() }
    }

    fn stop(&mut self) {
        self.stopped = true;
    }

    fn stats(&self) -> QueueStats {
        QueueStats::new(self.doorbells, 0)
    }

    fn events(&mut self) -> Option<&mut dyn QueueEvents> {
        None
    }

    fn inline_executor(&self) -> Option<Arc<dyn InlineExecutor>> {
        let max_len = self.options.inline_limit;
        (max_len > 0).then(|| Arc::new(ReferenceExecutor { max_len }) as _)
    }
}

#[derive(Debug)]
struct ReferenceExecutor {
    max_len: usize,
}

// SAFETY: the calling thread executes the operation before the call returns, and accesses only the
// operation's segments.
unsafe impl InlineExecutor for ReferenceExecutor {
    fn max_len(&self) -> usize {
        self.max_len
    }

    unsafe fn execute(&self, operation: &Operation<'_>) -> u64 {
        Work::new(operation).run()
    }

    unsafe fn copy(&self, src: DeviceAddr, dst: DeviceAddr, len: usize) {
        // SAFETY: the caller ensures access to both ranges, and that they do not overlap.
        unsafe { racy_copy::copy(dst.as_ptr(), src.as_ptr(), len) };
    }
}

impl ReferenceQueue {
    /// Returns the number of the oldest descriptor that is not reported. Fences up to this number no longer
    /// apply.
    fn reported_before(&self) -> u64 {
        self.accepted.front().map_or(self.submitted, |(first, _)| first.number)
    }
}
