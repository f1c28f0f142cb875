//! Messages on a stream, authenticated if the channel has a secret.

use std::io::{self, Read, Write};

use dma_handshake::{Macs, Receiving, Sending};

use super::{Channel, Receiver, Sender};
use crate::protocol::MAX_MESSAGE;

/// A channel over a stream and its clone. `macs` authenticate the messages sent and received.
pub(super) fn channel<S: Read + Write + Send + 'static>(
    stream: S,
    clone: S,
    macs: Option<(Macs, Macs)>,
) -> Channel {
    let (sends, receives) = macs.unzip();
    Channel {
        sender: Box::new(Sending::new(clone, sends)),
        receiver: Box::new(Receiving::new(stream, receives, MAX_MESSAGE)),
        max_message: MAX_MESSAGE,
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
