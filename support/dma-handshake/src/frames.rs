//! Messages on a stream. A `u32` with the length precedes each message. With a secret, a MAC follows each
//! message.

use std::io::{self, BufReader, Read, Write};

use crate::mac::MAC_LEN;
use crate::secret::Macs;

/// The sending half of a connection.
#[derive(Debug)]
pub struct Sending<S> {
    stream: S,
    macs: Option<Macs>,
    /// Buffer for the length, the message and its MAC, so that one call writes all of them.
    frame: Vec<u8>,
}

impl<S: Write> Sending<S> {
    /// Creates the sending half of `stream`. With `macs`, messages are authenticated.
    pub const fn new(stream: S, macs: Option<Macs>) -> Self {
        Self { stream, macs, frame: Vec::new() }
    }

    /// Sends a message of 1 to 2^32 - 1 bytes. Blocks if the stream blocks.
    ///
    /// # Errors
    ///
    /// The errors of the stream.
    pub fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.frame.clear();
        self.frame.extend_from_slice(&(message.len() as u32).to_le_bytes());
        self.frame.extend_from_slice(message);
        if let Some(macs) = &mut self.macs {
            self.frame.extend_from_slice(macs.next(message).as_bytes());
        }
        self.stream.write_all(&self.frame)?;
        self.stream.flush()
    }
}

/// The receiving half of a connection.
#[derive(Debug)]
pub struct Receiving<S> {
    stream: BufReader<S>,
    macs: Option<Macs>,
    max: usize,
}

impl<S: Read> Receiving<S> {
    /// Creates the receiving half of `stream`, for messages of up to `max` bytes. With `macs`, messages are
    /// authenticated.
    pub fn new(stream: S, macs: Option<Macs>, max: usize) -> Self {
        Self { stream: BufReader::new(stream), macs, max }
    }

    /// Receives a message, and replaces the contents of `into` by it. Blocks if the stream blocks.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` if the other side closed the connection; `InvalidData` for a message that is empty,
    /// too long, or not sent by the other side; all errors of the stream. No message can be received after
    /// an error.
    pub fn receive(&mut self, into: &mut Vec<u8>) -> io::Result<()> {
        let mut len = [0; 4];
        self.stream.read_exact(&mut len)?;
        let (len, max) = (u32::from_le_bytes(len) as usize, self.max);
        let invalid = |what: String| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        if len == 0 || len > max {
            return invalid(format!("a message of {len} bytes, but the maximum is {max}"));
        }
        into.resize(len, 0);
        self.stream.read_exact(into)?;
        if let Some(macs) = &mut self.macs {
            let mut mac = [0; MAC_LEN];
            self.stream.read_exact(&mut mac)?;
            // MACs are compared in constant time.
            if macs.next(into) != mac {
                return invalid("a message that was changed or forged in transit".to_owned());
            }
        }
        Ok(())
    }
}
