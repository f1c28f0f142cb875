//! Tests that a process reads and writes device memory of another process, and waits for its events.
#![expect(unsafe_code, reason = "calls the stand-in as C does")]

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

const LEN: usize = 100_000;

/// `CUipcMemHandle` and `CUipcEventHandle`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Handle([u64; 8]);

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

/// Makes the primary context of the first device current.
fn start() {
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
}

fn fill(addr: u64, byte: u8, len: usize) {
    // SAFETY: the driver API declares this function with this type.
    let memset: unsafe extern "C" fn(u64, u8, usize) -> c_int = unsafe { call(c"cuMemsetD8_v2") };
    // SAFETY: the test has allocated or opened this device memory.
    assert_eq!(unsafe { memset(addr, byte, len) }, 0);
}

fn read(addr: u64, len: usize) -> Vec<u8> {
    // SAFETY: the driver API declares this function with this type.
    let copy: unsafe extern "C" fn(*mut u8, u64, usize) -> c_int = unsafe { call(c"cuMemcpyDtoH_v2") };
    let mut bytes = vec![0; len];
    // SAFETY: the test has allocated or opened this device memory, and the buffer has the same length.
    assert_eq!(unsafe { copy(bytes.as_mut_ptr(), addr, len) }, 0);
    bytes
}

fn open(handle: Handle, flags: c_uint) -> Result<u64, c_int> {
    // SAFETY: the driver API declares this function with this type.
    let open: unsafe extern "C" fn(*mut u64, Handle, c_uint) -> c_int =
        unsafe { call(c"cuIpcOpenMemHandle_v2") };
    let mut addr = 0;
    // SAFETY: the call writes the address to a local variable.
    match unsafe { open(&raw mut addr, handle, flags) } {
        0 => Ok(addr),
        code => Err(code),
    }
}

fn close(addr: u64) -> c_int {
    // SAFETY: the driver API declares this function with this type.
    let close: unsafe extern "C" fn(u64) -> c_int = unsafe { call(c"cuIpcCloseMemHandle") };
    // SAFETY: no copy names the memory any more.
    unsafe { close(addr) }
}

#[test]
fn another_process_reads_and_writes_device_memory() {
    start();
    // SAFETY: the driver API declares this function with this type.
    let allocate: unsafe extern "C" fn(*mut u64, usize) -> c_int = unsafe { call(c"cuMemAlloc_v2") };
    // SAFETY: the driver API declares this function with this type.
    let export: unsafe extern "C" fn(*mut Handle, u64) -> c_int = unsafe { call(c"cuIpcGetMemHandle") };
    let mut addrs = [0; 2];
    for addr in &mut addrs {
        // SAFETY: the call writes the address to a local variable.
        assert_eq!(unsafe { allocate(&raw mut *addr, LEN) }, 0);
    }
    let [before, addr] = addrs;
    fill(before, 1, LEN);
    fill(addr, 7, LEN);
    let mut handle = Handle([0; 8]);
    // SAFETY: the call writes the handle to a local variable; the address is inside the allocation.
    assert_eq!(unsafe { export(&raw mut handle, addr + 5) }, 0);
    let child = Command::new(std::env::current_exe().expect("a program"))
        .args(["opens_the_memory_of_another_process", "--exact", "--ignored"])
        .env("HANDLE", handle.0.map(|word| word.to_string()).join(" "))
        .output()
        .expect("it starts");
    assert!(child.status.success(), "{child:?}");
    let bytes = read(addr, LEN);
    assert!(bytes[..LEN - 10].iter().all(|byte| *byte == 7), "the child must not change these bytes");
    assert!(bytes[LEN - 10..].iter().all(|byte| *byte == 9), "the child must have written these bytes");
    assert!(
        read(before, LEN).iter().all(|byte| *byte == 1),
        "the child must not change the neighbouring allocation"
    );

    let invalid_value = 1;
    assert_eq!(open(handle, 1), Err(201), "a process does not open its own memory");
    assert_eq!(open(handle, 0), Err(invalid_value), "the flag is missing");
    assert_eq!(open(Handle([5; 8]), 1), Err(invalid_value), "this is not a handle");
    assert_eq!(close(addr), invalid_value, "the memory was not opened");
    // SAFETY: `handle` is valid for a write. The call refuses 4096, which is not an address of device memory.
    assert_eq!(unsafe { export(&raw mut handle, 4096) }, invalid_value);
}

