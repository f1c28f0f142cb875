//! Checked wrappers of the SPDK calls that are not on the path of a copy.
#![expect(unsafe_code, reason = "calls SPDK")]

use std::ffi::c_void;
use std::ptr::NonNull;
use std::time::Duration;

use dma_core::DeviceAddr;

use spdk_sys::bindings::{
    SPDK_MALLOC_DMA, SPDK_MALLOC_SHARE, spdk_ioat_chan, spdk_pci_addr, spdk_pci_device,
};
use spdk_sys::{EnvOpts, Library};

use crate::PciAddress;

/// Result of `spdk_vtophys` for an unknown address.
const VTOPHYS_ERROR: u64 = u64::MAX;

/// Handle of a channel that SPDK attached. Calls that take the handle are unsafe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawChannel(pub(crate) NonNull<spdk_ioat_chan>);

// SAFETY: this is only a handle. The calls that take it are unsafe, and SPDK allows them on any thread, one
// at a time.
unsafe impl Send for RawChannel {}
// SAFETY: a shared handle alone gives no access to the channel: each call that takes it is unsafe, and states
// its requirements.
unsafe impl Sync for RawChannel {}

/// Handle of a PCI function that SPDK offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawFunction(NonNull<spdk_pci_device>);

// SAFETY: the handle is not dereferenced in this crate. SPDK's calls for PCI functions can be made on any
// thread.
unsafe impl Send for RawFunction {}
// SAFETY: sharing the handle accesses no memory. SPDK's calls for PCI functions can be made on any thread.
unsafe impl Sync for RawFunction {}

/// Returns the model behind the channels, if SPDK is the stand-in.
pub(crate) fn model(spdk: &Library) -> Option<String> {
    let mut text = [0_u8; 1024];
    let describe = spdk.stand_in?;
    // SAFETY: the stand-in writes a string of at most the given size, which is that of `text`.
    let code = unsafe { describe(text.as_mut_ptr().cast(), text.len()) };
    let text = std::ffi::CStr::from_bytes_until_nul(&text).ok()?;
    Some(if code == 0 { text.to_string_lossy().into_owned() } else { "spdk-emu".to_owned() })
}

/// Returns the number of CPUs of the environment: 0 before it is set up.
pub(crate) fn core_count(spdk: &Library) -> u32 {
    // SAFETY: the call only reads a number, and can be made at any time.
    spdk.env.spdk_env_get_core_count.map_or(0, |call| unsafe { call() })
}

/// Sets up the environment, which is possible once per process.
pub(crate) fn env_init(spdk: &Library, opts: &EnvOpts) -> i32 {
    // SAFETY: the library initialized the options, which outlive the call, as do the strings and addresses
    // that they point to.
    unsafe { (spdk.env.spdk_env_init)(opts.as_ptr()) }
}

/// Allocates zeroed memory that devices can access, on a NUMA node, or on any node with -1. `len` and `align`
/// are not 0.
pub(crate) fn allocate(spdk: &Library, len: usize, align: usize, numa: i32) -> Option<NonNull<u8>> {
    // SAFETY: the third argument must be null, and is. The length and the alignment are not 0.
    let memory = unsafe {
        (spdk.env.spdk_zmalloc)(len, align, std::ptr::null_mut(), numa, SPDK_MALLOC_DMA | SPDK_MALLOC_SHARE)
    };
    NonNull::new(memory.cast())
}

/// Frees memory.
///
/// # Safety
///
/// The memory is from [`allocate`], and is not used any more.
pub(crate) unsafe fn free(spdk: &Library, memory: DeviceAddr) {
    // SAFETY: the caller promises that the memory is from `allocate`, which calls `spdk_zmalloc`, and that it
    // is not used any more.
    unsafe { (spdk.env.spdk_free)(memory.as_ptr().cast()) };
}

