//! Moves bytes of tasks, with leave of the peers that own them, and through a bounce buffer for memory
//! without an address in this process.
#![expect(unsafe_code, reason = "copies between raw addresses and a buffer; others may hold the same memory")]

use super::channel::Task;
use super::memory::{MemoryTable, Piece};
use super::motion::{self, runs, turned};
use super::region::PeerError;
use super::rng;
use super::task::Operation;

/// Moves a part of a task, with leave of the peers that own its memory.
pub(super) fn move_part(
    memory: &MemoryTable,
    bounce: &mut BounceBuffer,
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
        unsafe { bounce.move_part(memory, task, part) }
    } else {
        // SAFETY: the pieces were made from registered regions, which stay registered as long as they are
        // pinned: from submission to the end. Leave for remote ones was acquired above. The lengths were
        // checked at submission.
        unsafe { motion::move_part(task.operation, &task.src, &task.dst, task.len, &task.tearing, part) };
        Ok(())
    };
    if task.remote {
        memory.release(task.pieces());
    }
    moved
}

/// Corrupts one bit of a task's destination. Returns its byte; `None` if a peer refuses access.
pub(super) fn corrupt(memory: &MemoryTable, task: &Task) -> Option<u64> {
    let byte = rng::scale(rng::mix(!task.chance), task.len);
    if task.remote {
        memory.acquire(task.pieces()).ok()?;
    }
    let flipped = if task.far {
        // SAFETY: as below.
        unsafe { flip_bit(memory, &task.dst, byte, task.chance >> 8) }.is_ok()
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

/// Size of the bounce buffer in bytes.
const LOAD: usize = 64 << 10;

/// Buffer for memory without an address in this process. Allocated at first use.
#[derive(Debug, Default)]
pub(super) struct BounceBuffer {
    buffer: Box<[u8]>,
}

impl BounceBuffer {
    /// Moves part `part`, counted from 1, of a task. On `Err` some bytes may have moved.
    ///
    /// # Safety
    ///
    /// As [`motion::move_part`].
    unsafe fn move_part(&mut self, memory: &MemoryTable, task: &Task, part: u8) -> Result<(), PeerError> {
        if self.buffer.is_empty() {
            self.buffer = vec![0; LOAD].into();
        }
        let mut outcome = Ok(());
        task.tearing.ranges(task.len, part, |from, to| {
            let mut at = from;
            while at < to && outcome.is_ok() {
                let end = to.min(at + LOAD as u64);
                let load = &mut self.buffer[..(end - at) as usize];
                // SAFETY: the caller's promise; the range is within the task.
                outcome = unsafe { copy_through(memory, task, at, load) };
                at = end;
            }
        });
        outcome
    }
}

/// Inverts one bit, chosen by `chance`, of byte `at` of `dst`.
///
/// # Safety
///
/// As [`motion::flip_bit`].
unsafe fn flip_bit(memory: &MemoryTable, dst: &[Piece], at: u64, chance: u64) -> Result<(), PeerError> {
    let mut byte = [0];
    // SAFETY: the caller's promise.
    unsafe { gather(memory, dst, at, &mut byte) }?;
    byte[0] ^= 1 << (chance % 8);
    // SAFETY: as above.
    unsafe { scatter(memory, dst, at, &byte) }
}

/// Moves the bytes from `at` of a task, as many as `load` is long.
///
/// # Safety
///
/// As [`BounceBuffer::move_part`].
unsafe fn copy_through(memory: &MemoryTable, task: &Task, at: u64, load: &mut [u8]) -> Result<(), PeerError> {
    match task.operation {
        Operation::Copy => {
            // SAFETY: the caller's promise.
            unsafe { gather(memory, &task.src, at, load) }?;
        }
        Operation::Fill { pattern } => {
            let turned = turned(pattern, at);
            load.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&turned[..chunk.len()]));
        }
    }
    // SAFETY: the caller's promise.
    unsafe { scatter(memory, &task.dst, at, load) }
}

/// # Safety
///
/// The pieces that are not far are of regions that are registered now, and leave to touch them was acquired.
unsafe fn gather(memory: &MemoryTable, src: &[Piece], at: u64, load: &mut [u8]) -> Result<(), PeerError> {
    for run in runs(src, at, at + load.len() as u64) {
        let begin = (run.at - at) as usize;
        let to = &mut load[begin..begin + run.len as usize];
        if run.piece.far {
            let far = memory.far(run.piece).ok_or(PeerError::Revoked)?;
            far.read_at(run.piece.offset + run.skip, to)?;
        } else {
            // SAFETY: within a registered region, by the caller's promise; the buffer is this module's own.
            unsafe { dma_core::unsynchronized::copy(to.as_mut_ptr(), run.piece.ptr(run.skip), to.len()) }
        }
    }
    Ok(())
}

/// # Safety
///
/// As [`gather`].
unsafe fn scatter(memory: &MemoryTable, dst: &[Piece], at: u64, load: &[u8]) -> Result<(), PeerError> {
    for run in runs(dst, at, at + load.len() as u64) {
        let begin = (run.at - at) as usize;
        let from = &load[begin..begin + run.len as usize];
        if run.piece.far {
            let far = memory.far(run.piece).ok_or(PeerError::Revoked)?;
            far.write_at(run.piece.offset + run.skip, from)?;
        } else {
            // SAFETY: within a registered region, by the caller's promise; the buffer is this module's own.
            unsafe { dma_core::unsynchronized::copy(run.piece.ptr(run.skip), from.as_ptr(), from.len()) }
        }
    }
    Ok(())
}
