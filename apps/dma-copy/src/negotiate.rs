//! Agreement on the copy: direction, block size, checksum, first byte.

use std::path::Path;
use std::sync::Arc;

use twox_hash::XxHash3_128;

use crate::failure::{Failure, failure};
use crate::files::{Source, Target};
use crate::options::Options;
use crate::protocol::{Checksum, Digest, Hello, Message, Role};
use crate::session::{Session, made_progress};
use dma::process::count;

/// Minimum block length in bytes if the window allows it, because each block costs one message each way.
const BLOCK_MIN: u64 = 256 << 10;
/// The length of a block is a multiple of this number of bytes.
const PAGE: u64 = 4096;
/// Maximum number of blocks in a window.
const SLOTS_MAX: u64 = 256;
/// Valid lengths of the window that a side requests, in bytes.
const WINDOWS: std::ops::RangeInclusive<u64> = 8 << 10..=16 << 30;
/// Valid lengths of the chunk that a side requests, in bytes.
const CHUNKS: std::ops::RangeInclusive<u64> = 4 << 10..=1 << 30;
/// Number of bytes hashed before progress is counted for a heartbeat.
const PIECE: usize = 1 << 20;

/// The copy that both sides agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) sender: Role,
    /// The length of the file in bytes.
    pub(crate) size: u64,
    /// Length of a block, and so of a slot, in bytes. The last block of a file may be shorter.
    pub(crate) block: usize,
    pub(crate) slots: usize,
    pub(crate) checksum: Checksum,
    /// True if blocks go through the channel, without an engine.
    pub(crate) stream: bool,
    /// Permission bits of the file: the lowest nine bits of its mode.
    pub(crate) mode: u16,
    /// Position of the first byte to copy. The receiver already has the bytes before it.
    pub(crate) from: u64,
    /// True if no file follows.
    pub(crate) is_last: bool,
}

impl Plan {
    /// Returns the length of the block at `offset`.
    pub(crate) fn block_at(&self, offset: u64) -> usize {
        usize::try_from(self.size - offset).unwrap_or(usize::MAX).min(self.block)
    }

    /// Computes the plan from both Hellos, without `from`. Both sides compute the same plan.
    fn of(mine: &Hello, theirs: &Hello, file: &Path) -> Result<Self, Failure> {
        let file = file.display();
        if mine.role == theirs.role {
            return Err(failure!(
                Agreeing,
                "both sides have the role {}; give --role host on one side and --role dpu on the other",
                mine.role
            ));
        }
        if mine.stream != theirs.stream {
            let (streams, other) =
                if mine.stream { (mine.role, theirs.role) } else { (theirs.role, mine.role) };
            return Err(failure!(
                Agreeing,
                "the {streams} has --engine stream, and the {other} another engine; give --engine stream on both sides, or on neither"
            ));
        }
        if !WINDOWS.contains(&theirs.window) || !CHUNKS.contains(&theirs.chunk) {
            return Err(failure!(
                Agreeing,
                "the {} requests a window of {} bytes and chunks of {} bytes; use the same release on both sides",
                theirs.role,
                theirs.window,
                theirs.chunk
            ));
        }
        if mine.following != theirs.following {
            return Err(failure!(
                Agreeing,
                "after this file, the {} has {}, and the {} has {}; give --file equally often on both sides",
                mine.role,
                count(mine.following, "more file", "more files"),
                theirs.role,
                theirs.following
            ));
        }
        let (sender, size, mode) = match (mine.file, theirs.file) {
            (Some(size), None) => (mine.role, size, mine.mode),
            (None, Some(size)) => (theirs.role, size, theirs.mode),
            (Some(_), Some(_)) => {
                return Err(failure!(
                    Agreeing,
                    "the file exists on both sides ({file} here), so it is unclear which side sends; remove it on the side that receives, or choose another --file"
                ));
            }
            (None, None) => {
                return Err(failure!(
                    Agreeing,
                    "the file exists on neither side ({file} here), so there is nothing to send; check --file on the side that sends"
                ));
            }
        };
        let window = mine.window.min(theirs.window);
        let block = mine.chunk.max(theirs.chunk).max(BLOCK_MIN).min(window / 2) / PAGE * PAGE;
        let slots = (window / block).min(SLOTS_MAX).min(size.div_ceil(block));
        let fit = |n: u64| {
            usize::try_from(n)
                .map_err(|_| failure!(Agreeing, "cannot use a window of {window} bytes; lower --window"))
        };
        let checksum = mine.checksum.max(theirs.checksum);
        let (block, slots) = (fit(block)?, fit(slots)?);
        let is_last = mine.following == 0;
        Ok(Self { sender, size, block, slots, checksum, stream: mine.stream, mode, from: 0, is_last })
    }
}

