//! Messages said and heard, with deadlines; signs of life.
//!
//! A thread of its own hears, so that the other side's signs of life are noticed whatever this side is busy with. Another says `Progress` now
//! and then, but only if work was done since: who is stuck looks dead, and is taken for dead.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::channel::{Channel, Receiver, Sender};
use crate::check_interrupt;
use crate::dpu::Block;
use crate::failure::{Failure, failure};
use crate::options::Options;
use crate::protocol::{Message, Role, Step};
use crate::seconds;

/// The longest that anything waits without a look at whether it was interrupted.
const LOOK: Duration = Duration::from_millis(50);
/// How often at most a sign of life is sent.
const BEAT: Duration = Duration::from_millis(500);
/// How many events may wait to be looked at: more than an honest peer has under way.
const EVENTS: usize = 2048;
/// How long to look for the other side's reason when a channel breaks.
const REASON: Duration = Duration::from_millis(300);

/// Work done by this process, in no unit: grows with every block that is read, moved, hashed or written.
static WORK: AtomicU64 = AtomicU64::new(0);

/// Whoever has done a piece of work says so.
pub(crate) fn worked() {
    WORK.fetch_add(1, Ordering::Relaxed);
}

/// What there is to react to.
#[derive(Debug)]
pub(crate) enum Event {
    /// The other side said something (no `Progress`, and no `Abort`).
    Message(Message),
    /// A thread of this side has done something with a block.
    Block(Block),
    /// A thread of this side has done all that it had to, or could not.
    Ended(Result<(), Failure>),
    /// Nothing will be heard any more.
    Silence(Failure),
}

/// Whom a wait is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    Peer,
    /// A thread of this side, at this step.
    Own(Step),
}

/// The other side, as this one sees it.
pub(crate) struct Talk {
    peer: Role,
    voice: Arc<Voice>,
    events: mpsc::Receiver<Event>,
    into_events: SyncSender<Event>,
    life: Arc<Life>,
    timeout: Duration,
    /// The other side was told that this one gives up.
    aborted: AtomicBool,
    pub(crate) max_message: usize,
}

/// The sending half, for several threads.
struct Voice(Mutex<(Box<dyn Sender>, Vec<u8>)>);

impl Voice {
    fn say(&self, message: &Message) -> io::Result<()> {
        let mut voice = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (sender, bytes) = &mut *voice;
        message.encode(bytes);
        sender.send(bytes)
    }
}

/// When the other side last gave a sign of life.
struct Life {
    start: Instant,
    /// In microseconds from `start`.
    last: AtomicU64,
}

impl Life {
    fn sign(&self) {
        self.last.store(self.start.elapsed().as_micros() as u64, Ordering::Relaxed);
    }

    fn last(&self) -> Instant {
        self.start + Duration::from_micros(self.last.load(Ordering::Relaxed))
    }
}

impl Talk {
    /// Begins to talk.
    pub(crate) fn start(channel: Channel, options: &Options) -> Self {
        let peer = options.role().other();
        let Channel { sender, receiver, max_message } = channel;
        let voice = Arc::new(Voice(Mutex::new((sender, Vec::new()))));
        let life = Arc::new(Life { start: Instant::now(), last: AtomicU64::new(0) });
        let (into_events, events) = mpsc::sync_channel(EVENTS);
        // Neither thread is waited for: they end with the process.
        {
            let (events, life) = (into_events.clone(), Arc::clone(&life));
            std::thread::spawn(move || {
                let silence = listen(receiver, &events, &life, peer);
                let _ = events.send(Event::Silence(silence));
            });
        }
        {
            let voice = Arc::clone(&voice);
            let beat = BEAT.min(options.timeout / 4);
            std::thread::spawn(move || {
                let mut before = 0;
                loop {
                    std::thread::sleep(beat);
                    let done = WORK.load(Ordering::Relaxed);
                    // If it cannot be said, whoever says more finds out.
                    if done != before && voice.say(&Message::Progress { done }).is_ok() {
                        before = done;
                    }
                }
            });
        }
        Self {
            peer,
            voice,
            events,
            into_events,
            life,
            timeout: options.timeout,
            aborted: AtomicBool::new(false),
            max_message,
        }
    }

    /// Where threads of this side put their events.
    pub(crate) fn events(&self) -> SyncSender<Event> {
        self.into_events.clone()
    }

    /// How long a device or disk of this side may do nothing: half of what the other side waits, so that who knows the reason is the first to
    /// give up, and can say it.
    pub(crate) fn own_timeout(&self) -> Duration {
        self.timeout / 2
    }

    /// Says `message`.
    pub(crate) fn say(&self, message: &Message) -> Result<(), Failure> {
        tracing::trace!(?message, "say");
        self.voice.say(message).map_err(|e| self.broken(&e))
    }

    /// Tells the other side why this one gives up, unless it knows. Best effort.
    pub(crate) fn abort(&self, failure: &Failure) {
        if let Some((step, text)) = failure.to_tell()
            && !self.aborted.swap(true, Ordering::Relaxed)
        {
            let _ = self.voice.say(&Message::Abort { step, text });
        }
    }

