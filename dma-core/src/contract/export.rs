//! [`ExportDescriptor`]: the bytes that a peer needs to import memory. Any channel can carry these bytes.

use std::io::Write;
use std::path::Path;

use crate::{Access, Error, ErrorKind, Result};
use dma_process::OutputFile;

/// The first bytes of every descriptor.
const MAGIC: [u8; 4] = *b"DMAX";
/// The version of the encoding that is described at [`ExportDescriptor`].
const VERSION: u16 = 2;
/// Number of bytes before the backend's name.
const HEADER: usize = 4 + 2 + 2 + 4 + 8 + 4;
/// Number of bytes of the checksum at the end.
const TRAILER: usize = 4;

/// A grant of memory to a peer. The descriptor contains the backend's name, the rights, the length and the
/// backend's own blob.
///
/// Any process that has the bytes of this descriptor can import the memory. Send them over a channel that
/// only the peer can read.
///
/// # Encoding
///
/// Little-endian: magic `DMAX`; version `u16` (2); length of the backend's name `u16`; rights `u32`; length
/// of the memory `u64`; length of the blob `u32`; the name; the blob; CRC-32 of all preceding bytes. At most
/// [`MAX_ENCODED`](Self::MAX_ENCODED) bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct ExportDescriptor {
    backend: String,
    rights: Access,
    len: u64,
    native: Vec<u8>,
}

impl std::fmt::Debug for ExportDescriptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Prints only the length of the blob, because the blob may contain a secret.
        f.debug_struct("ExportDescriptor")
            .field("backend", &self.backend)
            .field("rights", &self.rights)
            .field("len", &self.len)
            .field("native_len", &self.native.len())
            .finish()
    }
}

impl ExportDescriptor {
    /// The longest backend name, in bytes.
    pub const MAX_BACKEND: usize = 32;
    /// The longest blob of a backend, in bytes.
    pub const MAX_NATIVE: usize = 64 * 1024;
    /// The longest encoding, in bytes.
    pub const MAX_ENCODED: usize = HEADER + Self::MAX_BACKEND + Self::MAX_NATIVE + TRAILER;

