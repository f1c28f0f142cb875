//! Runs the conformance suite on an engine that is implemented by calls of dma.h, so that one suite checks
//! both interfaces. It runs on queues for one thread and on shared queues.
#![expect(unsafe_code, reason = "calls the functions of dma.h, and implements the raw traits")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "calls with the same safety requirements")]

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::mem::zeroed;
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dma::contract::{
    Completion, Descriptor, DeviceAddr, Operation, Outcome, QueueEvents, QueueStats, RawExport, RawQueue,
    RawRegion, RegionInfo, RegionKey, Segment,
};
use dma::{
    Access, Capabilities, DmaEngine, EngineId, EngineInfo, Error, ErrorKind, ExportDescriptor, HostMemory,
    Limits, MemoryRequest, NativeError, QueueOptions, Result,
};
use dma_c::header::*;

/// Every kind of error, to convert a status back to a kind.
const KINDS: [ErrorKind; 23] = [
    ErrorKind::InvalidArgument,
    ErrorKind::OutOfRange,
    ErrorKind::LengthMismatch,
    ErrorKind::Overlap,
    ErrorKind::AccessDenied,
    ErrorKind::WrongEngine,
    ErrorKind::Unsupported,
    ErrorKind::QueueFull,
    ErrorKind::InUse,
    ErrorKind::OutOfMemory,
    ErrorKind::OutOfResources,
    ErrorKind::NotFound,
    ErrorKind::PermissionDenied,
    ErrorKind::TimedOut,
    ErrorKind::DeviceFault,
    ErrorKind::Aborted,
    ErrorKind::DeviceLost,
    ErrorKind::Revoked,
    ErrorKind::Closed,
    ErrorKind::Malformed,
    ErrorKind::VersionMismatch,
    ErrorKind::MissingSdk,
    ErrorKind::Os,
];

fn kind_of(status: dma_status) -> ErrorKind {
    let at = usize::try_from(status - 1).expect("a failure");
    *KINDS.get(at).unwrap_or_else(|| panic!("status {status} is not a kind"))
}

/// Converts a status, with the text and the remedy of the last error.
fn check(status: dma_status) -> Result<()> {
    if status == DMA_OK as dma_status {
        return Ok(());
    }
    // SAFETY: zero bytes are a valid value, the pointer leads to it, and the strings are valid until this
    // thread's next failure.
    let (message, remedy) = unsafe {
        let mut error: dma_error = zeroed();
        error.size = size_of_val(&error);
        assert_eq!(dma_c::dma_last_error(&raw mut error), DMA_OK as dma_status);
        assert_eq!(error.status, status, "the last error is that of this call");
        (text(error.text), text(error.remedy))
    };
    Err(Error::new(kind_of(status), message).with_hint(remedy))
}

