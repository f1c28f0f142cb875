//! The descriptor chain of an engine.
#![expect(unsafe_code, reason = "moves bytes of the driver's memory, as a device does")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dma_sim::model::{Fault, FaultInjector, Time};
use dma_standin::c_abi::require;

use super::registers::{ChannelState, Error, RESET, Registers, SUSPEND};
use crate::c_abi::Addr;
use crate::channel::Channel;
use crate::config::SocketConfig;
use crate::env::map;

/// Size and alignment of a descriptor, in bytes.
const DESCRIPTOR: u64 = 64;
/// Bits of a descriptor's control word.
const COMPLETION_UPDATE: u32 = 1 << 3;
const NULL: u32 = 1 << 5;
/// Operations, in the top byte of the control word.
const COPY: u32 = 0x00;
const FILL: u32 = 0x01;
/// Maximum number of descriptors per step. Commands are polled between steps.
const BATCH: u32 = 64;

/// The common first fields of descriptors, in their memory layout.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Descriptor {
    size: u32,
    control: u32,
    /// Source address, or the pattern of a fill.
    src: u64,
    dst: u64,
    next: u64,
}

/// The state of an engine.
pub(super) struct Chain {
    channel: Box<dyn Fn() -> Option<&'static Channel> + Send>,
    registers: Arc<Registers>,
    faults: FaultInjector,
    /// The function's number, which is the channel number in fault rules.
    number: u32,
    /// Number of descriptors fetched so far.
    fetched: u64,
    max: u64,
    fill: bool,
    state: ChannelState,
    /// Number of descriptors done since the reset, modulo 2^16.
    done: u16,
    /// Bus address of the next descriptor. `None` before the first descriptor, whose address is in
    /// `CHAINADDR`.
    next: Option<u64>,
    /// Bus address of the last completed descriptor.
    completed: u64,
    errors: u32,
    /// Set while the engine hangs, until a reset.
    stuck: bool,
    /// Set when the device has vanished. The engine then hangs permanently.
    gone: bool,
}

impl Chain {
    pub(super) fn new(
        registers: Arc<Registers>,
        config: &SocketConfig,
        number: u32,
        channel: Box<dyn Fn() -> Option<&'static Channel> + Send>,
    ) -> Self {
        Self {
            channel,
            registers,
            faults: FaultInjector::new(config.faults.clone(), config.seed),
            number,
            fetched: 0,
            max: config.xfercap,
            fill: config.fill,
            state: ChannelState::Halted,
            done: 0,
            next: None,
            completed: 0,
            errors: 0,
            stuck: false,
            gone: false,
        }
    }

    /// Executes a command or some descriptors. Returns true if there was work.
    pub(super) fn step(&mut self) -> bool {
        if self.gone {
            return false;
        }
        self.clear_errors();
        let command = self.registers.command();
        if command != 0 {
            self.command(command);
            return true;
        }
        if self.stuck
            || matches!(self.state, ChannelState::Halted | ChannelState::Suspended) && !self.starts()
        {
            return false;
        }
        let mut some = false;
        for _ in 0..BATCH {
            if self.done == self.registers.count() {
                break;
            }
            some = true;
            if !self.advance() {
                break;
            }
        }
        some
    }

    /// Returns true if the driver starts a channel that was reset.
    fn starts(&self) -> bool {
        self.state == ChannelState::Halted
            && self.errors == 0
            && self.next.is_none()
            && self.registers.count() != 0
    }

    fn command(&mut self, command: u8) {
        if command & RESET != 0 {
            (self.done, self.next, self.completed, self.errors, self.stuck) = (0, None, 0, 0, false);
            // The calls of `ioat.h` use the same engine, so reset their channel too.
            if let Some(channel) = (self.channel)() {
                channel.reset();
            }
            self.registers.clear_count();
            self.registers.set_errors(0);
            self.set_state(ChannelState::Halted);
        } else if command & SUSPEND != 0 && !self.stuck && self.state != ChannelState::Halted {
            self.set_state(ChannelState::Suspended);
        }
        self.registers.done(command);
    }

    /// Clears the error bits to which a one was written. Writing the register's own value cannot be detected,
    /// so errors that are cleared in this way stay until a reset.
    fn clear_errors(&mut self) {
        let seen = self.registers.errors();
        if seen != self.errors {
            self.errors &= !seen;
            self.registers.set_errors(self.errors);
        }
    }

    fn set_state(&mut self, state: ChannelState) {
        self.state = state;
        self.registers.set_status(self.completed, state);
    }

