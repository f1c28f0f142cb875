//! [`Secret`] and [`Protocol`].

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// The public name of a secret. Secrets of files have the id 0.
pub type Id = [u8; 16];

/// The name and the version of a protocol. Connections of one protocol are not valid in another protocol with
/// the same secret.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    /// The first bytes that each side sends.
    pub name: [u8; 7],
    /// Version of the protocol, a digit in ASCII. Sides of different versions refuse each other.
    pub version: u8,
    /// Length of the caller's request in bytes.
    pub request_len: usize,
    /// Length of the listener's reply in bytes.
    pub reply_len: usize,
    /// Name of the program, for error messages.
    pub program: &'static str,
}

/// A shared secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret {
    id: Id,
    key: [u8; 32],
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secret").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Secret {
    /// Minimum length in bytes.
    const MIN: u64 = 16;
    /// Maximum length in bytes.
    const MAX: u64 = 64 << 10;

    /// Makes a secret of 32 unpredictable bytes.
    #[must_use]
    pub const fn new(id: Id, key: [u8; 32]) -> Self {
        Self { id, key }
    }

    /// Returns the public name.
    #[must_use]
    pub const fn id(&self) -> &Id {
        &self.id
    }

    /// Returns the bytes that must remain secret.
    #[must_use]
    pub const fn key(&self) -> &[u8; 32] {
        &self.key
    }

    /// Reads the secret of the option `--secret-file`: 16 bytes to 64 KiB.
    ///
    /// # Errors
    ///
    /// The file cannot be read, other users than its owner have rights to it, or its length is out of range.
    /// The error's text names the remedy.
    pub fn read(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        // A pipe without a writer would block.
        const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let file =
            File::options().read(true).custom_flags(NONBLOCK).open(path).map_err(|e| {
                format!("cannot open --secret-file {shown}: {e}; check its name and permissions")
            })?;
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
        // Noise needs 32 bytes. The text makes them differ from those that another program derives.
        let key = hmac_sha256::HMAC::mac(&secret, "dma-handshake 2026-11 pre-shared key");
        Ok(Self::new(Id::default(), key))
    }
}
