//! The DPU's role: imports the host's window, and copies bytes between the window's slots and local buffers
//! by DMA, in either direction. A thread reads or writes the file at the same time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};

use dma::ExportDescriptor;
use dma::prelude::*;
use dma::process::count;
use indicatif::ProgressBar;

use crate::block::Block;
use crate::checks::{Arrivals, freed, verify};
use crate::deadline::hold_at;
use crate::digest::{self, OfBlocks};
use crate::direction::Direction;
use crate::failure::{Failure, failure};
use crate::files::{Source, Target};
use crate::mover::Mover;
use crate::negotiate::{LocalFile, Plan};
use crate::options::Options;
use crate::protocol::{Message, Role, Step};
use crate::session::{Event, Session, WaitFor, made_progress, unexpected_event};

/// Copies the file. Returns the number of DMA copies that were submitted again.
pub(crate) fn copy(
    engine: &dyn DmaEngine,
    plan: &Plan,
    file: &LocalFile,
    session: &Session,
    bar: &ProgressBar,
    options: &Options,
) -> Result<u64, Failure> {
    let direction = if plan.sender == Role::Host { Direction::FromWindow } else { Direction::ToWindow };
    let mut dpu = Dpu { mover: None, buffers: Vec::with_capacity(plan.slots), plan, session, bar };
    if plan.slots > 0 {
        let window = import(engine, plan, session)?;
        let pieces = (options.chunk, options.depth);
        let timeout = session.own_timeout();
        let mover = Mover::open(engine, window, direction, plan.block, pieces, timeout)?;
        if options.is_rdma() {
            // Return the host's reason if the host has sent one, because it is more precise than this error.
            mover.reach(engine).map_err(|failure| session.reason_for(failure))?;
        }
        dpu.mover = Some(mover);
        let mut all = engine.allocate(plan.slots * plan.block).map_err(|e| failure!(Moving, "{e}"))?;
        dpu.buffers.extend((0..plan.slots).map(|_| all.split_to(plan.block)));
    }
    let copied = match file {
        LocalFile::Source(source) => dpu.send(source),
        LocalFile::Target(target) => dpu.receive(target),
    };
    let copied = match copied {
        // Return the host's reason if the host has sent one, because it is more precise than this error.
        Err(failure) if dpu.mover.as_ref().is_some_and(|mover| mover.revoked) => {
            Err(session.reason_for(failure))
        }
        copied => copied,
    };
    if let Err(failure) = &copied {
        // Send the reason before the queue is closed, because closing it may wait for the device.
        session.abort(failure);
    }
    copied
}

/// Imports the window that the host exports.
fn import(engine: &dyn DmaEngine, plan: &Plan, session: &Session) -> Result<Window, Failure> {
    let export = match session.receive()? {
        Message::Export(export) => export,
        other => return Err(session.unexpected(&other)),
    };
    let len = plan.slots * plan.block;
    let descriptor = ExportDescriptor::from_bytes(&export.descriptor)
        .map_err(|e| session.violates(&format!("its export descriptor is invalid: {e}")))?;
    if export.len != len as u64 || export.block as usize != plan.block || descriptor.len() != export.len {
        return Err(session.violates(&format!(
            "it exports {} bytes in blocks of {}, and its descriptor {} bytes; both sides agreed on {len} in blocks of {}",
            export.len,
            export.block,
            descriptor.len(),
            plan.block
        )));
    }
    let window = engine.import(&descriptor).map_err(|e| match e.kind() {
        ErrorKind::Unsupported => failure!(
            Importing,
            "{e}; both sides need the same engine, and the host exports memory of `{}`",
            descriptor.backend()
        ),
        // The host has ended, and may have sent the reason.
        ErrorKind::Revoked => session.reason_for(failure!(Importing, "{e}")),
        _ => failure!(Importing, "{e}"),
    })?;
    // The window's length comes from the exporter, which may have granted less than the descriptor says.
    if window.len() != len {
        return Err(session.violates(&format!(
            "it exports {}; both sides agreed on {len}",
            count(window.len(), "byte", "bytes")
        )));
    }
    Ok(window)
}

