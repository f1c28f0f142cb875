//! SPDK's calls, with their pointers checked: what is not on the path of a copy.
#![expect(unsafe_code, reason = "calls SPDK")]

use std::ffi::c_void;
use std::ptr::NonNull;

use spdk_sys::bindings::{
    SPDK_MALLOC_DMA, SPDK_MALLOC_SHARE, spdk_ioat_chan, spdk_pci_addr, spdk_pci_device,
};
use spdk_sys::{EnvOpts, Library};

use crate::PciAddress;

/// What `spdk_vtophys` answers for an address that it does not know.
const VTOPHYS_ERROR: u64 = u64::MAX;

/// A channel that SPDK attached. A name: whoever has it says what may be done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawChannel(pub(crate) NonNull<spdk_ioat_chan>);

// SPDK: a channel belongs to one thread at a time, whichever.
// SAFETY: a name; the calls that take it are unsafe.
unsafe impl Send for RawChannel {}
// SAFETY: as above.
unsafe impl Sync for RawChannel {}

/// A PCI function in SPDK's hands. A name, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawFunction(NonNull<spdk_pci_device>);

// SAFETY: as above.
unsafe impl Send for RawFunction {}
// SAFETY: as above.
unsafe impl Sync for RawFunction {}

/// Of what the channels are models, if SPDK is the stand-in.
pub(crate) fn model(spdk: &Library) -> Option<String> {
    let mut text = [0_u8; 1024];
    let describe = spdk.stand_in?;
    // SAFETY: the stand-in writes a string of at most this size.
    let code = unsafe { describe(text.as_mut_ptr().cast(), text.len()) };
    let text = std::ffi::CStr::from_bytes_until_nul(&text).ok()?;
    Some(if code == 0 { text.to_string_lossy().into_owned() } else { "spdk-emu".to_owned() })
}

/// How many CPUs the environment has: 0 before it is set up.
pub(crate) fn core_count(spdk: &Library) -> u32 {
    // SAFETY: reads a number, at any time.
    spdk.env.spdk_env_get_core_count.map_or(0, |call| unsafe { call() })
}

/// Sets the environment up. Once per process.
pub(crate) fn env_init(spdk: &Library, opts: &EnvOpts) -> i32 {
    // SAFETY: options that the library itself filled, which live as long as the call.
    unsafe { (spdk.env.spdk_env_init)(opts.as_ptr()) }
}

/// Zeroed memory that devices can reach, `len` and `align` not 0, on a NUMA node or, with -1, on any.
pub(crate) fn allocate(spdk: &Library, len: usize, align: usize, numa: i32) -> Option<NonNull<u8>> {
    // SAFETY: the third has to be null.
    let memory = unsafe {
        (spdk.env.spdk_zmalloc)(len, align, std::ptr::null_mut(), numa, SPDK_MALLOC_DMA | SPDK_MALLOC_SHARE)
    };
    NonNull::new(memory.cast())
}

/// Frees what [`allocate`] gave.
///
/// # Safety
///
/// It came from there, and nobody uses it any more.
pub(crate) unsafe fn free(spdk: &Library, memory: NonNull<u8>) {
    // SAFETY: the caller's promise.
    unsafe { (spdk.env.spdk_free)(memory.as_ptr().cast()) };
}

/// Registers memory.
///
/// # Safety
///
/// The memory stays mapped until it is unregistered.
pub(crate) unsafe fn register(spdk: &Library, memory: NonNull<u8>, len: usize) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { (spdk.env.spdk_mem_register)(memory.as_ptr().cast(), len) }
}

/// Unregisters memory.
///
/// # Safety
///
/// No device is at it.
pub(crate) unsafe fn unregister(spdk: &Library, memory: NonNull<u8>, len: usize) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { (spdk.env.spdk_mem_unregister)(memory.as_ptr().cast(), len) }
}

/// Whether a device can reach all of `len` bytes from `addr` on: every piece of it has a translation. The offset of the first that has none.
pub(crate) fn translate(spdk: &Library, addr: NonNull<u8>, len: usize) -> Result<(), usize> {
    let mut at = 0;
    while at < len {
        let mut size = (len - at) as u64;
        let byte: *const c_void = addr.as_ptr().wrapping_add(at).cast();
        // SAFETY: looks the address up; the size is this function's own.
        let physical = unsafe { (spdk.env.spdk_vtophys)(byte, &raw mut size) };
        if physical == VTOPHYS_ERROR || size == 0 {
            return Err(at);
        }
        at = at.saturating_add(usize::try_from(size).unwrap_or(usize::MAX));
    }
    Ok(())
}

