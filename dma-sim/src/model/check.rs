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
    let fill = descriptor.operation != Operation::Copy;
    if fill && !profile.fill {
        return Err(TaskError::Unsupported);
    }
    let max = profile.max_segments as usize;
    for (segments, least) in [(descriptor.src.len(), usize::from(!fill)), (descriptor.dst.len(), 1)] {
        if segments < least || segments > max {
            return Err(TaskError::Segments { segments, max });
        }
    }
    let total = |segments: &[Segment]| segments.iter().fold(0_u64, |sum, s| sum.saturating_add(s.len));
    let (src, dst) = (total(descriptor.src), total(descriptor.dst));
    if dst == u64::MAX {
        return Err(TaskError::TooLong { len: dst, max: profile.max_task });
    }
    let wanted = if fill { 0 } else { dst };
    if src != wanted || (fill && !descriptor.src.is_empty()) {
        return Err(TaskError::LengthMismatch { src, dst });
    }
    Ok(dst)
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
        dst.push(memory.resolve(*segment, true)?);
    }
    Ok(())
}
