//! The number of descriptors that an operation becomes on an engine.

use dma::{Capabilities, EngineInfo, Limits};

use super::Trouble;
use crate::memory::PATTERN;
use crate::plan::{Cell, Op};

/// Returns the number of descriptors for an operation of the cell, and the most bytes of each. Fails with
/// [`Trouble::Unsupported`] if the engine cannot do the operation.
pub(super) fn pieces(info: &EngineInfo, cell: &Cell) -> Result<(usize, usize), Trouble> {
    let Limits { max_transfer, max_segments, max_queue_depth, .. } = info.limits;
    let pieces = cell.size.div_ceil(max_transfer).max(1);
    let unsupported = |what: String| Err(Trouble::Unsupported(what));
    let capability = match cell.op {
        Op::Compare => Capabilities::COMPARE,
        Op::Crc32c => Capabilities::CRC32C,
        Op::CopyCrc32c => Capabilities::COPY_CRC32C,
        Op::CopyToBoth => Capabilities::COPY_TO_BOTH,
        _ => Capabilities::empty(),
    };
    if !info.capabilities.contains(capability) {
        let supplied = match cell.op {
            Op::CopyToBoth => "makes two copies of it",
            _ => "has one CPU core do it",
        };
        return unsupported(format!("this device has no {}; `dma::Queue` {supplied}", cell.op));
    }
    match cell.op {
        Op::Fill if !info.capabilities.contains(Capabilities::FILL) => {
            unsupported("this device has no fill".to_owned())
        }
        op if op.has_segments() && cell.segments as usize > max_segments => {
            unsupported(format!("{} segments; this device takes {max_segments}", cell.segments))
        }
        // Each piece of a fill starts the pattern anew, so the pieces must be multiples of it.
        Op::Fill
            if pieces > 1
                && (!max_transfer.is_multiple_of(PATTERN.len() as u64)
                    || pieces.saturating_mul(cell.depth.into()) > max_queue_depth as u64) =>
        {
            unsupported(format!("{} B at once; this device takes {max_transfer}", cell.size))
        }
        op if pieces > 1 && (op.has_segments() || !capability.is_empty()) => {
            unsupported(format!("{} B at once; this device takes {max_transfer}", cell.size))
        }
        _ => Ok((pieces as usize, usize::try_from(max_transfer).unwrap_or(usize::MAX))),
    }
}
