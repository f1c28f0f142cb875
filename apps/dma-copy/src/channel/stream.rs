//! Messages on a stream, encrypted if the channel has a secret.

use std::io::{self, Read, Write};
use std::time::Duration;

use dma_handshake::{Keys, Receiving, Sending};

use super::{Channel, Receiver, Sender};
use crate::deadline::Deadline;
use crate::protocol::MAX_MESSAGE;

/// Makes a channel from a stream and its clone. Their write timeout must be
/// [`POLL_INTERVAL`](crate::deadline::POLL_INTERVAL). `keys` encrypt the messages sent, and decrypt those
/// received. Sending fails if the other side receives no bytes for `timeout`.
pub(super) fn channel<S: Read + Write + Send + 'static>(
    stream: S,
    clone: S,
    keys: Option<(Keys, Keys)>,
    timeout: Duration,
) -> Channel {
    let (sends, receives) = keys.unzip();
    Channel {
        sender: Box::new(Sending::new(Interruptible { stream: clone, timeout }, sends)),
        receiver: Box::new(Receiving::new(stream, receives, MAX_MESSAGE)),
        max_message: MAX_MESSAGE,
    }
}

/// A stream whose writes end when a signal arrives, even if the other side receives no bytes.
struct Interruptible<S> {
    stream: S,
    timeout: Duration,
}

impl<S: Write> Write for Interruptible<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let deadline = Deadline::after(self.timeout);
        loop {
            match self.stream.write(bytes) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => match deadline.is_over_or_interrupted() {
                    Ok(false) => {}
                    _ => return Err(e),
                },
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl<S: Write + Send> Sender for Sending<S> {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        Self::send(self, message)
    }
}

impl<S: Read + Send> Receiver for Receiving<S> {
    fn receive(&mut self, into: &mut Vec<u8>) -> io::Result<()> {
        Self::receive(self, into)
    }
}
