//! The host's role: exports a window of memory, and reads its file into the slots of that window, or writes it out of them.
//!
//! Bytes of the window are never referred to: the DPU may write them at any time. Without checksums the kernel moves them between file and
//! window; with, they pass through memory of this side's own, so that what was checked is what is written.

use std::time::Duration;

use dma::Export;
use dma::prelude::*;
use indicatif::ProgressBar;

use crate::agree::{End, Plan};
use crate::check_interrupt;
use crate::digest::{self, Running};
use crate::failure::{Failure, failure};
use crate::files::{Source, Target};
use crate::protocol::{self, Checksum, Digest, MAX_DESCRIPTOR, Message, Role};
use crate::talk::{Event, For, Talk, worked};

/// How long the DPU may take to let go of the memory. It has, by then, if it keeps to the protocol.
const REVOKE: Duration = Duration::from_secs(2);

/// Copies, and returns how many DMA copies the DPU had to submit again.
pub(crate) fn copy(
    engine: &dyn DmaEngine,
    plan: &Plan,
    end: &End,
    talk: &Talk,
    bar: &ProgressBar,
) -> Result<u64, Failure> {
    let mut host = Host {
        slots: Slots::export(engine, plan, talk)?,
        plan,
        talk,
        bar,
        own: vec![0; if plan.checksum == Checksum::None { 0 } else { plan.block }],
        digests: Running::new(plan.checksum),
    };
    let copied = match end {
        End::Source(source) => host.send(source),
        End::Target(target) => host.receive(target),
    };
    if let Err(failure) = &copied {
        // Before the memory is taken back, which may have to wait for the DPU.
        talk.abort(failure);
    }
    copied
}

struct Host<'a> {
    slots: Option<Slots>,
    plan: &'a Plan,
    talk: &'a Talk,
    bar: &'a ProgressBar,
    /// A block of this side's own, if blocks are checked.
    own: Vec<u8>,
    digests: Running,
}

/// The exported window, and which of its slots the DPU has.
struct Slots {
    // Revoked before the memory can go.
    export: Export,
    window: Window,
    block: usize,
    /// Those that are this side's; the one that was given back last is taken first, since it is in the caches.
    free: Vec<u32>,
    with_dpu: Vec<bool>,
}

impl Slots {
    /// Exports memory for `plan` and tells the DPU of it; nothing if there is nothing to copy.
    fn export(engine: &dyn DmaEngine, plan: &Plan, talk: &Talk) -> Result<Option<Self>, Failure> {
        if plan.slots == 0 {
            return Ok(None);
        }
        let explain = |e: dma::Error| failure!(Exporting, "{e}");
        let len = plan.slots * plan.block;
        let request = MemoryRequest::new(len).exportable(Access::all());
        let window = engine.allocate_window(&request).map_err(explain)?;
        // No more rights than the direction needs. Over PCI who may write may read too: there is nothing in the window but this file.
        let rights = if plan.sender == Role::Host { Access::READ } else { Access::WRITE };
        let export = match window.export(rights) {
            Err(e) if e.kind() == ErrorKind::Unsupported => window.export(Access::all()),
            export => export,
        };
        let export = export.map_err(explain)?;
        let descriptor = export.descriptor().to_bytes();
        let limit = talk.max_message.saturating_sub(64).min(MAX_DESCRIPTOR);
        if descriptor.len() > limit {
            return Err(failure!(
                Exporting,
                "the export descriptor has {} bytes, and the channel carries {limit}; use another --channel",
                descriptor.len()
            ));
        }
        talk.say(&Message::Export(protocol::Export {
            address: export.descriptor().address(),
            len: len as u64,
            block: plan.block as u32,
            descriptor,
        }))?;
        let free = (0..plan.slots as u32).rev().collect();
        Ok(Some(Self { export, window, block: plan.block, free, with_dpu: vec![false; plan.slots] }))
    }

    fn at(&self, slot: u32) -> usize {
        slot as usize * self.block
    }

    /// The DPU is done with `slot`; whether it had it.
    fn take_back(&mut self, slot: u32) -> bool {
        let had = self.with_dpu.get_mut(slot as usize).is_some_and(std::mem::take);
        if had {
            self.free.push(slot);
        }
        had
    }

    /// Takes the memory back. The copy is made: a DPU that holds on to it makes no difference but to itself.
    fn revoke(self) {
        if let Err((_, e)) = self.export.revoke(REVOKE) {
            tracing::warn!("the DPU still has the exported memory: {e}");
        }
    }
}