/// Registers memory.
///
/// # Safety
///
/// The memory stays mapped until it is unregistered.
pub(crate) unsafe fn register(spdk: &Library, memory: NonNull<u8>, len: usize) -> i32 {
    // SAFETY: the caller keeps the memory mapped until it is unregistered. SPDK checks alignment and length
    // itself.
    unsafe { (spdk.env.spdk_mem_register)(memory.as_ptr().cast(), len) }
}

/// Unregisters memory.
///
/// # Safety
///
/// No device uses the memory.
pub(crate) unsafe fn unregister(spdk: &Library, memory: DeviceAddr, len: usize) -> i32 {
    // SAFETY: no device uses the memory, as the caller guarantees. SPDK refuses a range that is not
    // registered.
    unsafe { (spdk.env.spdk_mem_unregister)(memory.as_ptr().cast(), len) }
}

/// Checks that a device can access `len` bytes from `addr` on. The error is the offset of the first byte
/// without a translation.
pub(crate) fn translate(spdk: &Library, addr: DeviceAddr, len: usize) -> Result<(), usize> {
    let mut at = 0;
    while at < len {
        let mut size = (len - at) as u64;
        let byte: *const c_void = addr.offset(at).as_ptr().cast();
        // SAFETY: the call only looks the address up, without accessing its memory, and the size is a local
        // variable.
        let physical = unsafe { (spdk.env.spdk_vtophys)(byte, &raw mut size) };
        if physical == VTOPHYS_ERROR || size == 0 {
            return Err(at);
        }
        at = at.saturating_add(usize::try_from(size).unwrap_or(usize::MAX));
    }
    Ok(())
}

/// The callbacks of a probe.
pub(crate) trait Probe {
    /// Returns true to attach this function.
    fn wants(&mut self, function: RawFunction, address: PciAddress) -> bool;
    /// Called when the function was attached.
    fn attached(&mut self, function: RawFunction, address: PciAddress, channel: RawChannel);
}

/// Attaches the functions that `probe` wants. SPDK offers each function once.
pub(crate) fn probe<P: Probe>(spdk: &Library, probe: &mut P) -> i32 {
    let mut context = (spdk, probe);
    // SAFETY: the callbacks take a pointer to a context of this type. The context outlives the call, and no
    // other code uses it meanwhile.
    unsafe { (spdk.ioat.spdk_ioat_probe)((&raw mut context).cast(), Some(wants::<P>), Some(attached::<P>)) }
}

unsafe extern "C" fn wants<P: Probe>(context: *mut c_void, function: *mut spdk_pci_device) -> bool {
    // SAFETY: `probe` passed this pointer as the context, and SPDK runs the callbacks only within that call,
    // one at a time.
    let (spdk, probe) = unsafe { &mut *context.cast::<(&Library, &mut P)>() };
    let Some(function) = NonNull::new(function).map(RawFunction) else { return false };
    probe.wants(function, address_of(spdk, function))
}

unsafe extern "C" fn attached<P: Probe>(
    context: *mut c_void,
    function: *mut spdk_pci_device,
    channel: *mut spdk_ioat_chan,
) {
    // SAFETY: `probe` passed this pointer as the context, and SPDK runs the callbacks only within that call,
    // one at a time.
    let (spdk, probe) = unsafe { &mut *context.cast::<(&Library, &mut P)>() };
    if let (Some(function), Some(channel)) = (NonNull::new(function), NonNull::new(channel)) {
        let function = RawFunction(function);
        probe.attached(function, address_of(spdk, function), RawChannel(channel));
    }
}

fn address_of(spdk: &Library, RawFunction(function): RawFunction) -> PciAddress {
    // SAFETY: SPDK has offered this function, which is not released yet, so the handle is valid.
    let address = unsafe { (spdk.env.spdk_pci_device_get_addr)(function.as_ptr()) };
    PciAddress { domain: address.domain, bus: address.bus, device: address.dev, function: address.func }
}

