//! Moves the bytes of tasks and computes their results. Peers grant access to remote memory. Memory without
//! an address in this process is copied through a bounce buffer.
#![expect(
    unsafe_code,
    reason = "copies between raw addresses and a buffer; other code may access the same memory"
)]

use dma_core::racy_copy;

use super::channel::Task;
use super::memory::{MemoryTable, Piece};
use super::motion::{self, runs, turned};
use super::region::PeerError;
use super::rng;
use super::task::TaskKind;

/// Moves a part of a task, after acquiring access from the peers that own its memory. Computes the result of
/// the task, if it has one, after the last part.
pub(super) fn move_part(
    memory: &MemoryTable,
    bounce: &mut BounceBuffer,
    task: &mut Task,
    part: u8,
) -> Result<(), PeerError> {
    if task.len == 0 {
        return Ok(());
    }
    if task.remote {
        memory.acquire(task.pieces())?;
    }
    task.touched |= task.kind.writes();
    let mut moved = if task.far {
        // SAFETY: pieces that are not far belong to regions that stay registered while they are pinned, from
        // submission to the end of the task. Access to remote regions was acquired above.
        unsafe { bounce.move_part(memory, task, part) }
    } else {
        // SAFETY: the pieces belong to regions that stay registered while they are pinned, from submission to
        // the end of the task. Access to remote regions was acquired above. The lengths were checked at
        // submission.
        unsafe { motion::move_part(task.kind, &task.src, &task.dst, task.len, &task.tearing, part) };
        Ok(())
    };
    if moved.is_ok() && task.kind.has_result() && part == task.tearing.parts {
        // SAFETY: pieces that are not far belong to regions that stay registered while they are pinned, from
        // submission to the end of the task. Access to remote regions was acquired above.
        moved = unsafe { bounce.result(memory, task) }.map(|result| task.result = result);
    }
    if task.remote {
        memory.release(task.pieces());
    }
    moved
}

/// Corrupts one bit of a task's destinations, or of its result if it has no destination. Returns the byte's
/// offset over all destinations in order, or `None` for the result.
///
/// # Errors
///
/// Returns an error if a peer refuses access.
pub(super) fn corrupt(memory: &MemoryTable, task: &mut Task) -> Result<Option<u64>, PeerError> {
    if !task.kind.writes() {
        task.result = task.kind.corrupted_result(task.result, task.len, task.chance);
        return Ok(None);
    }
    let byte = rng::scale(rng::mix(!task.chance), task.dst.iter().map(|piece| piece.len).sum());
    if task.remote {
        memory.acquire(task.pieces())?;
    }
    // SAFETY: pieces that are not far belong to regions that stay registered while they are pinned, from
    // submission to the end of the task. Access to remote regions was acquired above.
    let flipped = unsafe { flip_bit(memory, &task.dst, byte, task.chance >> 8) };
    if task.remote {
        memory.release(task.pieces());
    }
    flipped.map(|()| Some(byte))
}

/// Size of the bounce buffer in bytes.
const LOAD: usize = 64 << 10;

/// Buffer for memory without an address in this process, and for computing results. It is allocated at its
/// first use.
#[derive(Debug, Default)]
pub(super) struct BounceBuffer {
    buffer: Box<[u8]>,
}

impl BounceBuffer {
    /// Moves part `part`, counted from 1, of a task. After `Err`, some bytes may have moved.
    ///
    /// # Safety
    ///
    /// Pieces that are not far belong to registered regions, to which access was acquired.
    unsafe fn move_part(&mut self, memory: &MemoryTable, task: &Task, part: u8) -> Result<(), PeerError> {
        let buffer = self.buffer();
        let mut outcome = Ok(());
        task.tearing.ranges(task.len, part, |from, to| {
            let mut at = from;
            while at < to && outcome.is_ok() {
                let end = to.min(at + LOAD as u64);
                let load = &mut buffer[..(end - at) as usize];
                // SAFETY: the caller's pieces that are not far are registered and accessible.
                outcome = unsafe { copy_through(memory, task, at, load) };
                at = end;
            }
        });
        outcome
    }