#[test]
#[ignore = "is the program that another test starts"]
fn opens_the_memory_of_another_process() {
    let text = std::env::var("HANDLE").expect("the other test sets it");
    let words: Vec<u64> = text.split(' ').map(|word| word.parse().expect("a number")).collect();
    let handle = Handle(words.try_into().expect("eight numbers"));
    start();
    let addr = open(handle, 1).expect("it opens");
    assert_eq!(open(handle, 1), Ok(addr), "it is open");
    assert!(read(addr, LEN).iter().all(|byte| *byte == 7));
    assert_eq!(close(addr), 0);
    fill(addr + LEN as u64 - 10, 9, 10);
    assert_eq!(close(addr), 0);
    assert_eq!(close(addr), 1, "it is closed");
}

/// The calls of events.
struct Events {
    create: unsafe extern "C" fn(*mut u64, c_uint) -> c_int,
    export: unsafe extern "C" fn(*mut Handle, u64) -> c_int,
    open: unsafe extern "C" fn(*mut u64, Handle) -> c_int,
    record: unsafe extern "C" fn(u64, u64) -> c_int,
    query: unsafe extern "C" fn(u64) -> c_int,
    synchronize: unsafe extern "C" fn(u64) -> c_int,
    destroy: unsafe extern "C" fn(u64) -> c_int,
    wait_value: unsafe extern "C" fn(u64, u64, c_uint, c_uint) -> c_int,
    wait_event: unsafe extern "C" fn(u64, u64, c_uint) -> c_int,
    create_stream: unsafe extern "C" fn(*mut u64, c_uint) -> c_int,
}

impl Events {
    fn new() -> Self {
        Self {
            // SAFETY: the driver API declares this function with this type.
            create: unsafe { call(c"cuEventCreate") },
            // SAFETY: the driver API declares this function with this type.
            export: unsafe { call(c"cuIpcGetEventHandle") },
            // SAFETY: the driver API declares this function with this type.
            open: unsafe { call(c"cuIpcOpenEventHandle") },
            // SAFETY: the driver API declares this function with this type.
            record: unsafe { call(c"cuEventRecord") },
            // SAFETY: the driver API declares this function with this type.
            query: unsafe { call(c"cuEventQuery") },
            // SAFETY: the driver API declares this function with this type.
            synchronize: unsafe { call(c"cuEventSynchronize") },
            // SAFETY: the driver API declares this function with this type.
            destroy: unsafe { call(c"cuEventDestroy_v2") },
            // SAFETY: the driver API declares this function with this type.
            wait_value: unsafe { call(c"cuStreamWaitValue32_v2") },
            // SAFETY: the driver API declares this function with this type.
            wait_event: unsafe { call(c"cuStreamWaitEvent") },
            // SAFETY: the driver API declares this function with this type.
            create_stream: unsafe { call(c"cuStreamCreate") },
        }
    }

    /// Calls `make`, and returns the handle that it writes or its code.
    fn made(make: impl FnOnce(*mut u64) -> c_int) -> Result<u64, c_int> {
        let mut handle = 0;
        match make(&raw mut handle) {
            0 => Ok(handle),
            code => Err(code),
        }
    }

    fn event(&self, flags: c_uint) -> Result<u64, c_int> {
        // SAFETY: the call writes the event to a local variable.
        Self::made(|event| unsafe { (self.create)(event, flags) })
    }

    fn opened(&self, handle: Handle) -> Result<u64, c_int> {
        // SAFETY: the call writes the event to a local variable.
        Self::made(|event| unsafe { (self.open)(event, handle) })
    }

    fn stream(&self) -> u64 {
        // SAFETY: the call writes the stream to a local variable.
        Self::made(|stream| unsafe { (self.create_stream)(stream, 1) }).expect("a stream")
    }
}

const NOT_READY: c_int = 600;
const DISABLE_TIMING: c_uint = 2;
const INTERPROCESS: c_uint = 4;

