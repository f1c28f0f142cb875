//! Allocations that take [idle memory](crate::IdleMemory).
#![expect(unsafe_code, reason = "takes back memory that no view uses")]

use std::ptr::NonNull;
use std::sync::Arc;

use super::range::Range;
use super::region::{Home, Keeper, Region, RegionHandle};
use crate::contract::{HUGE_PAGE, IdleRegion, IdleStore, release_all};
use crate::{BufferMut, DmaEngine, Error, ErrorKind, MemoryRequest, Result};

impl Keeper for IdleStore {
    const OWNS_MEMORY: bool = false;

    unsafe fn take_back(keeper: NonNull<Self>, _number: u32, last: RegionHandle) {
        // The region keeps the store alive, and another thread may free the region as soon as it is idle.
        // SAFETY: `last` keeps the store alive, and `keeper` is the pointer of its `Arc`.
        unsafe { Arc::increment_strong_count(keeper.as_ptr().cast_const()) };
        // SAFETY: the count was incremented just above, for this `Arc`.
        let store = unsafe { Arc::from_raw(keeper.as_ptr().cast_const()) };
        let len = last.info.len;
        // SAFETY: the caller passes the last handle, and `free` frees its region.
        store.keep(unsafe { IdleRegion::new(last.into_ptr().cast(), len, free) });
    }
}

/// Frees an idle region.
///
/// # Safety
///
/// `ptr` is the pointer of the last handle of a region, which is converted back only once.
unsafe fn free(ptr: NonNull<()>) {
    // SAFETY: the caller ensures that the pointer is converted back only once.
    let last = unsafe { RegionHandle::from_ptr(ptr.cast()) };
    // SAFETY: the caller ensures that this is the last handle.
    unsafe { last.free() };
}

/// Allocates host memory for `request` from the engine's idle memory, or so that it can become idle. Returns
/// `None` if the engine or the request does not allow this, or if the memory is exhausted.
pub(super) fn allocate<E: DmaEngine + ?Sized>(engine: &E, request: &MemoryRequest) -> Option<BufferMut> {
    let store = engine.idle_memory()?.store();
    let class_len = store.class_len(request.len)?;
    if !request.is_usual(class_len) {
        return None;
    }
    let idle = store.take(class_len);
    let clear = request.zeroed && idle.is_some();
    let region = match idle {
        // SAFETY: the pointer was that of the last handle, and `into_ptr` returns it only once.
        Some(idle) => Region(unsafe { RegionHandle::from_ptr(idle.into_ptr().cast()) }),
        None => {
            let request = MemoryRequest::new(class_len).with_huge_pages(class_len >= HUGE_PAGE);
            let raw = engine.allocate_raw(&request).ok().filter(|raw| raw.info().len == class_len)?;
            Region::of_store(raw, engine.info().backend, Home::new(Arc::clone(store), 0))
        }
    };
    if !region.is_cpu_visible() {
        return None;
    }
    let mut range = Range::whole(region);
    range.len = request.len;
    let mut buffer = BufferMut(range);
    if clear {
        buffer.fill(0);
    }
    Some(buffer)
}

/// Runs `call`, which allocates or registers memory. If it fails for lack of memory or of resources, releases
/// the idle memory of all engines and runs it again.
pub(crate) fn with_idle_memory_released<T>(call: impl FnMut() -> Result<T>) -> Result<T> {
    use ErrorKind::{OutOfMemory, OutOfResources, PermissionDenied};
    released_if(|e| matches!(e.kind(), OutOfMemory | OutOfResources | PermissionDenied), call)
}

/// Runs `call`, which imports memory. If it fails because this process lacks memory or resources, releases
/// the idle memory of all engines and runs it again. A lack of permission is not enough: it is the peer that
/// refuses, and it may have ended before it is asked again.
pub(crate) fn import_with_idle_memory_released<T>(call: impl FnMut() -> Result<T>) -> Result<T> {
    let lacks = |e: &Error| matches!(e.kind(), ErrorKind::OutOfMemory | ErrorKind::OutOfResources);
    released_if(|e| lacks(e) && !e.is_by_peer(), call)
}