/// Converts an address to SPDK's type.
pub(crate) const fn native_address(address: PciAddress) -> spdk_pci_addr {
    spdk_pci_addr { domain: address.domain, bus: address.bus, dev: address.device, func: address.function }
}

/// Returns the NUMA node of a function that SPDK offers; -1 if it is unknown.
pub(crate) fn numa_of(spdk: &Library, RawFunction(function): RawFunction) -> i32 {
    // SAFETY: SPDK has offered this function, which is not released yet, so the handle is valid.
    spdk.env.spdk_pci_device_get_numa_id.map_or(-1, |call| unsafe { call(function.as_ptr()) })
}

/// Claims a function for this process. Returns a negative number if another process has it.
pub(crate) fn claim(spdk: &Library, RawFunction(function): RawFunction) -> i32 {
    // SAFETY: SPDK has offered this function, which is not released yet, so the handle is valid.
    spdk.env.spdk_pci_device_claim.map_or(0, |call| unsafe { call(function.as_ptr()) })
}

/// Releases a function, so that SPDK offers it again, to this process or another.
///
/// # Safety
///
/// The function is neither attached nor used any more.
pub(crate) unsafe fn release(spdk: &Library, RawFunction(function): RawFunction) {
    if let Some(detach) = spdk.env.spdk_pci_device_detach {
        // SAFETY: the caller's function is neither attached nor used, so no code uses the
        // handle that SPDK frees.
        unsafe { detach(function.as_ptr()) };
    }
}

/// Detaches a channel and frees its ring.
///
/// # Safety
///
/// The channel is attached, has completed its descriptors or halted, and is not used any more.
pub(crate) unsafe fn detach(spdk: &Library, RawChannel(channel): RawChannel) {
    // SAFETY: the channel is attached, and has nothing in flight or has halted. So the engine does not use
    // the ring that SPDK frees.
    unsafe { (spdk.ioat.spdk_ioat_detach)(channel.as_ptr()) };
}

/// Polls an attached channel: SPDK runs the callbacks of ended descriptors. Returns false if it has halted.
///
/// # Safety
///
/// The channel is attached, no other thread uses it during the call, and the memory that its callbacks write
/// is valid.
pub(crate) unsafe fn process(spdk: &Library, RawChannel(channel): RawChannel) -> bool {
    // SAFETY: the caller's channel is attached, no other thread uses it during the call, and its callbacks'
    // memory is valid.
    unsafe { (spdk.ioat.spdk_ioat_process_events)(channel.as_ptr()) >= 0 }
}

/// Registers of a channel in BAR 0: SPDK's `struct spdk_ioat_registers` (`spdk/ioat_spec.h`).
mod registers {
    /// Length of the registers in bytes.
    pub(super) const LEN: u64 = 0xb0;
    /// CHANCMD, 8 bits: commands, which the engine clears after executing them.
    pub(super) const COMMAND: usize = 0x84;
    pub(super) const SUSPEND: u8 = 0x04;
    pub(super) const RESET: u8 = 0x20;
    /// Value of all registers of a removed function.
    pub(super) const GONE: u8 = 0xff;
}

/// Number of reads, 1 ms apart, of the register that tells the end of a suspend or a reset. SPDK waits for
/// 20 ms, and Linux's driver for 200 ms (`ioat_reset_hw`). Reads are counted instead of time, because this
/// thread may have no CPU for longer than that.
const COMMAND_READS: u32 = 200;

