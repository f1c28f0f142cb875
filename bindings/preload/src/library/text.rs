//! Text without an allocator.

use core::fmt;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Text of at most `N` bytes. What does not fit is left out.
pub(super) struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    pub(super) const fn new() -> Self {
        Self { bytes: [0; N], len: 0 }
    }

    pub(super) fn push(&mut self, text: &[u8]) {
        for byte in text {
            if let Some(to) = self.bytes.get_mut(self.len) {
                *to = *byte;
                self.len += 1;
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl<const N: usize> fmt::Write for Text<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

/// Text in a static. Empty until it is set; read only after that.
pub(super) struct Stored<const N: usize>([AtomicU8; N]);

impl<const N: usize> Stored<N> {
    pub(super) const fn new() -> Self {
        Self([const { AtomicU8::new(0) }; N])
    }

    /// Stores a text of less than `N` bytes without zero bytes.
    pub(super) fn set(&self, text: &[u8]) {
        for (byte, to) in text.iter().zip(&self.0) {
            to.store(*byte, Relaxed);
        }
    }

    /// Returns the text, with at least one zero byte after it.
    pub(super) fn get(&self) -> [u8; N] {
        let mut text = [0; N];
        for (to, byte) in text.iter_mut().zip(&self.0) {
            *to = byte.load(Relaxed);
        }
        text
    }
}