/// Runs `call`, which opens a queue. If it fails for lack of memory, releases the idle memory of all engines
/// and runs it again. A lack of resources is not enough: most often, all channels of the device are in use.
pub(crate) fn open_with_idle_memory_released<T>(call: impl FnMut() -> Result<T>) -> Result<T> {
    released_if(|e| matches!(e.kind(), ErrorKind::OutOfMemory | ErrorKind::PermissionDenied), call)
}

fn released_if<T>(lacks: impl FnOnce(&Error) -> bool, mut call: impl FnMut() -> Result<T>) -> Result<T> {
    match call() {
        Err(error) if lacks(&error) && release_all() => call(),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use proptest::prelude::*;

    use super::*;
    use crate::reference::{ReferenceEngine, doc_engine};
    use crate::{
        Access, DeviceAddr, DeviceMemory, DmaEngineExt, EngineId, EngineInfo, ExportDescriptor, HostMemory,
        IdleMemory, QueueOptions, RawExport, RawQueue, RawRegion, RegionInfo,
    };

    /// The reference engine with idle memory, and with an amount of memory that it can allocate.
    #[derive(Debug)]
    struct Recycling {
        inner: ReferenceEngine,
        idle_memory: IdleMemory,
        allocated: Arc<AtomicUsize>,
        available: usize,
    }

    /// Fails with `kind` if more than half of the available memory is allocated.
    fn need_half(allocated: &AtomicUsize, available: usize, kind: ErrorKind) -> Result<()> {
        if allocated.load(Ordering::Relaxed) > available / 2 { Err(Error::bare(kind)) } else { Ok(()) }
    }

    impl Recycling {
        fn new(limit: usize, available: usize) -> Self {
            let (inner, idle_memory) = (doc_engine(), IdleMemory::with_limit(limit));
            Self { inner, idle_memory, allocated: Arc::default(), available }
        }

        fn allocated(&self) -> usize {
            self.allocated.load(Ordering::Relaxed)
        }

        fn need_half(&self, kind: ErrorKind) -> Result<()> {
            need_half(&self.allocated, self.available, kind)
        }

        /// Returns the numbers of idle bytes and idle regions.
        fn idle(&self) -> (usize, usize) {
            let report = self.idle_memory.report();
            (report.bytes, report.regions)
        }
    }

    /// Counts its length as allocated.
    #[derive(Debug)]
    struct Counted {
        inner: Box<dyn RawRegion>,
        allocated: Arc<AtomicUsize>,
        available: usize,
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            self.allocated.fetch_sub(self.inner.info().len, Ordering::Relaxed);
        }
    }

    // SAFETY: the inner region meets the requirements.
    unsafe impl RawRegion for Counted {
        fn info(&self) -> &RegionInfo {
            self.inner.info()
        }
        unsafe fn export(&self, offset: usize, len: usize, rights: Access) -> Result<Box<dyn RawExport>> {
            need_half(&self.allocated, self.available, ErrorKind::OutOfResources)?;
            // SAFETY: this method and the inner method have the same requirements, and the caller meets them.
            unsafe { self.inner.export(offset, len, rights) }
        }
    }

    // SAFETY: the inner engine meets the requirements.
    unsafe impl DmaEngine for Recycling {
        fn info(&self) -> &EngineInfo {
            self.inner.info()
        }
        fn id(&self) -> EngineId {
            self.inner.id()
        }
        fn idle_memory(&self) -> Option<&IdleMemory> {
            Some(&self.idle_memory)
        }
        fn allocate_raw(&self, request: &MemoryRequest) -> Result<Box<dyn RawRegion>> {
            if self.allocated() + request.len > self.available {
                return Err(request.out_of_memory());
            }
            let inner = self.inner.allocate_raw(request)?;
            self.allocated.fetch_add(inner.info().len, Ordering::Relaxed);
            let allocated = Arc::clone(&self.allocated);
            Ok(Box::new(Counted { inner, allocated, available: self.available }))
        }
        unsafe fn register_raw(
            &self,
            memory: &HostMemory,
            request: &MemoryRequest,
        ) -> Result<Box<dyn RawRegion>> {
            self.need_half(ErrorKind::PermissionDenied)?;
            // SAFETY: this method and the inner method have the same requirements, and the caller meets them.
            unsafe { self.inner.register_raw(memory, request) }
        }
        unsafe fn register_device_raw(
            &self,
            memory: &DeviceMemory,
            request: &MemoryRequest,
        ) -> Result<Box<dyn RawRegion>> {
            self.need_half(ErrorKind::OutOfMemory)?;
            // SAFETY: this method and the inner method have the same requirements, and the caller meets them.
            unsafe { self.inner.register_device_raw(memory, request) }
        }
        fn import_raw(&self, descriptor: &ExportDescriptor) -> Result<Box<dyn RawRegion>> {
            let is_by_peer = descriptor.rights() == Access::READ | Access::WRITE;
            let refused = descriptor.rights() == Access::READ;
            self.need_half(if refused { ErrorKind::PermissionDenied } else { ErrorKind::OutOfResources })
                .map_err(|e| if is_by_peer { e.by_peer() } else { e })?;
            self.inner.import_raw(descriptor)
        }
        fn open_queue_raw(&self, options: &QueueOptions) -> Result<Box<dyn RawQueue>> {
            self.need_half(ErrorKind::OutOfMemory)?;
            self.inner.open_queue_raw(options)
        }
    }

    #[test]
    fn memory_is_used_again_and_zeroed_unless_asked_otherwise() {
        let engine = Recycling::new(1 << 20, 1 << 20);
        let mut buffer = engine.allocate(5000).expect("memory");
        assert_eq!((buffer.len(), buffer.offset(), buffer.region().len()), (5000, 0, 5120));
        let address = buffer.as_ptr();
        buffer.fill(7);
        let tail = buffer.split_off(10).freeze();
        let bytes: bytes::Bytes = tail.clone().into();
        drop((buffer, tail));
        assert_eq!(engine.idle(), (0, 0), "a view keeps the memory in use");
        std::thread::spawn(move || drop(bytes)).join().expect("no panic");
        assert_eq!(engine.idle(), (5120, 1));
        let mut buffer = engine.allocate(4700).expect("memory");
        assert_eq!((buffer.as_ptr(), engine.idle()), (address, (0, 0)));
        assert!(buffer.iter().all(|byte| *byte == 0) && buffer.len() == 4700);
        buffer.fill(8);
        drop(buffer);
        let mut buffer = engine.allocate_for_overwrite(5120).expect("memory");
        assert_eq!(buffer.as_ptr(), address);
        assert_eq!((buffer[4699], buffer[4700], buffer[4999]), (8, 7, 7));
        buffer.fill(9);
        let report = engine.idle_memory.report();
        assert_eq!((report.reused, report.missed, report.released), (2, 1, 0));
        // An explicit deregistration releases the memory.
        let region = buffer.region().clone();
        drop(buffer);
        assert!(region.deregister().expect("the only handle").is_none());
        assert_eq!((engine.allocated(), engine.idle()), (0, (0, 0)));
    }

    #[test]
    fn other_requests_get_memory_of_their_own() {
        let engine = Recycling::new(1 << 20, 8 << 20);
        let usual = MemoryRequest::new(5000);
        for request in [
            usual.clone().with_align(8192),
            usual.clone().with_access(Access::READ),
            usual.clone().with_huge_pages(true),
            MemoryRequest::new((1 << 20) + 1),
        ] {
            let buffer = engine.allocate_with(&request).expect("memory");
            assert_eq!(buffer.region().len(), request.len);
            assert_eq!(engine.allocated(), request.len);
            drop(buffer);
            assert_eq!((engine.allocated(), engine.idle()), (0, (0, 0)), "{request:?}");
        }
        assert!(engine.allocate(0).expect("memory of 0 bytes").is_empty());
        assert_eq!(
            engine.allocate_with(&usual.with_align(3)).expect_err("3").kind(),
            ErrorKind::InvalidArgument
        );
    }

    #[test]
    fn idle_memory_has_a_limit_and_the_longest_unused_goes_first() {
        let engine = Recycling::new(3 * 4096, 1 << 20);
        let buffers: Vec<_> = (0..4).map(|_| engine.allocate(4096).expect("memory")).collect();
        let addresses: Vec<_> = buffers.iter().map(|buffer| buffer.as_ptr()).collect();
        drop(buffers);
        assert_eq!((engine.allocated(), engine.idle()), (3 * 4096, (3 * 4096, 3)));
        assert_eq!(engine.allocate(1).expect("memory").as_ptr(), addresses[3], "the last is taken first");
        drop(engine.allocate(2 * 4096).expect("memory"));
        assert_eq!((engine.allocated(), engine.idle()), (3 * 4096, (3 * 4096, 2)));
        assert_eq!(engine.allocate(1).expect("memory").as_ptr(), addresses[3]);
        assert_eq!(engine.idle_memory.release(), 3 * 4096);
        assert_eq!((engine.allocated(), engine.idle()), (0, (0, 0)));
        // Memory that no call uses for long is released.
        drop(engine.allocate(2 * 4096).expect("memory"));
        let use_other_memory = || (0..300).for_each(|_| drop(engine.allocate(4096).expect("memory")));
        use_other_memory();
        assert_eq!((engine.allocated(), engine.idle()), (3 * 4096, (3 * 4096, 2)));
        use_other_memory();
        assert_eq!((engine.allocated(), engine.idle()), (4096, (4096, 1)));
    }

    #[test]
    fn idle_memory_is_released_before_a_call_fails() {
        let engine = Recycling::new(1 << 20, 10 * 4096);
        let fill = || drop((0..10).map(|_| engine.allocate(4096).expect("memory")).collect::<Vec<_>>());
        fill();
        assert_eq!(engine.idle(), (10 * 4096, 10));
        let buffer = engine.allocate(9 * 4096).expect("idle memory is released for it");
        assert_eq!((buffer.region().len(), engine.idle()), (9 * 4096, (0, 0)));
        drop(buffer);
        engine.idle_memory.release();
        // The length of the class does not fit, but the requested length does.
        let buffer = engine.allocate(10 * 4096 - 100).expect("it fits");
        assert_eq!(engine.allocate(4096).expect_err("nothing is left").kind(), ErrorKind::OutOfMemory);
        drop(buffer);
        fill();
        let memory = HostMemory::from_owner(vec![0; 64]);
        assert_eq!(engine.register(memory).expect("idle memory is released for it").len(), 64);
        let roomy = Recycling::new(1 << 20, 40 * 4096);
        drop((0..25).map(|_| roomy.allocate(4096).expect("memory")).collect::<Vec<_>>());
        roomy.open_queue(&QueueOptions::new()).expect("idle memory is released for it");
        fill();
        let descriptor = |rights| ExportDescriptor::new("reference", rights, 8, &[]).expect("a descriptor");
        let refused = engine.import(&descriptor(Access::READ)).expect_err("the peer refuses");
        assert_eq!((refused.kind(), engine.idle()), (ErrorKind::PermissionDenied, (10 * 4096, 10)));
        let lacking =
            engine.import(&descriptor(Access::READ | Access::WRITE)).expect_err("the peer lacks it");
        assert_eq!((lacking.kind(), engine.idle()), (ErrorKind::OutOfResources, (10 * 4096, 10)));
        let refused =
            engine.import(&descriptor(Access::WRITE)).expect_err("the reference engine imports nothing");
        assert_eq!((refused.kind(), engine.idle()), (ErrorKind::Unsupported, (0, 0)));
        fill();
        // SAFETY: there are no bytes of a device at this address, and the reference engine accesses none.
        let memory = unsafe { DeviceMemory::from_raw(DeviceAddr(4096), 64, ()) };
        let refused = engine.register_device(memory).expect_err("the reference engine has no device memory");
        assert_eq!((refused.kind(), engine.idle()), (ErrorKind::Unsupported, (0, 0)));
        let window = engine.allocate(4096).expect("memory").share();
        drop((0..9).map(|_| engine.allocate(4096).expect("memory")).collect::<Vec<_>>());
        assert_eq!(engine.idle(), (9 * 4096, 9));
        let refused = window.export(Access::READ).expect_err("the reference engine exports nothing");
        assert_eq!((refused.kind(), engine.idle()), (ErrorKind::Unsupported, (0, 0)));
        drop(window);
        engine.idle_memory.release();
        // Another engine needs the memory.
        fill();
        let other = Recycling::new(0, 0);
        assert_eq!(other.allocate(1).expect_err("it has none").kind(), ErrorKind::OutOfMemory);
        assert_eq!(engine.allocated(), 0);
    }

    #[test]
    fn a_dropped_engine_keeps_no_memory() {
        let engine = Recycling::new(1 << 20, 1 << 20);
        let allocated = Arc::clone(&engine.allocated);
        let (mut used, idle) = (engine.allocate(4096).expect("memory"), engine.allocate(4096));
        drop(idle);
        assert_eq!(allocated.load(Ordering::Relaxed), 2 * 4096);
        drop(engine);
        assert_eq!(allocated.load(Ordering::Relaxed), 4096);
        used.fill(1);
        drop(used);
        assert_eq!(allocated.load(Ordering::Relaxed), 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "forks")]
    fn a_forked_process_releases_nothing() {
        let engine = Recycling::new(1 << 20, 1 << 20);
        let (used, idle) = (engine.allocate(4096).expect("memory"), engine.allocate(4096));
        drop(idle);
        // SAFETY: the child drops values, and exits without running destructors of the test.
        match unsafe { libc::fork() } {
            -1 => panic!("no fork: {}", std::io::Error::last_os_error()),
            0 => {
                let refused = engine.allocate(4096).is_err_and(|e| e.kind() == ErrorKind::Unsupported);
                drop(used);
                let untouched = engine.idle() == (0, 0) && engine.idle_memory.release() == 0;
                let allocated = Arc::clone(&engine.allocated);
                drop(engine);
                let kept = allocated.load(Ordering::Relaxed) == 2 * 4096;
                // SAFETY: `_exit` only ends the process.
                unsafe { libc::_exit(i32::from(!(refused && untouched && kept))) }
            }
            child => {
                let mut status = 0;
                // SAFETY: the status is a local variable.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                assert_eq!(status, 0, "the child used the parent's memory, or was killed");
            }
        }
        drop(used);
        assert_eq!(engine.idle(), (2 * 4096, 2));
    }

    proptest! {
        /// The oracle is the content of each buffer, and the sum of the lengths. Memory is never in two
        /// buffers.
        #[test]
        #[cfg_attr(miri, ignore = "reads many bytes")]
        fn buffers_never_share_memory(steps in prop::collection::vec((0..40_000_usize, any::<bool>()), 1..200)) {
            let engine = Recycling::new(100_000, usize::MAX);
            let mut buffers = Vec::new();
            for (i, (number, allocates)) in steps.into_iter().enumerate() {
                let mark = i as u8 | 1;
                if allocates {
                    let len = number + 1;
                    let mut buffer = engine.allocate(len).expect("memory");
                    prop_assert!(buffer[..] == vec![0; len][..]);
                    buffer.fill(mark);
                    buffers.push((buffer, mark));
                } else if !buffers.is_empty() {
                    let (buffer, mark) = buffers.swap_remove(number % buffers.len());
                    prop_assert!(buffer[..] == vec![mark; buffer.len()][..]);
                }
                let in_use: usize = buffers.iter().map(|(buffer, _)| buffer.region().len()).sum();
                let report = engine.idle_memory.report();
                prop_assert_eq!(engine.allocated(), in_use + report.bytes);
                prop_assert!(report.bytes <= 100_000);
            }
        }
    }
}
