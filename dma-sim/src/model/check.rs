//! Checks of submitted tasks.

use dma_core::{Descriptor, Operation, Segment};

use super::channel::Task;
use super::memory::MemoryTable;
use super::profile::{Found, Profile, ZeroLength};
use super::task::{TaskError, TaskKind};

/// Checks a descriptor, and sets the kind and the pieces of `task` accordingly. Returns the error with which
/// the task will fail in the engine, if any. The caller compares the length with the device's maximum.
#[inline]
pub(super) fn inspect(
    profile: &Profile,
    memory: &MemoryTable,
    descriptor: &Descriptor<'_>,
    task: &mut Task,
) -> Result<Option<TaskError>, TaskError> {
    task.src.clear();
    task.dst.clear();
    let operation = descriptor.operation();
    let offered = match operation {
        Operation::Copy { .. } | Operation::CopyLists { .. } => true,
        Operation::Fill { .. } => profile.fill,
        _ => profile.results,
    };
    if !offered {
        return Err(TaskError::Unsupported);
    }
    let (kind, src, dst) = match operation {
        Operation::Copy { src, dst } => (TaskKind::Copy, &[src][..], &[dst][..]),
        Operation::CopyLists { src, dst } => {
            lists(profile, src, dst)?;
            (TaskKind::Copy, src, dst)
        }
        Operation::Fill { pattern, dst } => {
            segments(profile, dst)?;
            (TaskKind::Fill(u64::from_le_bytes(pattern)), &[][..], dst)
        }
        Operation::CopyToBoth { src, dst } => (TaskKind::CopyToBoth, &[src][..], &dst[..]),
        Operation::Compare { a, b } => (TaskKind::Compare, &[a][..], &[b][..]),
        Operation::Crc32c { src, seed } => (TaskKind::Crc32c(seed), &[src][..], &[][..]),
        Operation::CopyCrc32c { src, dst, seed } => (TaskKind::CopyCrc32c(seed), &[src][..], &[dst][..]),
        _ => return Err(TaskError::Unsupported),
    };
    task.kind = kind;
    if descriptor.len() == usize::MAX {
        return Err(TaskError::TooLong { len: u64::MAX, max: profile.max_task });
    }
    let mut error = translate(memory, src, dst, task).err();
    if let (Some(error), Found::AtSubmit) = (error, profile.protection) {
        return Err(error);
    }
    if error.is_some() {
        task.src.clear();
        task.dst.clear();
    }
    if let (0, ZeroLength::Mistake(found)) = (descriptor.len(), profile.zero_length) {
        error = error.or(Some(TaskError::ZeroLength));
        if found == Found::AtSubmit {
            return Err(TaskError::ZeroLength);
        }
    }
    Ok(error)
}

/// Checks the number of segments in a list.
fn segments(profile: &Profile, list: &[Segment]) -> Result<(), TaskError> {
    let (segments, max) = (list.len(), profile.max_segments as usize);
    if (1..=max).contains(&segments) { Ok(()) } else { Err(TaskError::Segments { segments, max }) }
}

/// Checks the lists of a copy. The lists may contain different numbers of bytes, which is an error. For two
/// single segments this is impossible, because a descriptor has one length for both.
fn lists(profile: &Profile, src: &[Segment], dst: &[Segment]) -> Result<(), TaskError> {
    segments(profile, src)?;
    segments(profile, dst)?;
    let total = |list: &[Segment]| list.iter().fold(0_u64, |sum, s| sum.saturating_add(s.len as u64));
    let (src, dst) = (total(src), total(dst));
    if src == dst { Ok(()) } else { Err(TaskError::LengthMismatch { src, dst }) }
}

#[inline]
fn translate(
    memory: &MemoryTable,
    src: &[Segment],
    dst: &[Segment],
    task: &mut Task,
) -> Result<(), TaskError> {
    for segment in src {
        task.src.push(memory.resolve(*segment, false)?);
    }
    for segment in dst {
        task.dst.push(memory.resolve(*segment, task.kind.writes())?);
    }
    Ok(())
}
