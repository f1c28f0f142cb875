//! The connection with the other side: sends and receives messages and heartbeats, and checks deadlines.
//!
//! One thread receives, so that this side notices heartbeats while it is busy. Another thread sends a
//! `Progress` heartbeat if work was done since the last one, so that the other side can detect when this side
//! hangs.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::block::Block;
use crate::channel::{Channel, Receiver, Sender};
use crate::deadline::{POLL_INTERVAL, check_interrupt, seconds};
use crate::failure::{Failure, failure};
use crate::options::Options;
use crate::protocol::{Data, Message, Role, Step};
use apps_shared::hold;

/// Minimum time between heartbeats.
const HEARTBEAT: Duration = Duration::from_millis(500);
/// Maximum number of queued events. A correct peer has fewer in flight.
const MAX_EVENTS: usize = 2048;
/// Time to wait, after the channel breaks, for the reason that the other side has sent. The wait ends early
/// when the other side closes the channel.
const REASON_TIMEOUT: Duration = Duration::from_secs(10);

/// Amount of work done by this process. It grows with every block that is read, moved, hashed or written.
static PROGRESS: AtomicU64 = AtomicU64::new(0);

/// Counts a piece of work, which the next heartbeat reports.
pub(crate) fn made_progress() {
    PROGRESS.fetch_add(1, Ordering::Relaxed);
}

#[derive(Debug)]
pub(crate) enum Event {
    /// A message from the other side, except `Progress` and `Abort`.
    Message(Message),
    /// A block that a thread of this side has read or written.
    Block(Block),
    Ended(Result<(), Failure>),
    Closed(Failure),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitFor {
    Peer,
    /// A thread of this side, at this step.
    Own(Step),
}

/// The connection with the other side.
pub(crate) struct Session {
    /// Number of `Data` bytes that were received but not processed.
    held: Arc<AtomicU64>,
    peer: Role,
    sender: Arc<SharedSender>,
    events: mpsc::Receiver<Event>,
    into_events: SyncSender<Event>,
    last_heard: Arc<LastHeard>,
    timeout: Duration,
    /// Set when `Abort` was sent to the other side.
    aborted: AtomicBool,
    is_rdma: bool,
    pub(crate) max_message: usize,
}

/// The sending half of the channel, which several threads use, and a buffer for encoding.
struct SharedSender(Mutex<(Box<dyn Sender>, Vec<u8>)>);

impl SharedSender {
    fn send(&self, message: &Message) -> io::Result<()> {
        let mut locked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (sender, bytes) = &mut *locked;
        message.encode(bytes);
        sender.send(bytes)
    }
}

/// The time of the other side's last message.
struct LastHeard {
    start: Instant,
    /// In microseconds since `start`.
    micros: AtomicU64,
}

impl LastHeard {
    fn update(&self) {
        self.micros.store(self.start.elapsed().as_micros() as u64, Ordering::Relaxed);
    }

    fn get(&self) -> Instant {
        self.start + Duration::from_micros(self.micros.load(Ordering::Relaxed))
    }
}

impl Session {
    /// Starts two threads, which end with the process: one receives messages, and one sends heartbeats.
    pub(crate) fn start(channel: Channel, options: &Options) -> Self {
        let peer = options.role().other();
        let Channel { sender, receiver, max_message } = channel;
        let sender = Arc::new(SharedSender(Mutex::new((sender, Vec::new()))));
        let last_heard = Arc::new(LastHeard { start: Instant::now(), micros: AtomicU64::new(0) });
        let (into_events, events) = mpsc::sync_channel(MAX_EVENTS);
        let held = Arc::new(AtomicU64::new(0));
        {
            let (events, last_heard) = (into_events.clone(), Arc::clone(&last_heard));
            let (held, limit) = (Arc::clone(&held), if options.is_stream() { options.window } else { 0 });
            std::thread::spawn(move || {
                let closed = receive_all(receiver, &events, &last_heard, peer, (&held, limit));
                let _ = events.send(Event::Closed(closed));
            });
        }
        {
            let sender = Arc::clone(&sender);
            let interval = HEARTBEAT.min(options.timeout / 4);
            std::thread::spawn(move || {
                let mut before = 0;
                loop {
                    std::thread::sleep(interval);
                    let done = PROGRESS.load(Ordering::Relaxed);
                    // A failure to send is ignored here, because sending the next message reports it.
                    if done != before && sender.send(&Message::Progress { done }).is_ok() {
                        before = done;
                    }
                }
            });
        }
        Self {
            held,
            peer,
            sender,
            events,
            into_events,
            last_heard,
            timeout: options.timeout,
            aborted: AtomicBool::new(false),
            is_rdma: options.is_rdma(),
            max_message,
        }
    }