/// # Safety
///
/// `text` is a valid C string of the library.
unsafe fn text(text: *const std::ffi::c_char) -> String {
    // SAFETY: the caller passes a valid C string.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// The regions of an engine, by key.
type Regions = Arc<Mutex<HashMap<RegionKey, (dma_region, DeviceAddr)>>>;

/// An engine that is opened through dma.h.
#[derive(Debug)]
struct HeaderEngine {
    engine: dma_engine,
    info: EngineInfo,
    id: EngineId,
    regions: Regions,
    lanes: u32,
}

fn open(name: &str, lanes: u32) -> HeaderEngine {
    let name = CString::new(name).expect("a name");
    // SAFETY: zero bytes are valid values. The pointers lead to these local values and to the C string
    // `name`.
    let (engine, about) = unsafe {
        let (mut engine, mut about): (_, dma_engine_info) = (zeroed(), zeroed());
        about.size = size_of_val(&about);
        check(dma_c::dma_open_abi(DMA_ABI_VERSION, name.as_ptr(), 0, &raw mut engine)).expect("it opens");
        check(dma_c::dma_engine_describe(engine, &raw mut about)).expect("it is described");
        (engine, about)
    };
    // SAFETY: these are strings of an open engine, which stay valid until it is closed.
    let [backend, device, version] =
        unsafe { [text(about.backend), text(about.device), text(about.version)] };
    let mut capabilities = Capabilities::from_bits(about.capabilities).expect("known capabilities");
    // dma.h does not report the addresses of device memory.
    capabilities -= Capabilities::REGISTER_DEVICE | Capabilities::REGISTER_DMABUF;
    if lanes > 0 {
        capabilities -= Capabilities::FENCE | Capabilities::IN_ORDER;
    }
    let limits = Limits::default()
        .with_max_transfer(about.max_transfer)
        .with_max_segments(about.max_segments)
        .with_queue_depth(about.max_queue_depth, about.default_queue_depth)
        .with_max_queues((about.max_queues > 0).then_some(about.max_queues))
        .with_alignment(about.register_alignment, about.preferred_alignment);
    let info =
        EngineInfo::new(backend.leak(), device, version).with_capabilities(capabilities).with_limits(limits);
    HeaderEngine { engine, info, id: EngineId::unique(), regions: Regions::default(), lanes }
}

impl HeaderEngine {
    fn region(&self, region: dma_region) -> Result<Box<dyn RawRegion>> {
        /// The next address for memory that the CPU cannot reach.
        static NEXT: AtomicU64 = AtomicU64::new(1 << 56);
        // SAFETY: zero bytes are a valid value, and the pointer leads to it.
        let about = unsafe {
            let mut about: dma_region_info = zeroed();
            about.size = size_of_val(&about);
            check(dma_c::dma_region_describe(region, &raw mut about))?;
            about
        };
        let access = Access::from_bits(about.rights).expect("known rights");
        let key = RegionKey::unique();
        let info = match NonNull::new(about.memory.cast::<u8>()) {
            Some(base) => RegionInfo::local(self.id, key, base, about.len, access),
            None => {
                let taken = (about.len as u64 + 1).next_multiple_of(1 << 16);
                let addr = DeviceAddr(NEXT.fetch_add(taken, Ordering::Relaxed));
                RegionInfo::remote(self.id, key, addr, about.len, access)
            }
        };
        self.regions.lock().expect("no panic").insert(key, (region, info.addr));
        Ok(Box::new(HeaderRegion { region, info, regions: Arc::clone(&self.regions) }))
    }
}

impl Drop for HeaderEngine {
    fn drop(&mut self) {
        // SAFETY: the call has no pointer arguments.
        assert_eq!(unsafe { dma_c::dma_close(self.engine) }, DMA_OK as dma_status);
    }
}

// SAFETY: all calls are forwarded to the engine behind dma.h, which fulfils the contract.
unsafe impl DmaEngine for HeaderEngine {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn id(&self) -> EngineId {
        self.id
    }

    fn allocate_raw(&self, request: &MemoryRequest) -> Result<Box<dyn RawRegion>> {
        request.validate()?;
        // SAFETY: zero bytes are valid values, and the pointers lead to them.
        let region = unsafe {
            let (mut options, mut region): (dma_memory_options, _) = (zeroed(), zeroed());
            options.size = size_of_val(&options);
            options.align = request.align;
            options.rights = request.access.bits();
            options.export_rights = request.export.bits();
            options.place = if request.place == dma::Place::Host { DMA_PLACE_HOST } else { DMA_PLACE_DEVICE };
            options.flags = if request.huge_pages { DMA_HUGE_PAGES } else { 0 };
            let options = &raw const options;
            check(dma_c::dma_region_allocate(self.engine, request.len, options, &raw mut region))?;
            region
        };
        self.region(region)
    }

    unsafe fn register_raw(
        &self,
        memory: &HostMemory,
        request: &MemoryRequest,
    ) -> Result<Box<dyn RawRegion>> {
        // SAFETY: zero bytes are a valid value. The pointers lead to it, and to memory that stays mapped
        // until the region is dropped, as the caller promises.
        let region = unsafe {
            let mut region = zeroed();
            let (start, rights) = (memory.as_ptr().as_ptr().cast(), request.access.bits());
            check(dma_c::dma_region_register(self.engine, start, memory.len(), rights, &raw mut region))?;
            region
        };
        self.region(region)
    }

    fn import_raw(&self, descriptor: &ExportDescriptor) -> Result<Box<dyn RawRegion>> {
        if descriptor.backend() != self.info.backend {
            return Err(Error::new(ErrorKind::Unsupported, format!("memory of {}", descriptor.backend())));
        }
        let bytes = descriptor.native();
        // SAFETY: zero bytes are a valid value, and the pointers lead to it and to the bytes.
        let region = unsafe {
            let mut region = zeroed();
            check(dma_c::dma_region_import(
                self.engine,
                bytes.as_ptr().cast(),
                bytes.len(),
                &raw mut region,
            ))?;
            region
        };
        self.region(region)
    }

    fn open_queue_raw(&self, options: &QueueOptions) -> Result<Box<dyn RawQueue>> {
        let millis = u32::try_from(options.stall_timeout.as_millis()).expect("a time");
        // SAFETY: zero bytes are valid values of the structs. The pointers lead to local structs and numbers,
        // and the last argument of `dma_queue_depth` may be NULL.
        let (queue, fd, depth) = unsafe {
            let (mut wanted, mut queue): (dma_queue_options, _) = (zeroed(), zeroed());
            wanted.size = size_of_val(&wanted);
            wanted.depth = options.depth;
            wanted.stall_timeout_ms = millis;
            wanted.lanes = self.lanes;
            check(dma_c::dma_queue_open(self.engine, &raw const wanted, &raw mut queue))?;
            let (mut fd, mut depth) = (-1, 0);
            match check(dma_c::dma_queue_descriptor(queue, &raw mut fd)) {
                Ok(()) => {}
                Err(e) => assert_eq!(e.kind(), ErrorKind::Unsupported, "{e}"),
            }
            check(dma_c::dma_queue_depth(queue, &raw mut depth, null_mut()))?;
            (queue, fd, depth)
        };
        let events = (fd >= 0).then_some(HeaderEvents { queue, fd });
        let (id, regions) = (self.id, Arc::clone(&self.regions));
        Ok(Box::new(HeaderQueue { queue, id, depth, regions, events, stopped: false }))
    }
}

#[derive(Debug)]
struct HeaderRegion {
    region: dma_region,
    info: RegionInfo,
    regions: Regions,
}

impl Drop for HeaderRegion {
    fn drop(&mut self) {
        self.regions.lock().expect("no panic").remove(&self.info.key);
        // SAFETY: the call has no pointer arguments.
        let closed = check(unsafe { dma_c::dma_region_close(self.region) });
        assert!(closed.is_ok() || std::thread::panicking(), "a region that nothing uses: {closed:?}");
    }
}

// SAFETY: all calls are forwarded to the region behind dma.h, which fulfils the contract.
unsafe impl RawRegion for HeaderRegion {
    fn info(&self) -> &RegionInfo {
        &self.info
    }

    unsafe fn export(&self, offset: usize, len: usize, rights: Access) -> Result<Box<dyn RawExport>> {
        // SAFETY: zero bytes are a valid value. The pointers lead to it, to a number, and to a vector of
        // `size` bytes; with a capacity of 0, the pointer to the bytes may be NULL.
        unsafe {
            let mut exported = zeroed();
            check(dma_c::dma_region_export(self.region, offset, len, rights.bits(), &raw mut exported))?;
            let mut size = 0;
            assert!(dma_c::dma_export_descriptor(exported, null_mut(), 0, &raw mut size) != 0 && size > 0);
            let mut native = vec![0; size];
            check(dma_c::dma_export_descriptor(exported, native.as_mut_ptr().cast(), size, &raw mut size))?;
            Ok(Box::new(HeaderExport { exported: Some(exported), native }))
        }
    }
}

#[derive(Debug)]
struct HeaderExport {
    exported: Option<dma_export>,
    native: Vec<u8>,
}

// SAFETY: the library's export behind the call meets the requirements.
unsafe impl RawExport for HeaderExport {
    fn native(&self) -> &[u8] {
        &self.native
    }

    fn revoke(&mut self, timeout: Duration) -> Result<()> {
        let Some(exported) = self.exported else { return Ok(()) };
        // SAFETY: the call has no pointer arguments.
        check(unsafe { dma_c::dma_export_revoke(exported, timeout.as_millis() as u32) })?;
        self.exported = None;
        Ok(())
    }
}

impl Drop for HeaderExport {
    fn drop(&mut self) {
        let _ = self.revoke(Duration::from_secs(1));
    }
}

#[derive(Debug)]
struct HeaderEvents {
    queue: dma_queue,
    fd: i32,
}

impl QueueEvents for HeaderEvents {
    fn fd(&self) -> Result<BorrowedFd<'_>> {
        // SAFETY: the queue, which outlives the borrow of `self`, keeps the descriptor open.
        Ok(unsafe { BorrowedFd::borrow_raw(self.fd) })
    }

    fn arm(&mut self) -> Result<bool> {
        let mut ready = 0;
        // SAFETY: the pointer leads to a number.
        check(unsafe { dma_c::dma_queue_arm(self.queue, &raw mut ready) })?;
        Ok(ready == 0)
    }

    fn disarm(&mut self) {
        // dma.h has no call for this alone.
        self.arm().expect("a queue is armed");
    }
}

