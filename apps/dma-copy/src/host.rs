//! The host's role: exports a window of memory, and reads its file into the window's slots, or writes its
//! file from them. With `--engine stream`, this module implements both roles: each block goes through the
//! channel, and a free slot is the right to send one block.
//!
//! No reference to the window's bytes exists, because the DPU may write them at any time. Without
//! checksums, the kernel copies the bytes between file and window. With checksums, received bytes are first
//! copied to a private buffer, so that exactly the verified bytes are written to the file.

use dma::prelude::*;
use indicatif::ProgressBar;

use crate::block::Block;
use crate::checks::{Arrivals, freed, verify};
use crate::deadline::{check_interrupt, hold_at};
use crate::digest::{self, OfBlocks};
use crate::exported::ExportedWindow;
use crate::failure::{Failure, failure};
use crate::files::{Source, Target};
use crate::negotiate::{LocalFile, Plan};
use crate::protocol::{Checksum, Data, Digest, MAX_DATA, Message};
use crate::session::{Event, Session, WaitFor, made_progress, unexpected_event};

/// Encoded length of a `Data` message without its contents, in bytes.
const DATA_HEAD: usize = 5;

/// Copies the file. Returns the number of DMA copies that the DPU submitted again. Without an engine,
/// blocks go through the channel.
pub(crate) fn copy(
    engine: Option<&dyn DmaEngine>,
    plan: &Plan,
    file: &LocalFile,
    session: &Session,
    bar: &ProgressBar,
) -> Result<u64, Failure> {
    let window = match engine {
        Some(engine) => ExportedWindow::export(engine, plan, session)?,
        None => None,
    };
    let buffered = plan.stream || plan.checksum != Checksum::None;
    let mut host = Host {
        window,
        free: (0..plan.slots as u32).rev().collect(),
        lent: vec![false; plan.slots],
        plan,
        session,
        bar,
        private: vec![0; if buffered { plan.block } else { 0 }],
    };
    let copied = match file {
        LocalFile::Source(source) => host.send(source),
        LocalFile::Target(target) => host.receive(target),
    };
    match &copied {
        Ok(_) => {
            if let Some(window) = host.window {
                window.revoke();
            }
        }
        // Send the reason before the export is dropped, because dropping it may wait for the DPU.
        Err(failure) => session.abort(failure),
    }
    copied
}

struct Host<'a> {
    /// `None` if no bytes have to be moved, or if blocks go through the channel.
    window: Option<ExportedWindow>,
    /// Free slots. The slot that was freed last is reused first, because its bytes are still in the caches.
    free: Vec<u32>,
    /// For each slot, whether the other side has it.
    lent: Vec<bool>,
    plan: &'a Plan,
    session: &'a Session,
    bar: &'a ProgressBar,
    /// A private copy of one block, if blocks are checked or go through the channel.
    private: Vec<u8>,
}

