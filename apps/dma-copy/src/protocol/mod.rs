//! The messages between host and DPU, and their encoding.
//!
//! A message is one byte that gives its kind, followed by its fields, little-endian. A channel carries whole
//! messages in order. On a stream, a `u32` with the message's length precedes each message. No message is
//! longer than [`MAX_MESSAGE`].
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
//! If files follow, the sequence begins again with the Hellos.
//!
//! With `--engine stream` no Export is sent. The bytes of a block precede its Filled:
//!
//! ```text
//! sender      Data                 the next bytes of the block
//! sender      Filled(slot)         the block is whole; the receiver checks and writes it, then
//! receiver    Freed(slot)          the sender may send another block
//! ```
//!
//! Either side may send `Progress` and `Abort` at any time. `Progress` is a heartbeat with the amount of work
//! that this side has done, which only grows. `Abort` ends the copy, with the step at which this side failed,
//! and the reason.
//!
//! Decoding accepts any input: it returns a message or a [`DecodeError`](encoding::DecodeError), and
//! allocates at most as many bytes as the input has.

pub(crate) mod encoding;

use std::fmt;

use clap::ValueEnum;

/// The version of this protocol. Sides with different versions refuse each other.
pub(crate) const VERSION: u16 = 5;
const MAGIC: [u8; 4] = *b"DCPY";
/// Maximum length of a message in bytes: an export descriptor and the other fields.
pub(crate) const MAX_MESSAGE: usize = MAX_DESCRIPTOR + 64;
/// Maximum length of an export descriptor in bytes.
pub(crate) const MAX_DESCRIPTOR: usize = 66 << 10;
/// Maximum length of a `Data` in bytes.
pub(crate) const MAX_DATA: usize = 64 << 10;
/// Maximum length of an Abort's text in bytes. With it, the whole message fits the smallest message limit of
/// any comm channel.
pub(crate) const MAX_TEXT: usize = 400;
/// Permission bits that are sent with a file, without set-user-id, set-group-id and sticky.
pub(crate) const MAX_MODE: u16 = 0o777;
/// Maximum length of a file: the largest file offset of the system.
pub(crate) const MAX_SIZE: u64 = i64::MAX as u64;

/// The role of a side. The host sends the first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Role {
    /// The side that exports its memory.
    Host,
    /// The side that imports the host's memory, and controls the DMA.
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

/// Checksum of blocks. If one side asks for it, both use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Checksum {
    /// Blocks are not checked.
    None,
    /// XXH3, 128 bits: detects accidental corruption.
    Xxh3,
}

/// The steps of a copy, one of which a failure names.
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
        (Self::Resuming, "comparing the partial copy"),
        (Self::Exporting, "exporting memory"),
        (Self::Importing, "importing the host's memory"),
        (Self::Reading, "reading the file"),
        (Self::Moving, "copying bytes by DMA"),
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

/// A digest by XXH3; 0 if blocks are not checked.
pub(crate) type Digest = u128;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Hello(Hello),
    /// The receiver's partial copy: the file's first `len` bytes, and their digest.
    Resume {
        len: u64,
        digest: Digest,
    },
    /// The copy continues at byte `from`: at the offered length if the digests are equal, otherwise at 0.
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
    /// The whole file was sent. Contains the length of the file, and the digest of all digests. `retries` is
    /// the number of DMA copies that the DPU submitted again; 0 if the host sends this message.
    End {
        total: u64,
        retries: u64,
        digest: Digest,
    },
    /// The receiver's last message: the copy of `total` bytes has its name. `retries` as in `End`.
    Status {
        total: u64,
        retries: u64,
    },
    /// A heartbeat, with the amount of work done, without unit.
    Progress {
        done: u64,
    },
    /// The side that sends this message gives up.
    Abort {
        step: Step,
        text: String,
    },
    /// The next bytes of a block, only if blocks go through the channel.
    Data(Data),
}

/// 1 to [`MAX_DATA`] bytes of the file.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Data(pub(crate) Vec<u8>);

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// A side's role and its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) role: Role,
    /// Length of the side's file in bytes. `None` if the file does not exist, so that this side receives.
    pub(crate) file: Option<u64>,
    pub(crate) checksum: Checksum,
    /// True if the side can continue a partial copy.
    pub(crate) resume: bool,
    /// True if the side was started with `--engine stream`, so that blocks go through the channel.
    pub(crate) stream: bool,
    /// Maximum memory to register, in bytes.
    pub(crate) window: u64,
    /// Maximum length of a DMA copy, in bytes.
    pub(crate) chunk: u64,
    /// Permission bits of the file: the lowest nine bits of its mode; 0 without a file.
    pub(crate) mode: u16,
    /// Number of files that follow this one in the session.
    pub(crate) following: u32,
}

/// The memory that the host exports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Export {
    /// The host's address of the first byte.
    pub(crate) address: u64,
    pub(crate) len: u64,
    /// Length of a slot, and so of a block, in bytes.
    pub(crate) block: u32,
    pub(crate) descriptor: Vec<u8>,
}
