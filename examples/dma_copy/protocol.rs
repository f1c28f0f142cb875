//! What host and DPU say to each other: the messages, and their encoding.
//!
//! A message is one byte of kind, then its fields, little-endian, nothing behind them. A channel carries messages whole and in order; on a
//! stream each has its length before it, a `u32`. No message is longer than [`MAX_MESSAGE`].
//!
//! ```text
//! host        Hello                       who I am, whether I have the file, how I would like it
//! DPU         Hello                       the same
//! receiver    Resume                      what it has verified before, and its digest (0 bytes if nothing)
//! sender      ResumeAnswer                from where the copy goes on
//! host        Export                      its window of memory, in slots of one block each
//! host -> DPU: host  Filled(slot)         a block lies in the slot: the DPU copies it by DMA, then
//!              DPU   Freed(slot)          the host may use the slot again
//! DPU -> host: DPU   Filled(slot)         the DPU copied a block into the slot: the host writes it to its file, then
//!              host  Freed(slot)
//! sender      Hole                        the next bytes of the file are zeros that nobody stored
//! sender      End                         all was sent: how much, and the digest of all digests
//! receiver    Status                      the file has its name
//! ```
//!
//! `Progress` may come at any time and says that its sender is at work: how much it has done, which only grows. `Abort` may come at any time
//! and ends the copy: at which step its sender failed, and why.
//!
//! Decoding is total: every input is a message or a [`DecodeError`], and none makes it allocate more than the input is long.

use std::fmt;

/// The version of this protocol. Sides of different versions refuse each other.
pub(crate) const VERSION: u16 = 1;
/// The first bytes of a Hello.
const MAGIC: [u8; 4] = *b"DCPY";
/// The longest message in bytes: an export descriptor and what is around it.
pub(crate) const MAX_MESSAGE: usize = MAX_DESCRIPTOR + 64;
/// The longest export descriptor in bytes.
pub(crate) const MAX_DESCRIPTOR: usize = 66 << 10;
/// The longest text of an Abort in bytes. With what is around it, it fits into the smallest message that a comm channel has.
pub(crate) const MAX_TEXT: usize = 400;
/// The largest file: what a file's offset can be.
pub(crate) const MAX_SIZE: u64 = i64::MAX as u64;

/// Which side of the PCI bus. Also who speaks first where it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// Exports its memory.
    Host,
    /// Imports it, and drives the DMA.
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

/// How blocks are checked. Ordered: where the sides differ, the larger is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Checksum {
    /// Not at all.
    None,
    /// XXH3, 128 bits: finds accidents.
    Xxh3,
    /// BLAKE3: nobody can make another block with the same.
    Blake3,
}

/// What a side was doing when something went wrong.
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
    const ALL: [Self; 12] = [
        Self::Starting,
        Self::Connecting,
        Self::Agreeing,
        Self::Resuming,
        Self::Exporting,
        Self::Importing,
        Self::Reading,
        Self::Moving,
        Self::Verifying,
        Self::Writing,
        Self::Finishing,
        Self::Waiting,
    ];
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Starting => "starting",
            Self::Connecting => "connecting",
            Self::Agreeing => "agreeing on the copy",
            Self::Resuming => "comparing what is there already",
            Self::Exporting => "exporting memory",
            Self::Importing => "importing the host's memory",
            Self::Reading => "reading the file",
            Self::Moving => "moving bytes by DMA",
            Self::Verifying => "verifying what arrived",
            Self::Writing => "writing the file",
            Self::Finishing => "finishing",
            Self::Waiting => "waiting for the other side",
        })
    }
}

/// A digest of any kind, zeros behind it if it is shorter.
pub(crate) type Digest = [u8; 32];

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Hello(Hello),
    /// What the receiver has of the file: `len` bytes from its start, and their digest.
    Resume {
        len: u64,
        digest: Digest,
    },
    /// The copy goes on from byte `from`: what was offered if the digests agree, else 0.
    ResumeAnswer {
        from: u64,
    },
    Export(Export),
    /// A block of `len` bytes lies in `slot`. Blocks are numbered in the order of the file, holes left out.
    Filled {
        seq: u64,
        slot: u32,
        len: u32,
        digest: Digest,
    },
    /// `slot` may be filled again.
    Freed {
        slot: u32,
    },
    /// The next `len` bytes are a hole.
    Hole {
        len: u64,
    },
    /// Everything was sent: the file has `total` bytes, and this is the digest over the digests. `retries` is how many DMA copies the
    /// DPU had to submit again; 0 from the host.
    End {
        total: u64,
        retries: u64,
        digest: Digest,
    },
    /// The receiver's last word: the file of `total` bytes is in its place. `retries` as above.
    Status {
        total: u64,
        retries: u64,
    },
    /// A sign of life: how much work has been done, in no unit.
    Progress {
        done: u64,
    },
    /// The copy is off.
    Abort {
        step: Step,
        text: String,
    },
}

/// Who a side is and how it would like the copy to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) role: Role,
    /// The length of its file; `None` if it has none, and so wants to receive.
    pub(crate) file: Option<u64>,
    pub(crate) checksum: Checksum,
    /// Whether it would go on with an earlier copy.
    pub(crate) resume: bool,
    /// The most memory to register, in bytes.
    pub(crate) window: u64,
    /// The longest DMA copy, in bytes.
    pub(crate) chunk: u64,
}

/// The host's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Export {
    /// Where it begins, in the host's terms.
    pub(crate) address: u64,
    pub(crate) len: u64,
    /// Bytes of one slot: a block.
    pub(crate) block: u32,
    /// The export descriptor.
    pub(crate) descriptor: Vec<u8>,
}

