//! The bytes of a task, moved and made wrong.
#![expect(unsafe_code, reason = "moves bytes of registered memory")]

use crate::model::channel::Task;
use crate::model::far::Carrier;
use crate::model::memory::{MemoryTable, PeerError};
use crate::model::{motion, rng};

/// Moves a part of a task, with leave of the peers that its memory belongs to.
pub(in crate::model) fn move_part(
    memory: &MemoryTable,
    carrier: &mut Carrier,
    task: &mut Task,
    part: u8,
) -> Result<(), PeerError> {
    if task.dst.is_empty() || task.len == 0 {
        return Ok(());
    }
    if task.remote {
        memory.acquire(task.pieces())?;
    }
    task.touched = true;
    let moved = if task.far {
        // SAFETY: as below.
        unsafe { carrier.move_part(memory, task, part) }
    } else {
        // SAFETY: the pieces were made from registered regions, which stay registered as long as they are
        // pinned: from submission to the end. Leave for remote ones was had just now. The lengths were checked
        // at submission.
        unsafe { motion::move_part(task.operation, &task.src, &task.dst, task.len, &task.tearing, part) };
        Ok(())
    };
    if task.remote {
        memory.release(task.pieces());
    }
    moved
}

/// Makes one bit of a task's destination wrong; returns in which byte. `None` if a peer does not let us.
pub(super) fn corrupt(memory: &MemoryTable, carrier: &mut Carrier, task: &Task) -> Option<u64> {
    let byte = rng::scale(rng::mix(!task.chance), task.len);
    if task.remote {
        memory.acquire(task.pieces()).ok()?;
    }
    let flipped = if task.far {
        // SAFETY: as below.
        unsafe { carrier.flip_bit(memory, &task.dst, byte, task.chance >> 8) }.is_ok()
    } else {
        // SAFETY: as in `move_part`; the byte is less than the task's length.
        unsafe { motion::flip_bit(&task.dst, byte, task.chance >> 8) };
        true
    };
    if task.remote {
        memory.release(task.pieces());
    }
    flipped.then_some(byte)
}
