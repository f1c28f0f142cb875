//! Reads the decisions of a run from the fuzzer's input.

use std::cell::RefCell;

/// The bytes of an input, which are read decision by decision. After the end of the input, all bytes are 0.
pub(crate) struct Input(RefCell<Vec<u8>>);

impl Input {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self(RefCell::new(bytes.iter().rev().copied().collect()))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.borrow().is_empty()
    }

    pub(crate) fn byte(&self) -> u8 {
        self.0.borrow_mut().pop().unwrap_or(0)
    }

    /// Returns a number below `end`, which must not be 0.
    pub(crate) fn below(&self, end: usize) -> usize {
        (usize::from(self.byte()) << 8 | usize::from(self.byte())) % end
    }

    /// Returns any number. Small numbers and numbers near powers of two are more likely.
    pub(crate) fn number(&self) -> u64 {
        let (which, low) = (self.byte(), u64::from(self.byte()));
        match which % 4 {
            0 | 1 => low,
            2 => (1_u64 << (which >> 2)).wrapping_add(low).wrapping_sub(128),
            _ => u64::from_le_bytes(std::array::from_fn(|_| self.byte())),
        }
    }

    /// Returns an element of `all`. Returns `None` sometimes, and always if `all` is empty.
    pub(crate) fn pick<T: Copy>(&self, all: &RefCell<Vec<T>>) -> Option<T> {
        let byte = usize::from(self.byte());
        let all = all.borrow();
        if byte >= 250 || all.is_empty() { None } else { Some(all[byte % all.len()]) }
    }

    /// Picks a handle as [`pick`](Self::pick) does. Returns NULL instead of `None`.
    pub(crate) fn handle<T>(&self, all: &RefCell<Vec<*mut T>>) -> *mut T {
        self.pick(all).unwrap_or(std::ptr::null_mut())
    }
}
