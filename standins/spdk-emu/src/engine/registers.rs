//! The registers of a channel.
#![expect(unsafe_code, reason = "registers are memory that the driver stores to at any time")]

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::c_abi::Addr;
use crate::config::SocketConfig;

/// Register offsets in BAR 0, in bytes, from the public register description of Intel QuickData Technology,
/// as in `spdk/ioat_spec.h`.
const CHANCNT: usize = 0x00;
const XFERCAP: usize = 0x01;
const CBVER: usize = 0x08;
const DMACAPABILITY: usize = 0x10;
const CHANCMD: usize = 0x84;
const DMACOUNT: usize = 0x86;
const CHANSTS: usize = 0x88;
const CHAINADDR: usize = 0x90;
const CHANCMP: usize = 0x98;
const CHANERR: usize = 0xa8;

/// Bits of `DMACAPABILITY`: page break, block fill.
const CAN_PAGE_BREAK: u32 = 1;
const CAN_FILL: u32 = 1 << 6;

/// Bits of `CHANCMD`.
pub(super) const SUSPEND: u8 = 0x04;
pub(super) const RESET: u8 = 0x20;

/// States, the low bits of `CHANSTS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum ChannelState {
    Active = 0,
    Idle = 1,
    Suspended = 2,
    Halted = 3,
}

/// Bits of `CHANERR`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Error {
    SourceAddress = 0x0001,
    DestinationAddress = 0x0002,
    NextAddress = 0x0004,
    ChainAddress = 0x0010,
    ReadData = 0x0100,
    Control = 0x0400,
    Length = 0x0800,
    CompletionAddress = 0x1000,
}

/// A page of registers.
pub(crate) struct Registers {
    start: Addr,
    size: usize,
}

impl Registers {
    pub(super) fn new(size: usize, config: &SocketConfig) -> Option<Self> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: the kernel chooses a free address, so no existing mapping changes.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), size, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        let registers = Self { start: Addr::new(start), size };
        registers.byte(CHANCNT).store(1, Ordering::Relaxed);
        // The exponent 32, for 4 GiB, does not fit into the register's bits, and is written as 0.
        registers.byte(XFERCAP).store((config.xfercap.ilog2() & 0x1f) as u8, Ordering::Relaxed);
        registers.byte(CBVER).store(config.cbver, Ordering::Relaxed);
        let fill = if config.fill { CAN_FILL } else { 0 };
        registers.long(DMACAPABILITY).store(CAN_PAGE_BREAK | fill, Ordering::Relaxed);
        registers.set_status(0, ChannelState::Halted);
        Some(registers)
    }

    pub(super) fn start(&self) -> Addr {
        self.start
    }

    /// Returns the register at an offset.
    fn at<T>(&self, offset: usize) -> &T {
        assert!(offset.is_multiple_of(align_of::<T>()) && offset + size_of::<T>() <= self.size);
        let place = self.start.raw().cast::<u8>().wrapping_add(offset).cast::<T>();
        // SAFETY: the register is within the mapping, which lives as long as this value. `T` is one of the
        // atomic integers below, for which any bits are valid. The driver stores whole registers, so its
        // stores act as atomic ones.
        unsafe { &*place }
    }

    fn byte(&self, offset: usize) -> &AtomicU8 {
        self.at(offset)
    }

    fn word(&self, offset: usize) -> &AtomicU16 {
        self.at(offset)
    }

    fn long(&self, offset: usize) -> &AtomicU32 {
        self.at(offset)
    }

    fn quad(&self, offset: usize) -> &AtomicU64 {
        self.at(offset)
    }

    /// Returns the pending commands.
    pub(super) fn command(&self) -> u8 {
        self.byte(CHANCMD).load(Ordering::Acquire)
    }

    /// Clears commands that were executed.
    pub(super) fn done(&self, command: u8) {
        self.byte(CHANCMD).fetch_and(!command, Ordering::Release);
    }

    /// Returns the number of descriptors that the driver has submitted, modulo 2^16.
    pub(super) fn count(&self) -> u16 {
        self.word(DMACOUNT).load(Ordering::Acquire)
    }

    pub(super) fn clear_count(&self) {
        self.word(DMACOUNT).store(0, Ordering::Relaxed);
    }

    /// Returns the bus address of the first descriptor.
    pub(super) fn chain(&self) -> u64 {
        self.quad(CHAINADDR).load(Ordering::Relaxed)
    }

    /// Returns the bus address of the completion word.
    pub(super) fn completion(&self) -> u64 {
        self.quad(CHANCMP).load(Ordering::Relaxed)
    }

    /// Sets the last completed descriptor and the state.
    pub(super) fn set_status(&self, completed: u64, state: ChannelState) {
        self.quad(CHANSTS).store(completed | state as u64, Ordering::Release);
    }

    pub(super) fn errors(&self) -> u32 {
        self.long(CHANERR).load(Ordering::Acquire)
    }

    pub(super) fn set_errors(&self, errors: u32) {
        self.long(CHANERR).store(errors, Ordering::Release);
    }

    /// Sets all registers to ones, because the registers of a removed device read as ones.
    pub(super) fn set_all_ones(&self) {
        for offset in (0..self.size).step_by(8) {
            self.quad(offset).store(u64::MAX, Ordering::Relaxed);
        }
    }
}

impl Drop for Registers {
    fn drop(&mut self) {
        // SAFETY: `new` made the mapping. The engine's thread has ended, and a driver unmaps its registers
        // only after their last use.
        unsafe { libc::munmap(self.start.raw(), self.size) };
    }
}