    pub(crate) fn events(&self) -> SyncSender<Event> {
        self.into_events.clone()
    }

    /// Timeout for this side's device and disk. It is half of the timeout for the other side, so that the
    /// side that knows the reason gives up first and sends the reason.
    pub(crate) fn own_timeout(&self) -> Duration {
        self.timeout / 2
    }

    pub(crate) fn send(&self, message: &Message) -> Result<(), Failure> {
        tracing::trace!(?message, "send");
        self.sender.send(message).map_err(|e| self.cannot_send(&e))
    }

    /// Tries to send this side's failure, unless a failure was sent before or this failure came from the
    /// other side.
    pub(crate) fn abort(&self, failure: &Failure) {
        if let Some((step, text)) = failure.to_send(self.is_rdma)
            && !self.aborted.swap(true, Ordering::Relaxed)
        {
            let _ = self.sender.send(&Message::Abort { step, text });
        }
    }

    /// Returns the failure for an error of sending: a signal, the other side's reason, or else the error.
    fn cannot_send(&self, e: &io::Error) -> Failure {
        if let Err(interrupted) = check_interrupt() {
            return interrupted;
        }
        if let Some(reason) = self.reason() {
            return reason;
        }
        match e.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                failure!(
                    Waiting,
                    "the {} has received no messages for {}; check there why it hangs",
                    self.peer,
                    seconds(self.timeout)
                )
            }
            _ => disconnected(self.peer, e),
        }
    }

    /// Returns the reason why the connection has ended: the reason that the other side sent, if it sent one.
    /// Returns `failure` if the connection has not ended within [`REASON_TIMEOUT`].
    pub(crate) fn reason_for(&self, failure: Failure) -> Failure {
        self.reason().unwrap_or(failure)
    }

    /// Waits up to [`REASON_TIMEOUT`] until the connection has ended. Returns the reason why it ended.
    fn reason(&self) -> Option<Failure> {
        let until = Instant::now() + REASON_TIMEOUT;
        loop {
            match self.events.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Event::Closed(failure)) => return Some(failure),
                Ok(_) => {}
                Err(_) => return None,
            }
        }
    }

    /// Waits until the other side has closed the connection, at most [`REASON_TIMEOUT`].
    pub(crate) fn linger(&self) {
        let _ = self.reason();
    }

    /// Returns the next event, or `None` if no event has arrived.
    pub(crate) fn try_event(&self) -> Result<Option<Event>, Failure> {
        check_interrupt()?;
        match self.events.try_recv() {
            Ok(Event::Closed(failure) | Event::Ended(Err(failure))) => Err(failure),
            Ok(event) => Ok(Some(event)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(receiver_ended()),
        }
    }

    /// Waits for the next event. Fails if `whom` has made no progress during its timeout.
    pub(crate) fn event(&self, whom: WaitFor) -> Result<Event, Failure> {
        let began = Instant::now();
        loop {
            check_interrupt()?;
            match self.events.recv_timeout(POLL_INTERVAL.min(self.timeout)) {
                Ok(Event::Closed(failure) | Event::Ended(Err(failure))) => return Err(failure),
                Ok(event) => return Ok(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(receiver_ended()),
            }
            let (last, timeout) = match whom {
                WaitFor::Peer => (began.max(self.last_heard.get()), hold::timeout("peer", self.timeout)),
                WaitFor::Own(_) => (began, self.own_timeout()),
            };
            if last.elapsed() < timeout {
                continue;
            }
            let time = seconds(timeout);
            return Err(match whom {
                WaitFor::Peer => failure!(
                    Waiting,
                    "the {} made no progress for {time}; check there why it hangs, or give a longer --timeout",
                    self.peer
                ),
                WaitFor::Own(step) => Failure::new(
                    step,
                    format!(
                        "the disk has completed nothing for {time}; check the disk, or give a longer --timeout"
                    ),
                ),
            });
        }
    }

    /// Returns the failure of a thread of this side that has ended early.
    pub(crate) fn why_ended(&self, step: Step) -> Failure {
        loop {
            if let Err(failure) = self.event(WaitFor::Own(step)) {
                return failure;
            }
        }
    }

    /// Waits for the next message of the other side.
    pub(crate) fn receive(&self) -> Result<Message, Failure> {
        match self.event(WaitFor::Peer)? {
            Event::Message(message) => Ok(message),
            other => Err(unexpected_event(&other)),
        }
    }

    /// Subtracts `len` processed bytes of `Data` from `held`.
    pub(crate) fn release(&self, len: usize) {
        self.held.fetch_sub(len as u64, Ordering::Relaxed);
    }

    /// Returns the failure for a message that the other side must not send at this point.
    pub(crate) fn unexpected(&self, message: &Message) -> Failure {
        let text = format!("{message:?}");
        let kind = text.split([' ', '(']).next().unwrap_or_default();
        self.violates(&format!("it sent {kind} at the wrong time"))
    }

    /// Returns the failure for a violation of the protocol by the other side.
    pub(crate) fn violates(&self, what: &str) -> Failure {
        failure!(
            Waiting,
            "the {} violates the protocol: {what}; use the same release on both sides",
            self.peer
        )
    }
}

/// Returns the failure for an event that a thread must not send at this point.
pub(crate) fn unexpected_event(event: &Event) -> Failure {
    failure!(Waiting, "a thread of this side sent an event at the wrong time: {event:?}")
}

fn receiver_ended() -> Failure {
    failure!(Waiting, "the receiving thread has ended")
}

/// Returns the failure for a connection that has ended without a reason from the other side.
fn disconnected(peer: Role, e: &io::Error) -> Failure {
    let why = match e.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
            "it ended, or the channel broke".to_owned()
        }
        _ => format!("the channel broke: {e}"),
    };
    failure!(
        Waiting,
        "the connection to the {peer} has ended: {why}; check its output, and start both sides again"
    )
}

