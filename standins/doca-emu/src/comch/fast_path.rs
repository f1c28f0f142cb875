//! The fast path of one end of a connection: the consumers of both ends, and the socket between them.
//!
//! A consumer exports its memory to the other end ([`ExportedMap`]). A producer of the other end takes a
//! buffer that the consumer posted, copies its message into the buffer, and notifies the consumer. All
//! threads that have producers and consumers share the socket: the thread that reads a message passes it to
//! the consumer's inbox. So sending does not need progress of any other context, as on the hardware.
//!
//! The client makes a pair of sockets, and passes one end to the server with its greeting. From then on, the
//! fast path uses only these sockets.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use dma_ipc::{Import, RemoteError};
use dma_process::lock;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv};

use super::wire::{DATA_PACKET_LEN, DataPacket, Immediate, Name, Piece};
use crate::c_abi::{Outcome, c, require};
use crate::dev::Dev;
use crate::log::sdk_log;
use crate::mmap::ExportedMap;
use crate::notifier::Timer;

/// Maximum number of data packets that one call distributes.
const ROUNDS: u32 = 256;

/// Signals the thread of a server or client that one of its connections has work for this thread.
#[derive(Default)]
pub(super) struct WakeFlag {
    wanted: AtomicBool,
    sleeper: Mutex<Option<Arc<Timer>>>,
}

impl WakeFlag {
    /// Signals that there is work, and wakes the thread if it sleeps.
    pub(super) fn call(&self) {
        self.wanted.store(true, Ordering::Release);
        let sleeper = lock(&self.sleeper);
        if let Some(timer) = &*sleeper {
            timer.ring(Duration::ZERO);
        }
    }

    /// Returns true if there was a signal since the last call.
    pub(super) fn take(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) && self.wanted.swap(false, Ordering::Acquire)
    }

    /// Sets the timer that a signal rings. Returns `true` if a signal is pending already.
    pub(super) fn sleep(&self, timer: Option<Arc<Timer>>) -> bool {
        *lock(&self.sleeper) = timer;
        self.wanted.load(Ordering::Acquire)
    }
}

pub(super) struct Arrival {
    pub(super) slot: u32,
    pub(super) producer: u32,
    pub(super) len: u64,
    pub(super) immediate: Immediate,
}

/// Messages for a consumer that other threads read from the socket.
#[derive(Default)]
pub(super) struct Inbox {
    welcome: AtomicBool,
    arrived: Mutex<VecDeque<Arrival>>,
}

impl Inbox {
    /// Returns true if the other end has answered the consumer's announcement.
    pub(super) fn is_welcome(&self) -> bool {
        self.welcome.load(Ordering::Acquire)
    }

    pub(super) fn next(&self) -> Option<Arrival> {
        lock(&self.arrived).pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.arrived).is_empty()
    }
}

struct Remote {
    name: Name,
    memory: Arc<ExportedMemory>,
    immediate: u32,
    posted: VecDeque<(u32, Vec<Piece>)>,
}

pub(super) struct ExportedMemory {
    addr: u64,
    len: u64,
    descriptor: Vec<u8>,
    import: OnceLock<Arc<Import>>,
}

impl ExportedMemory {
    fn open(&self) -> Result<&Arc<Import>, RemoteError> {
        match self.import.get() {
            Some(import) => Ok(import),
            None => {
                let import = Arc::new(Import::open(&self.descriptor)?);
                Ok(self.import.get_or_init(|| import))
            }
        }
    }

    fn has(&self, room: &[Piece]) -> bool {
        room.iter().all(|(addr, len)| {
            addr.checked_sub(self.addr).is_some_and(|at| at <= self.len && *len <= self.len - at)
        })
    }
}

pub(super) struct Taken {
    name: Name,
    slot: u32,
    pub(super) room: Vec<Piece>,
    memory: Arc<ExportedMemory>,
}

/// The creation or end of a peer's consumer, which is reported to the program.
#[derive(Clone, Copy)]
pub(super) enum ConsumerChange {
    Created(u32),
    Destroyed(u32),
}

/// The fast path of one end of a connection.
pub(crate) struct FastPath {
    pub(super) dev: Arc<Dev>,
    wake_flag: Arc<WakeFlag>,
    state: Mutex<FastPathState>,
}

#[derive(Default)]
struct FastPathState {
    /// The socket, as long as the connection is open.
    channel: Option<Arc<OwnedFd>>,
    /// Data packets that the socket has no room for.
    outbox: VecDeque<Vec<u8>>,
    consumer_ids: BTreeSet<u32>,
    producer_ids: BTreeSet<u32>,
    starts: u32,
    local: HashMap<Name, Arc<Inbox>>,
    remotes: HashMap<u32, Remote>,
    events: VecDeque<ConsumerChange>,
}

