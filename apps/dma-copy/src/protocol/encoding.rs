//! Encodes and decodes messages.

use std::fmt;

use super::{
    Checksum, Data, Export, Hello, MAGIC, MAX_DATA, MAX_DESCRIPTOR, MAX_MODE, MAX_SIZE, MAX_TEXT, Message,
    Role, Step, VERSION,
};

/// The reason why bytes are not a message.
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
            Self::TooShort => f.write_str("it ends in the middle of a field"),
            Self::TooLong(more) => write!(f, "{more} bytes follow its end"),
            Self::UnknownKind(kind) => write!(f, "unknown kind {kind}"),
            Self::NotOurs => f.write_str("the other program is not dma-copy"),
            Self::OtherVersion(version) => write!(
                f,
                "it uses version {version} of the protocol, and this side version {VERSION}; use the same release on both sides"
            ),
            Self::OutOfRange { what, value } => write!(f, "{what} cannot be {value}"),
            Self::NotText => f.write_str("its text is not UTF-8"),
        }
    }
}

impl Message {
    /// Encodes the message into `out`, replacing its contents. Truncates a text that is too long.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.clear();
        let mut put = |kind: u8, fields: &[&[u8]]| {
            out.push(kind);
            fields.iter().for_each(|field| out.extend_from_slice(field));
        };
        match self {
            Self::Hello(hello) => {
                let Hello { role, file, checksum, resume, stream, window, chunk, mode, following } = *hello;
                let (has_file, resume, stream) = (file.is_some().into(), resume.into(), stream.into());
                let small = [role as u8, has_file, checksum as u8, resume, stream];
                let (window, chunk, mode) = (window.to_le_bytes(), chunk.to_le_bytes(), mode.to_le_bytes());
                let (version, len) = (VERSION.to_le_bytes(), file.unwrap_or(0).to_le_bytes());
                let following = following.to_le_bytes();
                put(1, &[&MAGIC, &version, &small, &len, &window, &chunk, &mode, &following]);
            }
            Self::Resume { len, digest } => put(2, &[&len.to_le_bytes(), &digest.to_le_bytes()]),
            Self::ResumeAnswer { from } => put(3, &[&from.to_le_bytes()]),
            Self::Export(Export { address, len, block, descriptor }) => {
                let (address, len, block) = (address.to_le_bytes(), len.to_le_bytes(), block.to_le_bytes());
                put(4, &[&address, &len, &block, &(descriptor.len() as u32).to_le_bytes(), descriptor]);
            }
            Self::Filled { seq, slot, len, digest } => {
                let (seq, digest) = (seq.to_le_bytes(), digest.to_le_bytes());
                put(5, &[&seq, &slot.to_le_bytes(), &len.to_le_bytes(), &digest]);
            }
            Self::Freed { slot } => put(6, &[&slot.to_le_bytes()]),
            Self::Hole { len } => put(7, &[&len.to_le_bytes()]),
            Self::End { total, retries, digest } => {
                put(8, &[&total.to_le_bytes(), &retries.to_le_bytes(), &digest.to_le_bytes()]);
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
            Self::Data(Data(bytes)) => put(12, &[&(bytes.len() as u32).to_le_bytes(), bytes]),
        }
    }

    /// Decodes exactly the encodings that [`encode`](Self::encode) produces, and refuses all other bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut fields = Fields(bytes);
        let message = match u8::from_le_bytes(fields.array()?) {
            1 => Self::Hello(Hello::decode(&mut fields)?),
            2 => Self::Resume {
                len: fields.size("the length of the partial copy")?,
                digest: u128::from_le_bytes(fields.array()?),
            },
            3 => Self::ResumeAnswer { from: fields.size("the offset at which the copy continues")? },
            4 => Self::Export(Export::decode(&mut fields)?),
            5 => Self::Filled {
                seq: u64::from_le_bytes(fields.array()?),
                slot: u32::from_le_bytes(fields.array()?),
                len: u32::from_le_bytes(fields.array()?),
                digest: u128::from_le_bytes(fields.array()?),
            },
            6 => Self::Freed { slot: u32::from_le_bytes(fields.array()?) },
            7 => Self::Hole { len: fields.size("the length of a hole")? },
            8 => Self::End {
                total: fields.size("the length of the file")?,
                retries: u64::from_le_bytes(fields.array()?),
                digest: u128::from_le_bytes(fields.array()?),
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
            12 => match u32::from_le_bytes(fields.array()?) as usize {
                len @ 1..=MAX_DATA => Self::Data(Data(fields.take(len)?.to_vec())),
                len => {
                    let value = len as u64;
                    return Err(DecodeError::OutOfRange { what: "the number of bytes of a block", value });
                }
            },
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
        let has_file = fields.one_of("the flag of an existing file", &[false, true])?;
        let checksum = fields.one_of("the checksum", &[Checksum::None, Checksum::Xxh3])?;
        let resume = fields.one_of("whether to resume", &[false, true])?;
        let stream = fields.one_of("the flag of blocks through the channel", &[false, true])?;
        let size = fields.size("the length of the file")?;
        let (window, chunk) = (fields.size("the window")?, fields.size("the chunk")?);
        if !has_file && size != 0 {
            return Err(DecodeError::OutOfRange { what: "the length of a missing file", value: size });
        }
        let mode = u16::from_le_bytes(fields.array()?);
        if mode > if has_file { MAX_MODE } else { 0 } {
            return Err(DecodeError::OutOfRange { what: "the permissions of the file", value: mode.into() });
        }
        let following = u32::from_le_bytes(fields.array()?);
        let file = has_file.then_some(size);
        Ok(Self { role, file, checksum, resume, stream, window, chunk, mode, following })
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

/// The bytes of a message that have not been decoded yet.
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

    /// Decodes a length or offset of a file in bytes.
    fn size(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        match u64::from_le_bytes(self.array()?) {
            size if size <= MAX_SIZE => Ok(size),
            value => Err(DecodeError::OutOfRange { what, value }),
        }
    }

    /// Decodes one byte, and returns the choice with this index.
    fn one_of<T: Copy>(&mut self, what: &'static str, choices: &[T]) -> Result<T, DecodeError> {
        let value = u8::from_le_bytes(self.array()?);
        choices
            .get(usize::from(value))
            .copied()
            .ok_or(DecodeError::OutOfRange { what, value: u64::from(value) })
    }
}
