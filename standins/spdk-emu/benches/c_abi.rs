//! Counts copies of 64 bytes through the C interface per second of CPU time on one core: one at a time, and
//! in batches with one doorbell.
//!
//! `cargo bench -p dma-spdk-emu --bench c_abi` runs the benchmark. With `-- --test`, it runs for a short
//! time.
#![expect(unsafe_code, reason = "calls of C functions")]

use std::ffi::c_void;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::ptr;

use spdk_emu as _;
use spdk_sys::bindings as c;

const LEN: usize = 64;
const MOST: usize = 256;

unsafe extern "C" fn on_probe(channel: *mut c_void, _: *mut c::spdk_pci_device) -> bool {
    // SAFETY: `main` passed a pointer to its channel variable as the context.
    unsafe { channel.cast::<*mut c::spdk_ioat_chan>().read() }.is_null()
}

unsafe extern "C" fn on_attach(
    slot: *mut c_void,
    _: *mut c::spdk_pci_device,
    channel: *mut c::spdk_ioat_chan,
) {
    // SAFETY: `main` passed a pointer to its channel variable as the context.
    unsafe { slot.cast::<*mut c::spdk_ioat_chan>().write(channel) }
}

unsafe extern "C" fn on_end(ended: *mut c_void) {
    // SAFETY: `copy` passed a pointer to its counter, which outlives the copies and which nothing else
    // accesses meanwhile.
    unsafe { *ended.cast::<u64>() += 1 }
}

/// Makes `times` copies in batches. Returns the CPU time of this thread per copy, in nanoseconds.
fn copy(channel: *mut c::spdk_ioat_chan, memory: *mut u8, times: u64, batch: usize) -> f64 {
    let mut ended = 0_u64;
    let counter = ptr::from_mut(&mut ended);
    let begun = cpu_time();
    for _ in 0..times / batch as u64 {
        for i in 0..batch {
            let (dst, src) = (memory.wrapping_add(2 * i * LEN), memory.wrapping_add((2 * i + 1) * LEN));
            // SAFETY: the channel is attached, both ranges are within the memory, and the memory and the
            // counter outlive the copies.
            let result = unsafe {
                c::spdk_ioat_build_copy(
                    black_box(channel),
                    counter.cast(),
                    Some(on_end),
                    dst.cast(),
                    src.cast(),
                    LEN as u64,
                )
            };
            assert_eq!(result, 0);
        }
        // SAFETY: the channel is attached, and only this thread uses it.
        unsafe { c::spdk_ioat_flush(black_box(channel)) };
        // SAFETY: the channel is attached, and only this thread uses it.
        assert_eq!(unsafe { c::spdk_ioat_process_events(black_box(channel)) }, batch as i32);
    }
    let spent = cpu_time() - begun;
    // SAFETY: only callbacks write the counter, and all of them have returned.
    assert_eq!(unsafe { counter.read() }, times / batch as u64 * batch as u64);
    spent / times as f64
}

fn cpu_time() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

fn main() {
    let times = if std::env::args().any(|arg| arg == "--test") { 10_240 } else { 10_240_000 };
    spdk_emu::use_config("").expect("the default configuration");
    let mut opts = MaybeUninit::<c::spdk_env_opts>::zeroed();
    // SAFETY: all zeros are a valid value of the struct.
    let opts = unsafe { opts.assume_init_mut() };
    opts.opts_size = size_of::<c::spdk_env_opts>();
    // SAFETY: the struct can be written, and has the size that `opts_size` states.
    unsafe { c::spdk_env_opts_init(opts) };
    // SAFETY: `spdk_env_opts_init` has filled the struct, whose texts are static.
    assert_eq!(unsafe { c::spdk_env_init(opts) }, 0);
    let mut channel = ptr::null_mut::<c::spdk_ioat_chan>();
    // SAFETY: the callbacks take a pointer to this variable, which lives as long as the call.
    unsafe { c::spdk_ioat_probe((&raw mut channel).cast(), Some(on_probe), Some(on_attach)) };
    assert!(!channel.is_null());
    // SAFETY: the pointer argument must be null, and is.
    let memory = unsafe { c::spdk_dma_zmalloc(2 * MOST * LEN, LEN, ptr::null_mut()) }.cast::<u8>();
    assert!(!memory.is_null());
    for batch in [1, 8, 32, 128, 256] {
        copy(channel, memory, times / 10, batch);
        let ns = (0..3).map(|_| copy(channel, memory, times / 3, batch)).fold(f64::MAX, f64::min);
        println!("64 B, batches of {batch:3}: {ns:6.1} ns a copy, {:5.1} million a second", 1e3 / ns);
    }
}
