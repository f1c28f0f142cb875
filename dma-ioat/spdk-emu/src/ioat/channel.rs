//! A channel: its ring, and what is in it.
#![expect(unsafe_code, reason = "calls back into the program; a channel goes from thread to thread")]

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::Arc;

use dma_sim::model::{
    ChannelError, ChannelId, ChannelState, Descriptor, Device, HaltCause, Refused, Segment,
};

use super::socket::Engine;
use crate::door::{Outcome, Ptr};
use crate::env::map::{self, NOWHERE};
use crate::env::pci::{Function, addr};
use crate::env::time;
use crate::env::translation_limits::FIRST;

/// Called when an operation has ended.
pub(super) type Callback = Option<unsafe extern "C" fn(*mut c_void)>;

/// Events of the model that one call passes at most, so that it does not take long.
const EVENTS_PER_CALL: u32 = 4_096;
/// How often in a row an empty ring may refuse.
const REFUSALS_OF_EMPTY: u32 = 64;
/// Virtual time that a call takes which finds nothing, in nanoseconds.
const IDLE_CALL: u64 = 10;

/// A descriptor.
#[derive(Clone, Copy)]
struct Slot {
    callback: Callback,
    arg: Ptr<c_void>,
    /// Where from; of a fill the pattern.
    src: u64,
    dst: u64,
    len: u64,
    fill: bool,
}

const EMPTY: Slot = Slot { callback: None, arg: Ptr::NULL, src: 0, dst: 0, len: 0, fill: false };

/// A channel, which C holds as `struct spdk_ioat_chan`.
///
/// It stays for good, and is the function's again when that is attached anew.
pub(crate) struct Channel {
    function: &'static Function,
    engine: Arc<Engine>,
    id: ChannelId,
    /// Each descriptor goes to the device when it is built, since it may refuse it; otherwise at the doorbell.
    eager: bool,
    attached: Cell<bool>,
    slots: Box<[Cell<Slot>]>,
    /// Descriptors built, given to the device, ended and called back so far, modulo 2^32.
    head: Cell<u32>,
    given: Cell<u32>,
    ended: Cell<u32>,
    tail: Cell<u32>,
    /// Callbacks are being called.
    calling: Cell<bool>,
    /// How often it was attached and detached: a callback may do both.
    changes: Cell<u32>,
    halt_told: Cell<bool>,
}

// SAFETY: one thread at a time uses a channel: the interface asks that of C. What threads share, the device, is behind a lock.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

/// What to do.
#[derive(Clone, Copy)]
pub(super) enum Work {
    Copy { src: u64 },
    Fill { pattern: u64 },
}

impl Channel {
    pub(super) fn new(function: &'static Function) -> Self {
        let (engine, id) = function.socket.engine(function.number);
        let config = &function.socket.config;
        Self {
            function,
            engine,
            id,
            eager: !config.faults.rules.is_empty(),
            attached: Cell::new(false),
            slots: vec![const { Cell::new(EMPTY) }; config.ring as usize].into(),
            head: Cell::new(0),
            given: Cell::new(0),
            ended: Cell::new(0),
            tail: Cell::new(0),
            calling: Cell::new(false),
            changes: Cell::new(0),
            halt_told: Cell::new(false),
        }
    }

    /// Has it start with an empty ring.
    ///
    /// # Errors
    ///
    /// The device is gone.
    pub(super) fn attach(&self) -> Result<(), ChannelError> {
        let mut device = self.engine.device();
        device.restart(self.id)?;
        drop(device);
        // The descriptor that the driver starts the channel with has been used.
        for count in [&self.head, &self.given, &self.ended, &self.tail] {
            count.set(1);
        }
        self.halt_told.set(false);
        self.changes.set(self.changes.get().wrapping_add(1));
        self.attached.set(true);
        Ok(())
    }