/// Receives until the connection ends. Returns the reason why it ended.
fn receive_all(
    mut receiver: Box<dyn Receiver>,
    events: &SyncSender<Event>,
    last_heard: &LastHeard,
    peer: Role,
    (held, limit): (&AtomicU64, u64),
) -> Failure {
    let violation = |e: &dyn std::fmt::Display| failure!(Waiting, "the {peer} violates the protocol: {e}");
    let mut bytes = Vec::new();
    let mut done_before = 0;
    loop {
        if let Err(e) = receiver.receive(&mut bytes) {
            return match e.kind() {
                io::ErrorKind::InvalidData => violation(&e),
                _ => disconnected(peer, &e),
            };
        }
        let message = match Message::decode(&bytes) {
            Ok(message) => message,
            Err(e) => return violation(&e),
        };
        tracing::trace!(?message, "receive");
        match message {
            // A heartbeat counts only if the amount of work has grown.
            Message::Progress { done } if done <= done_before => continue,
            Message::Progress { done } => done_before = done,
            Message::Abort { step, text } => return Failure::There { side: peer, step, text },
            // A correct sender waits for `Freed`, so its unprocessed bytes fit the window.
            Message::Data(Data(bytes))
                if held.fetch_add(bytes.len() as u64, Ordering::Relaxed) + bytes.len() as u64 > limit =>
            {
                return violation(&format_args!("it sends more bytes of blocks than the agreed {limit}"));
            }
            message => {
                if events.send(Event::Message(message)).is_err() {
                    return receiver_ended();
                }
            }
        }
        last_heard.update();
    }
}