impl FastPath {
    pub(super) fn new(dev: Arc<Dev>, wake_flag: Arc<WakeFlag>) -> Self {
        Self { dev, wake_flag, state: Mutex::default() }
    }

    pub(super) fn open(&self, channel: Arc<OwnedFd>) {
        lock(&self.state).channel = Some(channel);
    }

    pub(super) fn is_open(&self) -> bool {
        lock(&self.state).channel.is_some()
    }

    /// Closes the path, after the messages that have arrived were distributed.
    pub(super) fn close(&self) {
        let mut state = lock(&self.state);
        self.sort(&mut state);
        state.channel = None;
        state.outbox.clear();
        state.remotes.clear();
        state.events.clear();
    }

    pub(super) fn new_consumer_id(&self) -> Outcome<u32> {
        let limit = self.dev.card().config.comch.max_consumers;
        lock(&self.state).new_id(limit, |state| &mut state.consumer_ids)
    }

    pub(super) fn new_producer_id(&self) -> Outcome<u32> {
        let limit = self.dev.card().config.comch.max_producers;
        lock(&self.state).new_id(limit, |state| &mut state.producer_ids)
    }

    /// Returns true if this end has consumers or producers.
    pub(super) fn is_used(&self) -> bool {
        let state = lock(&self.state);
        !state.consumer_ids.is_empty() || !state.producer_ids.is_empty()
    }

    pub(super) fn drop_consumer_id(&self, id: u32) {
        lock(&self.state).consumer_ids.remove(&id);
    }

    pub(super) fn drop_producer_id(&self, id: u32) {
        lock(&self.state).producer_ids.remove(&id);
    }

    /// Starts a consumer and announces it to the other end. Returns its name and its inbox.
    pub(super) fn begin(&self, id: u32, exported: &ExportedMap, immediate: u32) -> (Name, Arc<Inbox>) {
        let mut state = lock(&self.state);
        state.starts += 1;
        let (name, inbox) = (Name { id, start: state.starts }, Arc::<Inbox>::default());
        state.local.insert(name, Arc::clone(&inbox));
        let (descriptor, addr, len) = exported.descriptor();
        state.send(&DataPacket::Announce { name, immediate, addr, len, descriptor: descriptor.to_vec() });
        (name, inbox)
    }

    /// Notifies the other end that a consumer has posted a buffer, whose memory is `room`.
    pub(super) fn post(&self, name: Name, slot: u32, room: Vec<Piece>) {
        lock(&self.state).send(&DataPacket::Posted { name, slot, room });
    }

    /// Stops a consumer, whose memory is revoked already.
    pub(super) fn end(&self, name: Name) {
        let mut state = lock(&self.state);
        self.sort(&mut state);
        state.local.remove(&name);
        state.send(&DataPacket::Withdraw { name });
    }

    /// Distributes the data packets that have arrived.
    pub(super) fn receive(&self) {
        let mut state = lock(&self.state);
        self.sort(&mut state);
    }

    /// Takes a posted buffer for a message of `len` bytes with the data `immediate`.
    /// Errors: `AGAIN` if the consumer has no buffer posted; `TOO_BIG` if the next buffer is smaller;
    /// `INVALID_VALUE` if the consumer accepts less immediate data; `NOT_CONNECTED` if the consumer does not
    /// exist.
    pub(super) fn take(&self, consumer: u32, len: u64, immediate: &Immediate) -> Outcome<Taken> {
        let mut state = lock(&self.state);
        if state.remotes.get(&consumer).is_none_or(|remote| remote.posted.is_empty()) {
            self.sort(&mut state);
        }
        let remote = state.remotes.get_mut(&consumer).ok_or(c::DOCA_ERROR_NOT_CONNECTED)?;
        require(immediate.len <= remote.immediate, c::DOCA_ERROR_INVALID_VALUE)?;
        let (slot, room) = remote.posted.pop_front().ok_or(c::DOCA_ERROR_AGAIN)?;
        if len > room.iter().fold(0, |sum: u64, piece| sum.saturating_add(piece.1)) {
            remote.posted.push_front((slot, room));
            return Err(c::DOCA_ERROR_TOO_BIG);
        }
        Ok(Taken { name: remote.name, slot, room, memory: Arc::clone(&remote.memory) })
    }

    /// Puts back a taken buffer to which no message was written.
    pub(super) fn give_back(&self, taken: Taken) {
        let mut state = lock(&self.state);
        let remote = state.remotes.get_mut(&taken.name.id).filter(|remote| remote.name == taken.name);
        if let Some(remote) = remote {
            remote.posted.push_front((taken.slot, taken.room));
        }
    }

