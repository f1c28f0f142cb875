//! The host's role: exports a window of memory, and reads its file into that window's slots, or writes it out
//! of them.
//!
//! No reference to the window's bytes exists, because the DPU may write them at any time. Without checksums
//! the kernel moves them between file and window. With checksums they pass through a private buffer, so that
//! the bytes checked are the bytes written.

use std::time::Duration;

use dma::Export;
use dma::prelude::*;
use indicatif::ProgressBar;

use crate::check_interrupt;
use crate::checks::{Arrivals, freed, verify};
use crate::digest::{self, Running};
use crate::failure::{Failure, failure};
use crate::files::Target;
use crate::negotiate::{LocalFile, Plan};
use crate::protocol::{self, Checksum, Digest, MAX_DESCRIPTOR, Message, Role};
use crate::session::{Event, Session, WaitFor, made_progress, out_of_turn};

/// Time for the DPU to release the memory. A correct DPU has released it by then.
const REVOKE_TIMEOUT: Duration = Duration::from_secs(2);

/// Copies, and returns the number of DMA copies that the DPU submitted again.
pub(crate) fn copy(
    engine: &dyn DmaEngine,
    plan: &Plan,
    file: &LocalFile,
    session: &Session,
    bar: &ProgressBar,
) -> Result<u64, Failure> {
    let mut host = Host {
        window: ExportedWindow::export(engine, plan, session)?,
        plan,
        session,
        bar,
        private: vec![0; if plan.checksum == Checksum::None { 0 } else { plan.block }],
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
        // Before the export is dropped, which may wait for the DPU.
        Err(failure) => session.abort(failure),
    }
    copied
}

struct Host<'a> {
    /// `None` if there is nothing to move.
    window: Option<ExportedWindow>,
    plan: &'a Plan,
    session: &'a Session,
    bar: &'a ProgressBar,
    /// A private copy of one block, if blocks are checked.
    private: Vec<u8>,
}

/// The exported window, divided into slots of one block each.
struct ExportedWindow {
    // Dropped, and so revoked, before the memory.
    export: Export,
    window: Window,
    /// Free slots. The last one freed is taken first, because its bytes are still in the caches.
    free: Vec<u32>,
    /// For each slot: the DPU has it.
    lent: Vec<bool>,
}

impl ExportedWindow {
    /// Exports memory for `plan` and sends its descriptor to the DPU; `None` if there is nothing to copy.
    fn export(engine: &dyn DmaEngine, plan: &Plan, session: &Session) -> Result<Option<Self>, Failure> {
        if plan.slots == 0 {
            return Ok(None);
        }
        let len = plan.slots * plan.block;
        let export = |rights| {
            let window = engine.allocate_window(&MemoryRequest::new(len).exportable(rights))?;
            window.export(rights).map(|export| (window, export))
        };
        // The least rights that the direction needs. PCI devices with write access can always read, so their
        // engines refuse write-only exports; the window holds nothing but this file.
        let rights = if plan.sender == Role::Host { Access::READ } else { Access::WRITE };
        let (window, export) = match export(rights) {
            Err(e) if e.kind() == ErrorKind::Unsupported => export(Access::all()),
            exported => exported,
        }
        .map_err(|e| failure!(Exporting, "{e}"))?;
        let descriptor = export.descriptor().to_bytes();
        let limit = session.max_message.saturating_sub(64).min(MAX_DESCRIPTOR);
        if descriptor.len() > limit {
            return Err(failure!(
                Exporting,
                "the export descriptor has {} bytes, and the channel carries {limit}; use another --channel",
                descriptor.len()
            ));
        }
        session.send(&Message::Export(protocol::Export {
            address: window.region().as_raw().info().addr.0,
            len: len as u64,
            block: plan.block as u32,
            descriptor,
        }))?;
        let free = (0..plan.slots as u32).rev().collect();
        Ok(Some(Self { export, window, free, lent: vec![false; plan.slots] }))
    }

    /// Revokes the export. The copy is complete, so a DPU that keeps the memory harms only itself.
    fn revoke(self) {
        if let Err((_, e)) = self.export.revoke(REVOKE_TIMEOUT) {
            tracing::warn!("the DPU still has the exported memory: {e}");
        }
    }
}

impl Host<'_> {
    fn send(&mut self, source: &crate::disk::Source) -> Result<u64, Failure> {
        let (plan, session) = (self.plan, self.session);
        let mut digests = Running::new(plan.checksum);
        let (mut at, mut seq, mut after_hole) = (plan.from, 0, false);
        while at < plan.size {
            check_interrupt()?;
            while let Some(event) = session.try_event()? {
                self.freed(event)?;
            }
            // Two holes never follow each other: holes need no slots, so nothing else would limit their
            // number.
            let hole = if after_hole { 0 } else { source.hole(at, plan.block as u64) };
            after_hole = hole > 0;
            let (len, digest) = if hole > 0 {
                session.send(&Message::Hole { len: hole })?;
                (hole, Digest::default())
            } else {
                let Some(window) = &mut self.window else { break };
                let Some(slot) = window.free.pop() else {
                    let event = session.event(WaitFor::Peer)?;
                    self.freed(event)?;
                    continue;
                };
                let (len, place) = (plan.block_at(at), slot as usize * plan.block);
                let digest = match plan.checksum {
                    Checksum::None => {
                        source.read_all(at, len, |done, file| {
                            window.window.read_from(place + done, len - done, file, at + done as u64)
                        })?;
                        Digest::default()
                    }
                    checksum => {
                        let private = &mut self.private[..len];
                        source.read_exact_at(private, at)?;
                        window.window.write_at(place, private).map_err(|e| failure!(Reading, "{e}"))?;
                        digest::of(checksum, private)
                    }
                };
                window.lent[slot as usize] = true;
                session.send(&Message::Filled { seq, slot, len: len as u32, digest })?;
                seq += 1;
                (len as u64, digest)
            };
            digests.add(len, &digest);
            at += len;
            self.bar.set_position(at);
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

    fn freed(&mut self, event: Event) -> Result<(), Failure> {
        let Event::Message(message) = event else { return Err(out_of_turn(&event)) };
        match &mut self.window {
            Some(window) => window.free.push(freed(message, &mut window.lent, self.session)?),
            None => {
                freed(message, &mut [], self.session)?;
            }
        }
        Ok(())
    }

    fn receive(&mut self, target: &Target) -> Result<u64, Failure> {
        let (plan, session) = (self.plan, self.session);
        let mut arrivals = Arrivals::new(plan, session);
        while let Some(block) = arrivals.take(session.receive()?)? {
            check_interrupt()?;
            match &self.window {
                Some(window) if !block.is_hole() => {
                    let (len, place) = (block.len as usize, block.slot as usize * plan.block);
                    if plan.checksum == Checksum::None {
                        target.write_all(len, |done, file| {
                            window.window.write_to(place + done, len - done, file, block.at + done as u64)
                        })?;
                    } else {
                        let private = &mut self.private[..len];
                        window.window.read_at(place, private).map_err(|e| failure!(Verifying, "{e}"))?;
                        verify(plan.checksum, private, &block.digest, block.at)?;
                        target.write_all_at(private, block.at)?;
                    }
                    arrivals.free(block.slot)?;
                }
                _ => {
                    target.set_len(arrivals.at)?;
                    made_progress();
                }
            }
            self.bar.set_position(arrivals.at);
        }
        target.publish()?;
        // The copy is complete even if the DPU does not receive this.
        let _ = session.send(&Message::Status { total: plan.size, retries: 0 });
        session.linger();
        Ok(arrivals.ended.unwrap_or(0))
    }
}
