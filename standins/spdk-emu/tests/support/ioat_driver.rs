//! [`Driver`]: a driver of the I/OAT registers in user space.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use spdk_sys::bindings as c;

use super::env::{self, Memory};

/// The configuration. Each test uses PCI functions of its own.
pub(crate) const CONFIG: &str = "
    xfercap = '64K'
    [[socket]]
    [[socket]]
    seed = 3
    faults = 'fail@3:ch=0 + lose@2:ch=1 + stick@2:ch=2 + corrupt@2:ch=3 + gone@2:ch=4'
    function = [{ pci = '80:04.0' }, { pci = '80:04.1' }, { pci = '80:04.2' }, { pci = '80:04.3' }, { pci = '80:04.4' }]
    [[socket]]
    fill = false
    function = [{ pci = '81:04.0' }]
    [[socket]]
    xfercap = '4G'
    faults = 'lose@3:ch=0'
    function = [{ pci = '82:04.0' }, { pci = '82:04.1' }, { pci = '82:04.2' }, { pci = '82:04.3' }]
";

pub(crate) const RING: usize = 32_768;

pub(crate) const DESCRIPTOR: usize = 64;

// Register offsets in BAR 0.
pub(crate) const XFERCAP: usize = 0x01;

pub(crate) const CBVER: usize = 0x08;

pub(crate) const DMACAPABILITY: usize = 0x10;

pub(crate) const CHANCMD: usize = 0x84;

pub(crate) const DMACOUNT: usize = 0x86;

pub(crate) const CHANSTS: usize = 0x88;

pub(crate) const CHAINADDR: usize = 0x90;

pub(crate) const CHANCMP: usize = 0x98;

pub(crate) const CHANERR: usize = 0xa8;

pub(crate) const ACTIVE: u64 = 0;

pub(crate) const IDLE: u64 = 1;

pub(crate) const SUSPENDED: u64 = 2;

pub(crate) const HALTED: u64 = 3;

// Bits of the control word.
pub(crate) const UPDATE: u32 = 1 << 3;

pub(crate) const NULL: u32 = 1 << 5;

pub(crate) const FILL: u32 = 1 << 24;

/// Integers in memory that is shared with the device. They are loaded and stored whole, with acquire and
/// release order.
pub(crate) trait Shared: Copy {
    /// # Safety
    /// `place` is aligned and readable.
    unsafe fn load(place: *mut Self) -> Self;
    /// # Safety
    /// `place` is aligned and writable.
    unsafe fn store(self, place: *mut Self);
}

macro_rules! shared {
    ($($integer:ty: $atomic:ty),*) => {$(
        impl Shared for $integer {
            unsafe fn load(place: *mut Self) -> Self {
                // SAFETY: the caller's place is aligned and readable, and is accessed only atomically.
                unsafe { <$atomic>::from_ptr(place) }.load(Ordering::Acquire)
            }

            unsafe fn store(self, place: *mut Self) {
                // SAFETY: the caller's place is aligned and writable, and is accessed only atomically.
                unsafe { <$atomic>::from_ptr(place) }.store(self, Ordering::Release)
            }
        }
    )*};
}

shared!(u8: AtomicU8, u16: AtomicU16, u32: AtomicU32, u64: AtomicU64);

/// A driver with its ring.
pub(crate) struct Driver {
    pub(crate) device: *mut c::spdk_pci_device,
    pub(crate) bar: *mut u8,
    pub(crate) ring: Memory,
    pub(crate) completion: Memory,
    pub(crate) head: usize,
}

/// The address of the wanted function, and the device that was found there.
pub(crate) struct Search<'a> {
    address: &'a str,
    device: *mut c::spdk_pci_device,
}

