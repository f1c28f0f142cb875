//! How the two sides talk: messages, whole and in order, over one of three carriers.
//!
//! The DPU listens and the host connects, again and again until it is there; so it makes no difference who starts first.

mod comch;
mod mac;
mod stream;
mod tcp;
mod unix;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::failure::{Failure, failure};
use crate::options::Options;
use crate::{Deadline, check_interrupt};

/// How long to wait before the next try to connect.
const RETRY: Duration = Duration::from_millis(20);

/// What carries the messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// A Unix socket at this path; at one of this user's own if there is none.
    Unix(Option<PathBuf>),
    /// TCP: an address, as `HOST:PORT`.
    Tcp(String),
    /// DOCA's comm channel, by the name of the service.
    Comch(String),
}

impl FromStr for Carrier {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(Self::Unix(Some(path.into()))),
            // A port alone is one of this machine only.
            Some(("tcp", port)) if port.parse::<u16>().is_ok() => Ok(Self::Tcp(format!("127.0.0.1:{port}"))),
            Some(("tcp", address))
                if address
                    .rsplit_once(':')
                    .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok()) =>
            {
                Ok(Self::Tcp(address.to_owned()))
            }
            Some(("comch", name)) if !name.is_empty() => Ok(Self::Comch(name.to_owned())),
            _ => Err(format!(
                "`{text}` is no channel; there are unix:PATH, tcp:PORT, tcp:HOST:PORT and comch:NAME"
            )),
        }
    }
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(Some(path)) => write!(f, "unix:{}", path.display()),
            Self::Unix(None) => f.write_str("unix"),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
            Self::Comch(name) => write!(f, "comch:{name}"),
        }
    }
}

/// The half of a channel that messages go into.
pub(crate) trait Sender: Send {
    /// Sends a message. May block, for as long as the channel was told to wait at most.
    fn send(&mut self, message: &[u8]) -> io::Result<()>;
}

/// The half of a channel that messages come from.
pub(crate) trait Receiver: Send {
    /// Blocks until there is a message, and puts it in the place of what is in `into`. `UnexpectedEof` when the other side is gone.
    fn receive(&mut self, into: &mut Vec<u8>) -> io::Result<()>;
}

/// A channel to the other side, which has proved who it is as far as the carrier asks for that.
pub(crate) struct Channel {
    pub(crate) sender: Box<dyn Sender>,
    pub(crate) receiver: Box<dyn Receiver>,
    /// The longest message in bytes that it carries.
    pub(crate) max_message: usize,
}

/// Opens the channel that `options` ask for.
pub(crate) fn open(options: &Options) -> Result<Channel, Failure> {
    let deadline = Deadline::after(options.timeout);
    match &options.channel {
        None => unix::open(&unix::default_path()?, options, deadline),
        Some(Carrier::Unix(None)) => unix::open(&unix::default_path()?, options, deadline),
        Some(Carrier::Unix(Some(path))) => unix::open(path, options, deadline),
        Some(Carrier::Tcp(address)) => tcp::open(address, options, deadline),
        Some(Carrier::Comch(name)) => comch::open(name, options, deadline),
    }
}

/// Tries to connect until it works, fails for good, or the deadline has passed.
fn connect<S>(at: &str, deadline: Deadline, mut try_it: impl FnMut() -> io::Result<S>) -> Result<S, Failure> {
    loop {
        check_interrupt()?;
        match try_it() {
            Ok(stream) => return Ok(stream),
            Err(e) if !is_not_there(&e) => {
                return Err(failure!(
                    Connecting,
                    "cannot connect to {at}: {e}; check --channel on both sides"
                ));
            }
            Err(_) if deadline.is_over() => {
                return Err(failure!(
                    Connecting,
                    "no DPU listened on {at} within {}; start it with --role dpu and the same --channel, or give a longer --timeout",
                    deadline.shown()
                ));
            }
            Err(_) => std::thread::sleep(RETRY.min(deadline.left())),
        }
    }
}

/// Whether a listener may yet come.
fn is_not_there(e: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionRefused, ConnectionReset, HostUnreachable, NetworkUnreachable, NotFound, TimedOut,
    };
    matches!(
        e.kind(),
        NotFound | ConnectionRefused | ConnectionReset | TimedOut | HostUnreachable | NetworkUnreachable
    )
}

/// Waits until `listener` has somebody to accept, or for `at_most`.
fn wait_for(listener: &impl std::os::fd::AsFd, at_most: Duration) {
    let nap = Timespec { tv_sec: 0, tv_nsec: i64::from(at_most.subsec_nanos()) };
    // Interrupted or refused, the caller looks all the same.
    let _ = rustix::event::poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&nap));
}

/// Nobody came.
fn nobody(at: &str, deadline: Deadline) -> Failure {
    failure!(
        Connecting,
        "no host connected to {at} within {}; start it with --role host and the same --channel, or give a longer --timeout",
        deadline.shown()
    )
}

/// What is left until `deadline`, for a socket's timeout: never zero, which would mean for ever.
fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}
