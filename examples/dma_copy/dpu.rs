//! The DPU's role: imports the host's window and moves bytes between its slots and buffers of its own by DMA, both ways; a thread of its own
//! reads or writes the file meanwhile.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};

use dma::ExportDescriptor;
use dma::prelude::*;
use indicatif::ProgressBar;

use crate::agree::{End, Plan};
use crate::digest::{self, Running};
use crate::failure::{Failure, failure};
use crate::files::{Source, Target};
use crate::host::{check, check_end, check_hole};
use crate::mover::{Mover, Way};
use crate::options::Options;
use crate::protocol::{Digest, Message, Role, Step};
use crate::talk::{Event, For, Talk, worked};

/// A part of the file, on its way: a block with its bytes, or a hole.
#[derive(Debug)]
pub(crate) struct Block {
    /// `None` for a hole, and while the device has it. As long as any block.
    pub(crate) buffer: Option<BufferMut>,
    /// Where in the file.
    pub(crate) at: u64,
    pub(crate) len: u64,
    pub(crate) slot: u32,
    pub(crate) digest: Digest,
}

/// Copies, and returns how many DMA copies were submitted again.
pub(crate) fn copy(
    engine: &dyn DmaEngine,
    plan: &Plan,
    end: &End,
    talk: &Talk,
    bar: &ProgressBar,
    options: &Options,
) -> Result<u64, Failure> {
    let way = if plan.sender == Role::Host { Way::In } else { Way::Out };
    let mut dpu = Dpu {
        mover: None,
        buffers: Vec::with_capacity(plan.slots),
        plan,
        talk,
        bar,
        digests: Running::new(plan.checksum),
    };
    if plan.slots > 0 {
        let window = import(engine, plan, talk)?;
        let pieces = (options.chunk, options.depth);
        dpu.mover = Some(Mover::open(engine, window, way, plan.block, pieces, talk.own_timeout())?);
        let explain = |e: dma::Error| failure!(Moving, "{e}");
        let mut all = engine.allocate(plan.slots * plan.block).map_err(explain)?;
        dpu.buffers.extend((0..plan.slots).map(|_| all.split_to(plan.block)));
    }
    let copied = match end {
        End::Source(source) => dpu.send(source),
        End::Target(target) => dpu.receive(target),
    };
    let copied = match copied {
        // What the host says about it says more.
        Err(failure) if dpu.mover.as_ref().is_some_and(|mover| mover.revoked) => {
            Err(talk.reason_for(failure))
        }
        copied => copied,
    };
    if let Err(failure) = &copied {
        // Before the queue is closed, which may have to wait for the device.
        talk.abort(failure);
    }
    copied
}

/// Imports the host's window, as the host tells of it.
fn import(engine: &dyn DmaEngine, plan: &Plan, talk: &Talk) -> Result<Window, Failure> {
    let export = match talk.hear()? {
        Message::Export(export) => export,
        other => return Err(talk.unexpected(&other)),
    };
    let len = plan.slots * plan.block;
    let descriptor = ExportDescriptor::from_bytes(&export.descriptor)
        .map_err(|e| talk.violates(&format!("its export descriptor is none: {e}")))?;
    if export.len != len as u64
        || export.block as usize != plan.block
        || descriptor.len() != export.len
        || descriptor.address() != export.address
    {
        return Err(talk.violates(&format!(
            "it exports {} bytes at {:#x} in blocks of {}, and its descriptor has {} at {:#x}; agreed were {len} in blocks of {}",
            export.len,
            export.address,
            export.block,
            descriptor.len(),
            descriptor.address(),
            plan.block
        )));
    }
    let window = engine.import(&descriptor).map_err(|e| {
        failure!(
            Importing,
            "{e}; both sides need engines of one kind, and the host here exports memory of `{}`",
            descriptor.backend()
        )
    })?;
    // What was granted is the exporter's word, not the descriptor's.
    if window.len() != len {
        return Err(talk.violates(&format!("it exports {} bytes, agreed were {len}", window.len())));
    }
    Ok(window)
}

