//! Moving bytes of which some are in a peer that this process has no addresses in.
#![expect(unsafe_code, reason = "copies between raw addresses and a buffer; others may hold the same memory")]

use super::channel::Task;
use super::memory::{MemoryTable, PeerError, Piece};
use super::motion::{runs, turned};
use super::task::Operation;

/// Bytes carried at a time.
const LOAD: usize = 64 << 10;

/// Carries bytes through a buffer. It is empty until first used.
#[derive(Debug, Default)]
pub(super) struct Carrier {
    buffer: Box<[u8]>,
}

impl Carrier {
    /// Moves part `part`, counted from 1, of a task. On `Err` some of it may have moved.
    ///
    /// # Safety
    ///
    /// As [`motion::move_part`](super::motion::move_part).
    pub(super) unsafe fn move_part(
        &mut self,
        memory: &MemoryTable,
        task: &Task,
        part: u8,
    ) -> Result<(), PeerError> {
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
                outcome = unsafe { carry(memory, task, at, load) };
                at = end;
            }
        });
        outcome
    }

    /// Inverts one bit, chosen by `chance`, of byte `at` of `dst`.
    ///
    /// # Safety
    ///
    /// As [`motion::flip_bit`](super::motion::flip_bit).
    pub(super) unsafe fn flip_bit(
        &mut self,
        memory: &MemoryTable,
        dst: &[Piece],
        at: u64,
        chance: u64,
    ) -> Result<(), PeerError> {
        let mut byte = [0];
        // SAFETY: the caller's promise.
        unsafe { gather(memory, dst, at, &mut byte) }?;
        byte[0] ^= 1 << (chance % 8);
        // SAFETY: as above.
        unsafe { scatter(memory, dst, at, &byte) }
    }
}

/// Moves the bytes from `at` of a task, as many as `load` is long.
///
/// # Safety
///
/// As [`Carrier::move_part`].
unsafe fn carry(memory: &MemoryTable, task: &Task, at: u64, load: &mut [u8]) -> Result<(), PeerError> {
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
/// The pieces that are not far are of regions that are registered now, and leave to touch them was had.
unsafe fn gather(memory: &MemoryTable, src: &[Piece], at: u64, load: &mut [u8]) -> Result<(), PeerError> {
    for run in runs(src, at, at + load.len() as u64) {
        let begin = (run.at - at) as usize;
        let to = &mut load[begin..begin + run.len as usize];
        if run.piece.far {
            let far = memory.far(run.piece).ok_or(PeerError::Revoked)?;
            far.read_at(run.piece.offset + run.skip, to)?;
        } else {
            // SAFETY: within a registered region, by the caller's promise; the buffer is this module's own.
            unsafe { run.piece.ptr(run.skip).copy_to_nonoverlapping(to.as_mut_ptr(), to.len()) }
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
            unsafe { run.piece.ptr(run.skip).copy_from_nonoverlapping(from.as_ptr(), from.len()) }
        }
    }
    Ok(())
}