struct Dpu<'a> {
    /// `None` if no bytes have to be moved.
    mover: Option<Mover>,
    /// Free buffers. The buffer that was returned last is reused first, because its bytes are still in the
    /// caches.
    buffers: Vec<BufferMut>,
    plan: &'a Plan,
    session: &'a Session,
    bar: &'a ProgressBar,
}

impl Dpu<'_> {
    fn is_idle(&self) -> bool {
        self.mover.as_ref().is_none_or(Mover::is_idle)
    }

    /// Returns the next event. Waits for an event only if no block is being moved.
    fn next(&self, whom: WaitFor) -> Result<Option<Event>, Failure> {
        if self.is_idle() { self.session.event(whom).map(Some) } else { self.session.try_event() }
    }

    /// Receives the file: copies blocks from the window, and writes them to `target`. Returns the number of
    /// retries.
    fn receive(&mut self, target: &Arc<Target>) -> Result<u64, Failure> {
        let (plan, session) = (self.plan, self.session);
        let (to_file, blocks) = mpsc::sync_channel(2 * plan.slots + 4);
        {
            let (target, plan, events, bar) = (Arc::clone(target), *plan, session.events(), self.bar.clone());
            // The thread is not joined after a failure, because it may hang on its disk.
            std::thread::spawn(move || {
                let ended = write_blocks(&target, &plan, &blocks, &events, &bar);
                let _ = events.send(Event::Ended(ended));
            });
        }
        let mut arrivals = Arrivals::new(plan, session);
        // Blocks that wait for a buffer, and holes behind such blocks.
        let mut waiting: VecDeque<Block> = VecDeque::with_capacity(plan.slots);
        let mut with_file = 0;
        loop {
            if self.is_idle() && waiting.is_empty() && with_file == 0 && arrivals.ended.is_some() {
                break;
            }
            let own = with_file > 0 && (arrivals.ended.is_some() || !waiting.is_empty());
            match self.next(if own { WaitFor::Own(Step::Writing) } else { WaitFor::Peer })? {
                None => {}
                Some(Event::Message(message)) => {
                    if let Some(block) = arrivals.take(message)? {
                        waiting.push_back(block);
                    }
                }
                Some(Event::Block(Block { buffer, .. })) => {
                    with_file -= 1;
                    self.buffers.extend(buffer);
                }
                Some(other) => return Err(unexpected_event(&other)),
            }
            let Some(mover) = &mut self.mover else {
                // The file consists of holes only.
                for block in waiting.drain(..) {
                    with_file += 1;
                    to_file.send(block).map_err(|_| session.why_ended(Step::Writing))?;
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
                mover.push(waiting.pop_front().expect("`waiting` is not empty"));
            }
            mover.pump()?;
            while let Some(block) = mover.finished()? {
                if !block.is_hole() {
                    arrivals.free(block.slot)?;
                }
                with_file += 1;
                // This does not block: at most one block per slot is in flight, with a hole before each,
                // and the channel has room for these.
                to_file.send(block).map_err(|_| session.why_ended(Step::Writing))?;
            }
            mover.wait()?;
        }
        drop(to_file);
        loop {
            // The writer has no more blocks, so `Ended` follows.
            match session.event(WaitFor::Own(Step::Writing))? {
                Event::Ended(_) => break,
                Event::Message(message) => return Err(session.unexpected(&message)),
                Event::Block(_) | Event::Closed(_) => {}
            }
        }
        target.publish()?;
        let retries = self.mover.as_ref().map_or(0, Mover::retries);
        // An error is ignored, because the copy is complete even if the host does not receive this message.
        let _ = session.send(&Message::Status { total: plan.size, retries });
        if plan.is_last {
            session.linger();
        }
        Ok(retries)
    }

    /// Sends the file: reads blocks of `source`, and copies them to the window. Returns the number of
    /// retries.
    fn send(&mut self, source: &Arc<Source>) -> Result<u64, Failure> {
        let (plan, session) = (self.plan, self.session);
        let (to_file, free) = mpsc::sync_channel(plan.slots + 1);
        for buffer in self.buffers.drain(..) {
            to_file.send(buffer).expect("the receiver is in scope");
        }
        {
            let (source, plan, events) = (Arc::clone(source), *plan, session.events());
            // The thread is not joined after a failure, because it may hang on its disk.
            std::thread::spawn(move || {
                let ended = read_blocks(&source, &plan, &free, &events);
                let _ = events.send(Event::Ended(ended));
            });
        }
        let mut slots = (0..plan.slots as u32).rev().collect::<Vec<_>>();
        let mut lent = vec![false; plan.slots];
        let mut digests = OfBlocks::new(plan.checksum);
        let mut waiting: VecDeque<Block> = VecDeque::with_capacity(plan.slots);
        let (mut read_all, mut seq) = (false, 0);
        loop {
            if self.is_idle() && waiting.is_empty() && read_all {
                break;
            }
            let own = waiting.is_empty();
            match self.next(if own { WaitFor::Own(Step::Reading) } else { WaitFor::Peer })? {
                None => {}
                Some(Event::Message(message)) => slots.push(freed(message, &mut lent, session)?),
                Some(Event::Block(block)) => waiting.push_back(block),
                Some(Event::Ended(_)) => read_all = true,
                Some(Event::Closed(failure)) => return Err(failure),
            }
            let Some(mover) = &mut self.mover else { continue };
            while let Some(block) = waiting.front_mut() {
                if !block.is_hole() {
                    let Some(slot) = slots.pop() else { break };
                    block.slot = slot;
                }
                mover.push(waiting.pop_front().expect("`waiting` is not empty"));
            }
            mover.pump()?;
            while let Some(block) = mover.finished()? {
                digests.add(block.len, block.digest);
                self.bar.set_position(block.at + block.len);
                let Some(buffer) = block.buffer else {
                    session.send(&Message::Hole { len: block.len })?;
                    continue;
                };
                lent[block.slot as usize] = true;
                let (slot, len) = (block.slot, block.len as u32);
                session.send(&Message::Filled { seq, slot, len, digest: block.digest })?;
                seq += 1;
                // Sending fails if the reader has ended, which is not an error.
                let _ = to_file.try_send(buffer);
                hold_at("block");
            }
            mover.wait()?;
        }
        source.unchanged()?;
        let retries = self.mover.as_ref().map_or(0, Mover::retries);
        session.send(&Message::End { total: plan.size, retries, digest: digests.finish() })?;
        loop {
            match session.receive()? {
                Message::Status { total, .. } if total == plan.size => return Ok(retries),
                message => {
                    freed(message, &mut lent, session)?;
                }
            }
        }
    }
}

