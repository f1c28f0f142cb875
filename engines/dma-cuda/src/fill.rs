//! Fills of any pattern and length.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::c_int;

use crate::driver::{Address, Driver, Handle};

/// Bytes of a pattern.
const PATTERN: usize = 8;

/// Fills `len` bytes from `addr` on with the pattern, beginning with its byte `phase`.
///
/// The driver's calls repeat a value of 1, 2 or 4 bytes, from an address that is aligned to the size of the
/// value. Therefore the bytes before the first aligned address, and after the last whole pattern, are written
/// one by one. A pattern of 8 different bytes is written as two columns of 4 bytes.
///
/// # Safety
///
/// The context is current, and the stream belongs to it. The device reaches the bytes, and nothing else
/// accesses them until the stream has executed the fill.
pub(crate) unsafe fn fill(
    driver: &Driver,
    addr: Address,
    len: usize,
    pattern: [u8; PATTERN],
    phase: usize,
    stream: Handle,
) -> Result<(), c_int> {
    let checked = |code| if code == 0 { Ok(()) } else { Err(code) };
    // SAFETY: the bytes are within the caller's range, and the stream belongs to the current context.
    let bytes =
        |at: Address, value, number| checked(unsafe { (driver.cuMemsetD8Async)(at, value, number, stream) });
    let mut rotated = pattern;
    rotated.rotate_left(phase % PATTERN);
    if rotated == [rotated[0]; PATTERN] {
        return bytes(addr, rotated[0], len);
    }
    let one_by_one = |at: Address, pattern: [u8; PATTERN], number: usize| {
        (0..number).try_for_each(|i| bytes(at + i as u64, pattern[i % PATTERN], 1))
    };
    let head = (addr.next_multiple_of(4) - addr) as usize;
    if head >= len {
        return one_by_one(addr, rotated, len);
    }
    one_by_one(addr, rotated, head)?;
    rotated.rotate_left(head);
    let (addr, len) = (addr + head as u64, len - head);
    let [a, b, c, d, e, f, g, h] = rotated;
    let words = [[a, b, c, d], [e, f, g, h]].map(u32::from_ne_bytes);
    let halves = [[a, b], [c, d], [e, f], [g, h]].map(u16::from_ne_bytes);
    let whole = if halves == [halves[0]; 4] {
        // SAFETY: the units are within the caller's range, and `addr` is a multiple of 4.
        checked(unsafe { (driver.cuMemsetD16Async)(addr, halves[0], len / 2, stream) })?;
        len / 2 * 2
    } else if words[0] == words[1] {
        // SAFETY: the words are within the caller's range, and `addr` is a multiple of 4.
        checked(unsafe { (driver.cuMemsetD32Async)(addr, words[0], len / 4, stream) })?;
        len / 4 * 4
    } else {
        let rows = len / PATTERN;
        for (word, at) in words.into_iter().zip([addr, addr + 4]) {
            if rows > 0 {
                // SAFETY: each row is within a whole pattern of the caller's range, and `at` is a multiple of
                // 4.
                checked(unsafe { (driver.cuMemsetD2D32Async)(at, PATTERN, word, 1, rows, stream) })?;
            }
        }
        rows * PATTERN
    };
    // `whole` may end within a repetition of the pattern, so the rest begins with another byte of it.
    rotated.rotate_left(whole % PATTERN);
    one_by_one(addr + whole as u64, rotated, len - whole)
}