/// Resets the engine of an attached channel. Returns true if the engine has stopped; it then accesses no
/// memory until the channel is attached again. Blocks for at most about 400 ms.
///
/// # Safety
///
/// The function's channel is attached, and no other thread uses it during the call.
pub(crate) unsafe fn stop(spdk: &Library, RawFunction(function): RawFunction) -> bool {
    let (Some(map), Some(unmap)) = (spdk.env.spdk_pci_device_map_bar, spdk.env.spdk_pci_device_unmap_bar)
    else {
        return false;
    };
    let (mut start, mut physical, mut len) = (std::ptr::null_mut(), 0, 0);
    // SAFETY: SPDK has offered this function, whose channel is attached, and the pointers are to local
    // variables.
    let code = unsafe { map(function.as_ptr(), 0, &raw mut start, &raw mut physical, &raw mut len) };
    if code != 0 || start.is_null() {
        return false;
    }
    // SAFETY: the registers are mapped and have at least the required length. No other code uses the channel,
    // as the caller guarantees.
    let stopped = len >= registers::LEN && unsafe { reset(start.cast()) };
    // SAFETY: the registers were mapped above, and are not used any more.
    unsafe { unmap(function.as_ptr(), 0, start) };
    stopped
}

/// # Safety
///
/// `register` points to a mapped register.
unsafe fn read_register(register: *mut u8) -> u8 {
    // The accesses are atomic, because the stand-in's engine is a thread of this process, and ThreadSanitizer
    // reports races of volatile accesses.
    // SAFETY: the caller's register is mapped, and all accesses to it are atomic.
    #[cfg(dma_thread_sanitizer)]
    let value =
        unsafe { std::sync::atomic::AtomicU8::from_ptr(register) }.load(std::sync::atomic::Ordering::Relaxed);
    // SAFETY: the caller's register is mapped, and has 8 bits.
    #[cfg(not(dma_thread_sanitizer))]
    let value = unsafe { register.read_volatile() };
    value
}

/// # Safety
///
/// `register` points to a mapped register.
unsafe fn write_register(register: *mut u8, value: u8) {
    // SAFETY: the caller's register is mapped, and all accesses to it are atomic.
    #[cfg(dma_thread_sanitizer)]
    unsafe { std::sync::atomic::AtomicU8::from_ptr(register) }
        .store(value, std::sync::atomic::Ordering::Relaxed);
    // SAFETY: the caller's register is mapped, and has 8 bits.
    #[cfg(not(dma_thread_sanitizer))]
    unsafe {
        register.write_volatile(value);
    }
}

/// # Safety
///
/// `start` points to the mapped registers of a channel.
unsafe fn reset(start: *mut u8) -> bool {
    let command = start.wrapping_add(registers::COMMAND);
    // SAFETY: the caller passes the mapped registers of a channel, and this is its command register, which
    // has 8 bits.
    let read = || unsafe { read_register(command) };
    let done = |bit: u8| {
        (0..COMMAND_READS).any(|_| {
            let done = read() & bit == 0;
            if !done {
                std::thread::sleep(Duration::from_millis(1));
            }
            done
        })
    };
    if read() == registers::GONE {
        return false;
    }
    // A reset during a transfer may block the bus, so suspend the engine first, as SPDK does. An engine that
    // hangs may ignore the suspend.
    // SAFETY: `start` points to the mapped registers of a channel, and this is its command register.
    unsafe { write_register(command, registers::SUSPEND) };
    done(registers::SUSPEND);
    // SAFETY: `start` points to the mapped registers of a channel, and this is its command register.
    unsafe { write_register(command, registers::RESET) };
    done(registers::RESET)
}

/// Returns the length of an attached channel's ring, in descriptors.
pub(crate) fn ring_of(spdk: &Library, RawChannel(channel): RawChannel) -> u32 {
    // SAFETY: the handle is from a probe, and the channel is attached.
    unsafe { (spdk.ioat.spdk_ioat_get_max_descriptors)(channel.as_ptr()) }
}

/// Returns the capabilities of an attached channel, as SPDK's bits.
pub(crate) fn capabilities_of(spdk: &Library, RawChannel(channel): RawChannel) -> u32 {
    // SAFETY: the handle is from a probe, and the channel is attached.
    unsafe { (spdk.ioat.spdk_ioat_get_dma_capabilities)(channel.as_ptr()) }
}