#[derive(Debug)]
struct HeaderQueue {
    queue: dma_queue,
    id: EngineId,
    depth: usize,
    regions: Regions,
    events: Option<HeaderEvents>,
    stopped: bool,
}

impl HeaderQueue {
    fn range(&self, segment: Segment) -> dma_range {
        let (region, base) = self.regions.lock().expect("no panic")[&segment.key];
        dma_range { region, offset: (segment.addr.0 - base.0) as usize, len: segment.len }
    }

    fn ranges(&self, list: &[Segment]) -> Vec<dma_range> {
        list.iter().map(|segment| self.range(*segment)).collect()
    }

    fn submit_one(&self, descriptor: &Descriptor<'_>) -> Result<()> {
        let (queue, token) = (self.queue, descriptor.token());
        if descriptor.fence() {
            // SAFETY: the call has no pointer arguments.
            check(unsafe { dma_c::dma_queue_fence(queue) })?;
        }
        // SAFETY: all pointers lead to local ranges, to a local number, or to the 8 bytes of the descriptor's
        // pattern. They live until the call has returned.
        check(unsafe {
            match descriptor.operation() {
                Operation::Copy { src, dst } => {
                    let copy = dma_copy { src: self.range(src), dst: self.range(dst), token };
                    let mut accepted = 9;
                    let status = dma_c::dma_queue_copy(queue, &raw const copy, 1, &raw mut accepted);
                    assert_eq!(accepted, usize::from(status == DMA_OK as dma_status));
                    status
                }
                Operation::CopyLists { src, dst } => {
                    let (src, dst) = (self.ranges(src), self.ranges(dst));
                    dma_c::dma_queue_copy_list(queue, src.as_ptr(), src.len(), dst.as_ptr(), dst.len(), token)
                }
                Operation::Fill { pattern, dst } => {
                    let dst = self.ranges(dst);
                    dma_c::dma_queue_fill(queue, dst.as_ptr(), dst.len(), pattern.as_ptr(), token)
                }
                Operation::Compare { a, b } => {
                    let (a, b) = (self.range(a), self.range(b));
                    dma_c::dma_queue_compare(queue, &raw const a, &raw const b, token)
                }
                Operation::Crc32c { src, seed } => {
                    let src = self.range(src);
                    dma_c::dma_queue_crc32c(queue, &raw const src, seed, token)
                }
                Operation::CopyCrc32c { src, dst, seed } => {
                    let (src, dst) = (self.range(src), self.range(dst));
                    dma_c::dma_queue_copy_crc32c(queue, &raw const src, &raw const dst, seed, token)
                }
                Operation::CopyToBoth { src, dst } => {
                    let [src, dst, also] = [src, dst[0], dst[1]].map(|segment| self.range(segment));
                    let (src, dst, also) = (&raw const src, &raw const dst, &raw const also);
                    dma_c::dma_queue_copy_to_both(queue, src, dst, also, token)
                }
                _ => panic!("an operation that dma.h does not have: {descriptor:?}"),
            }
        })
    }
}

