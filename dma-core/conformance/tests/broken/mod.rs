//! An engine that breaks the contract.
#![expect(unsafe_code, reason = "implements the raw traits")]

use dma_conformance::{ReferenceEngine, ReferenceOptions};
use dma_core::{
    Completion, Descriptor, DmaEngine, EngineId, EngineInfo, ErrorKind, ExportDescriptor, HostMemory,
    MemoryRequest, NativeError, Operation, Outcome, QueueEvents, QueueOptions, QueueStats, RawQueue,
    RawRegion, Result, Segment,
};

/// The fault of each queue's third copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The copy is never reported.
    Lost,
    /// The copy is reported as failed.
    Failed,
    /// The copy is reported twice.
    Twice,
    /// The first byte of the copy is wrong.
    Wrong,
}

#[derive(Debug)]
pub(crate) struct Broken {
    inner: ReferenceEngine,
    fault: Fault,
}

impl Broken {
    pub(crate) fn new(fault: Fault) -> Self {
        Self { inner: ReferenceEngine::new(ReferenceOptions::default()), fault }
    }
}

// SAFETY: every call goes to the reference engine. Its queues report wrongly, or change one byte of a
// destination, and `BrokenQueue` explains why both are sound.
unsafe impl DmaEngine for Broken {
    fn info(&self) -> &EngineInfo {
        self.inner.info()
    }
    fn id(&self) -> EngineId {
        self.inner.id()
    }
    fn allocate_raw(&self, request: &MemoryRequest) -> Result<Box<dyn RawRegion>> {
        self.inner.allocate_raw(request)
    }
    unsafe fn register_raw(
        &self,
        memory: &HostMemory,
        request: &MemoryRequest,
    ) -> Result<Box<dyn RawRegion>> {
        // SAFETY: this method and the inner one have the same requirements, and the caller meets them.
        unsafe { self.inner.register_raw(memory, request) }
    }
    fn import_raw(&self, descriptor: &ExportDescriptor) -> Result<Box<dyn RawRegion>> {
        self.inner.import_raw(descriptor)
    }
    fn open_queue_raw(&self, options: &QueueOptions) -> Result<Box<dyn RawQueue>> {
        let inner = self.inner.open_queue_raw(options)?;
        Ok(Box::new(BrokenQueue { inner, fault: self.fault, taken: 0, third: None }))
    }
}

#[derive(Debug)]
struct BrokenQueue {
    inner: Box<dyn RawQueue>,
    fault: Fault,
    taken: u64,
    /// Token and destination of the third copy, while it is in flight.
    third: Option<(u64, Segment)>,
}

// SAFETY: every call goes to the inner queue. Faults report a descriptor only after the inner queue has
// completed it. The only additional write is to the third copy's destination, before that copy is reported.
unsafe impl RawQueue for BrokenQueue {
    fn engine_id(&self) -> EngineId {
        self.inner.engine_id()
    }
    fn depth(&self) -> usize {
        self.inner.depth()
    }
    unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> Result<usize> {
        // SAFETY: this method and the inner one have the same requirements, and the caller meets them.
        let n = unsafe { self.inner.submit(batch) }?;
        for descriptor in &batch[..n] {
            self.taken += 1;
            if let (3, Operation::Copy { dst, .. }) = (self.taken, descriptor.operation()) {
                self.third = Some((descriptor.token(), dst));
            }
        }
        Ok(n)
    }
    fn flush(&mut self) {
        self.inner.flush();
    }
    fn poll(&mut self, completions: &mut [Completion]) -> usize {
        let n = self.inner.poll(completions);
        let Some((token, dst)) = self.third else { return n };
        let Some(at) = completions[..n].iter().position(|c| c.token == token) else { return n };
        self.third = None;
        match self.fault {
            Fault::Lost => {
                completions.copy_within(at + 1..n, at);
                return n - 1;
            }
            Fault::Failed => completions[at].outcome = Outcome::Failed(ErrorKind::DeviceFault),
            Fault::Twice if n < completions.len() => {
                completions[n] = completions[at];
                return n + 1;
            }
            // If the array is full, this report replaces another one.
            Fault::Twice => completions[(at + 1) % n] = completions[at],
            // SAFETY: the inner queue has completed the copy, but this call has not reported it yet. So the
            // destination still belongs to this queue. Its segment has at least 1 byte.
            Fault::Wrong => unsafe { *dst.addr.as_ptr() ^= 0xff },
        }
        n
    }
    fn explain(&self, code: i32) -> NativeError {
        self.inner.explain(code)
    }
    fn stop(&mut self) {
        self.inner.stop();
    }
    fn stats(&self) -> QueueStats {
        self.inner.stats()
    }
    fn events(&mut self) -> Option<&mut dyn QueueEvents> {
        self.inner.events()
    }
}
