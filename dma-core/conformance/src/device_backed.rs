//! [`DeviceBacked`]: an engine that keeps its memory on the device, so that tests written for buffers also
//! test device memory.
#![expect(unsafe_code, reason = "implements the raw traits")]

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use dma_core::{
    Access, Capabilities, Completion, Descriptor, DmaEngine, EngineId, EngineInfo, Error, ErrorKind,
    ExportDescriptor, HostMemory, MemoryRequest, NativeError, Operation, Outcome, Place, QueueEvents,
    QueueOptions, QueueStats, RawExport, RawQueue, RawRegion, RegionInfo, RegionKey, Result, Segment,
};

/// An engine whose users see host memory, but whose operations run on device memory.
///
/// Each region of host memory has a shadow of the same length in the inner engine's device memory. A queue
/// copies the sources of an operation to their shadows, runs the operation on shadows, and copies the
/// destinations back before it reports the operation. The inner engine moves all bytes, so a test that
/// compares bytes in buffers checks the engine's operations on device memory.
///
/// Use this engine in tests only, because `submit` and `poll` wait for staging copies.
pub struct DeviceBacked<E> {
    inner: E,
    info: EngineInfo,
    id: EngineId,
    regions: Arc<Regions>,
    shadow_every: usize,
}

impl<E: DmaEngine> DeviceBacked<E> {
    /// Gives every region of `inner` a shadow in device memory if `shadow_every` is 1, and every second
    /// region if it is 2. With 2, operations have operands in both places.
    ///
    /// # Errors
    ///
    /// `Unsupported` if `inner` does not allocate both host memory and device memory, or has only one queue.
    pub fn new(inner: E, shadow_every: usize) -> Result<Self> {
        let mut info = inner.info().clone();
        if info.places().count() < 2 || info.limits.max_queues == Some(1) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "an engine without device memory, host memory and two queues",
            )
            .with_backend(info.backend)
            .with_hint("open an engine that has all three, such as `sim:device_memory=256M`"));
        }
        // The bytes of an operation are copied back when it is reported, so the engine cannot declare
        // `FENCE`. The planner holds operations back at fences instead.
        info.capabilities -= Capabilities::FENCE
            | Capabilities::ALLOCATE_DEVICE
            | Capabilities::REGISTER_DEVICE
            | Capabilities::REGISTER_DMABUF;
        info.limits.max_queues = info.limits.max_queues.map(|queues| queues / 2);
        info.device.push_str(", with memory on the device");
        Ok(Self {
            inner,
            info,
            id: EngineId::unique(),
            regions: Arc::default(),
            shadow_every: shadow_every.max(1),
        })
    }

    /// Wraps a region of the inner engine. Every `shadow_every`th region gets a shadow.
    fn region(&self, host: Box<dyn RawRegion>, align: usize, may_shadow: bool) -> Result<Box<dyn RawRegion>> {
        let own = *host.info();
        let number = self.regions.next.fetch_add(1, Ordering::Relaxed);
        let shadow = if may_shadow && number.is_multiple_of(self.shadow_every) {
            let request = MemoryRequest::new(own.len).with_align(align).with_place(Place::Device);
            Some(self.inner.allocate_raw(&request)?)
        } else {
            None
        };
        let entry = ShadowedRegion { host: own, shadow: shadow.as_ref().map(|shadow| *shadow.info()) };
        self.regions.write(|regions| {
            regions.insert(number, entry);
        });
        let info = RegionInfo { engine: self.id, key: RegionKey(number), ..own };
        Ok(Box::new(Shadowed { info, host, _shadow: shadow, regions: Arc::clone(&self.regions) }))
    }
}

impl<E: DmaEngine> fmt::Debug for DeviceBacked<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceBacked").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// All regions, by key.
#[derive(Debug, Default)]
struct Regions {
    next: AtomicUsize,
    entries: RwLock<std::collections::HashMap<usize, ShadowedRegion>>,
}

#[derive(Clone, Copy, Debug)]
struct ShadowedRegion {
    host: RegionInfo,
    shadow: Option<RegionInfo>,
}

