//! The messages between host and DPU, and their encoding.
//!
//! A message is one byte of kind followed by its fields, little-endian. A channel carries whole messages in
//! order; on a stream a `u32` with the message's length precedes each. No message is longer than
//! [`MAX_MESSAGE`].
//!
//! ```text
//! host        Hello                role, length of its file if it has one, options
//! DPU         Hello                the same
//! receiver    Resume               length of the verified partial copy (0 for none), and its digest
//! sender      ResumeAnswer         offset of the first byte to copy
//! host        Export               its window of memory, in slots of one block each
//! host -> DPU: host  Filled(slot)  the slot holds a block; the DPU copies it by DMA, then
//!              DPU   Freed(slot)   the host may fill the slot again
//! DPU -> host: DPU   Filled(slot)  the DPU filled the slot by DMA; the host writes it to its file, then
//!              host  Freed(slot)
//! sender      Hole                 the next bytes of the file are a hole
//! sender      End                  everything was sent: length, and the digest of all digests
//! receiver    Status               the copy has its name
//! ```
//!
//! `Progress` is a heartbeat: the sender's amount of work done, which only grows. `Abort` ends the copy: the
//! step at which the sender failed, and the reason. Both may come at any time.
//!
//! Decoding is total: every input is a message or a [`DecodeError`], and none makes it allocate more than its
//! own length.

use std::fmt;

/// The version of this protocol. Sides of different versions refuse each other.
pub(crate) const VERSION: u16 = 2;
const MAGIC: [u8; 4] = *b"DCPY";
/// Maximum length of a message in bytes: an export descriptor and the other fields.
pub(crate) const MAX_MESSAGE: usize = MAX_DESCRIPTOR + 64;
/// Maximum length of an export descriptor in bytes.
pub(crate) const MAX_DESCRIPTOR: usize = 66 << 10;
/// Maximum length of an Abort's text in bytes. The whole message fits the smallest maximum that a comm
/// channel has.
pub(crate) const MAX_TEXT: usize = 400;
/// Permissions that a file is sent with: no set-user-id, set-group-id or sticky bit.
pub(crate) const MAX_MODE: u16 = 0o777;
/// Maximum length of a file, which is that of an offset in it.
pub(crate) const MAX_SIZE: u64 = i64::MAX as u64;

/// The side of the PCI bus. The host sends first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// Exports its memory.
    Host,
    /// Imports the host's memory, and drives the DMA.
    Dpu,
}

impl Role {
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Host => Self::Dpu,
            Self::Dpu => Self::Host,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host",
            Self::Dpu => "DPU",
        })
    }
}

/// Checksum of blocks. Ordered: if the sides differ, the larger is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Checksum {
    None,
    /// XXH3, 128 bits: detects accidental corruption.
    Xxh3,
    /// BLAKE3: cryptographic.
    Blake3,
}

/// The step at which a side failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Starting,
    Connecting,
    Agreeing,
    Resuming,
    Exporting,
    Importing,
    Reading,
    Moving,
    Verifying,
    Writing,
    Finishing,
    Waiting,
}

impl Step {
    /// Each step with its text, in the order of the encoding.
    const ALL: [(Self, &str); 12] = [
        (Self::Starting, "starting"),
        (Self::Connecting, "connecting"),
        (Self::Agreeing, "agreeing on the copy"),
        (Self::Resuming, "comparing what is there already"),
        (Self::Exporting, "exporting memory"),
        (Self::Importing, "importing the host's memory"),
        (Self::Reading, "reading the file"),
        (Self::Moving, "moving bytes by DMA"),
        (Self::Verifying, "verifying what arrived"),
        (Self::Writing, "writing the file"),
        (Self::Finishing, "finishing"),
        (Self::Waiting, "waiting for the other side"),
    ];
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::ALL[*self as usize].1)
    }
}

/// A digest of any kind, padded with zeros.
pub(crate) type Digest = [u8; 32];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Hello(Hello),
    /// The receiver's partial copy: the file's first `len` bytes, and their digest.
    Resume {
        len: u64,
        digest: Digest,
    },
    /// The copy goes on from byte `from`: the offered length if the digests agree, else 0.
    ResumeAnswer {
        from: u64,
    },
    Export(Export),
    /// `slot` holds a block of `len` bytes. `seq` numbers blocks in the order of the file, without holes.
    Filled {
        seq: u64,
        slot: u32,
        len: u32,
        digest: Digest,
    },
    Freed {
        slot: u32,
    },
    Hole {
        len: u64,
    },
    /// Everything was sent: the length of the file, and the digest of all digests. `retries` counts the DMA
    /// copies that the DPU submitted again; 0 from the host.
    End {
        total: u64,
        retries: u64,
        digest: Digest,
    },
    /// The receiver's last message: the copy of `total` bytes has its name. `retries` as above.
    Status {
        total: u64,
        retries: u64,
    },
    /// A heartbeat: the amount of work done, without unit.
    Progress {
        done: u64,
    },
    /// The sender gives up.
    Abort {
        step: Step,
        text: String,
    },
}