impl Host<'_> {
    fn send(&mut self, source: &Source) -> Result<u64, Failure> {
        let (plan, talk) = (self.plan, self.talk);
        let (mut at, mut seq, mut after_hole) = (plan.from, 0, false);
        while at < plan.size {
            check_interrupt()?;
            while let Some(event) = talk.try_event()? {
                self.freed(event)?;
            }
            // Never two in a row: they need no slots, and nothing else holds them back.
            let hole = if after_hole { 0 } else { source.hole(at, plan.block as u64) };
            after_hole = hole > 0;
            if hole > 0 {
                self.digests.add(hole, &Digest::default());
                talk.say(&Message::Hole { len: hole })?;
                at += hole;
                self.bar.set_position(at);
                worked();
                continue;
            }
            let Some(slots) = &mut self.slots else { break };
            let Some(slot) = slots.free.pop() else {
                let event = talk.event(For::Peer)?;
                self.freed(event)?;
                continue;
            };
            let (len, place) = (plan.block_at(at), slots.at(slot));
            let digest = match plan.checksum {
                Checksum::None => {
                    source.read_all(at, len, |done, file| {
                        slots.window.read_from(place + done, len - done, file, at + done as u64)
                    })?;
                    Digest::default()
                }
                checksum => {
                    let own = &mut self.own[..len];
                    source.read_exact_at(own, at)?;
                    slots.window.write_at(place, own).map_err(|e| failure!(Reading, "{e}"))?;
                    digest::of(checksum, own)
                }
            };
            slots.with_dpu[slot as usize] = true;
            self.digests.add(len as u64, &digest);
            talk.say(&Message::Filled { seq, slot, len: len as u32, digest })?;
            (at, seq) = (at + len as u64, seq + 1);
            self.bar.set_position(at);
            worked();
        }
        source.check_unchanged()?;
        talk.say(&Message::End { total: plan.size, retries: 0, digest: self.digests.finish() })?;
        loop {
            match talk.event(For::Peer)? {
                Event::Message(Message::Status { total, retries }) if total == plan.size => {
                    if let Some(slots) = self.slots.take() {
                        slots.revoke();
                    }
                    return Ok(retries);
                }
                event => self.freed(event)?,
            }
        }
    }

    fn freed(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::Message(Message::Freed { slot }) => {
                if self.slots.as_mut().is_some_and(|slots| slots.take_back(slot)) {
                    return Ok(());
                }
                Err(self.talk.violates(&format!("it freed slot {slot}, which it does not have")))
            }
            Event::Message(other) => Err(self.talk.unexpected(&other)),
            other => Err(failure!(Waiting, "a thread of this side spoke out of turn: {other:?}")),
        }
    }

    fn receive(&mut self, target: &Target) -> Result<u64, Failure> {
        let (plan, talk) = (self.plan, self.talk);
        let (mut at, mut expected, mut after_hole) = (plan.from, 0, false);
        loop {
            check_interrupt()?;
            match talk.hear()? {
                Message::Filled { seq, slot, len, digest } => {
                    let Some(slots) = &self.slots else { return Err(talk.violates("there are no slots")) };
                    if at >= plan.size
                        || seq != expected
                        || slot as usize >= plan.slots
                        || len as usize != plan.block_at(at)
                    {
                        return Err(talk.violates(&format!(
                            "block {seq} of {len} bytes in slot {slot}, when byte {at} was due"
                        )));
                    }
                    let (len, place) = (len as usize, slots.at(slot));
                    if plan.checksum == Checksum::None {
                        target.write_all(len, |done, file| {
                            slots.window.write_to(place + done, len - done, file, at + done as u64)
                        })?;
                    } else {
                        let own = &mut self.own[..len];
                        slots.window.read_at(place, own).map_err(|e| failure!(Verifying, "{e}"))?;
                        check(plan.checksum, own, &digest, at)?;
                        target.write_all_at(own, at)?;
                    }
                    self.digests.add(len as u64, &digest);
                    (at, expected, after_hole) = (at + len as u64, expected + 1, false);
                    talk.say(&Message::Freed { slot })?;
                }
                Message::Hole { len } => {
                    at = check_hole(plan, at, len, after_hole).map_err(|what| talk.violates(&what))?;
                    after_hole = true;
                    target.cut(at)?;
                    self.digests.add(len, &Digest::default());
                    worked();
                }
                Message::End { total, retries, digest } => {
                    check_end(plan, at, total, &self.digests, &digest)
                        .map_err(|what| talk.violates(&what))?;
                    target.publish()?;
                    // The copy is made, whether or not the DPU hears of it.
                    let _ = talk.say(&Message::Status { total, retries: 0 });
                    talk.linger();
                    if let Some(slots) = self.slots.take() {
                        slots.revoke();
                    }
                    return Ok(retries);
                }
                other => return Err(talk.unexpected(&other)),
            }
            self.bar.set_position(at);
        }
    }
}

/// Compares a block that arrived with what was sent.
pub(crate) fn check(checksum: Checksum, bytes: &[u8], sent: &Digest, at: u64) -> Result<(), Failure> {
    if checksum == Checksum::None || digest::of(checksum, bytes) == *sent {
        return Ok(());
    }
    Err(failure!(
        Verifying,
        "the {} bytes at {at} are not what was sent: the device or the memory corrupted them; copy again, with --engine cpu to see which",
        bytes.len()
    ))
}

/// Where the copy goes on behind a hole of `len` bytes at `at`, if there can be one.
pub(crate) fn check_hole(plan: &Plan, at: u64, len: u64, after_hole: bool) -> Result<u64, String> {
    if after_hole {
        return Err("two holes in a row".to_owned());
    }
    let end = at.checked_add(len).filter(|end| *end <= plan.size);
    match end {
        Some(end) if len > 0 && (end == plan.size || len.is_multiple_of(plan.block as u64)) => Ok(end),
        _ => Err(format!("a hole of {len} bytes at {at}, in a file of {}", plan.size)),
    }
}

/// Checks that all of the file has arrived.
pub(crate) fn check_end(
    plan: &Plan,
    at: u64,
    total: u64,
    digests: &Running,
    sent: &Digest,
) -> Result<(), String> {
    if at != plan.size || total != plan.size {
        return Err(format!("the end after {at} bytes, it says {total}, of a file of {}", plan.size));
    }
    if digests.finish() != *sent {
        return Err("the digest of all that was sent is another one than that of all that arrived".to_owned());
    }
    Ok(())
}
