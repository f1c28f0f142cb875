//! Who sends what to whom, in blocks of which size, and from where on.

use std::sync::Arc;

use crate::digest::Running;
use crate::failure::{Failure, failure};
use crate::files::{Source, Target};
use crate::options::Options;
use crate::protocol::{Checksum, Digest, Hello, Message, Role};
use crate::talk::{Talk, worked};

/// The smallest block, in bytes, where the window allows it: one message each way per block.
const BLOCK_MIN: u64 = 256 << 10;
/// What blocks are a multiple of, in bytes.
const PAGE: u64 = 4096;
/// The most blocks in a window.
const SLOTS_MAX: u64 = 256;
/// What any side may ask for.
const WINDOWS: std::ops::RangeInclusive<u64> = 8 << 10..=16 << 30;
const CHUNKS: std::ops::RangeInclusive<u64> = 4 << 10..=1 << 30;
/// How much is hashed between two looks at the clock.
const PIECE: usize = 1 << 20;

/// What both sides agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) sender: Role,
    /// The length of the file in bytes.
    pub(crate) size: u64,
    /// Bytes of a block: a slot of the window. The last block of a file may be shorter.
    pub(crate) block: usize,
    /// How many blocks the window holds.
    pub(crate) slots: usize,
    pub(crate) checksum: Checksum,
    /// Where the copy begins: the bytes before are there already.
    pub(crate) from: u64,
}

impl Plan {
    /// The length of the block at `offset`.
    pub(crate) fn block_at(&self, offset: u64) -> usize {
        usize::try_from(self.size - offset).unwrap_or(usize::MAX).min(self.block)
    }

    /// What two sides agree on, before they know what is there already: the same on both.
    fn of(mine: &Hello, theirs: &Hello, options: &Options) -> Result<Self, Failure> {
        let file = options.file.display();
        if mine.role == theirs.role {
            return Err(failure!(
                Agreeing,
                "both sides say that they are the {}; give --role host on one and --role dpu on the other",
                mine.role
            ));
        }
        if !WINDOWS.contains(&theirs.window) || !CHUNKS.contains(&theirs.chunk) {
            return Err(failure!(
                Agreeing,
                "the {} wants a window of {} and chunks of {} bytes; use the same release on both sides",
                theirs.role,
                theirs.window,
                theirs.chunk
            ));
        }
        let (sender, size) = match (mine.file, theirs.file) {
            (Some(size), None) => (mine.role, size),
            (None, Some(size)) => (theirs.role, size),
            (Some(_), Some(_)) => {
                return Err(failure!(
                    Agreeing,
                    "both sides have their file, {file} here, so it is unclear who sends; remove it on the side that receives, or choose another --file"
                ));
            }
            (None, None) => {
                return Err(failure!(
                    Agreeing,
                    "neither side has its file, {file} here, so there is nothing to send; check --file on the side that sends"
                ));
            }
        };
        let window = mine.window.min(theirs.window);
        let block = mine.chunk.max(theirs.chunk).max(BLOCK_MIN).min(window / 2) / PAGE * PAGE;
        let slots = (window / block).min(SLOTS_MAX).min(size.div_ceil(block));
        let fit = |n: u64| {
            usize::try_from(n).map_err(|_| failure!(Agreeing, "a window of {window} bytes; lower --window"))
        };
        let checksum = mine.checksum.max(theirs.checksum);
        Ok(Self { sender, size, block: fit(block)?, slots: fit(slots)?, checksum, from: 0 })
    }
}

/// This side's file.
pub(crate) enum End {
    Source(Arc<Source>),
    Target(Arc<Target>),
}

impl End {
    /// Cleans up after a failure.
    pub(crate) fn give_up(&self) {
        if let Self::Target(target) = self {
            target.give_up();
        }
    }
}

/// Agrees with the other side.
pub(crate) fn agree(options: &Options, source: Option<Source>, talk: &Talk) -> Result<(Plan, End), Failure> {
    let mine = Hello {
        role: options.role(),
        file: source.as_ref().map(Source::len),
        checksum: options.checksum,
        resume: options.resume,
        window: options.window,
        chunk: options.chunk,
    };
    // The host speaks first, since it was the one that connected: so the DPU knows that somebody is there who listens.
    if mine.role == Role::Host {
        talk.say(&Message::Hello(mine))?;
    }
    let theirs = match talk.hear()? {
        Message::Hello(theirs) => theirs,
        other => return Err(talk.unexpected(&other)),
    };
    if mine.role == Role::Dpu {
        talk.say(&Message::Hello(mine))?;
    }
    let mut plan = Plan::of(&mine, &theirs, options)?;
    tracing::info!(?plan, "agreed");
    match source {
        Some(source) => {
            plan.from = answer(&source, &plan, talk)?;
            Ok((plan, End::Source(Arc::new(source))))
        }
        None => {
            let target = Target::create(&options.file, options.resume, options.sync, plan.size)?;
            let begun = ask(&target, &plan, talk);
            if begun.is_err() {
                target.give_up();
            }
            plan.from = begun?;
            Ok((plan, End::Target(Arc::new(target))))
        }
    }
}

/// The receiver's part: offers what an earlier copy left, and learns whether it is any good.
fn ask(target: &Target, plan: &Plan, talk: &Talk) -> Result<u64, Failure> {
    let there = match target.there() {
        there if there >= plan.size => plan.size,
        // Only whole blocks were verified.
        there => there - there % plan.block as u64,
    };
    let digest = digest_of(there, plan.checksum, |bytes, at| target.read_exact_at(bytes, at))?;
    talk.say(&Message::Resume { len: there, digest })?;
    let from = match talk.hear()? {
        Message::ResumeAnswer { from } if from == 0 || from == there => from,
        Message::ResumeAnswer { .. } => return Err(talk.violates("it goes on where nothing was offered")),
        other => return Err(talk.unexpected(&other)),
    };
    if from < there {
        tracing::warn!("what an earlier copy left is of another file; beginning from its start");
    }
    target.cut(from)?;
    Ok(from)
}

/// The sender's part: says from where to go on.
fn answer(source: &Source, plan: &Plan, talk: &Talk) -> Result<u64, Failure> {
    let (len, theirs) = match talk.hear()? {
        Message::Resume { len, digest } => (len, digest),
        other => return Err(talk.unexpected(&other)),
    };
    if len > plan.size || (len != plan.size && !len.is_multiple_of(plan.block as u64)) {
        return Err(talk.violates("what it has is no part of the file"));
    }
    let ours = digest_of(len, plan.checksum, |bytes, at| source.read_exact_at(bytes, at))?;
    let from = if ours == theirs { len } else { 0 };
    talk.say(&Message::ResumeAnswer { from })?;
    Ok(from)
}

/// The digest of the first `len` bytes of a file. Always one that is one, whether or not blocks are checked.
fn digest_of(
    len: u64,
    checksum: Checksum,
    mut read: impl FnMut(&mut [u8], u64) -> Result<(), Failure>,
) -> Result<Digest, Failure> {
    let mut digest = Running::new(checksum.max(Checksum::Xxh3));
    let mut buffer = vec![0; PIECE.min(usize::try_from(len).unwrap_or(PIECE))];
    let mut at = 0;
    while at < len {
        crate::check_interrupt()?;
        let n = usize::try_from(len - at).unwrap_or(PIECE).min(PIECE);
        read(&mut buffer[..n], at)?;
        digest.update(&buffer[..n]);
        at += n as u64;
        worked();
    }
    Ok(digest.finish())
}