impl Regions {
    fn write<T>(&self, change: impl FnOnce(&mut std::collections::HashMap<usize, ShadowedRegion>) -> T) -> T {
        change(&mut self.entries.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the segment in the host region, and the corresponding segment of its shadow.
    fn translate(&self, segment: Segment) -> (Segment, Option<Segment>) {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.get(&segment.key.0).expect("a descriptor's segments lie in registered regions");
        let offset = (segment.addr.0 - entry.host.addr.0) as usize;
        let of = |info: RegionInfo| info.segment(offset, segment.len);
        (of(entry.host), entry.shadow.map(of))
    }
}

// SAFETY: `info` is the inner engine's info with fewer capabilities, and queues accept the descriptors that
// the inner engine's queues accept.
unsafe impl<E: DmaEngine> DmaEngine for DeviceBacked<E> {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn id(&self) -> EngineId {
        self.id
    }

    fn allocate_raw(&self, request: &MemoryRequest) -> Result<Box<dyn RawRegion>> {
        request.validate_for_host()?;
        let host = self.inner.allocate_raw(request)?;
        // Exportable memory gets no shadow, because peers would not see the bytes in the shadow.
        self.region(host, request.align, request.export.is_empty())
    }

    unsafe fn register_raw(
        &self,
        memory: &HostMemory,
        request: &MemoryRequest,
    ) -> Result<Box<dyn RawRegion>> {
        // SAFETY: this method and the inner one have the same requirements, and the caller meets them.
        let host = unsafe { self.inner.register_raw(memory, request) }?;
        self.region(host, 1, true)
    }

    fn import_raw(&self, descriptor: &ExportDescriptor) -> Result<Box<dyn RawRegion>> {
        self.region(self.inner.import_raw(descriptor)?, 1, false)
    }

    fn open_queue_raw(&self, options: &QueueOptions) -> Result<Box<dyn RawQueue>> {
        let main = self.inner.open_queue_raw(options)?;
        let staging = self.inner.open_queue_raw(&QueueOptions::new().with_depth(1))?;
        let mut slots = Vec::new();
        slots.resize_with(main.depth(), || None);
        let regions = Arc::clone(&self.regions);
        Ok(Box::new(BackedQueue { id: self.id, main, staging, slots, regions, stopped: false }))
    }
}

/// A region of the inner engine, and its shadow.
#[derive(Debug)]
struct Shadowed {
    info: RegionInfo,
    host: Box<dyn RawRegion>,
    _shadow: Option<Box<dyn RawRegion>>,
    regions: Arc<Regions>,
}

impl Drop for Shadowed {
    fn drop(&mut self) {
        self.regions.write(|regions| regions.remove(&self.info.key.0));
    }
}

// SAFETY: the memory belongs to the host region, which lives as long as this value. Queues access it only as
// submitted descriptors require.
unsafe impl RawRegion for Shadowed {
    fn info(&self) -> &RegionInfo {
        &self.info
    }

    unsafe fn export(&self, offset: usize, len: usize, rights: Access) -> Result<Box<dyn RawExport>> {
        // SAFETY: this method and the inner one have the same requirements, and the caller meets them.
        unsafe { self.host.export(offset, len, rights) }
    }

    unsafe fn dmabuf(&self) -> Result<(OwnedFd, u64)> {
        // SAFETY: this method and the inner one have the same requirements, and the caller meets them.
        unsafe { self.host.dmabuf() }
    }
}

/// An operation in flight.
#[derive(Debug)]
struct BackedOperation {
    token: u64,
    /// Copies from shadows to host memory, to be made before the operation is reported.
    back: Vec<(Segment, Segment)>,
}

#[derive(Debug)]
struct BackedQueue {
    id: EngineId,
    main: Box<dyn RawQueue>,
    staging: Box<dyn RawQueue>,
    /// Indexed by the token of the inner descriptor.
    slots: Vec<Option<BackedOperation>>,
    regions: Arc<Regions>,
    stopped: bool,
}

impl BackedQueue {
    /// Copies one segment to another, and waits for the completion.
    ///
    /// # Safety
    ///
    /// See [`RawQueue::submit`].
    unsafe fn stage(&mut self, src: Segment, dst: Segment) -> Outcome {
        // SAFETY: the caller meets the requirements of `submit` for both segments.
        match unsafe { self.staging.submit(&[Descriptor::copy(0, src, dst)]) } {
            Ok(1) => {}
            Ok(_) => return Outcome::Failed(ErrorKind::OutOfResources),
            Err(error) => return Outcome::Failed(error.kind()),
        }
        self.staging.flush();
        let begun = Instant::now();
        let mut completions = [Completion::done(0)];
        while self.staging.poll(&mut completions) == 0 {
            assert!(
                begun.elapsed() < crate::patience(),
                "a copy between host memory and device memory was not reported in time"
            );
            std::thread::yield_now();
        }
        completions[0].outcome
    }

    /// Copies the bytes of a source to its shadow and returns the shadow. Returns the host segment if the
    /// source has no shadow.
    ///
    /// # Safety
    ///
    /// See [`RawQueue::submit`], for an operation that reads `segment`.
    unsafe fn source(&mut self, segment: Segment) -> Result<Segment> {
        let (host, shadow) = self.regions.translate(segment);
        let Some(shadow) = shadow else { return Ok(host) };
        // SAFETY: the source is not written while the operation is in flight. Other operations may copy the
        // same source to the shadow, but they write the bytes that are already there.
        match unsafe { self.stage(host, shadow) } {
            Outcome::Done => Ok(shadow),
            Outcome::Failed(kind) => Err(Error::new(kind, "a copy to device memory failed")),
            Outcome::Aborted => Err(Error::new(ErrorKind::Aborted, "a copy to device memory was aborted")),
        }
    }

    /// Returns the shadow of a destination, and records that its bytes must be copied back.
    fn destination(&self, segment: Segment, back: &mut Vec<(Segment, Segment)>) -> Segment {
        let (host, shadow) = self.regions.translate(segment);
        let Some(shadow) = shadow else { return host };
        back.push((shadow, host));
        shadow
    }

    /// Submits one descriptor. Returns false if the inner queue is full.
    ///
    /// # Safety
    ///
    /// See [`RawQueue::submit`].
    unsafe fn submit_one(&mut self, descriptor: &Descriptor<'_>, slot: usize) -> Result<bool> {
        let (mut back, mut src, mut dst) = (Vec::new(), Vec::new(), Vec::new());
        let (sources, destinations): (Vec<Segment>, Vec<Segment>) = match descriptor.operation() {
            Operation::Copy { src, dst } | Operation::CopyCrc32c { src, dst, .. } => (vec![src], vec![dst]),
            Operation::CopyLists { src, dst } => (src.to_vec(), dst.to_vec()),
            Operation::Fill { dst, .. } => (Vec::new(), dst.to_vec()),
            Operation::Compare { a, b } => (vec![a, b], Vec::new()),
            Operation::Crc32c { src, .. } => (vec![src], Vec::new()),
            Operation::CopyToBoth { src, dst } => (vec![src], dst.to_vec()),
            _ => return Err(Error::bare(ErrorKind::Unsupported)),
        };
        for segment in sources {
            // SAFETY: the caller ensures that the operation may read the segment.
            src.push(unsafe { self.source(segment) }?);
        }
        for segment in destinations {
            dst.push(self.destination(segment, &mut back));
        }
        let token = slot as u64;
        let both;
        let inner = match descriptor.operation() {
            Operation::Copy { .. } => Descriptor::copy(token, src[0], dst[0]),
            Operation::CopyLists { .. } => Descriptor::copy_lists(token, &src, &dst),
            Operation::Fill { pattern, .. } => Descriptor::fill(token, pattern, &dst),
            Operation::Compare { .. } => Descriptor::compare(token, src[0], src[1]),
            Operation::Crc32c { seed, .. } => Descriptor::crc32c(token, src[0], seed),
            Operation::CopyCrc32c { seed, .. } => Descriptor::copy_crc32c(token, src[0], dst[0], seed),
            Operation::CopyToBoth { .. } => {
                both = [dst[0], dst[1]];
                Descriptor::copy_to_both(token, src[0], &both)
            }
            _ => return Err(Error::bare(ErrorKind::Unsupported)),
        };
        // SAFETY: the caller ensures that no operation in flight conflicts with this one on the host bytes.
        // Each shadow belongs to one host range, so no operation conflicts on the shadows either.
        let taken = unsafe { self.main.submit(&[inner]) }?;
        if taken == 1 {
            self.slots[slot] = Some(BackedOperation { token: descriptor.token(), back });
        }
        Ok(taken == 1)
    }
}

// SAFETY: the inner queue reports every descriptor once. Sources are read before the inner submission, and
// destinations are written before the report.
unsafe impl RawQueue for BackedQueue {
    fn engine_id(&self) -> EngineId {
        self.id
    }

    fn depth(&self) -> usize {
        self.main.depth()
    }

    unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> Result<usize> {
        if self.stopped {
            return Err(Error::bare(ErrorKind::Closed));
        }
        for (n, descriptor) in batch.iter().enumerate() {
            let Some(slot) = self.slots.iter().position(Option::is_none) else { return Ok(n) };
            // SAFETY: the caller meets the requirements for every descriptor of the batch.
            match unsafe { self.submit_one(descriptor, slot) } {
                Ok(true) => {}
                Ok(false) => return Ok(n),
                Err(error) if n == 0 => return Err(error),
                Err(_) => return Ok(n),
            }
        }
        Ok(batch.len())
    }

    fn flush(&mut self) {
        self.main.flush();
    }

    fn poll(&mut self, completions: &mut [Completion]) -> usize {
        let n = self.main.poll(completions);
        for completion in &mut completions[..n] {
            let ended = self.slots.get_mut(completion.token as usize).and_then(Option::take);
            let ended = ended.expect("the inner engine reports only descriptors that are in flight");
            completion.token = ended.token;
            for (from, to) in ended.back {
                if completion.outcome != Outcome::Done {
                    break;
                }
                // SAFETY: `to` is the operation's destination and `from` is its shadow. Both belong to this
                // queue until the operation is reported, and their regions stay registered until then.
                completion.outcome = unsafe { self.stage(from, to) };
            }
        }
        n
    }

    fn explain(&self, native: i32) -> NativeError {
        self.main.explain(native)
    }

    fn stop(&mut self) {
        self.stopped = true;
        self.main.stop();
    }

    fn stats(&self) -> QueueStats {
        self.main.stats()
    }

    fn events(&mut self) -> Option<&mut dyn QueueEvents> {
        self.main.events()
    }
}
