//! A channel and its descriptor ring.
#![expect(unsafe_code, reason = "calls back into the program; a channel moves between threads")]

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::Arc;

use dma_sim::model::{
    ChannelError, ChannelId, ChannelState, Descriptor, Device, DeviceAddr, HaltCause, Refused, Segment,
};
use dma_standin::c_abi::require;

use crate::c_abi::{Addr, Outcome};
use crate::config::SocketConfig;
use crate::env::map::{self, NOWHERE};
use crate::env::time;
use crate::env::translation::ADDRESSES;
use crate::socket::{Socket, SocketDevice};

/// The program's function that is called when an operation has ended.
pub(crate) type Callback = Option<unsafe extern "C" fn(*mut c_void)>;

/// Maximum number of model events that one call handles, which limits the duration of the call.
const EVENTS_PER_CALL: u32 = 4_096;
/// Maximum number of consecutive refusals while the ring is empty.
const REFUSALS_OF_EMPTY: u32 = 64;
/// Virtual time that a call takes if it finds no completion, in nanoseconds.
const IDLE_CALL: u64 = 10;

/// A descriptor in the ring.
#[derive(Clone, Copy)]
struct RingEntry {
    callback: Callback,
    arg: Addr,
    /// Source address, or the pattern of a fill.
    src: u64,
    dst: u64,
    len: u64,
    fill: bool,
}

const EMPTY: RingEntry = RingEntry { callback: None, arg: Addr::NULL, src: 0, dst: 0, len: 0, fill: false };

/// A channel, which C holds as `struct spdk_ioat_chan`.
///
/// A channel is never freed. Attaching its function again reuses the channel.
pub(crate) struct Channel {
    socket: Arc<Socket>,
    name: String,
    engine: Arc<SocketDevice>,
    id: ChannelId,
    /// Set if faults are configured. Descriptors then go to the device when they are built, because the
    /// device may refuse them. Otherwise they go to the device at the doorbell.
    eager: bool,
    attached: Cell<bool>,
    slots: Box<[Cell<RingEntry>]>,
    /// Number of descriptors built (`head`), submitted to the device (`given`), ended and reported (`tail`)
    /// so far, modulo 2^32.
    head: Cell<u32>,
    given: Cell<u32>,
    ended: Cell<u32>,
    tail: Cell<u32>,
    /// Set while callbacks run.
    calling: Cell<bool>,
    /// Number of attaches and detaches. A change during a callback shows that the callback attached or
    /// detached the channel.
    changes: Cell<u32>,
    halt_logged: Cell<bool>,
}

// SAFETY: one thread at a time uses a channel, as the C interface requires. Threads share only the device,
// which is behind a lock.
unsafe impl Send for Channel {}
// SAFETY: the C interface allows only one thread at a time to use a channel, so its cells are never used
// concurrently.
unsafe impl Sync for Channel {}

/// An operation.
#[derive(Clone, Copy)]
pub(crate) enum ChannelOp {
    Copy { src: u64 },
    Fill { pattern: u64 },
}

impl Channel {
    /// Makes the channel of PCI function `number` on a socket. Log lines contain `name`.
    pub(crate) fn new(socket: &Arc<Socket>, number: u32, name: String) -> Self {
        let (engine, id) = socket.engine(number);
        let config = &socket.config;
        Self {
            socket: Arc::clone(socket),
            name,
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
            halt_logged: Cell::new(false),
        }
    }

    /// Starts the channel with an empty ring.
    ///
    /// # Errors
    ///
    /// The device has vanished.
    pub(crate) fn attach(&self) -> Result<(), ChannelError> {
        let mut device = self.engine.device();
        device.restart(self.id)?;
        drop(device);
        // Begin at 1, because a driver uses one descriptor to start the channel.
        for count in [&self.head, &self.given, &self.ended, &self.tail] {
            count.set(1);
        }
        self.halt_logged.set(false);
        self.changes.set(self.changes.get().wrapping_add(1));
        self.attached.set(true);
        Ok(())
    }

    /// Drops all descriptors in flight, without callbacks.
    pub(crate) fn detach(&self) {
        self.attached.set(false);
        self.changes.set(self.changes.get().wrapping_add(1));
        let mut device = self.engine.device();
        // This cannot fail, because the device has a channel of this number.
        let _ = device.stop(self.id);
        while device.poll(self.id).is_some() {}
    }

    /// Drops all descriptors in flight, which access no memory afterwards. Any thread may call this function.
    pub(crate) fn reset(&self) {
        // This cannot fail, because the device has a channel of this number.
        let _ = self.engine.device().stop(self.id);
    }

    pub(crate) fn is_attached(&self) -> bool {
        self.attached.get()
    }

    pub(crate) fn config(&self) -> &SocketConfig {
        &self.socket.config
    }

    #[inline]
    fn slot(&self, index: u32) -> &Cell<RingEntry> {
        &self.slots[index as usize & (self.slots.len() - 1)]
    }

    /// Returns the number of free descriptors. One descriptor of the ring is never used.
    #[inline]
    fn room(&self) -> u32 {
        self.slots.len() as u32 - 1 - self.head.get().wrapping_sub(self.tail.get())
    }

    #[inline]
    fn enter(&self, slot: RingEntry) -> Outcome {
        require(self.room() != 0, -libc::ENOMEM)?;
        let head = self.head.get();
        self.slot(head).set(slot);
        self.head.set(head.wrapping_add(1));
        Ok(())
    }

