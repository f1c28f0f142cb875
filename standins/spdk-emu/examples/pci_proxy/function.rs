//! A PCI device of QEMU that is a function of the stand-in. The function is used through SPDK's interface.
#![expect(unsafe_code, reason = "calls C functions, and accesses registers")]

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use spdk_emu as _;
use spdk_sys::bindings as c;

use crate::memory;

/// Size of a conventional device's configuration space, in bytes.
const CONFIG: usize = 256;
const BAR0: usize = 0x10;
const COMMAND: std::ops::Range<usize> = 0x04..0x06;
const INTERRUPT_LINE: usize = 0x3c;
const INTERRUPT_PIN: usize = 0x3d;

/// Registers. After a store to one of these two, the proxy waits for the engine.
const CHANCMD: usize = 0x84;
const DMACOUNT: usize = 0x86;
const CHANSTS: usize = 0x88;
const CHAINADDR: usize = 0x90;
const CHANERR: usize = 0xa8;

const RESET: u8 = 0x20;
/// The state "halted" in the low bits of CHANSTS.
const HALTED: u64 = 3;
const STATES: u64 = 7;
/// An error bit that is never set.
const UNUSED_ERROR: u32 = 1 << 31;
/// Byte offset of the next descriptor's address in a descriptor.
const NEXT: u64 = 24;

/// Time limit of the wait for an engine.
const PATIENCE: Duration = Duration::from_secs(10);

/// A function with its registers.
pub(crate) struct Function {
    config: [u8; CONFIG],
    slot: String,
    bar: *mut u8,
    size: u64,
    /// Number of descriptors that the driver has submitted since the reset.
    count: u16,
    /// Address of the next descriptor, once the first one was submitted.
    next: Option<u64>,
}

// SAFETY: the pointer is to mapped registers, which every thread may access and which stay mapped.
unsafe impl Send for Function {}

unsafe extern "C" fn take(functions: *mut c_void, device: *mut c::spdk_pci_device) -> c_int {
    // SAFETY: `take_all` passed a pointer to its vector as the context, and nothing else uses the vector
    // during the call.
    unsafe { &mut *functions.cast::<Vec<*mut c::spdk_pci_device>>() }.push(device);
    0
}

/// Sets up the environment, and takes all functions of the configuration.
///
/// # Errors
///
/// The configuration is invalid. The stand-in has printed the mistake on stderr.
pub(crate) fn take_all() -> io::Result<Vec<Function>> {
    let wrong = || io::Error::other("the stand-in cannot be set up: see SPDK_EMU");
    let mut opts = MaybeUninit::<c::spdk_env_opts>::zeroed();
    // SAFETY: all zeros are a valid value of the struct.
    let opts = unsafe { opts.assume_init_mut() };
    opts.opts_size = size_of::<c::spdk_env_opts>();
    // SAFETY: the struct can be written, and has the size that `opts_size` states.
    unsafe { c::spdk_env_opts_init(opts) };
    // Make bus addresses the same as this program's virtual addresses.
    opts.iova_mode = c"va".as_ptr();
    // SAFETY: the library has filled the struct, and its texts are static.
    if unsafe { c::spdk_env_init(opts) } != 0 {
        return Err(wrong());
    }
    // Unpin this thread, so that the command does not have to share its core.
    // SAFETY: the call takes no arguments.
    unsafe { c::spdk_unaffinitize_thread() };
    let mut devices = Vec::<*mut c::spdk_pci_device>::new();
    // SAFETY: the call takes no arguments.
    let driver = unsafe { c::spdk_pci_ioat_get_driver() };
    // SAFETY: the callback takes a pointer to this vector, which lives as long as the call.
    let code = unsafe { c::spdk_pci_enumerate(driver, Some(take), (&raw mut devices).cast()) };
    if code != 0 || devices.is_empty() {
        return Err(wrong());
    }
    devices.into_iter().map(Function::new).collect()
}

/// Waits until a condition holds, up to the time limit.
fn wait_until(mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() && start.elapsed() < PATIENCE {
        std::thread::yield_now();
    }
}

impl Function {
    fn new(device: *mut c::spdk_pci_device) -> io::Result<Self> {
        // SAFETY: the library returned this device, which is never freed.
        let addr = unsafe { c::spdk_pci_device_get_addr(device) };
        let mut config = [0; CONFIG];
        // SAFETY: the library returned this device, which is never freed, and the buffer has `CONFIG` bytes.
        let read =
            unsafe { c::spdk_pci_device_cfg_read(device, config.as_mut_ptr().cast(), CONFIG as u32, 0) };
        let (mut bar, mut phys, mut size) = (ptr::null_mut(), 0, 0);
        // SAFETY: the library returned this device, and the pointers are to local variables.
        let mapped =
            unsafe { c::spdk_pci_device_map_bar(device, 0, &raw mut bar, &raw mut phys, &raw mut size) };
        if read != 0 || mapped != 0 {
            return Err(io::Error::other("the registers of a function cannot be mapped"));
        }
        // QEMU's proxy accepts only a 32-bit BAR. The driver requires an interrupt pin, though no interrupts
        // are raised.
        config[BAR0..BAR0 + 4].fill(0);
        config[INTERRUPT_PIN] = 1;
        let slot = format!("{:x}.{:x}", addr.dev, addr.func);
        Ok(Self { config, slot, bar: bar.cast(), size, count: 0, next: None })
    }

