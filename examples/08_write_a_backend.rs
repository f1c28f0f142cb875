//! Write an engine of your own: all that a minimal backend needs, in one file, checked by the conformance suite.
//!
//! Run it with `cargo run --example 08_write_a_backend`. In a project of your own it needs `dma` with its feature
//! `conformance`, and nothing else: `cargo add dma --path WHERE-IT-LIES --features conformance`.
//!
//! The device here is a `VecDeque`: descriptors go in when they are submitted, and their bytes are moved when the queue
//! is polled. Replace it by a ring in device memory and a doorbell register, and you have a driver. What the engine
//! does not declare among its capabilities (lists, fills, fences, ...) the safe API makes from plain copies, or answers
//! `Unsupported`.
#![expect(unsafe_code, reason = "a backend answers for memory: that is what its unsafe traits say")]

use std::alloc::Layout;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use dma::{
    Access, Capabilities, Completion, Descriptor, DmaEngine, DmaEngineExt, EngineId, EngineInfo, Error,
    ErrorKind, ExportDescriptor, HostMemory, Limits, MemoryRequest, NativeError, Outcome, QueueOptions,
    RawExport, RawQueue, RawRegion, RawStats, RegionKey, Result, Segment, Work,
};

/// The opened device. Only what an implementer must provide: five methods.
#[derive(Debug)]
struct MyEngine {
    id: EngineId,
    info: EngineInfo,
}

impl MyEngine {
    fn open() -> Self {
        // A real backend asks its device for these.
        let limits = Limits::default().with_max_transfer(1 << 20).with_queue_depth(1024, 64);
        let info = EngineInfo::new("mine", "a VecDeque", "1.0")
            .with_capabilities(Capabilities::ALLOCATE | Capabilities::CPU_VISIBLE | Capabilities::IN_ORDER)
            .with_limits(limits);
        Self { id: EngineId::next(), info }
    }
}

fn unsupported(what: &'static str) -> Error {
    Error::new(ErrorKind::Unsupported, what)
}

// SAFETY: the queue keeps to what `info` says.
unsafe impl DmaEngine for MyEngine {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn allocate_raw(&self, request: &MemoryRequest) -> Result<Box<dyn RawRegion>> {
        if !request.export.is_empty() {
            return Err(unsupported("this engine exports nothing"));
        }
        // At least 1 byte, aligned to a power of two: anybody may call this, so the engine looks.
        request.check()?;
        // A real backend maps the memory for its device here.
        let no_memory = || request.out_of_memory();
        let layout = Layout::from_size_align(request.len, request.align).map_err(|_| no_memory())?;
        // SAFETY: the layout's size is not 0.
        let base = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).ok_or_else(no_memory)?;
        Ok(Box::new(MyRegion { engine: self.id, access: request.access, base, layout }))
    }

    unsafe fn register_raw(&self, _: &HostMemory, _: &MemoryRequest) -> Result<Box<dyn RawRegion>> {
        Err(unsupported("this engine registers nothing"))
    }

    fn import_raw(&self, _: &ExportDescriptor) -> Result<Box<dyn RawRegion>> {
        Err(unsupported("this engine imports nothing"))
    }

    fn open_queue_raw(&self, options: &QueueOptions) -> Result<Box<dyn RawQueue>> {
        let depth = options.depth_on(&self.info.limits);
        Ok(Box::new(MyQueue {
            engine: self.id,
            depth,
            ring: VecDeque::with_capacity(depth),
            rung: 0,
            doorbells: 0,
            stopped: false,
        }))
    }
}