/// Verifies blocks and writes them to the file.
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
                verify(plan, bytes, block.digest, block.at)?;
                target.write_all_at(bytes, block.at)?;
            }
            None => {
                target.set_len(end)?;
                made_progress();
            }
        }
        bar.set_position(end);
        hold_at("block");
        if events.send(Event::Block(block)).is_err() {
            break;
        }
    }
    Ok(())
}

/// Reads the file block by block into free buffers.
fn read_blocks(
    source: &Source,
    plan: &Plan,
    free: &Receiver<BufferMut>,
    events: &SyncSender<Event>,
) -> Result<(), Failure> {
    let (mut at, mut after_hole) = (plan.from, false);
    while at < plan.size {
        // Two holes never follow each other. Holes need no slots, so without this rule their number would
        // be unlimited.
        let hole = if after_hole { 0 } else { source.hole(at, plan.block as u64) };
        after_hole = hole > 0;
        let block = if hole > 0 {
            Block::hole(at, hole)
        } else {
            // The other end of the channel was dropped, because the copy has failed.
            let Ok(mut buffer) = free.recv() else { return Ok(()) };
            let len = plan.block_at(at);
            source.read_exact_at(&mut buffer[..len], at)?;
            let digest = digest::of(plan.checksum, &buffer[..len]);
            Block { buffer: Some(buffer), at, len: len as u64, slot: 0, digest }
        };
        at += block.len;
        made_progress();
        if events.send(Event::Block(block)).is_err() {
            break;
        }
    }
    Ok(())
}