impl Host<'_> {
    /// Sends the file. Returns the number of DMA copies that the DPU submitted again.
    fn send(&mut self, source: &Source) -> Result<u64, Failure> {
        let (plan, session) = (self.plan, self.session);
        let mut digests = OfBlocks::new(plan.checksum);
        let (mut at, mut seq, mut after_hole) = (plan.from, 0, false);
        while at < plan.size {
            check_interrupt()?;
            while let Some(event) = session.try_event()? {
                self.freed(event)?;
            }
            // Two holes never follow each other. Holes need no slots, so without this rule their number
            // would be unlimited.
            let hole = if after_hole { 0 } else { source.hole(at, plan.block as u64) };
            after_hole = hole > 0;
            let (len, digest) = if hole > 0 {
                session.send(&Message::Hole { len: hole })?;
                (hole, 0)
            } else {
                let Some(slot) = self.free.pop() else {
                    let event = session.event(WaitFor::Peer)?;
                    self.freed(event)?;
                    continue;
                };
                let len = plan.block_at(at);
                let digest = self.fill(slot, source, at, len)?;
                self.lent[slot as usize] = true;
                session.send(&Message::Filled { seq, slot, len: len as u32, digest })?;
                seq += 1;
                (len as u64, digest)
            };
            digests.add(len, digest);
            at += len;
            self.bar.set_position(at);
            hold_at("block");
            made_progress();
        }
        source.unchanged()?;
        session.send(&Message::End { total: plan.size, retries: 0, digest: digests.finish() })?;
        loop {
            match session.event(WaitFor::Peer)? {
                Event::Message(Message::Status { total, retries }) if total == plan.size => {
                    return Ok(retries);
                }
                event => self.freed(event)?,
            }
        }
    }

    /// Reads a block into the window's slot, or sends its bytes. Returns its digest.
    fn fill(&mut self, slot: u32, source: &Source, at: u64, len: usize) -> Result<Digest, Failure> {
        let (plan, place) = (self.plan, slot as usize * self.plan.block);
        if let (Some(window), Checksum::None) = (&self.window, plan.checksum) {
            source.read_all(at, len, |done, file| {
                window.window.read_from(place + done, len - done, file, at + done as u64)
            })?;
            return Ok(0);
        }
        let private = &mut self.private[..len];
        source.read_exact_at(private, at)?;
        if let Some(window) = &self.window {
            window.window.write_at(place, private).map_err(|e| failure!(Reading, "{e}"))?;
        } else {
            for bytes in private.chunks(MAX_DATA.min(self.session.max_message - DATA_HEAD)) {
                self.session.send(&Message::Data(Data(bytes.to_vec())))?;
                made_progress();
            }
        }
        Ok(digest::of(plan.checksum, private))
    }

    /// Handles an event that must be the message `Freed`: the slot is free again.
    fn freed(&mut self, event: Event) -> Result<(), Failure> {
        let Event::Message(message) = event else { return Err(unexpected_event(&event)) };
        self.free.push(freed(message, &mut self.lent, self.session)?);
        Ok(())
    }

    /// Receives the file. Returns the number of DMA copies that the DPU submitted again.
    fn receive(&mut self, target: &Target) -> Result<u64, Failure> {
        let (plan, session) = (self.plan, self.session);
        let mut arrivals = Arrivals::new(plan, session);
        loop {
            let block = match session.receive()? {
                Message::Data(Data(bytes)) if plan.stream => {
                    arrivals.receive(&bytes)?;
                    made_progress();
                    continue;
                }
                message => arrivals.take(message)?,
            };
            let Some(block) = block else { break };
            check_interrupt()?;
            if block.is_hole() {
                target.set_len(arrivals.at)?;
                made_progress();
            } else {
                self.write(&block, &mut arrivals, target)?;
                arrivals.free(block.slot)?;
            }
            self.bar.set_position(arrivals.at);
            hold_at("block");
        }
        target.publish()?;
        // An error is ignored: the copy is complete even if the other side does not receive this message.
        let _ = session.send(&Message::Status { total: plan.size, retries: 0 });
        if plan.is_last {
            session.linger();
        }
        Ok(arrivals.ended.unwrap_or(0))
    }

    /// Verifies a block and writes it to the file.
    fn write(&mut self, block: &Block, arrivals: &mut Arrivals<'_>, target: &Target) -> Result<(), Failure> {
        let (plan, len, place) = (self.plan, block.len as usize, block.slot as usize * self.plan.block);
        let bytes = match &self.window {
            None => &arrivals.received[..],
            Some(window) if plan.checksum == Checksum::None => {
                return target.write_all(len, |done, file| {
                    window.window.write_to(place + done, len - done, file, block.at + done as u64)
                });
            }
            Some(window) => {
                let private = &mut self.private[..len];
                window.window.read_at(place, private).map_err(|e| failure!(Verifying, "{e}"))?;
                private
            }
        };
        verify(plan, bytes, block.digest, block.at)?;
        target.write_all_at(bytes, block.at)?;
        arrivals.received.clear();
        Ok(())
    }
}