/// A side's role and its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) role: Role,
    /// Length of its file in bytes; `None` if it has none, and so receives.
    pub(crate) file: Option<u64>,
    pub(crate) checksum: Checksum,
    /// True if it would go on with a partial copy.
    pub(crate) resume: bool,
    /// Maximum memory to register, in bytes.
    pub(crate) window: u64,
    /// Maximum length of a DMA copy, in bytes.
    pub(crate) chunk: u64,
    /// Permissions of that file: the lowest nine bits of its mode, 0 if there is none.
    pub(crate) mode: u16,
}

/// The host's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Export {
    /// The host's address of its first byte.
    pub(crate) address: u64,
    pub(crate) len: u64,
    /// Length of a slot, and so of a block, in bytes.
    pub(crate) block: u32,
    pub(crate) descriptor: Vec<u8>,
}

/// The reason why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecodeError {
    TooShort,
    TooLong(usize),
    UnknownKind(u8),
    NotOurs,
    OtherVersion(u16),
    OutOfRange { what: &'static str, value: u64 },
    NotText,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort => f.write_str("it ends in the middle"),
            Self::TooLong(more) => write!(f, "there are {more} bytes behind it"),
            Self::UnknownKind(kind) => write!(f, "there is no kind {kind}"),
            Self::NotOurs => f.write_str("it is no dma-copy that speaks there"),
            Self::OtherVersion(version) => write!(
                f,
                "it speaks version {version} of the protocol, and this side version {VERSION}; use the same release on both sides"
            ),
            Self::OutOfRange { what, value } => write!(f, "{what} cannot be {value}"),
            Self::NotText => f.write_str("its text is no UTF-8"),
        }
    }
}

impl Message {
    /// Encodes the message into `out`, replacing its contents. Cuts a text that is too long.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        let mut put = |kind: u8, fields: &[&[u8]]| {
            out.push(kind);
            fields.iter().for_each(|field| out.extend_from_slice(field));
        };
        match self {
            Self::Hello(hello) => {
                let Hello { role, file, checksum, resume, window, chunk, mode } = *hello;
                let small = [role as u8, u8::from(file.is_some()), checksum as u8, u8::from(resume)];
                let (window, chunk, mode) = (window.to_le_bytes(), chunk.to_le_bytes(), mode.to_le_bytes());
                let (version, len) = (VERSION.to_le_bytes(), file.unwrap_or(0).to_le_bytes());
                put(1, &[&MAGIC, &version, &small, &len, &window, &chunk, &mode]);
            }
            Self::Resume { len, digest } => put(2, &[&len.to_le_bytes(), digest]),
            Self::ResumeAnswer { from } => put(3, &[&from.to_le_bytes()]),
            Self::Export(Export { address, len, block, descriptor }) => {
                let (address, len, block) = (address.to_le_bytes(), len.to_le_bytes(), block.to_le_bytes());
                put(4, &[&address, &len, &block, &(descriptor.len() as u32).to_le_bytes(), descriptor]);
            }
            Self::Filled { seq, slot, len, digest } => {
                put(5, &[&seq.to_le_bytes(), &slot.to_le_bytes(), &len.to_le_bytes(), digest]);
            }
            Self::Freed { slot } => put(6, &[&slot.to_le_bytes()]),
            Self::Hole { len } => put(7, &[&len.to_le_bytes()]),
            Self::End { total, retries, digest } => {
                put(8, &[&total.to_le_bytes(), &retries.to_le_bytes(), digest]);
            }
            Self::Status { total, retries } => put(9, &[&total.to_le_bytes(), &retries.to_le_bytes()]),
            Self::Progress { done } => put(10, &[&done.to_le_bytes()]),
            Self::Abort { step, text } => {
                let mut end = text.len().min(MAX_TEXT);
                while !text.is_char_boundary(end) {
                    end -= 1;
                }
                let text = &text[..end];
                put(11, &[&[*step as u8], &(text.len() as u16).to_le_bytes(), text.as_bytes()]);
            }
        }
    }

    /// Decodes the encoding of [`encode`](Self::encode), and nothing else.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut fields = Fields(bytes);
        let message = match u8::from_le_bytes(fields.array()?) {
            1 => Self::Hello(Hello::decode(&mut fields)?),
            2 => Self::Resume { len: fields.size("the length of what is there")?, digest: fields.array()? },
            3 => Self::ResumeAnswer { from: fields.size("where the copy goes on")? },
            4 => Self::Export(Export::decode(&mut fields)?),
            5 => Self::Filled {
                seq: u64::from_le_bytes(fields.array()?),
                slot: u32::from_le_bytes(fields.array()?),
                len: u32::from_le_bytes(fields.array()?),
                digest: fields.array()?,
            },
            6 => Self::Freed { slot: u32::from_le_bytes(fields.array()?) },
            7 => Self::Hole { len: fields.size("the length of a hole")? },
            8 => Self::End {
                total: fields.size("the length of the file")?,
                retries: u64::from_le_bytes(fields.array()?),
                digest: fields.array()?,
            },
            9 => Self::Status {
                total: fields.size("the length of the file")?,
                retries: u64::from_le_bytes(fields.array()?),
            },
            10 => Self::Progress { done: u64::from_le_bytes(fields.array()?) },
            11 => {
                let step = fields.one_of("the step", &Step::ALL)?.0;
                let len = usize::from(u16::from_le_bytes(fields.array()?));
                if len > MAX_TEXT {
                    return Err(DecodeError::OutOfRange { what: "the length of a text", value: len as u64 });
                }
                let text = std::str::from_utf8(fields.take(len)?).map_err(|_| DecodeError::NotText)?;
                Self::Abort { step, text: text.to_owned() }
            }
            unknown => return Err(DecodeError::UnknownKind(unknown)),
        };
        match fields.0.len() {
            0 => Ok(message),
            more => Err(DecodeError::TooLong(more)),
        }
    }
}