// SAFETY: all calls are forwarded to the queue behind dma.h, which fulfils the contract.
unsafe impl RawQueue for HeaderQueue {
    fn engine_id(&self) -> EngineId {
        self.id
    }

    fn depth(&self) -> usize {
        self.depth
    }

    unsafe fn submit(&mut self, batch: &[Descriptor<'_>]) -> Result<usize> {
        if self.stopped {
            return Err(ErrorKind::Closed.into());
        }
        for (done, descriptor) in batch.iter().enumerate() {
            match self.submit_one(descriptor) {
                Ok(()) => {}
                Err(e) if e.kind() == ErrorKind::QueueFull => return Ok(done),
                Err(e) if done == 0 => return Err(e),
                Err(_) => return Ok(done),
            }
        }
        Ok(batch.len())
    }

    fn flush(&mut self) {
        if !self.stopped {
            // SAFETY: the call has no pointer arguments.
            check(unsafe { dma_c::dma_queue_flush(self.queue) }).expect("an open queue");
        }
    }

    fn poll(&mut self, completions: &mut [Completion]) -> usize {
        // SAFETY: zero bytes are valid values. The pointers lead to a local number, and to an array that has
        // room for `capacity` completions.
        let (ended, count) = unsafe {
            let (mut ended, mut count): ([dma_completion; 64], _) = (zeroed(), 0);
            let capacity = completions.len().min(64);
            check(dma_c::dma_queue_poll(self.queue, ended.as_mut_ptr(), capacity, &raw mut count))
                .expect("an open queue");
            (ended, count)
        };
        for (place, dma_completion { token, result, status, native }) in
            completions.iter_mut().zip(&ended[..count])
        {
            let outcome = match dma_status_kind(*status) {
                None => Outcome::Done,
                // A stop aborts operations, as a reset does.
                Some(ErrorKind::Aborted | ErrorKind::Closed) => Outcome::Aborted,
                Some(kind) => Outcome::Failed(kind),
            };
            *place = Completion::ended(*token, outcome, *native).with_result(*result);
        }
        count
    }

    fn explain(&self, native: i32) -> NativeError {
        NativeError { code: native, name: "".into(), description: "".into() }
    }

    fn stop(&mut self) {
        self.stopped = true;
        // SAFETY: the call has no pointer arguments.
        let stopped = check(unsafe { dma_c::dma_queue_stop(self.queue, 0) });
        stopped.expect("every operation of a device without faults ends");
    }

    fn stats(&self) -> QueueStats {
        // SAFETY: zero bytes are a valid value, and the pointer leads to it.
        let counters = unsafe {
            let mut counters: dma_counters = zeroed();
            counters.size = size_of_val(&counters);
            check(dma_c::dma_queue_counters(self.queue, &raw mut counters)).expect("an open queue");
            counters
        };
        QueueStats::new(counters.doorbells, counters.resets)
    }

    fn events(&mut self) -> Option<&mut dyn QueueEvents> {
        self.events.as_mut().map(|events| events as _)
    }
}

fn dma_status_kind(status: dma_status) -> Option<ErrorKind> {
    (status != DMA_OK as dma_status).then(|| kind_of(status))
}

impl Drop for HeaderQueue {
    fn drop(&mut self) {
        // SAFETY: the call has no pointer arguments.
        let closed = check(unsafe { dma_c::dma_queue_close(self.queue, 5000) });
        assert!(closed.is_ok() || std::thread::panicking(), "{closed:?}");
    }
}

dma::conformance_tests!(cpu, open("cpu", 0));
dma::conformance_tests!(cpu_on_threads, open("cpu:threads=2,inline=0", 0));
dma::conformance_tests!(cpu_shared, open("cpu", 1));
dma::conformance_tests!(sim, open("sim:profile=bluefield3,seed=3", 0));
dma::conformance_tests!(sim_device_memory, open("sim:seed=4,device_memory=256M", 0));
dma::conformance_tests!(sim_tight, open("sim:max_transfer=100,max_segments=1,depth=3,seed=6", 0));
dma::conformance_tests!(sim_shared, open("sim:profile=ioat,seed=5", 1));

#[test]
fn options_may_be_null() {
    let engine = open("cpu", 0);
    // SAFETY: zero bytes are a valid value, and the pointer leads to it.
    unsafe {
        let mut queue = zeroed();
        check(dma_c::dma_queue_open(engine.engine, null(), &raw mut queue)).expect("defaults");
        check(dma_c::dma_queue_close(queue, 0)).expect("an idle queue");
    }
}
