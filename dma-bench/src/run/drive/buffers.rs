//! [`Buffers`]: the bytes of a cell's operations. Corrupts destinations before an operation, and compares
//! them after it.

use dma::contract::Completion;

use super::CellError;
use crate::plan::Op;
use crate::run::layout::{Layout, Offsets};
use crate::run::memory::{Difference, Memory};

/// The buffers of one queue.
#[derive(Debug)]
pub(super) struct Buffers {
    pub(super) memory: Memory,
    pub(super) layout: Layout,
    pub(super) op: Op,
}

impl Buffers {
    /// Makes every byte of the destination wrong, so that a missing copy is detected. For a comparison,
    /// only the last byte is made wrong, and the result has to report its offset.
    pub(super) fn corrupt(&self, index: usize) -> Result<(), CellError> {
        if self.op == Op::Compare {
            return Ok(self.memory.invert(self.last_byte(index))?);
        }
        self.each_part(index, |memory, at, len, fill| memory.corrupt(at, len, fill).map(|()| None))
            .map(|_| ())
    }

    /// Compares the bytes and the result of an operation whose buffer was corrupted before it.
    pub(super) fn compare(&self, index: usize, result: u64) -> Result<(), CellError> {
        let expected = match self.op {
            Op::Compare => {
                self.memory.invert(self.last_byte(index))?;
                self.layout.size() as u64 - 1
            }
            _ => self.expected_result(index),
        };
        self.compare_result(index, result, expected)?;
        self.compare_bytes(index)
    }

    /// Compares the bytes that the operation on buffer `index` wrote.
    pub(super) fn compare_bytes(&self, index: usize) -> Result<(), CellError> {
        match self.each_part(index, |memory, at, len, fill| memory.verify(at, len, fill))? {
            None => Ok(()),
            Some((at, difference)) => Err(CellError::WrongBytes { at, size: self.layout.size(), difference }),
        }
    }

    /// Compares the result of an operation with `expected`.
    pub(super) fn compare_result(&self, index: usize, found: u64, expected: u64) -> Result<(), CellError> {
        if found == expected {
            return Ok(());
        }
        let (at, size) = (self.layout.at(index).src, self.layout.size());
        Err(CellError::WrongResult { at, size, expected, found })
    }

    /// Returns the expected result of an operation whose buffer was not corrupted before it.
    pub(super) fn expected_result(&self, index: usize) -> u64 {
        match self.op {
            Op::Compare => Completion::EQUAL,
            Op::Crc32c | Op::CopyCrc32c => {
                Memory::crc32c(self.layout.at(index).src, self.layout.size()).into()
            }
            _ => 0,
        }
    }

    fn last_byte(&self, index: usize) -> usize {
        self.layout.at(index).dst + self.layout.size() - 1
    }

    /// Calls `f` with each part of each destination of a buffer, until it finds a difference. Returns the
    /// offset of that destination, and the difference with its offset from the start of the operation.
    fn each_part(
        &self,
        index: usize,
        mut f: impl FnMut(&Memory, Offsets, usize, bool) -> dma::Result<Option<Difference>>,
    ) -> Result<Option<(usize, Difference)>, CellError> {
        if !self.op.writes() {
            return Ok(None);
        }
        for shift in [Some(0), self.layout.second_dst()].into_iter().flatten() {
            let mut before = 0;
            for (at, len) in self.layout.parts(index) {
                let at = Offsets { dst: at.dst + shift, ..at };
                if let Some(found) = f(&self.memory, at, len, self.op == Op::Fill)? {
                    let difference = Difference { offset: before + found.offset, ..found };
                    return Ok(Some((self.layout.at(index).dst + shift, difference)));
                }
                before += len;
            }
        }
        Ok(None)
    }
}
