//! Routes of descriptors: the queue pair in use, the link to an import, or a relay between two imports.

use dma_core::Segment;

use crate::import::{Import, id_of};
use crate::verbs::{WR_RDMA_READ, WR_RDMA_WRITE};

/// Number of bytes that a relay copies at a time.
pub(crate) const PIECE: usize = 128 << 10;

/// The import whose link is in use.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) id: u32,
    rkey: u32,
    /// Offset from an address in descriptors to the exporter's address.
    shift: u64,
    /// Maximum number of descriptors in flight.
    pub(crate) room: u64,
}

impl Target {
    pub(crate) fn of(import: &Import, slots: usize) -> Self {
        let shift = import.grant.addr.wrapping_sub(import.addr);
        // Half of the slots, because each descriptor may be a separate chain, which ends with a proof
        // request.
        Self { id: import.id, rkey: import.grant.rkey, shift, room: slots as u64 / 2 }
    }

    /// Returns the opcode, the local piece, and the exporter's address and key.
    pub(crate) fn request(&self, src: Segment, dst: Segment) -> (i32, Segment, u64, u32) {
        let (opcode, local, remote) =
            if id_of(src.key) == 0 { (WR_RDMA_WRITE, src, dst) } else { (WR_RDMA_READ, dst, src) };
        (opcode, local, remote.addr.0.wrapping_add(self.shift), self.rkey)
    }
}

/// A copy from imported memory to imported memory, piece by piece through memory of the queue. A relay is the
/// queue's last descriptor, and its request is rewritten for each step.
#[derive(Debug)]
pub(crate) struct Relay {
    pub(crate) src: Segment,
    pub(crate) dst: Segment,
    /// Number of bytes that have arrived.
    pub(crate) at: usize,
    /// True if the next step, or the step in flight, writes the piece.
    pub(crate) writes: bool,
}

impl Relay {
    pub(crate) fn piece(&self) -> usize {
        PIECE.min(self.src.len - self.at)
    }

    /// Records that a step has ended. Returns true if another step follows.
    pub(crate) fn advance(&mut self) -> bool {
        if self.writes {
            self.at += self.piece();
        }
        self.writes = !self.writes;
        self.at < self.src.len
    }
}

/// The route of a descriptor.
pub(crate) enum Route {
    /// The descriptor goes through the queue pair in use.
    Ready,
    /// The descriptor must wait until other descriptors have ended.
    Later,
    /// The descriptor is copied in pieces through the bounce buffer. No request is in flight now.
    Relay,
}
