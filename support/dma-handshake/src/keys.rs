//! [`Keys`]: encrypt or decrypt the messages of one direction.

use std::io;
use std::sync::Arc;

use snow::StatelessTransportState;

/// Length by which encryption extends a message, in bytes: the authentication tag.
pub(crate) const TAG_LEN: usize = 16;
/// Maximum number of bytes that Noise encrypts at once.
pub(crate) const MAX_PIECE: usize = 65535 - TAG_LEN;

/// Encrypts the messages that a side sends, or decrypts the messages that it receives, in order.
pub struct Keys {
    session: Arc<StatelessTransportState>,
    /// The number of the next message, which is its nonce.
    number: u64,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Keys {
    /// Returns the keys of the messages sent and received.
    pub(crate) fn of(session: StatelessTransportState) -> (Self, Self) {
        let session = Arc::new(session);
        (Self { session: Arc::clone(&session), number: 0 }, Self { session, number: 0 })
    }

    /// Encrypts the next message, of at most [`MAX_PIECE`] bytes, and appends it to `out`.
    pub(crate) fn seal(&mut self, message: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + message.len() + TAG_LEN, 0);
        let sealed = self.session.write_message(self.number, message, &mut out[start..]);
        sealed.expect("the message is short, and fewer than 2^64 precede it");
        self.number += 1;
    }

    /// Decrypts the next message into `out`, which has its length.
    pub(crate) fn open(&mut self, sealed: &[u8], out: &mut [u8]) -> io::Result<()> {
        self.session.read_message(self.number, sealed, out).map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidData, "a message that was changed or forged in transit")
        })?;
        self.number += 1;
        Ok(())
    }
}