/// What a probe asks and tells.
pub(crate) trait Probe {
    /// Whether to attach this function.
    fn wants(&mut self, function: RawFunction, address: PciAddress) -> bool;
    /// It is attached.
    fn attached(&mut self, function: RawFunction, address: PciAddress, channel: RawChannel);
}

/// Attaches the functions that are wanted. Those that SPDK has offered before, wanted or not, are not offered again.
pub(crate) fn probe<P: Probe>(spdk: &Library, probe: &mut P) -> i32 {
    let mut context = (spdk, probe);
    // SAFETY: the callbacks are of this context's type, which outlives the call.
    unsafe { (spdk.ioat.spdk_ioat_probe)((&raw mut context).cast(), Some(wants::<P>), Some(attached::<P>)) }
}

unsafe extern "C" fn wants<P: Probe>(context: *mut c_void, function: *mut spdk_pci_device) -> bool {
    // SAFETY: `probe` passed it, and nobody else uses it meanwhile.
    let (spdk, probe) = unsafe { &mut *context.cast::<(&Library, &mut P)>() };
    let Some(function) = NonNull::new(function).map(RawFunction) else { return false };
    probe.wants(function, address_of(spdk, function))
}

unsafe extern "C" fn attached<P: Probe>(
    context: *mut c_void,
    function: *mut spdk_pci_device,
    channel: *mut spdk_ioat_chan,
) {
    // SAFETY: as above.
    let (spdk, probe) = unsafe { &mut *context.cast::<(&Library, &mut P)>() };
    if let (Some(function), Some(channel)) = (NonNull::new(function), NonNull::new(channel)) {
        let function = RawFunction(function);
        probe.attached(function, address_of(spdk, function), RawChannel(channel));
    }
}

fn address_of(spdk: &Library, RawFunction(function): RawFunction) -> PciAddress {
    // SAFETY: a function that SPDK offers.
    let address = unsafe { (spdk.env.spdk_pci_device_get_addr)(function.as_ptr()) };
    PciAddress { domain: address.domain, bus: address.bus, device: address.dev, function: address.func }
}

/// An address, as SPDK has it.
pub(crate) const fn native_address(address: PciAddress) -> spdk_pci_addr {
    spdk_pci_addr { domain: address.domain, bus: address.bus, dev: address.device, func: address.function }
}

/// The NUMA node of a function that SPDK offers; -1 if it is not known.
pub(crate) fn numa_of(spdk: &Library, RawFunction(function): RawFunction) -> i32 {
    // SAFETY: a function that SPDK offers.
    spdk.env.spdk_pci_device_get_numa_id.map_or(-1, |call| unsafe { call(function.as_ptr()) })
}

/// Takes a function for this process among those that use SPDK. Whether another has it is what a negative answer says.
pub(crate) fn claim(spdk: &Library, RawFunction(function): RawFunction) -> i32 {
    // SAFETY: a function that SPDK offers.
    spdk.env.spdk_pci_device_claim.map_or(0, |call| unsafe { call(function.as_ptr()) })
}

/// Gives back a function that SPDK offered, so that it is offered again, or to another process.
///
/// # Safety
///
/// It is not attached, and not used any more.
pub(crate) unsafe fn release(spdk: &Library, RawFunction(function): RawFunction) {
    if let Some(detach) = spdk.env.spdk_pci_device_detach {
        // SAFETY: the caller's promise.
        unsafe { detach(function.as_ptr()) };
    }
}

/// Detaches a channel, whose ring is freed.
///
/// # Safety
///
/// It is attached, the device is done with its descriptors or has halted, and it is not used any more.
pub(crate) unsafe fn detach(spdk: &Library, RawChannel(channel): RawChannel) {
    // SAFETY: the caller's promise.
    unsafe { (spdk.ioat.spdk_ioat_detach)(channel.as_ptr()) };
}

/// The length of an attached channel's ring, in descriptors.
pub(crate) fn ring_of(spdk: &Library, RawChannel(channel): RawChannel) -> u32 {
    // SAFETY: the callers have it from a probe.
    unsafe { (spdk.ioat.spdk_ioat_get_max_descriptors)(channel.as_ptr()) }
}

/// What an attached channel can do, in SPDK's bits.
pub(crate) fn capabilities_of(spdk: &Library, RawChannel(channel): RawChannel) -> u32 {
    // SAFETY: the callers have it from a probe.
    unsafe { (spdk.ioat.spdk_ioat_get_dma_capabilities)(channel.as_ptr()) }
}