struct Dpu<'a> {
    /// None if there is nothing to move.
    mover: Option<Mover>,
    /// Free buffers; the one that came back last is taken first, since it is in the caches.
    buffers: Vec<BufferMut>,
    plan: &'a Plan,
    talk: &'a Talk,
    bar: &'a ProgressBar,
    digests: Running,
}

impl Dpu<'_> {
    fn receive(&mut self, target: &Arc<Target>) -> Result<u64, Failure> {
        let (plan, talk) = (self.plan, self.talk);
        let (to_file, blocks) = mpsc::sync_channel(2 * plan.slots + 4);
        {
            let (target, plan, events, bar) = (Arc::clone(target), *plan, talk.events(), self.bar.clone());
            // Not waited for after a failure: it may hang on its disk.
            std::thread::spawn(move || {
                let ended = write_blocks(&target, &plan, &blocks, &events, &bar);
                let _ = events.send(Event::Ended(ended));
            });
        }
        let mut arrivals = Arrivals::new(plan);
        // Blocks that wait for a buffer, and holes behind them.
        let mut waiting: VecDeque<Block> = VecDeque::with_capacity(plan.slots);
        let mut with_file = 0;
        loop {
            let idle = self.mover.as_ref().is_none_or(Mover::is_idle);
            if idle && waiting.is_empty() && with_file == 0 && arrivals.ended {
                break;
            }
            let event = if idle {
                let own = with_file > 0 && (arrivals.ended || !waiting.is_empty());
                Some(talk.event(if own { For::Own(Step::Writing) } else { For::Peer })?)
            } else {
                talk.try_event()?
            };
            match event {
                None => {}
                Some(Event::Message(message)) => {
                    if let Some(block) = arrivals.take(message, &mut self.digests, talk)? {
                        waiting.push_back(block);
                    }
                }
                Some(Event::Block(Block { buffer, .. })) => {
                    with_file -= 1;
                    self.buffers.extend(buffer);
                }
                Some(other) => {
                    return Err(failure!(Writing, "a thread of this side spoke out of turn: {other:?}"));
                }
            }
            let Some(mover) = &mut self.mover else {
                // Nothing but holes.
                for block in waiting.drain(..) {
                    with_file += 1;
                    to_file.send(block).map_err(|_| talk.why_ended(Step::Writing))?;
                }
                continue;
            };
            while let Some(block) = waiting.front_mut() {
                if block.buffer.is_none() && !block.is_hole() {
                    block.buffer = self.buffers.pop();
                    if block.buffer.is_none() {
                        break;
                    }
                }
                mover.push(waiting.pop_front().expect("there is a first one"));
            }
            mover.pump()?;
            while let Some(block) = mover.finished()? {
                if !block.is_hole() {
                    arrivals.filled[block.slot as usize] = false;
                    talk.say(&Message::Freed { slot: block.slot })?;
                }
                with_file += 1;
                // There is room: no more are under way than there are slots, and a hole before each.
                to_file.send(block).map_err(|_| talk.why_ended(Step::Writing))?;
            }
            if !mover.is_idle() {
                mover.wait()?;
            }
        }
        drop(to_file);
        loop {
            // The writer is done: its last word is on its way.
            match talk.event(For::Own(Step::Writing))? {
                Event::Ended(_) => break,
                Event::Message(message) => return Err(talk.unexpected(&message)),
                Event::Block(_) | Event::Silence(_) => {}
            }
        }
        target.publish()?;
        let retries = self.mover.as_ref().map_or(0, Mover::retries);
        // The copy is made, whether or not the host hears of it.
        let _ = talk.say(&Message::Status { total: plan.size, retries });
        talk.linger();
        Ok(retries)
    }

    fn send(&mut self, source: &Arc<Source>) -> Result<u64, Failure> {
        let (plan, talk) = (self.plan, self.talk);
        let (to_file, free) = mpsc::sync_channel(plan.slots + 1);
        for buffer in self.buffers.drain(..) {
            to_file.send(buffer).expect("the reader's end is still here");
        }
        {
            let (source, plan, events) = (Arc::clone(source), *plan, talk.events());
            // Not waited for after a failure: it may hang on its disk.
            std::thread::spawn(move || {
                let ended = read_blocks(&source, &plan, &free, &events);
                let _ = events.send(Event::Ended(ended));
            });
        }
        let mut slots = (0..plan.slots as u32).rev().collect::<Vec<_>>();
        let mut with_host = vec![false; plan.slots];
        let mut waiting: VecDeque<Block> = VecDeque::with_capacity(plan.slots);
        let (mut read_all, mut seq) = (false, 0);
        loop {
            let idle = self.mover.as_ref().is_none_or(Mover::is_idle);
            if idle && waiting.is_empty() && read_all {
                break;
            }
            let event = if idle {
                Some(talk.event(if waiting.is_empty() { For::Own(Step::Reading) } else { For::Peer })?)
            } else {
                talk.try_event()?
            };
            match event {
                None => {}
                Some(Event::Message(message)) => slots.push(freed(message, &mut with_host, talk)?),
                Some(Event::Block(block)) => waiting.push_back(block),
                Some(Event::Ended(_)) => read_all = true,
                Some(Event::Silence(failure)) => return Err(failure),
            }
            let Some(mover) = &mut self.mover else { continue };
            while let Some(block) = waiting.front_mut() {
                if !block.is_hole() {
                    let Some(slot) = slots.pop() else { break };
                    block.slot = slot;
                }
                mover.push(waiting.pop_front().expect("there is a first one"));
            }
            mover.pump()?;
            while let Some(block) = mover.finished()? {
                self.digests.add(block.len, &block.digest);
                self.bar.set_position(block.at + block.len);
                let Some(buffer) = block.buffer else {
                    talk.say(&Message::Hole { len: block.len })?;
                    continue;
                };
                with_host[block.slot as usize] = true;
                let (slot, len) = (block.slot, block.len as u32);
                talk.say(&Message::Filled { seq, slot, len, digest: block.digest })?;
                seq += 1;
                // The reader may have read all and gone.
                let _ = to_file.try_send(buffer);
            }
            if !mover.is_idle() {
                mover.wait()?;
            }
        }
        source.check_unchanged()?;
        let retries = self.mover.as_ref().map_or(0, Mover::retries);
        talk.say(&Message::End { total: plan.size, retries, digest: self.digests.finish() })?;
        loop {
            match talk.hear()? {
                Message::Status { total, .. } if total == plan.size => return Ok(retries),
                message => {
                    freed(message, &mut with_host, talk)?;
                }
            }
        }
    }
}

