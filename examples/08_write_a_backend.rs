//! A minimal engine and its backend in one file, checked by the conformance suite. Copy the file to write
//! your own engine.
//!
//! Run it with `cargo run --example 08_write_a_backend`. In your own project, the file needs only `dma` with
//! the feature `conformance`: `cargo add dma --path WHERE-IT-LIES --features conformance`.
//!
//! The device here is a `VecDeque`: `submit` adds descriptors to it, and `poll` copies their bytes. A real
//! driver has a ring in device memory and a doorbell register instead. The safe API emulates capabilities
//! that the engine does not declare (lists, fills, fences, ...) by plain copies, or returns `Unsupported`.
//!
//! `main` registers the backend. After such a call, a program can open this engine by its name.
#![expect(unsafe_code, reason = "a backend implements unsafe traits, which promise that memory is valid")]

use std::alloc::Layout;
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;

use dma::contract::{
    Completion, Descriptor, Operation, Outcome, QueueEvents, QueueStats, RawExport, RawQueue, RawRegion,
    RegionInfo, RegionKey, Segment,
};
use dma::{
    Access, Capabilities, Discovered, DmaEngine, DmaEngineExt, EngineId, EngineInfo, EngineName, Error,
    ErrorKind, ExportDescriptor, HostMemory, Limits, MemoryRequest, NativeError, QueueOptions, Result,
    StaticBackend,
};

/// The opened device. It implements only the six methods that have no default.
#[derive(Debug)]
struct MyEngine {
    id: EngineId,
    info: EngineInfo,
}

impl MyEngine {
    fn open(options: &MyOptions) -> Self {
        // A real backend reads these limits from its device.
        let limits = Limits::default().with_max_transfer(options.max_transfer).with_queue_depth(1024, 64);
        let info = EngineInfo::new(MyOptions::NAME_FORMAT.backend, "a VecDeque", "1.0")
            .with_capabilities(Capabilities::ALLOCATE | Capabilities::IN_ORDER)
            .with_limits(limits);
        Self { id: EngineId::unique(), info }
    }
}

fn unsupported(what: &'static str) -> Error {
    Error::new(ErrorKind::Unsupported, what)
}

// SAFETY: each region has memory and a key of its own, and the queue observes the limits and capabilities
// that `info` declares.
unsafe impl DmaEngine for MyEngine {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn id(&self) -> EngineId {
        self.id
    }