unsafe extern "C" fn pick(search: *mut c_void, device: *mut c::spdk_pci_device) -> c_int {
    // SAFETY: `unstarted` passed a pointer to its `Search` as the context, and nothing else uses it during
    // the call.
    let search = unsafe { &mut *search.cast::<Search<'_>>() };
    if env::address(device) != search.address {
        return 1;
    }
    search.device = device;
    0
}

impl Driver {
    /// Finds a function, maps its registers and starts its channel.
    pub(crate) fn new(address: &str) -> Self {
        let mut driver = Self::unstarted(address);
        driver.start();
        driver
    }

    pub(crate) fn unstarted(address: &str) -> Self {
        env::set_up(CONFIG);
        let mut search = Search { address, device: ptr::null_mut() };
        // SAFETY: the call takes no arguments.
        let ioat = unsafe { c::spdk_pci_ioat_get_driver() };
        // SAFETY: the callback takes a pointer to a `Search`, which lives as long as the call.
        assert_eq!(unsafe { c::spdk_pci_enumerate(ioat, Some(pick), (&raw mut search).cast()) }, 0);
        let device = search.device;
        assert!(!device.is_null(), "no function {address}");
        let (mut bar, mut phys, mut size) = (ptr::null_mut(), 0, 0);
        // SAFETY: the library returned this device, and the pointers are to local variables.
        assert_eq!(unsafe { c::spdk_pci_device_map_bar(device, 0, &mut bar, &mut phys, &mut size) }, 0);
        assert!(size >= 0x100);
        let ring = Memory::new(RING * DESCRIPTOR, DESCRIPTOR);
        Self { device, bar: bar.cast(), ring, completion: Memory::new(8, 8), head: 0 }
    }

    pub(crate) fn read<T: Shared>(&self, offset: usize) -> T {
        // SAFETY: the offset is that of a register of this size, which is mapped as long as the driver
        // exists.
        unsafe { T::load(self.bar.wrapping_add(offset).cast()) }
    }

    pub(crate) fn write<T: Shared>(&self, offset: usize, value: T) {
        // SAFETY: the offset is that of a register of this size, which is mapped as long as the driver
        // exists.
        unsafe { value.store(self.bar.wrapping_add(offset).cast()) }
    }

    /// Waits until the low bits of the status equal `state`.
    pub(crate) fn wait(&self, state: u64) {
        wait_until(
            || self.read::<u64>(CHANSTS) & 7 == state,
            || {
                format!(
                    "status {:#x}, wanted {state}; errors {:#x}",
                    self.read::<u64>(CHANSTS),
                    self.read::<u32>(CHANERR)
                )
            },
        );
    }

    pub(crate) fn command(&self, command: u8) {
        self.write(CHANCMD, command);
        wait_until(|| self.read::<u8>(CHANCMD) == 0, || "the command is not done".to_owned());
    }

    pub(crate) fn reset(&mut self) {
        self.command(0x20);
        assert_eq!((self.read::<u32>(CHANERR), self.read::<u16>(DMACOUNT)), (0, 0));
        self.head = 0;
    }

    /// Resets the channel, links the descriptors of the ring, and starts the channel with a null descriptor.
    pub(crate) fn start(&mut self) {
        self.reset();
        for i in 0..RING {
            self.field(i, 24, self.ring.bus((i + 1) % RING * DESCRIPTOR));
        }
        self.write(CHANCMP, self.completion.bus(0));
        self.write(CHAINADDR, self.ring.bus(0));
        self.build(8, NULL | UPDATE, 0, 0);
        self.ring_doorbell();
        self.wait(IDLE);
        assert_eq!(self.completed(), self.ring.bus(0) | IDLE);
    }

    pub(crate) fn field<T>(&self, i: usize, offset: usize, value: T) {
        // SAFETY: the field is within the descriptor, which is within the ring's memory.
        unsafe { self.ring.at(i % RING * DESCRIPTOR + offset).cast::<T>().write_volatile(value) }
    }

    pub(crate) fn build(&mut self, size: u32, control: u32, src: u64, dst: u64) {
        self.field(self.head, 0, size);
        self.field(self.head, 4, control);
        self.field(self.head, 8, src);
        self.field(self.head, 16, dst);
        self.head += 1;
    }

    pub(crate) fn ring_doorbell(&self) {
        self.write(DMACOUNT, self.head as u16);
    }

    pub(crate) fn completed(&self) -> u64 {
        // SAFETY: the completion word is aligned, and lives as long as the driver.
        unsafe { u64::load(self.completion.ptr.cast()) }
    }

    /// Waits for the completion of the last descriptor that was built.
    pub(crate) fn finish(&self) {
        let last = self.ring.bus((self.head - 1) % RING * DESCRIPTOR);
        wait_until(|| self.completed() & !0x3f == last, || format!("completed {:#x}", self.completed()));
        assert_eq!(self.completed() & 7, IDLE);
        self.wait(IDLE);
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // SAFETY: `unstarted` mapped these registers, and they are not used any more.
        assert_eq!(unsafe { c::spdk_pci_device_unmap_bar(self.device, 0, self.bar.cast()) }, 0);
    }
}

pub(crate) fn wait_until(mut done: impl FnMut() -> bool, what: impl Fn() -> String) {
    let end = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < end, "{}", what());
        std::thread::yield_now();
    }
}
