//! Divides a fill between the CPU, which writes the first bytes (up to 7), and the I/OAT engine.
#![expect(unsafe_code, reason = "writes the first bytes of a fill")]

use dma_core::DeviceAddr;

/// The parts of a fill for the CPU and the engine.
///
/// The engine repeats 8 bytes. SPDK splits a fill at page boundaries where memory is not contiguous, and
/// begins the pattern again there. The result is only right if the engine's destination begins at a multiple
/// of 8. Therefore the CPU writes the bytes before the first multiple of 8, and the pattern is rotated by the
/// number of these bytes. If all bytes of the pattern are equal, this is not needed.
#[derive(Debug)]
pub(crate) struct Fill {
    dst: DeviceAddr,
    /// The bytes that the CPU writes.
    first: [u8; 8],
    by_cpu: usize,
    /// The range and the pattern for the engine.
    pub(crate) rest: DeviceAddr,
    pub(crate) len: usize,
    pub(crate) pattern: u64,
}

impl Fill {
    pub(crate) fn new(dst: DeviceAddr, len: usize, pattern: [u8; 8]) -> Self {
        let uniform = pattern.iter().all(|byte| *byte == pattern[0]);
        let ahead = (dst.0.wrapping_neg() % 8) as usize;
        let by_cpu = if uniform { 0 } else { ahead.min(len) };
        let mut turned = pattern;
        turned.rotate_left(by_cpu % 8);
        Self {
            dst,
            first: pattern,
            by_cpu,
            rest: dst.offset(by_cpu),
            len: len - by_cpu,
            pattern: u64::from_le_bytes(turned),
        }
    }

    /// Writes the bytes that come before the first byte that the device fills.
    ///
    /// # Safety
    ///
    /// The destination may be written, and no other code accesses it.
    pub(crate) unsafe fn begin(&self) {
        for (at, byte) in self.first[..self.by_cpu].iter().enumerate() {
            // SAFETY: `at` is less than `by_cpu`, which is at most the destination's length, and the caller
            // may write the destination.
            unsafe { self.dst.offset(at).as_ptr().write(*byte) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use super::*;

    /// Executes a fill like an engine that begins the pattern again at every multiple of `page`.
    fn fill_in_pieces(memory: &mut [u8], at: usize, len: usize, pattern: [u8; 8], page: usize) {
        let dst = DeviceAddr::of(NonNull::from(&mut memory[..]).cast()).offset(at);
        let fill = Fill::new(dst, len, pattern);
        // SAFETY: the destination is within `memory`, to which this function has the only reference.
        unsafe { fill.begin() };
        let skip = (fill.rest.0 - dst.0) as usize;
        let mut phase = 0;
        for i in 0..fill.len {
            if (fill.rest.0 as usize + i).is_multiple_of(page) {
                phase = 0;
            }
            memory[at + skip + i] = fill.pattern.to_le_bytes()[phase % 8];
            phase += 1;
        }
    }

    #[test]
    fn patterns_stay_in_phase_at_page_boundaries() {
        for pattern in [*b"12345678", [7; 8], [0, 0, 0, 0, 0, 0, 0, 1]] {
            for at in 0..17 {
                for len in (0..40).chain([100, 333]) {
                    let mut memory = vec![0xee; 400];
                    fill_in_pieces(&mut memory, at, len, pattern, 64);
                    let expected = pattern.iter().cycle();
                    assert!(memory[at..at + len].iter().zip(expected).all(|(a, b)| a == b), "{len} at {at}");
                    assert!(memory[..at].iter().chain(&memory[at + len..]).all(|b| *b == 0xee));
                }
            }
        }
    }
}
