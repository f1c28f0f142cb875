//! Verification: changes destinations before an operation, and compares bytes and results after it.

use dma::Completion;

use super::{Trouble, Worker};
use crate::layout::Offsets;
use crate::memory::{Difference, Memory};
use crate::plan::Op;

impl Worker {
    /// Makes every byte of the destination wrong, so that a missing copy is noticed. For a comparison only
    /// the last byte is made wrong, and the result has to name it.
    pub(super) fn spoil(&self, index: usize) -> Result<(), Trouble> {
        if self.cell.op == Op::Compare {
            return Ok(self.memory.invert(self.last_byte(index))?);
        }
        self.each_piece(index, |memory, at, len, fill| memory.spoil(at, len, fill).map(|()| None)).map(|_| ())
    }

    /// Compares the bytes and the result of an operation whose buffer was spoilt.
    pub(super) fn compare(&mut self, index: usize, answer: u64) -> Result<(), Trouble> {
        self.checked += 1;
        let expected = match self.cell.op {
            Op::Compare => {
                self.memory.invert(self.last_byte(index))?;
                self.layout.size() as u64 - 1
            }
            _ => self.expected(index),
        };
        self.compare_answer(index, answer, expected)?;
        self.compare_bytes(index)
    }

    /// Compares the bytes that the operation on buffer `index` wrote.
    pub(super) fn compare_bytes(&self, index: usize) -> Result<(), Trouble> {
        match self.each_piece(index, |memory, at, len, fill| memory.verify(at, len, fill))? {
            None => Ok(()),
            Some((at, difference)) => Err(Trouble::Verification { at, size: self.layout.size(), difference }),
        }
    }

    /// Checks the last results of operations whose buffers were not spoilt, up to the number that is
    /// compared.
    pub(super) fn check_answers(&mut self) -> Result<(), Trouble> {
        let known =
            self.answers.iter().zip(&self.places).filter_map(|(answer, p)| Some((p.index, (*answer)?)));
        let known: Vec<(usize, u64)> = known.take(self.compared()).collect();
        for (index, answer) in known {
            self.compare_answer(index, answer, self.expected(index))?;
            // Operations that write were counted with their bytes.
            self.checked += u64::from(!self.cell.op.writes());
        }
        Ok(())
    }

    fn compare_answer(&self, index: usize, found: u64, expected: u64) -> Result<(), Trouble> {
        if found == expected {
            return Ok(());
        }
        let (at, size) = (self.layout.at(index).src, self.layout.size());
        Err(Trouble::Answer { at, size, expected, found })
    }

    /// Returns the expected result of an operation whose buffer was not spoilt.
    fn expected(&self, index: usize) -> u64 {
        match self.cell.op {
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

    /// Calls `f` with each part of each destination of a buffer, up to the first difference. Returns the
    /// offset of that destination, and the difference with its offset from the start of the operation.
    fn each_piece(
        &self,
        index: usize,
        mut f: impl FnMut(&Memory, Offsets, usize, bool) -> dma::Result<Option<Difference>>,
    ) -> Result<Option<(usize, Difference)>, Trouble> {
        if !self.cell.op.writes() {
            return Ok(None);
        }
        for shift in [Some(0), self.layout.also()].into_iter().flatten() {
            let mut before = 0;
            for (at, len) in self.layout.parts(index) {
                let at = Offsets { dst: at.dst + shift, ..at };
                if let Some(found) = f(&self.memory, at, len, self.cell.op == Op::Fill)? {
                    let difference = Difference { offset: before + found.offset, ..found };
                    return Ok(Some((self.layout.at(index).dst + shift, difference)));
                }
                before += len;
            }
        }
        Ok(None)
    }
}