/// Memory that the device reaches. It is freed by its drop, which the safe API holds back while anything uses it.
#[derive(Debug)]
struct MyRegion {
    engine: EngineId,
    access: Access,
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: an address and numbers; the contract says who may use the memory when.
unsafe impl Send for MyRegion {}
// SAFETY: as above.
unsafe impl Sync for MyRegion {}

// SAFETY: the answers never change, and the memory stays allocated until the drop.
unsafe impl RawRegion for MyRegion {
    fn engine_id(&self) -> EngineId {
        self.engine
    }
    fn key(&self) -> RegionKey {
        // This device needs no key besides the address; others give an lkey or an index into their table.
        RegionKey(0)
    }
    fn base(&self) -> NonNull<u8> {
        self.base
    }
    fn len(&self) -> usize {
        self.layout.size()
    }
    fn access(&self) -> Access {
        self.access
    }
    fn cpu_visible(&self) -> bool {
        true
    }
    unsafe fn export(&self, _: usize, _: usize, _: Access) -> Result<Box<dyn RawExport>> {
        Err(unsupported("this engine exports nothing"))
    }
}

impl Drop for MyRegion {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `allocate_raw`.
        unsafe { std::alloc::dealloc(self.base.as_ptr(), self.layout) };
    }
}

/// A descriptor that the device has taken: its token, source and destination.
type Taken = (u64, Segment, Segment);

/// One queue of the device.
#[derive(Debug)]
struct MyQueue {
    engine: EngineId,
    depth: usize,
    ring: VecDeque<Taken>,
    /// How many of `ring`, from the front, a doorbell was rung for.
    rung: usize,
    doorbells: u64,
    stopped: bool,
}

// SAFETY: every descriptor that `submit` takes is reported by `poll`, once, after its bytes were moved; nothing else
// touches memory.
unsafe impl RawQueue for MyQueue {
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
        // Fewer than were given means that the queue is full; the rest comes again.
        let room = self.depth - self.ring.len();
        for (taken, descriptor) in batch.iter().take(room).enumerate() {
            match descriptor.work() {
                Work::Copy { src, dst } => self.ring.push_back((descriptor.token(), src, dst)),
                // The safe API never sends what is not declared. Only the first of a batch may be refused.
                Work::Listed(_) if taken == 0 => return Err(unsupported("neither lists nor fills")),
                Work::Listed(_) => return Ok(taken),
            }
        }
        Ok(room.min(batch.len()))
    }

    fn flush(&mut self) {
        self.rung = self.ring.len();
        self.doorbells += 1;
    }

    fn poll(&mut self, completions: &mut [Completion]) -> usize {
        // A bounded piece of work: a poll must not hold its caller up.
        let ready = if self.stopped { self.ring.len() } else { self.rung.min(16) };
        let n = ready.min(completions.len());
        for (completion, (token, src, dst)) in completions.iter_mut().zip(self.ring.drain(..n)) {
            let outcome = if self.stopped {
                Outcome::Aborted
            } else {
                // SAFETY: `submit`'s caller promised that both sides are valid, disjoint, and left alone until now.
                unsafe { src.addr.copy_to_nonoverlapping(dst.addr, dst.len) };
                Outcome::Done
            };
            *completion = Completion { token, native: 0, outcome };
        }
        self.rung = self.rung.saturating_sub(n);
        n
    }

    fn explain(&self, native: i32) -> NativeError {
        NativeError { code: native.into(), name: "".into(), description: "".into() }
    }

    fn stop(&mut self) {
        self.stopped = true;
    }

    fn stats(&self) -> RawStats {
        RawStats::new(self.doorbells, 0)
    }

    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn arm(&mut self) -> Result<bool> {
        Err(unsupported("this engine has no event fd"))
    }

    fn disarm(&mut self) {}
}

fn main() -> Result<()> {
    let engine = MyEngine::open();

    // What makes it an engine: the same suite that the engines of this project pass.
    for (name, case) in dma::conformance::CASES {
        case(&engine);
        println!("  {name}");
    }

    // From here on it is used like any other: even what it does not do by itself.
    let queue = engine.open_queue(&QueueOptions::new())?;
    let pattern = *b"DMA-fill";
    let filled = queue.fill(engine.allocate(3 << 20)?, pattern)?.wait()?;
    assert!(filled.chunks_exact(8).all(|chunk| chunk == pattern));
    let descriptors = queue.counters().descriptors;
    assert!(descriptors > 1, "the fill was made from copies within the device's limit");

    println!(
        "ok: a backend of one file passes all {} cases of the conformance suite",
        dma::conformance::CASES.len()
    );
    Ok(())
}