    /// Copies a message into a taken buffer, and notifies the consumer. `copy` receives a function that
    /// writes bytes to an address in the consumer's memory.
    /// Errors: the errors of `copy`, and `NOT_CONNECTED` if the consumer does not exist any more.
    pub(super) fn fill(
        &self,
        taken: &Taken,
        producer: u32,
        len: u64,
        immediate: Immediate,
        copy: impl FnOnce(&mut dyn FnMut(u64, &[u8]) -> Outcome) -> Outcome,
    ) -> Outcome {
        let gone = |error: RemoteError| {
            sdk_log!(INFO, "comch producer: consumer {} cannot receive: {error}", taken.name.id);
            c::DOCA_ERROR_NOT_CONNECTED
        };
        let import = taken.memory.open().map_err(gone)?;
        // The lease is held until the consumer is notified, so that the consumer's memory is not revoked
        // earlier.
        let _lease = import.lease().map_err(gone)?;
        copy(&mut |at, bytes| {
            let offset = at.checked_sub(taken.memory.addr).ok_or(c::DOCA_ERROR_IO_FAILED)?;
            import.write_at(offset, bytes).map_err(gone)
        })?;
        let (name, slot) = (taken.name, taken.slot);
        lock(&self.state).send(&DataPacket::Filled { name, slot, producer, len, immediate });
        Ok(())
    }

    /// Takes the next change of the peer's consumers.
    pub(super) fn next_event(&self) -> Option<ConsumerChange> {
        lock(&self.state).events.pop_front()
    }

    fn sort(&self, state: &mut FastPathState) {
        state.send_more();
        let Some(channel) = state.channel.clone() else { return };
        let mut bytes = [MaybeUninit::uninit(); DATA_PACKET_LEN];
        for _ in 0..ROUNDS {
            match recv(&channel, &mut bytes[..], RecvFlags::DONTWAIT) {
                Ok(((packet, _), _)) if !packet.is_empty() => match DataPacket::parse(packet) {
                    Some(packet) => self.sort_one(state, packet),
                    None => sdk_log!(ERROR, "comch: the other side sent a data packet of an unknown kind"),
                },
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // The other end has closed the socket.
                Ok(_) | Err(_) => {
                    state.channel = None;
                    state.remotes.clear();
                    return;
                }
            }
        }
    }

    fn sort_one(&self, state: &mut FastPathState, packet: DataPacket) {
        match packet {
            DataPacket::Announce { name, immediate, addr, len, descriptor } => {
                let memory = Arc::new(ExportedMemory { addr, len, descriptor, import: OnceLock::new() });
                let remote = Remote { name, memory, immediate, posted: VecDeque::new() };
                state.remotes.insert(name.id, remote);
                state.events.push_back(ConsumerChange::Created(name.id));
                state.send(&DataPacket::Welcome { name });
                self.wake_flag.call();
            }
            DataPacket::Welcome { name } => {
                if let Some(inbox) = state.local.get(&name) {
                    inbox.welcome.store(true, Ordering::Release);
                }
            }
            DataPacket::Posted { name, slot, room } => {
                let remote = state.remotes.get_mut(&name.id).filter(|remote| remote.name == name);
                if let Some(remote) = remote.filter(|remote| remote.memory.has(&room)) {
                    remote.posted.push_back((slot, room));
                }
            }
            DataPacket::Filled { name, slot, producer, len, immediate } => {
                if let Some(inbox) = state.local.get(&name) {
                    lock(&inbox.arrived).push_back(Arrival { slot, producer, len, immediate });
                }
            }
            DataPacket::Withdraw { name } => {
                if state.remotes.get(&name.id).is_some_and(|remote| remote.name == name) {
                    state.remotes.remove(&name.id);
                    state.events.push_back(ConsumerChange::Destroyed(name.id));
                    self.wake_flag.call();
                }
            }
        }
    }
}

impl FastPathState {
    /// Takes the lowest free number, starting at 1, for a consumer or producer.
    fn new_id(&mut self, limit: u32, taken: impl FnOnce(&mut Self) -> &mut BTreeSet<u32>) -> Outcome<u32> {
        require(self.channel.is_some(), c::DOCA_ERROR_BAD_STATE)?;
        let taken = taken(self);
        let id = (1..=limit).find(|id| !taken.contains(id)).ok_or(c::DOCA_ERROR_NO_MEMORY)?;
        taken.insert(id);
        Ok(id)
    }

    /// Sends a data packet after all packets that wait in the outbox.
    fn send(&mut self, packet: &DataPacket) {
        if self.channel.is_some() {
            self.outbox.push_back(packet.to_bytes());
            self.send_more();
        }
    }

    fn send_more(&mut self) {
        let Some(channel) = &self.channel else { return };
        while let Some(bytes) = self.outbox.front() {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match rustix::net::send(channel, bytes, flags) {
                Err(Errno::INTR) => continue,
                // A later call sends the packet.
                Err(Errno::AGAIN) => return,
                // The packet was sent, or the other end has closed the socket. The next read detects that.
                Ok(_) | Err(_) => {}
            }
            self.outbox.pop_front();
        }
    }
}
