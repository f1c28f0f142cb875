//! The pieces of copies and fills, and their progress on a device.

use dma_sim::model::ChannelId;

use crate::codes::Code;
use crate::gpu::{End, Gpu, Piece};

/// One in `REPORT_EVERY` pieces of a batch is reported at once, so that a full channel makes progress.
const REPORT_EVERY: usize = 256;

/// Pieces of one copy, fill or batch.
#[derive(Debug)]
pub(super) struct Moves {
    pub(super) pieces: Pieces,
    pub(super) submitted: usize,
    pub(super) ended: usize,
}

#[derive(Debug)]
pub(super) enum Pieces {
    One(Piece),
    Batch(Vec<Piece>),
}

impl Pieces {
    fn as_slice(&self) -> &[Piece] {
        match self {
            Self::One(piece) => std::slice::from_ref(piece),
            Self::Batch(pieces) => pieces,
        }
    }
}

/// Submits pieces to the model and polls their completions. Returns true if all pieces have ended.
pub(super) fn advance_moves(gpu: &mut Gpu, channel: ChannelId, moves: &mut Moves) -> Result<bool, Code> {
    let Moves { pieces, submitted, ended } = moves;
    let pieces = pieces.as_slice();
    loop {
        let first = *submitted;
        while let Some(piece) = pieces.get(*submitted) {
            let coalesced = *submitted + 1 < pieces.len() && *submitted % REPORT_EVERY != REPORT_EVERY - 1;
            if !gpu.submit(channel, *piece, coalesced)? {
                break;
            }
            *submitted += 1;
        }
        if *submitted > first {
            gpu.doorbell(channel);
        }
        let before = *ended;
        while let Some(end) = gpu.poll(channel) {
            match end {
                End::Done => *ended += 1,
                End::Failed(code) => return Err(code),
            }
        }
        if *ended == pieces.len() || *ended == before {
            return Ok(*ended == pieces.len());
        }
    }
}