    /// Returns the device and function number of this function, in the format of QEMU's options.
    pub(crate) fn slot(&self) -> &str {
        &self.slot
    }

    pub(crate) fn read_config(&self, at: u32, len: u32) -> u64 {
        let byte = |i: u32| self.config.get(at.wrapping_add(i) as usize).copied().unwrap_or(u8::MAX);
        (0..len.min(8)).map(|i| u64::from(byte(i)) << (8 * i)).sum()
    }

    /// Writes bytes to the configuration space. Read-only bytes keep their values.
    pub(crate) fn write_config(&mut self, at: u32, len: u32, value: u32) {
        for (at, byte) in (at as usize..).zip(value.to_le_bytes()).take(len as usize) {
            let changes = COMMAND.contains(&at) || at == INTERRUPT_LINE || (BAR0..BAR0 + 4).contains(&at);
            if changes {
                self.config[at] = byte;
            }
        }
        // The BAR's bits below its size are always 0.
        let bar = self.long(BAR0) & !(self.size as u32 - 1);
        self.config[BAR0..BAR0 + 4].copy_from_slice(&bar.to_le_bytes());
    }

    fn long(&self, at: usize) -> u32 {
        u32::from_le_bytes(std::array::from_fn(|i| self.config[at + i]))
    }

    /// Returns the offset of the register at an absolute address of the guest, or `None` if no register has
    /// this address and length.
    fn offset(&self, at: u64, len: u32) -> Option<usize> {
        let offset = at.wrapping_sub(self.long(BAR0).into());
        let inside = matches!(len, 1 | 2 | 4 | 8)
            && offset.is_multiple_of(len.into())
            && offset.checked_add(len.into()).is_some_and(|end| end <= self.size);
        inside.then_some(offset as usize)
    }

    /// Returns the register at an offset. `T` must be an atomic integer.
    fn at<T>(&self, offset: usize) -> &T {
        assert!(offset.is_multiple_of(align_of::<T>()) && (offset + size_of::<T>()) as u64 <= self.size);
        // SAFETY: the address is within the mapping, which is never removed. `T` is an atomic integer, for
        // which any bits are valid.
        unsafe { &*self.bar.wrapping_add(offset).cast::<T>() }
    }

    pub(crate) fn read(&self, at: u64, len: u32) -> u64 {
        match (self.offset(at, len), len) {
            (None, _) => u64::MAX,
            (Some(offset), 1) => self.at::<AtomicU8>(offset).load(Ordering::Acquire).into(),
            (Some(offset), 2) => self.at::<AtomicU16>(offset).load(Ordering::Acquire).into(),
            (Some(offset), 4) => self.at::<AtomicU32>(offset).load(Ordering::Acquire).into(),
            (Some(offset), _) => self.at::<AtomicU64>(offset).load(Ordering::Acquire),
        }
    }

    /// Stores to a register, and waits until the engine has executed the resulting command. So results do
    /// not depend on the speed of the engine's thread.
    pub(crate) fn write(&mut self, at: u64, len: u32, value: u64) {
        let Some(offset) = self.offset(at, len) else { return };
        // Writing a one clears an error bit. The engine can only detect a write that changes the register's
        // value, so write an unused bit too.
        let value = if offset == CHANERR { value | u64::from(UNUSED_ERROR) } else { value };
        match len {
            1 => self.at::<AtomicU8>(offset).store(value as u8, Ordering::Release),
            2 => self.at::<AtomicU16>(offset).store(value as u16, Ordering::Release),
            4 => self.at::<AtomicU32>(offset).store(value as u32, Ordering::Release),
            _ => self.at::<AtomicU64>(offset).store(value, Ordering::Release),
        }
        match offset {
            CHANCMD => self.wait_for_command(value as u8),
            CHANERR => {
                wait_until(|| self.at::<AtomicU32>(CHANERR).load(Ordering::Acquire) & UNUSED_ERROR == 0)
            }
            DMACOUNT => self.wait_for_descriptors(value as u16),
            _ => {}
        }
    }

    fn wait_for_command(&mut self, command: u8) {
        if command & RESET != 0 {
            (self.count, self.next) = (0, None);
        }
        wait_until(|| self.at::<AtomicU8>(CHANCMD).load(Ordering::Acquire) == 0);
    }

    /// Waits until the engine has completed the last descriptor of the chain, or has failed.
    fn wait_for_descriptors(&mut self, count: u16) {
        let mut last = None;
        for _ in 0..count.wrapping_sub(std::mem::replace(&mut self.count, count)) {
            let first = || self.at::<AtomicU64>(CHAINADDR).load(Ordering::Acquire);
            last = Some(self.next.unwrap_or_else(first));
            self.next = last.and_then(|at| memory::read(at.wrapping_add(NEXT)));
        }
        wait_until(|| {
            let status = self.at::<AtomicU64>(CHANSTS).load(Ordering::Acquire);
            // After a reset, a channel is halted without an error until it starts.
            let failed =
                status & STATES == HALTED && self.at::<AtomicU32>(CHANERR).load(Ordering::Acquire) != 0;
            failed || last.is_none_or(|last| status & !STATES == last)
        });
    }

    /// Resets the device, as the machine does when it starts.
    pub(crate) fn reset(&mut self) {
        self.config[COMMAND].fill(0);
        self.config[BAR0..BAR0 + 4].fill(0);
        self.at::<AtomicU8>(CHANCMD).store(RESET, Ordering::Release);
        self.wait_for_command(RESET);
    }
}