    /// Returns the result of a task that has moved all of its bytes.
    ///
    /// # Safety
    ///
    /// See [`BounceBuffer::move_part`].
    unsafe fn result(&mut self, memory: &MemoryTable, task: &Task) -> Result<u64, PeerError> {
        const HALF: usize = LOAD / 2;
        let (left, right) = self.buffer().split_at_mut(HALF);
        let mut result = task.kind.initial();
        for at in (0..task.len).step_by(HALF) {
            let n = (task.len - at).min(HALF as u64) as usize;
            let (left, right) = (&mut left[..n], &mut right[..n]);
            // SAFETY: the caller's pieces that are not far are registered and accessible.
            unsafe { gather(memory, &task.src, at, left) }?;
            if task.kind != TaskKind::Compare {
                // SAFETY: the pointer comes from a borrowed slice of this length.
                result = unsafe { racy_copy::crc32c(result as u32, left.as_ptr(), left.len()) }.into();
                continue;
            }
            // SAFETY: the caller's pieces that are not far are registered and accessible.
            unsafe { gather(memory, &task.dst, at, right) }?;
            if left != right {
                let equal = left.iter().zip(&*right).take_while(|(a, b)| a == b).count();
                return Ok(at + equal as u64);
            }
        }
        Ok(result)
    }

    fn buffer(&mut self) -> &mut [u8] {
        if self.buffer.is_empty() {
            self.buffer = vec![0; LOAD].into();
        }
        &mut self.buffer
    }
}

/// Inverts one bit, selected by `chance`, of byte `at` of `dst`.
///
/// # Safety
///
/// See [`BounceBuffer::move_part`].
unsafe fn flip_bit(memory: &MemoryTable, dst: &[Piece], at: u64, chance: u64) -> Result<(), PeerError> {
    let mut byte = [0];
    // SAFETY: the caller's destinations that are not far are registered and accessible.
    unsafe { gather(memory, dst, at, &mut byte) }?;
    byte[0] ^= 1 << (chance % 8);
    // SAFETY: the caller's destinations that are not far are registered and accessible.
    unsafe { scatter(memory, dst, at, &byte) }
}

/// Moves `load.len()` bytes of a task, from offset `at` on.
///
/// # Safety
///
/// See [`BounceBuffer::move_part`].
unsafe fn copy_through(memory: &MemoryTable, task: &Task, at: u64, load: &mut [u8]) -> Result<(), PeerError> {
    match task.kind {
        TaskKind::Compare | TaskKind::Crc32c(_) => return Ok(()),
        TaskKind::Copy | TaskKind::CopyCrc32c(_) | TaskKind::CopyToBoth => {
            // SAFETY: the caller's sources that are not far are registered and accessible.
            unsafe { gather(memory, &task.src, at, load) }?;
        }
        TaskKind::Fill(pattern) => {
            let turned = turned(pattern, at);
            load.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&turned[..chunk.len()]));
        }
    }
    if task.kind == TaskKind::CopyToBoth {
        // SAFETY: the caller's destinations that are not far are registered and accessible.
        return task.dst.chunks(1).try_for_each(|dst| unsafe { scatter(memory, dst, at, load) });
    }
    // SAFETY: the caller's destinations that are not far are registered and accessible.
    unsafe { scatter(memory, &task.dst, at, load) }
}

/// # Safety
///
/// Pieces that are not far belong to registered regions, to which access was acquired.
unsafe fn gather(memory: &MemoryTable, src: &[Piece], at: u64, load: &mut [u8]) -> Result<(), PeerError> {
    for run in runs(src, at, at + load.len() as u64) {
        let begin = (run.at - at) as usize;
        let to = &mut load[begin..begin + run.len as usize];
        if run.piece.far {
            let far = memory.far(run.piece).ok_or(PeerError::Revoked)?;
            far.read_at(run.piece.offset + run.skip, to)?;
        } else {
            // SAFETY: the caller's piece is not far, so it is registered and accessible, and the run is
            // within it. `to` is a borrowed slice of this length outside the region.
            unsafe { racy_copy::copy(to.as_mut_ptr(), run.piece.ptr(run.skip), to.len()) }
        }
    }
    Ok(())
}

/// # Safety
///
/// See [`gather`].
unsafe fn scatter(memory: &MemoryTable, dst: &[Piece], at: u64, load: &[u8]) -> Result<(), PeerError> {
    for run in runs(dst, at, at + load.len() as u64) {
        let begin = (run.at - at) as usize;
        let from = &load[begin..begin + run.len as usize];
        if run.piece.far {
            let far = memory.far(run.piece).ok_or(PeerError::Revoked)?;
            far.write_at(run.piece.offset + run.skip, from)?;
        } else {
            // SAFETY: the caller's piece is not far, so it is registered and accessible, and the run is
            // within it. `from` is a borrowed slice of this length outside the region.
            unsafe { racy_copy::copy(run.piece.ptr(run.skip), from.as_ptr(), from.len()) }
        }
    }
    Ok(())
}
