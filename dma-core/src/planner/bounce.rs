//! The bounce buffer of a queue, which holds repeated patterns of fills and operands that the CPU reads.

use crate::BufferMut;

/// Memory to emulate operations that the device lacks. Its length is a multiple of 8.
pub(super) struct BounceBuffer {
    pub(super) buffer: BufferMut,
    pub(super) used_for: ScratchUse,
}

/// The current purpose of the bounce buffer, which changes only while nothing is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScratchUse {
    /// The buffer repeats this pattern, and fills are copied from it.
    Pattern([u8; 8]),
    /// The operands of the operation in this slot are copied to the buffer, for the CPU to read.
    Operands(u32),
}

impl BounceBuffer {
    pub(super) fn new(mut buffer: BufferMut) -> Self {
        buffer.fill(0);
        Self { buffer, used_for: ScratchUse::Pattern([0; 8]) }
    }

    /// Fills the buffer with a pattern, from which fills are then copied. Nothing in flight may use the
    /// buffer.
    pub(super) fn repeat(&mut self, pattern: [u8; 8]) {
        self.buffer.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&pattern));
        self.used_for = ScratchUse::Pattern(pattern);
    }
}