    /// Executes the next descriptor. Returns false if the channel halted or hangs.
    fn advance(&mut self) -> bool {
        if self.state != ChannelState::Active {
            self.set_state(ChannelState::Active);
        }
        let first = self.next.is_none();
        let at = self.next.unwrap_or_else(|| self.registers.chain());
        let wrong = if first { Error::ChainAddress } else { Error::NextAddress };
        let Some(descriptor) = self.fetch(at) else { return self.halt(wrong) };
        self.fetched += 1;
        let faults = self.faults.strike(self.number, self.fetched);
        if [Fault::Fail, Fault::Reset, Fault::Refuse].into_iter().any(|fault| faults.has(fault)) {
            return self.halt(Error::ReadData);
        }
        if faults.has(Fault::Stick) {
            self.stuck = true;
            return false;
        }
        if faults.has(Fault::Gone) {
            self.gone = true;
            self.registers.set_all_ones();
            return false;
        }
        if faults.slow > Time::ZERO {
            std::thread::sleep(faults.slow.into());
        }
        if let Err(error) = self.run(&descriptor) {
            return self.halt(error);
        }
        if faults.has(Fault::Corrupt) {
            flip_bit(&descriptor);
        }
        self.completed = at;
        self.next = Some(descriptor.next);
        self.done = self.done.wrapping_add(1);
        let state =
            if self.done == self.registers.count() { ChannelState::Idle } else { ChannelState::Active };
        let reported = descriptor.control & COMPLETION_UPDATE != 0 && !faults.has(Fault::Lose);
        if reported && !self.write_completion(state) {
            return self.halt(Error::CompletionAddress);
        }
        self.set_state(state);
        true
    }

    fn fetch(&self, at: u64) -> Option<Descriptor> {
        let (addr, _) = map::from_bus(at).filter(|_| at.is_multiple_of(DESCRIPTOR))?;
        // SAFETY: the descriptor is aligned, so it is within one page, and pages that devices can access are
        // mapped. The driver does not change a submitted descriptor. The read is volatile, because a faulty
        // driver may do that.
        Some(unsafe { Addr::at(addr).raw().cast::<Descriptor>().read_volatile() })
    }

    fn run(&self, descriptor: &Descriptor) -> Result<(), Error> {
        let Descriptor { size, control, src, dst, .. } = *descriptor;
        if control & NULL != 0 && control >> 24 == COPY {
            return Ok(());
        }
        let len = u64::from(size);
        require(len <= self.max && len != 0, Error::Length)?;
        match control >> 24 {
            COPY => {
                let (from, to) = (Span::new(src, len), Span::new(dst, len));
                let from = from.ok_or(Error::SourceAddress)?;
                copy(from, to.ok_or(Error::DestinationAddress)?);
            }
            FILL if self.fill => fill(Span::new(dst, len).ok_or(Error::DestinationAddress)?, src),
            _ => return Err(Error::Control),
        }
        Ok(())
    }

    /// Writes the completion word. Returns false if its address is invalid.
    fn write_completion(&self, state: ChannelState) -> bool {
        let at = self.registers.completion();
        match map::from_bus(at) {
            Some((addr, _)) if at.is_multiple_of(8) => {
                // SAFETY: the word is aligned, so it is within one page, and pages that devices can access
                // are mapped. Drivers load the word at any time, so it is accessed atomically.
                let word = unsafe { AtomicU64::from_ptr(Addr::at(addr).raw().cast()) };
                word.store(self.completed | state as u64, Ordering::Release);
                true
            }
            _ => false,
        }
    }

    /// Stops at the current descriptor, and sets the error.
    fn halt(&mut self, error: Error) -> bool {
        self.errors |= error as u32;
        self.registers.set_errors(self.errors);
        // Ignore an invalid completion address, because the registers have the state too.
        self.write_completion(ChannelState::Halted);
        self.set_state(ChannelState::Halted);
        false
    }
}

/// A range of bus addresses. All of them are mapped.
#[derive(Clone, Copy)]
struct Span {
    bus: u64,
    len: u64,
}

impl Span {
    fn new(bus: u64, len: u64) -> Option<Self> {
        let mut at = bus;
        let end = bus.checked_add(len)?;
        while at < end {
            at += map::from_bus(at)?.1;
        }
        Some(Self { bus, len })
    }

    /// Returns the program's address of a byte, and the number of bytes from there on that are contiguous for
    /// the program.
    fn at(self, offset: u64) -> (u64, u64) {
        let (addr, row) = map::from_bus(self.bus + offset).unwrap_or((0, 0));
        (addr, row.min(self.len - offset))
    }
}

fn copy(from: Span, to: Span) {
    let mut done = 0;
    while done < from.len {
        let ((src, src_row), (dst, dst_row)) = (from.at(done), to.at(done));
        let len = src_row.min(dst_row);
        if len == 0 {
            // The program has unregistered the memory during the copy.
            return;
        }
        // SAFETY: both ranges are memory that devices can access, which is mapped. The driver does not use
        // them until the completion.
        unsafe { Addr::at(src).copy_to(Addr::at(dst), len as usize) };
        done += len;
    }
}

fn fill(to: Span, pattern: u64) {
    let bytes = pattern.to_le_bytes();
    let mut done = 0;
    while done < to.len {
        let (dst, row) = to.at(done);
        if row == 0 {
            return;
        }
        for i in 0..row {
            let at = Addr::at(dst + i).raw().cast::<u8>();
            // SAFETY: `i` is within the mapped row at `dst`, and the driver does not use the destination
            // until the completion.
            unsafe { at.write(bytes[((done + i) % 8) as usize]) };
        }
        done += row;
    }
}

/// Flips a bit of the first byte of the destination.
fn flip_bit(descriptor: &Descriptor) {
    if descriptor.control & NULL == 0
        && let Some((addr, _)) = map::from_bus(descriptor.dst)
    {
        let byte = Addr::at(addr).raw().cast::<u8>();
        // SAFETY: the address is mapped, and the driver does not use the destination until the completion.
        unsafe { *byte ^= 1 };
    }
}