impl Hello {
    fn decode(fields: &mut Fields<'_>) -> Result<Self, DecodeError> {
        if fields.array()? != MAGIC {
            return Err(DecodeError::NotOurs);
        }
        match u16::from_le_bytes(fields.array()?) {
            VERSION => {}
            other => return Err(DecodeError::OtherVersion(other)),
        }
        let role = fields.one_of("the role", &[Role::Host, Role::Dpu])?;
        let has_file = fields.one_of("whether there is a file", &[false, true])?;
        let checksum = fields.one_of("the checksum", &[Checksum::None, Checksum::Xxh3, Checksum::Blake3])?;
        let resume = fields.one_of("whether to resume", &[false, true])?;
        let size = fields.size("the length of the file")?;
        let (window, chunk) = (fields.size("the window")?, fields.size("the chunk")?);
        if !has_file && size != 0 {
            return Err(DecodeError::OutOfRange { what: "the length of no file", value: size });
        }
        let mode = u16::from_le_bytes(fields.array()?);
        if mode > if has_file { MAX_MODE } else { 0 } {
            return Err(DecodeError::OutOfRange { what: "the permissions of the file", value: mode.into() });
        }
        Ok(Self { role, file: has_file.then_some(size), checksum, resume, window, chunk, mode })
    }
}

impl Export {
    fn decode(fields: &mut Fields<'_>) -> Result<Self, DecodeError> {
        let (address, len, block) = (
            u64::from_le_bytes(fields.array()?),
            fields.size("the exported length")?,
            u32::from_le_bytes(fields.array()?),
        );
        let descriptor = u32::from_le_bytes(fields.array()?) as usize;
        if descriptor > MAX_DESCRIPTOR {
            let value = descriptor as u64;
            return Err(DecodeError::OutOfRange { what: "the length of an export descriptor", value });
        }
        Ok(Self { address, len, block, descriptor: fields.take(descriptor)?.to_vec() })
    }
}

/// The fields of a message that were not decoded yet.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (field, rest) = self.0.split_at_checked(len).ok_or(DecodeError::TooShort)?;
        self.0 = rest;
        Ok(field)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (field, rest) = self.0.split_first_chunk().ok_or(DecodeError::TooShort)?;
        self.0 = rest;
        Ok(*field)
    }

    /// A length or offset of a file in bytes.
    fn size(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        match u64::from_le_bytes(self.array()?) {
            size if size <= MAX_SIZE => Ok(size),
            value => Err(DecodeError::OutOfRange { what, value }),
        }
    }

    /// The choice with the index of the next byte.
    fn one_of<T: Copy>(&mut self, what: &'static str, choices: &[T]) -> Result<T, DecodeError> {
        let value = u8::from_le_bytes(self.array()?);
        choices
            .get(usize::from(value))
            .copied()
            .ok_or(DecodeError::OutOfRange { what, value: u64::from(value) })
    }
}
