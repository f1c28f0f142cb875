//! Tests that the CPU cannot access device memory, and that the default stream keeps its order.
#![expect(unsafe_code, reason = "calls the stand-in as C does")]

use std::ffi::{CStr, c_int, c_uint, c_void};

/// Returns a function of the stand-in.
///
/// # Safety
///
/// `F` must be the type that the driver API declares for the function.
unsafe fn call<F: Copy>(name: &CStr) -> F {
    assert_eq!(size_of::<F>(), size_of::<*const c_void>());
    let address = cuda_emu::symbol(name).expect("the stand-in has this function");
    // SAFETY: `address` points to the function, and the caller guarantees that its type is `F`.
    unsafe { std::mem::transmute_copy(&address) }
}

/// Calls that these tests make.
struct Driver {
    alloc: unsafe extern "C" fn(*mut u64, usize) -> c_int,
    stream: unsafe extern "C" fn(*mut usize, c_uint) -> c_int,
    memset: unsafe extern "C" fn(u64, u8, usize, usize) -> c_int,
    launch: unsafe extern "C" fn(usize, unsafe extern "C" fn(*mut c_void), *mut c_void) -> c_int,
    query: unsafe extern "C" fn(usize) -> c_int,
    synchronize: unsafe extern "C" fn(usize) -> c_int,
}

impl Driver {
    fn new() -> Self {
        // SAFETY: the driver API declares this function with this type.
        let init: unsafe extern "C" fn(c_uint) -> c_int = unsafe { call(c"cuInit") };
        // SAFETY: the driver API declares this function with this type.
        let retain: unsafe extern "C" fn(*mut usize, c_int) -> c_int =
            unsafe { call(c"cuDevicePrimaryCtxRetain") };
        // SAFETY: the driver API declares this function with this type.
        let set: unsafe extern "C" fn(usize) -> c_int = unsafe { call(c"cuCtxSetCurrent") };
        let mut context = 0;
        // SAFETY: `cuInit` has no requirements; 0 means no flags.
        assert_eq!(unsafe { init(0) }, 0);
        // SAFETY: the call writes the context to a local variable.
        assert_eq!(unsafe { retain(&raw mut context, 0) }, 0);
        // SAFETY: this context is never released.
        assert_eq!(unsafe { set(context) }, 0);
        Self {
            // SAFETY: the driver API declares this function with this type.
            alloc: unsafe { call(c"cuMemAlloc_v2") },
            // SAFETY: the driver API declares this function with this type.
            stream: unsafe { call(c"cuStreamCreate") },
            // SAFETY: the driver API declares this function with this type.
            memset: unsafe { call(c"cuMemsetD8Async") },
            // SAFETY: the driver API declares this function with this type.
            launch: unsafe { call(c"cuLaunchHostFunc") },
            // SAFETY: the driver API declares this function with this type.
            query: unsafe { call(c"cuStreamQuery") },
            // SAFETY: the driver API declares this function with this type.
            synchronize: unsafe { call(c"cuStreamSynchronize") },
        }
    }

    fn allocate(&self, len: usize) -> u64 {
        let mut addr = 0;
        // SAFETY: the call writes the address to a local variable.
        assert_eq!(unsafe { (self.alloc)(&raw mut addr, len) }, 0);
        addr
    }
}

#[test]
fn a_load_from_device_memory_dies_by_sigsegv() {
    let driver = Driver::new();
    let addr = driver.allocate(4096);
    // SAFETY: the child only makes one load and ends, so it needs no lock of another thread.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: the load is expected to end the child by SIGSEGV; no memory safety depends on its value.
        let byte = unsafe { std::ptr::with_exposed_provenance::<u8>(addr as usize).read_volatile() };
        // SAFETY: `_exit` ends the child without running destructors of the parent.
        unsafe { libc::_exit(i32::from(byte) & 1) };
    }
    let mut status = 0;
    // SAFETY: `child` is a child of this process, and `status` is valid for the write.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((waited, libc::WIFSIGNALED(status), libc::WTERMSIG(status)), (child, true, libc::SIGSEGV));
}

/// A host function that takes 20 ms and counts its calls.
unsafe extern "C" fn slow(count: *mut c_void) {
    std::thread::sleep(std::time::Duration::from_millis(20));
    // SAFETY: the test passes a counter that it leaks.
    let count = unsafe { &*count.cast::<std::sync::atomic::AtomicUsize>() };
    count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
}

#[test]
fn the_default_stream_waits_for_blocking_streams_and_they_for_it() {
    let driver = Driver::new();
    let (mut blocking, mut apart) = (0, 0);
    // SAFETY: the call writes the stream to a local variable.
    assert_eq!(unsafe { (driver.stream)(&raw mut blocking, 0) }, 0);
    // SAFETY: the call writes the stream to a local variable.
    assert_eq!(unsafe { (driver.stream)(&raw mut apart, 1) }, 0);
    let addr = driver.allocate(64);
    let count = Box::leak(Box::new(std::sync::atomic::AtomicUsize::new(0)));
    // SAFETY: the test does not destroy the stream, and the counter, which is only shared from now on, is
    // never freed.
    assert_eq!(unsafe { (driver.launch)(blocking, slow, std::ptr::from_mut(count).cast()) }, 0);
    // SAFETY: this test allocated the memory; 0 is the default stream.
    assert_eq!(unsafe { (driver.memset)(addr, 1, 64, 0) }, 0);
    // SAFETY: this test allocated the memory and made the stream, which does not wait for the default stream.
    assert_eq!(unsafe { (driver.memset)(addr, 1, 64, apart) }, 0);
    // SAFETY: this test made the stream, and does not destroy it.
    assert_eq!(unsafe { (driver.synchronize)(apart) }, 0);
    let counted = || count.load(std::sync::atomic::Ordering::SeqCst);
    // SAFETY: the default stream always exists.
    let busy = unsafe { (driver.query)(0) };
    assert!(busy == 600 || counted() == 1, "{busy}");
    // SAFETY: the default stream always exists.
    assert_eq!(unsafe { (driver.synchronize)(0) }, 0);
    assert_eq!(counted(), 1);
}

/// Calls the driver when its thread ends, as destructors of libraries do.
struct AtTheEnd(std::sync::mpsc::Sender<c_int>);

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        // SAFETY: the driver API declares this function with this type.
        let current: unsafe extern "C" fn(*mut usize) -> c_int = unsafe { call(c"cuCtxGetCurrent") };
        let mut context = 0;
        // SAFETY: the call writes the context to a local variable.
        let code = unsafe { current(&raw mut context) };
        self.0.send(code).expect("the test waits for it");
    }
}

#[test]
fn calls_of_a_thread_that_ends_are_refused() {
    thread_local! {
        static LAST: std::cell::RefCell<Option<AtTheEnd>> = const { std::cell::RefCell::new(None) };
    }
    let (sender, code) = std::sync::mpsc::channel();
    let ended = std::thread::spawn(|| {
        // Values of a thread are dropped in reverse order, so this one outlives those of the driver.
        LAST.set(Some(AtTheEnd(sender)));
        let _driver = Driver::new();
    });
    ended.join().expect("no panic");
    assert_eq!(code.recv(), Ok(4), "CUDA_ERROR_DEINITIALIZED");
}
