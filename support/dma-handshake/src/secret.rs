//! [`Secret`], and the keys that are derived from it.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::mac::{self, MAC_LEN, Mac};
use crate::proof::{Proof, Side};

pub(crate) type Nonce = [u8; 32];

/// The magic number and the key contexts of a protocol. Proofs and messages of one protocol are not valid in
/// another protocol with the same secret.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    /// The first bytes that each side sends.
    pub magic: [u8; 8],
    /// Context of the keys for proofs: a text that is unique to the protocol.
    pub proof: &'static str,
    /// Context of the keys for the caller's messages.
    pub to_listener: &'static str,
    /// Context of the keys for the listener's messages.
    pub to_caller: &'static str,
    /// Name of the program, for error messages.
    pub program: &'static str,
}

/// A shared secret.
pub struct Secret(Vec<u8>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// Minimum length in bytes.
    const MIN: u64 = 16;
    /// Maximum length in bytes.
    const MAX: u64 = 64 << 10;

    /// Reads the secret of the option `--secret-file`: 16 bytes to 64 KiB.
    ///
    /// # Errors
    ///
    /// The file cannot be read, other users than its owner have rights to it, or its length is out of range.
    /// The error's text names the remedy.
    pub fn read(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let file = File::open(path).map_err(|e| format!("cannot open --secret-file {shown}: {e}"))?;
        let metadata = file.metadata().map_err(|e| format!("cannot stat --secret-file {shown}: {e}"))?;
        if !metadata.is_file() {
            return Err(format!("--secret-file {shown} is not a regular file"));
        }
        if metadata.mode() & 0o077 != 0 {
            return Err(format!(
                "--secret-file {shown} can be read by others than its owner, so it is not secret; chmod 600 {shown}"
            ));
        }
        let mut secret = Vec::new();
        file.take(Self::MAX + 1)
            .read_to_end(&mut secret)
            .map_err(|e| format!("cannot read --secret-file {shown}: {e}"))?;
        if !(Self::MIN..=Self::MAX).contains(&(secret.len() as u64)) {
            return Err(format!(
                "--secret-file {shown} has {} bytes, and a secret has {} to {}; create it with: head -c 32 /dev/urandom > {shown}",
                secret.len(),
                Self::MIN,
                Self::MAX
            ));
        }
        Ok(Self(secret))
    }

    /// Returns the proof that `side` knows the secret.
    pub(crate) fn proof(&self, of: &Protocol, side: Side, caller: &Nonce, listener: &Nonce) -> Proof {
        Proof::new(of.proof, &self.0, side, &[caller, listener])
    }

    /// Returns the MACs of the messages that `side` sends.
    pub(crate) fn macs(&self, of: &Protocol, side: Side, caller: &Nonce, listener: &Nonce) -> Macs {
        let context = match side {
            Side::Caller => of.to_listener,
            Side::Listener => of.to_caller,
        };
        Macs { key: mac::derive_key(context, &self.0, &[caller, listener]), number: 0 }
    }
}

/// Computes the MACs of the messages of one direction, in order.
pub struct Macs {
    key: [u8; MAC_LEN],
    number: u64,
}

impl std::fmt::Debug for Macs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Macs").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Macs {
    /// Returns the MAC of the next message.
    pub(crate) fn next(&mut self, message: &[u8]) -> Mac {
        let mac = Mac::new(&self.key, [&self.number.to_le_bytes()[..], message].iter());
        self.number += 1;
        mac
    }
}

/// Returns 32 unpredictable bytes.
pub(crate) fn nonce() -> io::Result<Nonce> {
    let mut nonce = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut nonce)?;
    Ok(nonce)
}