#[test]
fn another_process_waits_for_an_event() {
    start();
    let events = Events::new();
    // SAFETY: the driver API declares this function with this type.
    let pinned: unsafe extern "C" fn(*mut u64, usize, c_uint) -> c_int = unsafe { call(c"cuMemHostAlloc") };
    // SAFETY: the call writes the address to a local variable.
    let gate = Events::made(|addr| unsafe { pinned(addr, 4, 0) }).expect("memory");
    // SAFETY: the memory is aligned to 512 bytes, only accessed atomically, and never freed.
    let word = unsafe {
        std::sync::atomic::AtomicU32::from_ptr(std::ptr::with_exposed_provenance_mut(gate as usize))
    };
    word.store(0, std::sync::atomic::Ordering::SeqCst);
    let (stream, event) = (events.stream(), events.event(INTERPROCESS | DISABLE_TIMING).expect("an event"));
    let mut handle = Handle([0; 8]);
    // SAFETY: the stream waits for memory that is never freed.
    assert_eq!(unsafe { (events.wait_value)(stream, gate, 1, 1) }, 0);
    // SAFETY: the event is not destroyed before the end of the test.
    assert_eq!(unsafe { (events.record)(event, stream) }, 0);
    // SAFETY: the call writes the handle to a local variable.
    assert_eq!(unsafe { (events.export)(&raw mut handle, event) }, 0);
    // SAFETY: the event is not destroyed before the end of the test.
    assert_eq!(unsafe { (events.query)(event) }, NOT_READY);
    let mut child = Command::new(std::env::current_exe().expect("a program"))
        .args(["waits_for_the_event_of_another_process", "--exact", "--ignored", "--nocapture"])
        .env("HANDLE", handle.0.map(|word| word.to_string()).join(" "))
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("not ready")), "the child has seen the event before its record");
    word.store(1, std::sync::atomic::Ordering::SeqCst);
    assert!(lines.any(|line| line.contains("over")), "the child has seen the record");
    lines.for_each(drop);
    assert!(child.wait().expect("it ends").success());

    let (invalid_value, invalid_handle) = (1, 400);
    assert_eq!(events.opened(handle), Err(201), "a process does not open its own event");
    assert_eq!(events.opened(Handle([5; 8])), Err(invalid_value), "this is not a handle");
    assert_eq!(events.event(INTERPROCESS), Err(invalid_value), "events of several processes have no time");
    let own = events.event(DISABLE_TIMING).expect("an event");
    // SAFETY: `handle` is valid for a write.
    assert_eq!(unsafe { (events.export)(&raw mut handle, own) }, invalid_handle);
    // SAFETY: the events are not used any more.
    assert_eq!([event, own].map(|event| unsafe { (events.destroy)(event) }), [0; 2]);
}

#[test]
#[ignore = "is the program that another test starts"]
fn waits_for_the_event_of_another_process() {
    let text = std::env::var("HANDLE").expect("the other test sets it");
    let words: Vec<u64> = text.split(' ').map(|word| word.parse().expect("a number")).collect();
    start();
    let events = Events::new();
    let event = events.opened(Handle(words.try_into().expect("eight numbers"))).expect("it opens");
    let stream = events.stream();
    // SAFETY: the driver API declares this function with this type.
    let idle: unsafe extern "C" fn(u64) -> c_int = unsafe { call(c"cuStreamQuery") };
    // SAFETY: the event is not destroyed yet.
    assert_eq!(unsafe { (events.query)(event) }, NOT_READY);
    // SAFETY: the event is not destroyed before the wait has ended.
    assert_eq!(unsafe { (events.wait_event)(stream, event, 0) }, 0);
    // SAFETY: the stream is not destroyed.
    assert_eq!(unsafe { idle(stream) }, NOT_READY);
    println!("not ready");
    // SAFETY: the event is not destroyed yet.
    assert_eq!(unsafe { (events.synchronize)(event) }, 0);
    // SAFETY: the driver API declares this function with this type.
    let synchronize: unsafe extern "C" fn(u64) -> c_int = unsafe { call(c"cuStreamSynchronize") };
    // SAFETY: the stream is not destroyed.
    assert_eq!(unsafe { synchronize(stream) }, 0);
    // SAFETY: the event is not used any more.
    assert_eq!(unsafe { (events.destroy)(event) }, 0);
    println!("over");
}