pub(crate) enum LocalFile {
    Source(Arc<Source>),
    Target(Arc<Target>),
}

impl LocalFile {
    /// Removes the partial copy after a failure, if this side receives. With `--resume`, keeps it.
    pub(crate) fn give_up(&self) {
        if let Self::Target(target) = self {
            target.give_up();
        }
    }
}

/// Agrees on the copy of `file`, after which `following` files remain.
pub(crate) fn negotiate(
    options: &Options,
    (file, following): (&Path, u32),
    source: Option<Source>,
    session: &Session,
) -> Result<(Plan, LocalFile), Failure> {
    let mine = Hello {
        role: options.role(),
        file: source.as_ref().map(|source| source.len()),
        checksum: options.checksum,
        resume: options.resume,
        stream: options.is_stream(),
        window: options.window,
        chunk: options.chunk,
        mode: source.as_ref().map_or(0, Source::mode),
        following,
    };
    // The host sends first, because the DPU recognizes a host only by its first message.
    if mine.role == Role::Host {
        session.send(&Message::Hello(mine))?;
    }
    let theirs = match session.receive()? {
        Message::Hello(theirs) => theirs,
        other => return Err(session.unexpected(&other)),
    };
    if mine.role == Role::Dpu {
        session.send(&Message::Hello(mine))?;
    }
    let mut plan = Plan::of(&mine, &theirs, file)?;
    tracing::info!(?plan, "agreed");
    match source {
        Some(source) => {
            plan.from = answer_resume(&source, &plan, session)?;
            Ok((plan, LocalFile::Source(Arc::new(source))))
        }
        None => {
            let target = Target::create(options, file, plan.size, plan.mode)?;
            let begun = offer_resume(&target, &plan, session);
            if begun.is_err() {
                target.give_up();
            }
            plan.from = begun?;
            Ok((plan, LocalFile::Target(Arc::new(target))))
        }
    }
}

/// The receiver's part: offers the bytes that an earlier copy left. Returns the offset at which the copy
/// begins.
fn offer_resume(target: &Target, plan: &Plan, session: &Session) -> Result<u64, Failure> {
    let earlier_len = match target.earlier_len() {
        earlier_len if earlier_len >= plan.size => plan.size,
        // The copy can only continue at a block's start, because a block is verified as a whole.
        earlier_len => earlier_len - earlier_len % plan.block as u64,
    };
    let digest = digest_of(earlier_len, |bytes, at| target.read_exact_at(bytes, at))?;
    session.send(&Message::Resume { len: earlier_len, digest })?;
    let from = match session.receive()? {
        Message::ResumeAnswer { from } if from == 0 || from == earlier_len => from,
        Message::ResumeAnswer { .. } => {
            return Err(session.violates("it continues at an offset that was not offered"));
        }
        other => return Err(session.unexpected(&other)),
    };
    if from < earlier_len {
        tracing::warn!("the partial copy belongs to another file; copying from the start");
    }
    target.set_len(from)?;
    Ok(from)
}

/// The sender's part: compares digests. Returns the offset at which the copy begins.
fn answer_resume(source: &Source, plan: &Plan, session: &Session) -> Result<u64, Failure> {
    let (len, theirs) = match session.receive()? {
        Message::Resume { len, digest } => (len, digest),
        other => return Err(session.unexpected(&other)),
    };
    if len > plan.size || (len != plan.size && !len.is_multiple_of(plan.block as u64)) {
        return Err(session.violates("the length of its partial copy does not fit the file"));
    }
    let ours = digest_of(len, |bytes, at| source.read_exact_at(bytes, at))?;
    let from = if ours == theirs { len } else { 0 };
    session.send(&Message::ResumeAnswer { from })?;
    Ok(from)
}

/// Returns the digest of the first `len` bytes of a file.
fn digest_of(
    len: u64,
    mut read: impl FnMut(&mut [u8], u64) -> Result<(), Failure>,
) -> Result<Digest, Failure> {
    let mut digest = XxHash3_128::new();
    let mut buffer = vec![0; PIECE.min(usize::try_from(len).unwrap_or(PIECE))];
    let mut at = 0;
    while at < len {
        crate::deadline::check_interrupt()?;
        let n = usize::try_from(len - at).unwrap_or(PIECE).min(PIECE);
        read(&mut buffer[..n], at)?;
        digest.write(&buffer[..n]);
        at += n as u64;
        made_progress();
    }
    Ok(digest.finish_128())
}