    /// Ends everything, without callbacks. False: it was not attached.
    pub(super) fn detach(&self) -> bool {
        if !self.attached.replace(false) {
            return false;
        }
        self.changes.set(self.changes.get().wrapping_add(1));
        let mut device = self.engine.device();
        // The channel is there.
        let _ = device.stop(self.id);
        while device.poll(self.id).is_some() {}
        drop(device);
        self.function.release(false);
        true
    }

    pub(super) fn is_attached(&self) -> bool {
        self.attached.get()
    }

    pub(super) fn function(&self) -> &'static Function {
        self.function
    }

    #[inline]
    fn slot(&self, index: u32) -> &Cell<Slot> {
        &self.slots[index as usize & (self.slots.len() - 1)]
    }

    /// One descriptor stays free.
    #[inline]
    fn room(&self) -> u32 {
        self.slots.len() as u32 - 1 - self.head.get().wrapping_sub(self.tail.get())
    }

    #[inline]
    fn enter(&self, slot: Slot) -> Outcome {
        if self.room() == 0 {
            return Err(-libc::ENOMEM);
        }
        let head = self.head.get();
        self.slot(head).set(slot);
        self.head.set(head.wrapping_add(1));
        Ok(())
    }

    /// Builds the descriptors of an operation; they wait for a doorbell.
    ///
    /// # Errors
    ///
    /// `-ENOMEM`: the ring has no room, and nothing of it stays. `-EINVAL`: the device does not reach some of the memory; what
    /// was built before that was found stays.
    #[inline]
    pub(super) fn build(
        &self,
        work: Work,
        dst: u64,
        len: u64,
        callback: Callback,
        arg: Ptr<c_void>,
    ) -> Outcome {
        let first = self.head.get();
        let outcome = self.enter_pieces(work, dst, len, callback, arg);
        match outcome {
            Err(errno) if errno == -libc::ENOMEM => self.head.set(first),
            Ok(()) if self.eager => return self.give_eagerly(first),
            _ => {}
        }
        outcome
    }

    #[inline]
    fn enter_pieces(&self, work: Work, dst: u64, len: u64, callback: Callback, arg: Ptr<c_void>) -> Outcome {
        let most = self.function.socket.config.xfercap;
        let mut done = 0;
        loop {
            let left = len - done;
            let dst = dst.wrapping_add(done);
            let (src, fill) = match work {
                Work::Copy { src } => (src.wrapping_add(done), false),
                Work::Fill { pattern } => (pattern, true),
            };
            if left == 0 {
                // Only a copy of nothing, or a fill of nothing, which there is no descriptor for.
                let null = Slot { callback, arg, src: FIRST, dst: FIRST, len: 0, fill: false };
                return if fill { Err(-libc::ENOMEM) } else { self.enter(null) };
            }
            let mut piece = left.min(most);
            if !fill {
                piece = piece.min(reach(src, piece)?);
            }
            piece = piece.min(reach(dst, piece)?);
            done += piece;
            let last = done == len;
            let (callback, arg) = if last { (callback, arg) } else { (None, Ptr::NULL) };
            self.enter(Slot { callback, arg, src, dst, len: piece, fill })?;
            if last {
                return Ok(());
            }
        }
    }

    /// Gives the descriptors from `first` on to a device that may refuse them, as a full ring does: so not while the ring is empty,
    /// unless it insists.
    #[cold]
    fn give_eagerly(&self, first: u32) -> Outcome {
        let mut device = self.engine.device();
        let mut patience = if first == self.tail.get() { REFUSALS_OF_EMPTY } else { 0 };
        self.given.set(first);
        while self.given.get() != self.head.get() {
            match self.give_next(&mut device) {
                Err(Refused::Rejected) if patience > 0 => patience -= 1,
                Err(Refused::Rejected | Refused::Full { .. }) => {
                    self.head.set(self.given.get());
                    return Err(-libc::ENOMEM);
                }
                _ => self.given.set(self.given.get().wrapping_add(1)),
            }
        }
        Ok(())
    }

    /// Gives the next descriptor to the device. One that is down takes it like any other, and never does it.
    #[inline]
    fn give_next(&self, device: &mut Device) -> Result<(), Refused> {
        let index = self.given.get();
        let Slot { src, dst, len, fill, .. } = self.slot(index).get();
        let key = self.engine.region;
        let to = [Segment { key, addr: dst, len }];
        if fill {
            device.submit(self.id, &Descriptor::fill(index.into(), src, &to))
        } else {
            let from = [Segment { key, addr: src, len }];
            device.submit(self.id, &Descriptor::copy(index.into(), &from, &to))
        }
    }

    /// Rings the doorbell for all that was built.
    #[inline]
    pub(super) fn flush(&self) {
        let mut device = self.engine.device();
        while self.given.get() != self.head.get() {
            // What is not taken here is not taken by a device that is down.
            let _ = self.give_next(&mut device);
            self.given.set(self.given.get().wrapping_add(1));
        }
        // The channel is there.
        let _ = device.doorbell(self.id);
    }

    /// Calls back for what has ended, and counts its descriptors. `None`: the channel is halted.
    #[inline]
    pub(super) fn process(&self) -> Option<u32> {
        if self.calling.get() || self.head.get() == self.tail.get() {
            if self.engine.is_virtual() {
                time::pass(IDLE_CALL);
            }
            return Some(0);
        }
        if !self.collect() {
            return None;
        }
        let (first, last, changes) = (self.tail.get(), self.ended.get(), self.changes.get());
        self.calling.set(true);
        let mut index = first;
        while index != last {
            let Slot { callback, arg, .. } = self.slot(index).get();
            if let Some(callback) = callback {
                // SAFETY: the program's own function, with the argument that it gave.
                unsafe { callback(arg.raw()) };
            }
            index = index.wrapping_add(1);
            if self.changes.get() != changes {
                // The ring is another now, or nobody's.
                self.calling.set(false);
                return Some(index.wrapping_sub(first));
            }
            // Only now is there room: as in SPDK, which counts after the callback.
            self.tail.set(index);
        }
        self.calling.set(false);
        Some(last.wrapping_sub(first))
    }

    /// Asks the device what has ended. False: the channel is halted.
    #[inline]
    fn collect(&self) -> bool {
        let mut device = self.engine.device();
        if self.engine.is_virtual() {
            self.pass_time(&mut device);
        }
        let mut last = None;
        while let Some(completion) = device.poll(self.id) {
            last = Some(completion.token as u32);
        }
        match device.state(self.id) {
            Some(ChannelState::Running) => {
                // In order: what was before it has ended too, told or not.
                if let Some(last) = last {
                    self.ended.set(last.wrapping_add(1));
                }
                true
            }
            // Nothing comes from a device that is gone, not even that it is.
            Some(ChannelState::Halted(HaltCause::DeviceGone)) => true,
            _ => {
                drop(device);
                self.tell_halt();
                false
            }
        }
    }

    /// Lets virtual time pass until something has ended, if anything will.
    #[inline]
    fn pass_time(&self, device: &mut Device) {
        for _ in 0..EVENTS_PER_CALL {
            if device.has_completion(self.id) || device.running(self.id) == 0 {
                break;
            }
            let Some(at) = device.next_event() else { break };
            device.advance(at);
            time::reach(at);
        }
        if !device.has_completion(self.id) {
            time::pass(IDLE_CALL);
        }
    }

    #[cold]
    fn tell_halt(&self) {
        if !self.halt_told.replace(true) {
            let function = addr::format(&self.function.config.pci);
            crate::log::error(&format!("channel {function} halted"));
        }
    }
}

/// How many of the bytes the device reaches by one descriptor.
#[inline]
fn reach(addr: u64, len: u64) -> Outcome<u64> {
    match map::to_bus(addr, len) {
        (NOWHERE, _) => Err(-libc::EINVAL),
        (_, len) => Ok(len),
    }
}