impl Block {
    fn is_hole(&self) -> bool {
        self.slot == Self::NO_SLOT
    }

    /// A hole has no slot.
    const NO_SLOT: u32 = u32::MAX;

    fn hole(at: u64, len: u64) -> Self {
        Self { buffer: None, at, len, slot: Self::NO_SLOT, digest: Digest::default() }
    }
}

/// What the host sends, checked: blocks in the order of the file, each in a slot of its own.
struct Arrivals<'a> {
    plan: &'a Plan,
    at: u64,
    seq: u64,
    after_hole: bool,
    /// The slots with blocks that were not moved yet.
    filled: Vec<bool>,
    ended: bool,
}

impl<'a> Arrivals<'a> {
    fn new(plan: &'a Plan) -> Self {
        Self { plan, at: plan.from, seq: 0, after_hole: false, filled: vec![false; plan.slots], ended: false }
    }

    /// The block that `message` is about, if it is about one.
    fn take(
        &mut self,
        message: Message,
        digests: &mut Running,
        talk: &Talk,
    ) -> Result<Option<Block>, Failure> {
        if self.ended {
            return Err(talk.unexpected(&message));
        }
        match message {
            Message::Filled { seq, slot, len, digest } => {
                let filled = self.filled.get_mut(slot as usize).filter(|filled| !**filled);
                match filled {
                    Some(filled)
                        if self.at < self.plan.size
                            && seq == self.seq
                            && len as usize == self.plan.block_at(self.at) =>
                    {
                        *filled = true;
                    }
                    _ => {
                        return Err(talk.violates(&format!(
                            "block {seq} of {len} bytes in slot {slot}, when byte {} was due",
                            self.at
                        )));
                    }
                }
                let (at, len) = (self.at, u64::from(len));
                digests.add(len, &digest);
                (self.at, self.seq, self.after_hole) = (at + len, seq + 1, false);
                Ok(Some(Block { buffer: None, at, len, slot, digest }))
            }
            Message::Hole { len } => {
                let at = self.at;
                self.at =
                    check_hole(self.plan, at, len, self.after_hole).map_err(|what| talk.violates(&what))?;
                self.after_hole = true;
                digests.add(len, &Digest::default());
                Ok(Some(Block::hole(at, len)))
            }
            Message::End { total, digest, .. } => {
                check_end(self.plan, self.at, total, digests, &digest)
                    .map_err(|what| talk.violates(&what))?;
                self.ended = true;
                Ok(None)
            }
            other => Err(talk.unexpected(&other)),
        }
    }
}