/// Why bytes are no message.
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
            Self::NotOurs => f.write_str("it is no dma_copy that speaks there"),
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
    /// Its name, for messages about messages.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Hello(_) => "Hello",
            Self::Resume { .. } => "Resume",
            Self::ResumeAnswer { .. } => "ResumeAnswer",
            Self::Export(_) => "Export",
            Self::Filled { .. } => "Filled",
            Self::Freed { .. } => "Freed",
            Self::Hole { .. } => "Hole",
            Self::End { .. } => "End",
            Self::Status { .. } => "Status",
            Self::Progress { .. } => "Progress",
            Self::Abort { .. } => "Abort",
        }
    }

    /// Encodes it, into `out` in the place of what was there. A text that is too long is cut.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        match self {
            Self::Hello(hello) => {
                out.push(1);
                out.extend_from_slice(&MAGIC);
                out.extend_from_slice(&VERSION.to_le_bytes());
                out.extend_from_slice(&[
                    hello.role as u8,
                    u8::from(hello.file.is_some()),
                    hello.checksum as u8,
                    u8::from(hello.resume),
                ]);
                for number in [hello.file.unwrap_or(0), hello.window, hello.chunk] {
                    out.extend_from_slice(&number.to_le_bytes());
                }
            }
            Self::Resume { len, digest } => {
                out.push(2);
                out.extend_from_slice(&len.to_le_bytes());
                out.extend_from_slice(digest);
            }
            Self::ResumeAnswer { from } => {
                out.push(3);
                out.extend_from_slice(&from.to_le_bytes());
            }
            Self::Export(export) => {
                out.push(4);
                out.extend_from_slice(&export.address.to_le_bytes());
                out.extend_from_slice(&export.len.to_le_bytes());
                out.extend_from_slice(&export.block.to_le_bytes());
                out.extend_from_slice(&(export.descriptor.len() as u32).to_le_bytes());
                out.extend_from_slice(&export.descriptor);
            }
            Self::Filled { seq, slot, len, digest } => {
                out.push(5);
                out.extend_from_slice(&seq.to_le_bytes());
                out.extend_from_slice(&slot.to_le_bytes());
                out.extend_from_slice(&len.to_le_bytes());
                out.extend_from_slice(digest);
            }
            Self::Freed { slot } => {
                out.push(6);
                out.extend_from_slice(&slot.to_le_bytes());
            }
            Self::Hole { len } => {
                out.push(7);
                out.extend_from_slice(&len.to_le_bytes());
            }
            Self::End { total, retries, digest } => {
                out.push(8);
                out.extend_from_slice(&total.to_le_bytes());
                out.extend_from_slice(&retries.to_le_bytes());
                out.extend_from_slice(digest);
            }
            Self::Status { total, retries } => {
                out.push(9);
                out.extend_from_slice(&total.to_le_bytes());
                out.extend_from_slice(&retries.to_le_bytes());
            }
            Self::Progress { done } => {
                out.push(10);
                out.extend_from_slice(&done.to_le_bytes());
            }
            Self::Abort { step, text } => {
                let mut end = text.len().min(MAX_TEXT);
                while !text.is_char_boundary(end) {
                    end -= 1;
                }
                let text = &text[..end];
                out.extend_from_slice(&[11, *step as u8]);
                out.extend_from_slice(&(text.len() as u16).to_le_bytes());
                out.extend_from_slice(text.as_bytes());
            }
        }
    }

    /// Decodes what [`encode`](Self::encode) made, and nothing else.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut fields = Fields(bytes);
        let message = match fields.u8()? {
            1 => Self::Hello(Hello::decode(&mut fields)?),
            2 => Self::Resume { len: fields.size("the length of what is there")?, digest: fields.array()? },
            3 => Self::ResumeAnswer { from: fields.size("where the copy goes on")? },
            4 => Self::Export(Export::decode(&mut fields)?),
            5 => Self::Filled {
                seq: fields.u64()?,
                slot: fields.u32()?,
                len: fields.u32()?,
                digest: fields.array()?,
            },
            6 => Self::Freed { slot: fields.u32()? },
            7 => Self::Hole { len: fields.size("the length of a hole")? },
            8 => Self::End {
                total: fields.size("the length of the file")?,
                retries: fields.u64()?,
                digest: fields.array()?,
            },
            9 => Self::Status { total: fields.size("the length of the file")?, retries: fields.u64()? },
            10 => Self::Progress { done: fields.u64()? },
            11 => {
                let step = fields.one_of("the step", &Step::ALL)?;
                let len = usize::from(fields.u16()?);
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
        match fields.u16()? {
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
        Ok(Self { role, file: has_file.then_some(size), checksum, resume, window, chunk })
    }
}

impl Export {
    fn decode(fields: &mut Fields<'_>) -> Result<Self, DecodeError> {
        let (address, len, block) = (fields.u64()?, fields.size("the exported length")?, fields.u32()?);
        let descriptor = fields.u32()? as usize;
        if descriptor > MAX_DESCRIPTOR {
            let value = descriptor as u64;
            return Err(DecodeError::OutOfRange { what: "the length of an export descriptor", value });
        }
        Ok(Self { address, len, block, descriptor: fields.take(descriptor)?.to_vec() })
    }
}

/// What is left of a message.
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

    fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    fn u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A number of bytes of a file.
    fn size(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        match self.u64()? {
            size if size <= MAX_SIZE => Ok(size),
            value => Err(DecodeError::OutOfRange { what, value }),
        }
    }

    /// The byte's choice.
    fn one_of<T: Copy>(&mut self, what: &'static str, choices: &[T]) -> Result<T, DecodeError> {
        let value = self.u8()?;
        choices
            .get(usize::from(value))
            .copied()
            .ok_or(DecodeError::OutOfRange { what, value: u64::from(value) })
    }
}
