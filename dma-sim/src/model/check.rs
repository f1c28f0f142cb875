//! Checks of submitted tasks.

use super::channel::Task;
use super::memory::{MemoryTable, Piece};
use super::profile::{Found, Profile, ZeroLength};
use super::region::Segment;
use super::task::{Descriptor, Operation, TaskError};

/// Checks a descriptor and translates its segments into those of `task`. Returns the length, and the error
/// with which the task will fail in the engine. The caller checks the length's limit.
#[inline]
pub(super) fn inspect(
    profile: &Profile,
    memory: &MemoryTable,
    descriptor: &Descriptor<'_>,
    task: &mut Task,
) -> Result<(u64, Option<TaskError>), TaskError> {
    task.src.clear();
    task.dst.clear();
    let len = shape(profile, descriptor)?;
    let mut error = translate(memory, descriptor, &mut task.src, &mut task.dst).err();
    if let (Some(error), Found::AtSubmit) = (error, profile.protection) {
        return Err(error);
    }
    if error.is_some() {
        task.src.clear();
        task.dst.clear();
    }
    if let (0, ZeroLength::Mistake(found)) = (len, profile.zero_length) {
        error = error.or(Some(TaskError::ZeroLength));
        if found == Found::AtSubmit {
            return Err(TaskError::ZeroLength);
        }
    }
    Ok((len, error))
}

/// Checks the descriptor without the memory table. Returns its length.
#[inline]
fn shape(profile: &Profile, descriptor: &Descriptor<'_>) -> Result<u64, TaskError> {
    let max = profile.max_segments as usize;
    let (offered, sources, destinations) = match descriptor.operation {
        Operation::Copy => (true, (1, max), (1, max)),
        Operation::Fill { .. } => (profile.fill, (0, max), (1, max)),
        Operation::CopyToBoth => (profile.results, (1, 1), (2, 2)),
        Operation::Compare | Operation::CopyCrc32c { .. } => (profile.results, (1, max), (1, max)),
        Operation::Crc32c { .. } => (profile.results, (1, max), (0, max)),
    };
    if !offered {
        return Err(TaskError::Unsupported);
    }
    for (segments, (min, max)) in [(descriptor.src.len(), sources), (descriptor.dst.len(), destinations)] {
        if segments < min || segments > max {
            return Err(TaskError::Segments { segments, min, max });
        }
    }
    let total = |segments: &[Segment]| segments.iter().fold(0_u64, |sum, s| sum.saturating_add(s.len));
    let (src, dst) = (total(descriptor.src), total(descriptor.dst));
    let (len, fits) = match descriptor.operation {
        Operation::Copy | Operation::Compare | Operation::CopyCrc32c { .. } => (dst, src == dst),
        Operation::Fill { .. } => (dst, descriptor.src.is_empty()),
        Operation::CopyToBoth => (src, descriptor.dst.iter().all(|segment| segment.len == src)),
        Operation::Crc32c { .. } => (src, descriptor.dst.is_empty()),
    };
    if len == u64::MAX {
        return Err(TaskError::TooLong { len, max: profile.max_task });
    }
    if fits { Ok(len) } else { Err(TaskError::LengthMismatch { src, dst }) }
}

#[inline]
fn translate(
    memory: &MemoryTable,
    descriptor: &Descriptor<'_>,
    src: &mut Vec<Piece>,
    dst: &mut Vec<Piece>,
) -> Result<(), TaskError> {
    for segment in descriptor.src {
        src.push(memory.resolve(*segment, false)?);
    }
    for segment in descriptor.dst {
        dst.push(memory.resolve(*segment, descriptor.operation.writes())?);
    }
    Ok(())
}
