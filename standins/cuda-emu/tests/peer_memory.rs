//! Tests that a process reads and writes device memory of another process.
#![expect(unsafe_code, reason = "calls the stand-in as C does")]

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::process::Command;

const LEN: usize = 100_000;

/// `CUipcMemHandle`.
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