    /// Why nothing can be said.
    fn broken(&self, e: &io::Error) -> Failure {
        if let Some(reason) = self.reason() {
            return reason;
        }
        match e.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                failure!(
                    Waiting,
                    "the {} takes no messages for {}; look there why it hangs",
                    self.peer,
                    seconds(self.timeout)
                )
            }
            _ => gone(self.peer, e),
        }
    }

    /// Why something failed that may have failed because the other side is gone: its own reason, if it gave one.
    pub(crate) fn reason_for(&self, failure: Failure) -> Failure {
        self.reason().unwrap_or(failure)
    }

    fn reason(&self) -> Option<Failure> {
        let until = Instant::now() + REASON;
        loop {
            match self.events.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Event::Silence(failure)) => return Some(failure),
                Ok(_) => {}
                Err(_) => return None,
            }
        }
    }

    /// Waits until the other side has heard all and gone, or for a moment.
    pub(crate) fn linger(&self) {
        let _ = self.reason();
    }

    /// What has happened, if anything has.
    pub(crate) fn try_event(&self) -> Result<Option<Event>, Failure> {
        check_interrupt()?;
        match self.events.try_recv() {
            Ok(Event::Silence(failure) | Event::Ended(Err(failure))) => Err(failure),
            Ok(event) => Ok(Some(event)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(failure!(Waiting, "nobody listens any more")),
        }
    }

    /// Waits until something happens, at most until whom the wait is for has given no sign of life for the timeout.
    pub(crate) fn event(&self, whom: For) -> Result<Event, Failure> {
        let began = Instant::now();
        loop {
            check_interrupt()?;
            match self.events.recv_timeout(LOOK.min(self.timeout)) {
                Ok(Event::Silence(failure) | Event::Ended(Err(failure))) => return Err(failure),
                Ok(event) => return Ok(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(failure!(Waiting, "nobody listens any more"));
                }
            }
            let (last, timeout) = match whom {
                For::Peer => (began.max(self.life.last()), self.timeout),
                For::Own(_) => (began, self.own_timeout()),
            };
            if last.elapsed() < timeout {
                continue;
            }
            let time = seconds(timeout);
            return Err(match whom {
                For::Peer => failure!(
                    Waiting,
                    "the {} gave no sign of life for {time}; look there why it hangs, or give a longer --timeout",
                    self.peer
                ),
                For::Own(step) => Failure::new(
                    step,
                    format!("no byte for {time}: the disk hangs; look into it, or give a longer --timeout"),
                ),
            });
        }
    }

    /// Why a thread of this side has ended before its time.
    pub(crate) fn why_ended(&self, step: Step) -> Failure {
        loop {
            if let Err(failure) = self.event(For::Own(step)) {
                return failure;
            }
        }
    }

    /// Waits for the other side's next message.
    pub(crate) fn hear(&self) -> Result<Message, Failure> {
        match self.event(For::Peer)? {
            Event::Message(message) => Ok(message),
            other => Err(failure!(Waiting, "a thread of this side spoke out of turn: {other:?}")),
        }
    }

    /// The other side said what it must not.
    pub(crate) fn unexpected(&self, message: &Message) -> Failure {
        self.violates(&format!("it said {} at the wrong time", message.name()))
    }

    /// The other side broke the protocol.
    pub(crate) fn violates(&self, what: &str) -> Failure {
        failure!(
            Waiting,
            "the {} does not keep to the protocol: {what}; use the same release on both sides",
            self.peer
        )
    }
}

fn gone(peer: Role, e: &io::Error) -> Failure {
    let why = match e.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
            "it ended, or the channel broke".to_owned()
        }
        _ => format!("the channel broke: {e}"),
    };
    failure!(Waiting, "the {peer} is gone: {why}; look there for what it said, and start both sides again")
}

/// Hears until there is nothing more to hear, and returns why.
fn listen(mut receiver: Box<dyn Receiver>, events: &SyncSender<Event>, life: &Life, peer: Role) -> Failure {
    let mut bytes = Vec::new();
    let mut done_before = 0;
    loop {
        if let Err(e) = receiver.receive(&mut bytes) {
            return match e.kind() {
                io::ErrorKind::InvalidData => {
                    failure!(Waiting, "the {peer} does not keep to the protocol: {e}")
                }
                _ => gone(peer, &e),
            };
        }
        let message = match Message::decode(&bytes) {
            Ok(message) => message,
            Err(e) => {
                return failure!(Waiting, "the {peer} does not keep to the protocol: {e}");
            }
        };
        tracing::trace!(?message, "hear");
        match message {
            // What has not grown is no sign of life.
            Message::Progress { done } if done <= done_before => continue,
            Message::Progress { done } => done_before = done,
            Message::Abort { step, text } => return Failure::There { side: peer, step, text },
            message => {
                if events.send(Event::Message(message)).is_err() {
                    return failure!(Waiting, "nobody listens any more");
                }
            }
        }
        life.sign();
    }
}
