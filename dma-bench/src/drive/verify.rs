//! Finds out whether bytes arrive: buffers are spoilt before an operation and compared after it.

use super::{Trouble, Worker};
use crate::layout::Offsets;
use crate::memory::{Difference, Memory};
use crate::plan::Op;

impl Worker {
    /// Makes every byte of a buffer wrong, so that what arrives there can be told from what was there.
    pub(super) fn spoil(&self, index: usize) -> Result<(), Trouble> {
        self.each_piece(index, |memory, at, len, fill| memory.spoil(at, len, fill).map(|()| None)).map(|_| ())
    }

    pub(super) fn compare(&mut self, index: usize) -> Result<(), Trouble> {
        self.checked += 1;
        let (at, size) = (self.layout.at(index).dst, self.layout.size());
        let found = self.each_piece(index, |memory, at, len, fill| memory.verify(at, len, fill))?;
        match found {
            None => Ok(()),
            Some(difference) => Err(Trouble::Verification { at, size, difference }),
        }
    }

    /// Calls `f` with each part of a buffer; the first difference, counted from the operation's first byte.
    fn each_piece(
        &self,
        index: usize,
        mut f: impl FnMut(&Memory, Offsets, usize, bool) -> dma::Result<Option<Difference>>,
    ) -> Result<Option<Difference>, Trouble> {
        let mut before = 0;
        for (at, len) in self.layout.parts(index) {
            if let Some(found) = f(&self.memory, at, len, self.cell.op == Op::Fill)? {
                return Ok(Some(Difference { offset: before + found.offset, ..found }));
            }
            before += len;
        }
        Ok(None)
    }
}
