//! Checks of the other side's messages while the file is copied.

use crate::block::Block;
use crate::digest::{self, OfBlocks};
use crate::failure::{Failure, failure};
use crate::negotiate::Plan;
use crate::protocol::{Checksum, Digest, Message};
use crate::session::Session;
use dma::process::count;

/// Checks the sender's messages: blocks must arrive in the order of the file, each in a free slot.
pub(crate) struct Arrivals<'a> {
    plan: &'a Plan,
    session: &'a Session,
    digests: OfBlocks,
    /// Number of bytes of the file that were announced so far.
    pub(crate) at: u64,
    seq: u64,
    after_hole: bool,
    /// The bytes of the next block that have arrived, if blocks go through the channel.
    pub(crate) received: Vec<u8>,
    /// For each slot, whether it holds a block that was not moved yet.
    filled: Vec<bool>,
    /// Set by `End`: the number of copies that the sender submitted again.
    pub(crate) ended: Option<u64>,
}

impl<'a> Arrivals<'a> {
    pub(crate) fn new(plan: &'a Plan, session: &'a Session) -> Self {
        Self {
            plan,
            session,
            digests: OfBlocks::new(plan.checksum),
            at: plan.from,
            seq: 0,
            after_hole: false,
            received: Vec::with_capacity(if plan.stream { plan.block } else { 0 }),
            filled: vec![false; plan.slots],
            ended: None,
        }
    }

    /// Checks and keeps the next bytes of a block.
    pub(crate) fn receive(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.session.release(bytes.len());
        let len = self.received.len() + bytes.len();
        if self.ended.is_some() || self.at >= self.plan.size || len > self.plan.block_at(self.at) {
            return self.violated(&format!(
                "it sent {} of block {} at byte {}",
                count(len, "byte", "bytes"),
                self.seq,
                self.at
            ));
        }
        self.received.extend_from_slice(bytes);
        Ok(())
    }

    /// Checks the sender's next message. Returns the block or hole that it announces, or `None` for `End`.
    pub(crate) fn take(&mut self, message: Message) -> Result<Option<Block>, Failure> {
        let (plan, at) = (self.plan, self.at);
        if self.ended.is_some() {
            return Err(self.session.unexpected(&message));
        }
        let block = match message {
            Message::Filled { seq, slot, len, digest } => {
                let free = self.filled.get_mut(slot as usize).filter(|filled| !**filled);
                let due = if at < plan.size { plan.block_at(at) } else { 0 };
                let whole = !plan.stream || self.received.len() == due;
                match free {
                    Some(filled) if due > 0 && seq == self.seq && len as usize == due && whole => {
                        *filled = true;
                    }
                    _ => {
                        return self.violated(&format!(
                            "it announced block {seq} of {} in slot {slot}, when byte {at} was due",
                            count(len, "byte", "bytes")
                        ));
                    }
                }
                self.seq += 1;
                Block { buffer: None, at, len: u64::from(len), slot, digest }
            }
            Message::Hole { .. } if !self.received.is_empty() => {
                return self.violated(&format!("it announced a hole within block {}", self.seq));
            }
            Message::Hole { .. } if self.after_hole => {
                return self.violated("it announced two holes in a row");
            }
            Message::Hole { len } => {
                let end = at.checked_add(len).filter(|end| *end <= plan.size);
                match end {
                    Some(end) if len > 0 && (end == plan.size || len.is_multiple_of(plan.block as u64)) => {}
                    _ => {
                        let size = plan.size;
                        return self.violated(&format!(
                            "it announced a hole of {} at byte {at}, in a file of {size}",
                            count(len, "byte", "bytes")
                        ));
                    }
                }
                Block::hole(at, len)
            }
            Message::End { total, .. } if at != plan.size || total != plan.size => {
                return self.violated(&format!(
                    "it ended after {at} bytes and announced {total}, but the file has {}",
                    plan.size
                ));
            }
            Message::End { digest, .. } if self.digests.finish() != digest => {
                return self.violated("the digest of the bytes sent differs from that of the bytes received");
            }
            Message::End { retries, .. } => {
                self.ended = Some(retries);
                return Ok(None);
            }
            other => return Err(self.session.unexpected(&other)),
        };
        self.after_hole = block.is_hole();
        self.at += block.len;
        self.digests.add(block.len, block.digest);
        Ok(Some(block))
    }

    /// Tells the sender that it may fill `slot` again.
    pub(crate) fn free(&mut self, slot: u32) -> Result<(), Failure> {
        self.filled[slot as usize] = false;
        self.session.send(&Message::Freed { slot })
    }

    fn violated<T>(&self, what: &str) -> Result<T, Failure> {
        Err(self.session.violates(what))
    }
}

/// Returns the slot that the receiver frees by `message`. `lent` says for each slot whether the receiver
/// has it.
pub(crate) fn freed(message: Message, lent: &mut [bool], session: &Session) -> Result<u32, Failure> {
    match message {
        Message::Freed { slot } if lent.get_mut(slot as usize).is_some_and(std::mem::take) => Ok(slot),
        Message::Freed { slot } => {
            Err(session.violates(&format!("it freed slot {slot}, which it does not have")))
        }
        other => Err(session.unexpected(&other)),
    }
}

/// Compares the digest of a received block with the digest that the sender sent.
pub(crate) fn verify(plan: &Plan, bytes: &[u8], sent: Digest, at: u64) -> Result<(), Failure> {
    if plan.checksum == Checksum::None || digest::of(plan.checksum, bytes) == sent {
        return Ok(());
    }
    let why = if plan.stream {
        "the memory of one side, or the network, corrupted them; copy again"
    } else {
        "the device or the memory corrupted them; copy again, with --engine cpu to find out which"
    };
    Err(failure!(
        Verifying,
        "the {} at {at} differ from the bytes that were sent: {why}",
        count(bytes.len(), "byte", "bytes")
    ))
}