/// The slot that the host has freed.
fn freed(message: Message, with_host: &mut [bool], talk: &Talk) -> Result<u32, Failure> {
    match message {
        Message::Freed { slot } if with_host.get_mut(slot as usize).is_some_and(std::mem::take) => Ok(slot),
        Message::Freed { slot } => {
            Err(talk.violates(&format!("it freed slot {slot}, which it does not have")))
        }
        other => Err(talk.unexpected(&other)),
    }
}

/// Writes blocks to the file as they come, each once it is verified.
fn write_blocks(
    target: &Target,
    plan: &Plan,
    blocks: &Receiver<Block>,
    events: &SyncSender<Event>,
    bar: &ProgressBar,
) -> Result<(), Failure> {
    for block in blocks {
        let end = block.at + block.len;
        match &block.buffer {
            Some(buffer) => {
                let bytes = &buffer[..block.len as usize];
                check(plan.checksum, bytes, &block.digest, block.at)?;
                target.write_all_at(bytes, block.at)?;
            }
            None => {
                target.cut(end)?;
                worked();
            }
        }
        bar.set_position(end);
        if events.send(Event::Block(block)).is_err() {
            break;
        }
    }
    Ok(())
}

/// Reads the file into free buffers, block by block.
fn read_blocks(
    source: &Source,
    plan: &Plan,
    free: &Receiver<BufferMut>,
    events: &SyncSender<Event>,
) -> Result<(), Failure> {
    let (mut at, mut after_hole) = (plan.from, false);
    while at < plan.size {
        // Never two in a row: they need no slots, and nothing else holds them back.
        let hole = if after_hole { 0 } else { source.hole(at, plan.block as u64) };
        after_hole = hole > 0;
        let block = if hole > 0 {
            Block::hole(at, hole)
        } else {
            // Nobody gives buffers any more: the copy is off.
            let Ok(mut buffer) = free.recv() else { return Ok(()) };
            let len = plan.block_at(at);
            source.read_exact_at(&mut buffer[..len], at)?;
            let digest = digest::of(plan.checksum, &buffer[..len]);
            Block { buffer: Some(buffer), at, len: len as u64, slot: 0, digest }
        };
        at += block.len;
        worked();
        if events.send(Event::Block(block)).is_err() {
            break;
        }
    }
    Ok(())
}
