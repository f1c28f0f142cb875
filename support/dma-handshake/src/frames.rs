//! Messages on a stream. The length of each message precedes it. With keys, a length is a message of Noise,
//! and the message follows as one or more messages of Noise.

use std::io::{self, BufReader, Read, Write};

use crate::keys::{Keys, MAX_PIECE, TAG_LEN};

/// The sending half of a connection.
#[derive(Debug)]
pub struct Sending<S> {
    stream: S,
    keys: Option<Keys>,
    /// Buffer for the length and the message, so that one call writes both.
    frame: Vec<u8>,
}

impl<S: Write> Sending<S> {
    /// Creates the sending half of `stream`. With `keys`, messages are encrypted.
    pub const fn new(stream: S, keys: Option<Keys>) -> Self {
        Self { stream, keys, frame: Vec::new() }
    }

    /// Sends a message of 1 to 2^32 - 1 bytes. Blocks if the stream blocks.
    ///
    /// # Errors
    ///
    /// The errors of the stream.
    pub fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let len = (message.len() as u32).to_le_bytes();
        self.frame.clear();
        if let Some(keys) = &mut self.keys {
            keys.seal(&len, &mut self.frame);
            message.chunks(MAX_PIECE).for_each(|piece| keys.seal(piece, &mut self.frame));
        } else {
            self.frame.extend_from_slice(&len);
            self.frame.extend_from_slice(message);
        }
        self.stream.write_all(&self.frame)?;
        self.stream.flush()
    }
}

/// The receiving half of a connection.
#[derive(Debug)]
pub struct Receiving<S> {
    stream: BufReader<S>,
    keys: Option<Keys>,
    max: usize,
    /// Buffer for an encrypted piece.
    sealed: Vec<u8>,
}

impl<S: Read> Receiving<S> {
    /// Creates the receiving half of `stream`, for messages of up to `max` bytes. With `keys`, messages are
    /// decrypted.
    pub fn new(stream: S, keys: Option<Keys>, max: usize) -> Self {
        Self { stream: BufReader::new(stream), keys, max, sealed: Vec::new() }
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
        self.fill(&mut len)?;
        let (len, max) = (u32::from_le_bytes(len) as usize, self.max);
        if len == 0 || len > max {
            let what = format!("a message of {len} bytes, but the maximum is {max}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        into.resize(len, 0);
        into.chunks_mut(MAX_PIECE).try_for_each(|piece| self.fill(piece))
    }

    /// Reads and decrypts the next bytes.
    fn fill(&mut self, into: &mut [u8]) -> io::Result<()> {
        let Some(keys) = &mut self.keys else { return self.stream.read_exact(into) };
        self.sealed.resize(into.len() + TAG_LEN, 0);
        self.stream.read_exact(&mut self.sealed)?;
        keys.open(&self.sealed, into)
    }
}