    /// Builds the descriptors of an operation. The next doorbell starts them.
    ///
    /// # Errors
    ///
    /// `-ENOMEM`: the ring has no room. No descriptor was built. `-EINVAL`: the device cannot access some of
    /// the memory. Descriptors of earlier pieces stay in the ring.
    ///
    /// # Safety
    ///
    /// The callback can be called with the argument, on the thread that calls `process`. The memory of the
    /// operation stays valid until then.
    #[inline]
    pub(crate) unsafe fn build(
        &self,
        work: ChannelOp,
        dst: u64,
        len: u64,
        callback: Callback,
        arg: Addr,
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
    fn enter_pieces(&self, work: ChannelOp, dst: u64, len: u64, callback: Callback, arg: Addr) -> Outcome {
        let most = self.socket.config.xfercap;
        let mut done = 0;
        loop {
            let left = len - done;
            let dst = dst.wrapping_add(done);
            let (src, fill) = match work {
                ChannelOp::Copy { src } => (src.wrapping_add(done), false),
                ChannelOp::Fill { pattern } => (pattern, true),
            };
            if left == 0 {
                // A copy of 0 bytes is a null descriptor. A fill of 0 bytes is an error, because no
                // descriptor can express it.
                let null = RingEntry {
                    callback,
                    arg,
                    src: ADDRESSES.start,
                    dst: ADDRESSES.start,
                    len: 0,
                    fill: false,
                };
                return if fill { Err(-libc::ENOMEM) } else { self.enter(null) };
            }
            let mut piece = left.min(most);
            if !fill {
                piece = piece.min(reach(src, piece)?);
            }
            piece = piece.min(reach(dst, piece)?);
            done += piece;
            let last = done == len;
            let (callback, arg) = if last { (callback, arg) } else { (None, Addr::NULL) };
            self.enter(RingEntry { callback, arg, src, dst, len: piece, fill })?;
            if last {
                return Ok(());
            }
        }
    }

    /// Submits the descriptors from `first` on to a device that may refuse them. A refusal is reported as a
    /// full ring. While the ring is empty, the submission is retried instead.
    #[cold]
    fn give_eagerly(&self, first: u32) -> Outcome {
        let mut device = self.engine.device();
        let mut retries = if first == self.tail.get() { REFUSALS_OF_EMPTY } else { 0 };
        self.given.set(first);
        while self.given.get() != self.head.get() {
            match self.give_next(&mut device) {
                Err(Refused::Rejected) if retries > 0 => retries -= 1,
                Err(Refused::Rejected | Refused::Full { .. }) => {
                    self.head.set(self.given.get());
                    return Err(-libc::ENOMEM);
                }
                _ => self.given.set(self.given.get().wrapping_add(1)),
            }
        }
        Ok(())
    }

    /// Submits the next descriptor to the device. If the device is halted or gone, the descriptor is never
    /// executed.
    #[inline]
    fn give_next(&self, device: &mut Device) -> Result<(), Refused> {
        let index = self.given.get();
        let RingEntry { src, dst, len, fill, .. } = self.slot(index).get();
        let key = self.engine.region;
        let segment = |addr| Segment { key, addr: DeviceAddr(addr), len: len as usize };
        if fill {
            device.submit(self.id, &Descriptor::fill(index.into(), src.to_le_bytes(), &[segment(dst)]))
        } else {
            device.submit(self.id, &Descriptor::copy(index.into(), segment(src), segment(dst)))
        }
    }

    /// Rings the doorbell for all descriptors built.
    #[inline]
    pub(crate) fn flush(&self) {
        let mut device = self.engine.device();
        while self.given.get() != self.head.get() {
            // Only a device that is halted or gone refuses descriptors here.
            let _ = self.give_next(&mut device);
            self.given.set(self.given.get().wrapping_add(1));
        }
        // This cannot fail, because the device has a channel of this number.
        let _ = device.doorbell(self.id);
    }

    /// Runs the callbacks of ended descriptors, and returns their number. `None` if the channel is halted.
    #[inline]
    pub(crate) fn process(&self) -> Option<u32> {
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
            let RingEntry { callback, arg, .. } = self.slot(index).get();
            if let Some(callback) = callback {
                // SAFETY: the program passed this function together with this argument, for the thread that
                // polls the channel.
                unsafe { callback(arg.raw()) };
            }
            index = index.wrapping_add(1);
            if self.changes.get() != changes {
                // A callback detached the channel.
                self.calling.set(false);
                return Some(index.wrapping_sub(first));
            }
            // The slot becomes free after its callback, as in SPDK.
            self.tail.set(index);
        }
        self.calling.set(false);
        Some(last.wrapping_sub(first))
    }

    /// Polls the device. Returns false if the channel is halted.
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
                // Descriptors end in order. So all descriptors before the last one have ended too, even if
                // they were not reported.
                if let Some(last) = last {
                    self.ended.set(last.wrapping_add(1));
                }
                true
            }
            // A removed device reports nothing, not even its removal.
            Some(ChannelState::Halted(HaltCause::DeviceGone)) => true,
            _ => {
                drop(device);
                self.log_halt();
                false
            }
        }
    }

    /// Advances the virtual time until a descriptor ends, or until no event is left.
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
    fn log_halt(&self) {
        if !self.halt_logged.replace(true) {
            crate::log::error(&format!("channel {} halted", self.name));
        }
    }
}

/// Returns the number of bytes, up to `len`, that the device can access with one descriptor.
#[inline]
fn reach(addr: u64, len: u64) -> Outcome<u64> {
    match map::to_bus(addr, len) {
        (NOWHERE, _) => Err(-libc::EINVAL),
        (_, len) => Ok(len),
    }
}
