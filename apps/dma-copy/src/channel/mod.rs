//! Channels for messages, over one of three carriers.
//!
//! The DPU listens. The host tries to connect until the DPU listens, so either side may start first.

mod comch;
mod stream;
mod tcp;
mod unix;

use std::io;
use std::time::Duration;

use crate::deadline::{Deadline, check_interrupt};
use crate::failure::{Failure, failure};
use crate::options::{Carrier, Options};

/// Time between two attempts to connect.
const RETRY: Duration = Duration::from_millis(20);

pub(crate) trait Sender: Send {
    /// Sends a message. May block up to the channel's timeout.
    fn send(&mut self, message: &[u8]) -> io::Result<()>;
}

pub(crate) trait Receiver: Send {
    /// Blocks until a message arrives, and replaces the contents of `into` by it. Fails with `UnexpectedEof`
    /// if the other side closed the channel.
    fn receive(&mut self, into: &mut Vec<u8>) -> io::Result<()>;
}

/// A channel to the other side, which has authenticated if the carrier requires it.
pub(crate) struct Channel {
    pub(crate) sender: Box<dyn Sender>,
    pub(crate) receiver: Box<dyn Receiver>,
    /// Maximum length of a message in bytes.
    pub(crate) max_message: usize,
}

/// Opens the channel that the options name. Blocks until the other side is connected, for at most the
/// timeout.
pub(crate) fn open(options: &Options) -> Result<Channel, Failure> {
    let deadline = Deadline::after(options.timeout);
    match &options.channel {
        None => unix::open(&unix::default_path()?, options, deadline),
        Some(Carrier::Unix(path)) => unix::open(path, options, deadline),
        Some(Carrier::Tcp(address)) => tcp::open(address, options, deadline),
        Some(Carrier::Comch(name)) => comch::open(name, options, deadline),
    }
}

/// Tries to connect until an attempt succeeds, fails permanently, or the deadline has passed.
fn connect<S>(at: &str, deadline: Deadline, mut try_it: impl FnMut() -> io::Result<S>) -> Result<S, Failure> {
    loop {
        check_interrupt()?;
        match try_it() {
            Ok(stream) => return Ok(stream),
            Err(e) if !is_temporary(&e) => {
                let remedy = dma::process::open_files_remedy(&e).unwrap_or("check --channel on both sides");
                return Err(failure!(Connecting, "cannot connect to {at}: {e}; {remedy}"));
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

/// True if a later attempt may succeed, because the listener has not started or its backlog is full.
fn is_temporary(e: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionRefused, ConnectionReset, HostUnreachable, NetworkUnreachable, NotFound, TimedOut,
        WouldBlock,
    };
    matches!(
        e.kind(),
        NotFound
            | WouldBlock
            | ConnectionRefused
            | ConnectionReset
            | TimedOut
            | HostUnreachable
            | NetworkUnreachable
    )
}

/// The failure when no host has connected in time. `more` is appended to the message.
fn no_host_connected(at: &str, deadline: Deadline, more: &str) -> Failure {
    failure!(
        Connecting,
        "no host connected to {at} within {}; start it with --role host and the same --channel, or give a longer --timeout{more}",
        deadline.shown()
    )
}