    fn allocate_raw(&self, request: &MemoryRequest) -> Result<Box<dyn RawRegion>> {
        if !request.export.is_empty() {
            return Err(unsupported("this engine cannot export memory"));
        }
        // Checks that the length is at least 1 byte and the alignment a power of two, because callers other
        // than the safe API may pass other values.
        request.validate_for_host()?;
        // A real backend maps the memory for its device here.
        let no_memory = || request.out_of_memory();
        let layout = Layout::from_size_align(request.len, request.align).map_err(|_| no_memory())?;
        // SAFETY: the layout's size is not 0.
        let base = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).ok_or_else(no_memory)?;
        // This device finds memory by its address and does not use the key, so any key works that no other
        // region of the engine has. Other engines use an lkey, or an index into a table of their device.
        let info = RegionInfo::local(self.id, RegionKey::unique(), base, request.len, request.access);
        Ok(Box::new(MyRegion { info, layout }))
    }

    unsafe fn register_raw(&self, _: &HostMemory, _: &MemoryRequest) -> Result<Box<dyn RawRegion>> {
        Err(unsupported("this engine cannot register memory"))
    }

    fn import_raw(&self, _: &ExportDescriptor) -> Result<Box<dyn RawRegion>> {
        Err(unsupported("this engine cannot import memory"))
    }

    fn open_queue_raw(&self, options: &QueueOptions) -> Result<Box<dyn RawQueue>> {
        let depth = options.depth_on(&self.info.limits)?;
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

/// Memory that the device can access. Dropping a region frees its memory. The safe API drops a region only
/// after all users of the memory have ended.
#[derive(Debug)]
struct MyRegion {
    info: RegionInfo,
    layout: Layout,
}

// SAFETY: `info` never changes, and the memory stays allocated until the drop.
unsafe impl RawRegion for MyRegion {
    fn info(&self) -> &RegionInfo {
        &self.info
    }
    unsafe fn export(&self, _: usize, _: usize, _: Access) -> Result<Box<dyn RawExport>> {
        Err(unsupported("this engine cannot export memory"))
    }
}

impl Drop for MyRegion {
    fn drop(&mut self) {
        // SAFETY: `allocate_raw` allocated this memory with this layout, and only this drop frees it.
        unsafe { std::alloc::dealloc(self.info.addr.as_ptr(), self.layout) };
    }
}

/// A descriptor that the device has accepted: its token, source and destination.
type Taken = (u64, Segment, Segment);

/// One queue of the device.
#[derive(Debug)]
struct MyQueue {
    engine: EngineId,
    depth: usize,
    ring: VecDeque<Taken>,
    /// Number of descriptors at the front of `ring` for which the doorbell was rung.
    rung: usize,
    doorbells: u64,
    stopped: bool,
}

// SAFETY: `poll` reports every descriptor that `submit` accepts, once: as done after its bytes were copied,
// or as aborted after `stop`. Only `poll` accesses the memory, and only before it reports the descriptor.
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
        // If the queue is full, `submit` accepts fewer descriptors than it received, and the caller submits
        // the rest again.
        let room = self.depth - self.ring.len();
        for (taken, descriptor) in batch.iter().take(room).enumerate() {
            match descriptor.operation() {
                Operation::Copy { src, dst } => self.ring.push_back((descriptor.token(), src, dst)),
                // The safe API never submits undeclared operations. `submit` may return an error only for
                // the first descriptor of a batch.
                _ if taken == 0 => return Err(unsupported("this engine supports only copies without lists")),
                _ => return Ok(taken),
            }
        }
        Ok(room.min(batch.len()))
    }

    fn flush(&mut self) {
        self.rung = self.ring.len();
        self.doorbells += 1;
    }

    fn poll(&mut self, completions: &mut [Completion]) -> usize {
        // A poll does a bounded amount of work, because it must not block its caller.
        let ready = if self.stopped { self.ring.len() } else { self.rung.min(16) };
        let n = ready.min(completions.len());
        for (completion, (token, src, dst)) in completions.iter_mut().zip(self.ring.drain(..n)) {
            let outcome = if self.stopped {
                Outcome::Aborted
            } else {
                // The bytes of windows may be accessed by other code at the same time, so `memcpy` is not
                // enough. SAFETY: the caller of `submit` promised that source and destination are valid, and
                // that no reference to them is used until the completion is reported.
                unsafe { dma::contract::racy_copy::copy(dst.addr.as_ptr(), src.addr.as_ptr(), dst.len) };
                Outcome::Done
            };
            *completion = Completion::ended(token, outcome, 0);
        }
        self.rung = self.rung.saturating_sub(n);
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
        // A device with interrupts returns a file descriptor here, on which a thread can sleep.
        None
    }
}

const MAX: u64 = 1 << 20;

dma::contract::options! {
    /// The options of an engine. This macro makes the struct, its setters, and the reader of engine names.
    #[derive(Debug)]
    struct MyOptions {
        /// Maximum length of a descriptor in bytes: 64 to 1 MiB, which is the default.
        max_transfer: u64 = MAX, with_max_transfer(u64),
            "max": size(64..=MAX), "the longest descriptor", default "1M";
    }
    // Only one device exists, so names do not select a device.
    names "mine";
}

/// Opens engines by the names `mine` and `mine:max=64K`.
static BACKEND: StaticBackend = StaticBackend {
    name_format: MyOptions::NAME_FORMAT,
    about: "a VecDeque",
    is_hardware: false,
    open: |name| Ok(Arc::new(MyEngine::open(&MyOptions::from_name(name)?))),
    discover: || {
        let engine = MyEngine::open(&MyOptions::new());
        vec![Discovered::opened(EngineName::of(MyOptions::NAME_FORMAT), Ok(engine))]
    },
    // A real backend checks for devices, drivers, libraries and rights here.
    doctor: Vec::new,
};

fn main() -> Result<()> {
    // Makes the name known to `dma::open`, `dma::discover`, `dma::doctor` and `dma_bench::main`.
    dma::register(&BACKEND)?;
    for found in dma::discover().iter().filter(|found| found.info.is_ok()) {
        println!("this machine has {}", found.name);
    }
    let wrong = dma::open("mine:mux=64K").expect_err("there is no such option");
    println!("{wrong}");
    let engine = dma::open("mine:max=64K")?;

    // Your engine must pass the same suite as the engines of this project.
    for (name, case) in dma::conformance::CASES {
        case(&*engine);
        println!("  {name}");
    }

    // The safe API emulates the fill, which the engine lacks.
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