    /// Makes the descriptor of an export of `len` bytes by `backend`.
    ///
    /// # Errors
    ///
    /// `OutOfRange` if the name is empty or longer than [`MAX_BACKEND`](Self::MAX_BACKEND), or if the blob is
    /// longer than [`MAX_NATIVE`](Self::MAX_NATIVE); `InvalidArgument` if the name has characters other than
    /// lower-case letters, digits and `-`, or if `rights` are empty.
    pub fn new(backend: &str, rights: Access, len: u64, native: &[u8]) -> Result<Self> {
        let bad = |kind, message: String| Error::new(kind, message).with_operation("make export descriptor");
        if backend.is_empty() || backend.len() > Self::MAX_BACKEND {
            return Err(bad(ErrorKind::OutOfRange, format!("backend name of {} bytes", backend.len()))
                .with_numbers(backend.len() as u64, Self::MAX_BACKEND as u64));
        }
        if !backend.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
            return Err(bad(ErrorKind::InvalidArgument, format!("backend name {backend:?}"))
                .with_hint("use lower-case letters, digits and -"));
        }
        if rights.is_empty() || !Access::all().contains(rights) {
            return Err(bad(ErrorKind::InvalidArgument, format!("rights {:#x}", rights.bits()))
                .with_hint("grant READ, WRITE or both"));
        }
        if native.len() > Self::MAX_NATIVE {
            return Err(bad(ErrorKind::OutOfRange, "the backend's blob is too long".to_owned())
                .with_numbers(native.len() as u64, Self::MAX_NATIVE as u64));
        }
        Ok(Self { backend: backend.to_owned(), rights, len, native: native.to_vec() })
    }

    /// Returns the backend whose engines can import the memory.
    #[must_use]
    pub fn backend(&self) -> &str {
        &self.backend
    }

    /// Returns the peer's rights.
    #[must_use]
    pub const fn rights(&self) -> Access {
        self.rights
    }

    /// Returns the length in bytes.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether the length is 0. Importing such a descriptor does not call the engine.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the backend's own blob.
    #[must_use]
    pub fn native(&self) -> &[u8] {
        &self.native
    }

    /// Returns the encoded descriptor.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER + self.backend.len() + self.native.len() + TRAILER);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        // `new` has checked both lengths, so they fit.
        out.extend_from_slice(&(self.backend.len() as u16).to_le_bytes());
        out.extend_from_slice(&self.rights.bits().to_le_bytes());
        out.extend_from_slice(&self.len.to_le_bytes());
        out.extend_from_slice(&(self.native.len() as u32).to_le_bytes());
        out.extend_from_slice(self.backend.as_bytes());
        out.extend_from_slice(&self.native);
        let checksum = crc32fast::hash(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Decodes the bytes that [`to_bytes`](Self::to_bytes) returned. Never panics, and never allocates more
    /// bytes than the input has.
    ///
    /// # Errors
    ///
    /// `Malformed`, with the reason, for bytes that are not a descriptor; `VersionMismatch` for an encoding
    /// of another version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let bad = |kind, message: String| {
            Error::new(kind, message)
                .with_operation("read export descriptor")
                .with_hint("send the exporter's bytes complete and unchanged")
        };
        let malformed = |message: &str| bad(ErrorKind::Malformed, message.to_owned());
        if bytes.len() > Self::MAX_ENCODED {
            return Err(malformed("too long").with_numbers(bytes.len() as u64, Self::MAX_ENCODED as u64));
        }
        let header = bytes.first_chunk::<HEADER>().ok_or_else(|| malformed("too short"))?;
        let field = |at: std::ops::Range<usize>| {
            header[at].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        if header[..4] != MAGIC {
            return Err(malformed("the descriptor does not begin with DMAX"));
        }
        let version = field(4..6);
        if version != u64::from(VERSION) {
            return Err(bad(
                ErrorKind::VersionMismatch,
                format!("the descriptor has version {version}, but this library reads version {VERSION}"),
            )
            .with_hint("use the same release of this library on both sides"));
        }
        let (name_len, rights, len) = (field(6..8) as usize, field(8..12) as u32, field(12..20));
        let native_len = field(20..24) as usize;
        let expected = HEADER + name_len + native_len + TRAILER;
        if bytes.len() != expected {
            return Err(malformed(&format!(
                "the descriptor has {} bytes instead of {expected}: it is cut off, or has additional bytes at its end",
                bytes.len()
            )));
        }
        let (body, checksum) = bytes.split_at(bytes.len() - TRAILER);
        if checksum != crc32fast::hash(body).to_le_bytes() {
            return Err(malformed("the checksum is wrong"));
        }
        let (name, native) = body[HEADER..].split_at(name_len);
        let name = std::str::from_utf8(name).map_err(|_| malformed("the backend's name is not text"))?;
        let rights = Access::from_bits(rights).ok_or_else(|| malformed("unknown rights"))?;
        Self::new(name, rights, len, native).map_err(|e| bad(ErrorKind::Malformed, e.message().to_owned()))
    }

    /// Writes the encoding to a file that only its owner can read. Readers see the complete file or no file.
    /// [`OutputFile`] describes how links, devices and pipes are written.
    ///
    /// # Errors
    ///
    /// The errors of [`OutputFile::create_private`], with the path.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let write = || {
            let mut file = OutputFile::create_private(path)?;
            file.write_all(&self.to_bytes())?;
            file.finish()
        };
        write().map_err(|e| Error::of_output_file(path, e).with_operation("save export descriptor"))
    }

    /// Reads a file that [`save`](Self::save) wrote, at most [`MAX_ENCODED`](Self::MAX_ENCODED) bytes.
    ///
    /// # Errors
    ///
    /// Errors of the file system, and the errors of [`from_bytes`](Self::from_bytes), with the path.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        use std::io::Read;

        let path = path.as_ref();
        let operation = || format!("load export descriptor from {}", path.display());
        let mut bytes = Vec::new();
        std::fs::File::open(path)
            .and_then(|file| file.take(Self::MAX_ENCODED as u64 + 1).read_to_end(&mut bytes))
            .map_err(|e| Error::from(e).with_operation(operation()))?;
        Self::from_bytes(&bytes).map_err(|e| e.with_operation(operation()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> ExportDescriptor {
        ExportDescriptor::new("cpu", Access::READ, 4096, b"native blob").unwrap()
    }

    proptest! {
        #[test]
        fn round_trip(
            name in "[a-z0-9-]{1,32}", rights in 1_u32..4, len in any::<u64>(),
            native in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let rights = Access::from_bits(rights).unwrap();
            let descriptor = ExportDescriptor::new(&name, rights, len, &native).unwrap();
            prop_assert_eq!(ExportDescriptor::from_bytes(&descriptor.to_bytes()).unwrap(), descriptor);
        }

        #[test]
        fn any_other_bytes_are_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(ExportDescriptor::from_bytes(&bytes).is_err());
        }

        #[test]
        fn any_single_change_is_an_error(at in any::<prop::sample::Index>(), xor in 1_u8..) {
            let mut bytes = sample().to_bytes();
            let at = at.index(bytes.len());
            bytes[at] ^= xor;
            prop_assert!(ExportDescriptor::from_bytes(&bytes).is_err());
        }

        #[test]
        fn a_valid_checksum_does_not_excuse_bad_fields(at in 4_usize..24, value in any::<u8>()) {
            let mut bytes = sample().to_bytes();
            bytes[at] = value;
            let body = bytes.len() - 4;
            let checksum = crc32fast::hash(&bytes[..body]).to_le_bytes();
            bytes[body..].copy_from_slice(&checksum);
            // Decoding returns an error, or a descriptor that encodes to the same bytes. No byte is silently
            // ignored.
            if let Ok(descriptor) = ExportDescriptor::from_bytes(&bytes) {
                prop_assert_eq!(descriptor.to_bytes(), bytes);
            }
        }
    }

    #[test]
    fn every_prefix_and_every_extension_is_an_error() {
        let bytes = sample().to_bytes();
        for len in 0..bytes.len() {
            assert_eq!(ExportDescriptor::from_bytes(&bytes[..len]).unwrap_err().kind(), ErrorKind::Malformed);
        }
        let longer = [bytes, vec![0]].concat();
        assert_eq!(ExportDescriptor::from_bytes(&longer).unwrap_err().kind(), ErrorKind::Malformed);
        let huge = vec![0; ExportDescriptor::MAX_ENCODED + 1];
        assert_eq!(ExportDescriptor::from_bytes(&huge).unwrap_err().kind(), ErrorKind::Malformed);
    }

    #[test]
    fn another_version_says_so() {
        let mut bytes = sample().to_bytes();
        bytes[4] = 9;
        assert_eq!(ExportDescriptor::from_bytes(&bytes).unwrap_err().kind(), ErrorKind::VersionMismatch);
    }

    #[test]
    fn files_round_trip_and_name_themselves_in_errors() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("export.dma");
        sample().save(&path).unwrap();
        assert_eq!(ExportDescriptor::load(&path).unwrap(), sample());
        let missing = ExportDescriptor::load(dir.path().join("nothing")).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        assert!(missing.to_string().contains("nothing"), "{missing}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file is left");
    }
}
