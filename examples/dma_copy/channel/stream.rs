//! Messages on a stream: each has its length before it, a `u32`, and a MAC behind it where the channel has one.

use std::io::{self, Read, Write};

use super::mac::{MAC_LEN, Macs};
use super::{Receiver, Sender};
use crate::protocol::MAX_MESSAGE;

/// Writes messages.
pub(super) struct StreamSender<S> {
    stream: S,
    macs: Option<Macs>,
    /// A message with what is around it, so that it goes out in one piece.
    frame: Vec<u8>,
}

impl<S> StreamSender<S> {
    pub(super) fn new(stream: S, macs: Option<Macs>) -> Self {
        Self { stream, macs, frame: Vec::new() }
    }
}

impl<S: Write + Send> Sender for StreamSender<S> {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.frame.clear();
        self.frame.extend_from_slice(&(message.len() as u32).to_le_bytes());
        self.frame.extend_from_slice(message);
        if let Some(macs) = &mut self.macs {
            self.frame.extend_from_slice(macs.next(message).as_bytes());
        }
        self.stream.write_all(&self.frame)
    }
}

/// Reads messages.
pub(super) struct StreamReceiver<S> {
    stream: io::BufReader<S>,
    macs: Option<Macs>,
}

impl<S: Read> StreamReceiver<S> {
    pub(super) fn new(stream: S, macs: Option<Macs>) -> Self {
        Self { stream: io::BufReader::new(stream), macs }
    }
}

impl<S: Read + Send> Receiver for StreamReceiver<S> {
    fn receive(&mut self, into: &mut Vec<u8>) -> io::Result<()> {
        let mut len = [0; 4];
        self.stream.read_exact(&mut len)?;
        let len = u32::from_le_bytes(len) as usize;
        if len == 0 || len > MAX_MESSAGE {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a message of {len} bytes, and none is longer than {MAX_MESSAGE}"),
            ));
        }
        into.resize(len, 0);
        self.stream.read_exact(into)?;
        if let Some(macs) = &mut self.macs {
            let mut mac = [0; MAC_LEN];
            self.stream.read_exact(&mut mac)?;
            // Compared in constant time.
            if macs.next(into) != mac {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a message that somebody changed on the way, or made up",
                ));
            }
        }
        Ok(())
    }
}
