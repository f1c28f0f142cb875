//! Messages on a stream: a `u32` with the length precedes each, and a MAC follows it if the channel has a
//! secret.

use std::io::{self, Read, Write};

use super::mac::{MAC_LEN, Macs};
use super::{Channel, Receiver, Sender};
use crate::protocol::MAX_MESSAGE;

/// A channel over a stream and its clone. `macs` authenticate the messages sent and received.
pub(super) fn channel<S: Read + Write + Send + 'static>(
    stream: S,
    clone: S,
    macs: Option<(Macs, Macs)>,
) -> Channel {
    let (send, receive) = macs.unzip();
    Channel {
        sender: Box::new(StreamSender { stream: clone, macs: send, frame: Vec::new() }),
        receiver: Box::new(StreamReceiver { stream: io::BufReader::new(stream), macs: receive }),
        max_message: MAX_MESSAGE,
    }
}

struct StreamSender<S> {
    stream: S,
    macs: Option<Macs>,
    /// The message with its length and MAC, so that one call writes it.
    frame: Vec<u8>,
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

struct StreamReceiver<S> {
    stream: io::BufReader<S>,
    macs: Option<Macs>,
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
            // BLAKE3 hashes compare in constant time.
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
