//! Messages on a stream: a `u32` with the length precedes each, and a MAC follows it if there is a secret.

use std::io::{self, BufReader, Read, Write};

use crate::mac::MAC_LEN;
use crate::secret::Macs;

/// The sending half of a connection.
#[derive(Debug)]
pub struct Sending<S> {
    stream: S,
    macs: Option<Macs>,
    /// The message with its length and MAC, so that one call writes it.
    frame: Vec<u8>,
}

impl<S: Write> Sending<S> {
    /// Sends to `stream`; with `macs`, authenticated.
    pub const fn new(stream: S, macs: Option<Macs>) -> Self {
        Self { stream, macs, frame: Vec::new() }
    }

    /// Sends a message of 1 byte to 4 GiB. Blocks as the stream does.
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
    /// Receives messages of up to `max` bytes from `stream`; with `macs`, authenticated.
    pub fn new(stream: S, macs: Option<Macs>, max: usize) -> Self {
        Self { stream: BufReader::new(stream), macs, max }
    }

    /// Receives a message, and replaces the contents of `into` by it. Blocks as the stream does.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` if the other side closed the connection, `InvalidData` for a message that is empty,
    /// too long, or not sent by the other side, and all errors of the stream. Nothing can be received after
    /// an error.
    pub fn receive(&mut self, into: &mut Vec<u8>) -> io::Result<()> {
        let mut len = [0; 4];
        self.stream.read_exact(&mut len)?;
        let (len, max) = (u32::from_le_bytes(len) as usize, self.max);
        let invalid = |what: String| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        if len == 0 || len > max {
            return invalid(format!("a message of {len} bytes, and none is longer than {max}"));
        }
        into.resize(len, 0);
        self.stream.read_exact(into)?;
        if let Some(macs) = &mut self.macs {
            let mut mac = [0; MAC_LEN];
            self.stream.read_exact(&mut mac)?;
            // MACs compare in constant time.
            if macs.next(into) != mac {
                return invalid("a message that was changed or forged on the way".to_owned());
            }
        }
        Ok(())
    }
}
