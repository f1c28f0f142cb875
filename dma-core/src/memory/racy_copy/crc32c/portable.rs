//! CRC-32C by tables, for CPUs without CRC instructions. The destinations of the bytes, for all CPUs.
#![expect(unsafe_code, reason = "reads and moves bytes between raw addresses")]

use crate::memory::racy_copy;

/// Destination of the copy: none, because only the CRC is computed.
pub(super) const NOWHERE: u8 = 0;
/// Destination of the copy: memory, written through the cache.
pub(super) const CACHE: u8 = 1;
/// Destination of the copy: memory, with whole cache lines written past the cache if the CPU can.
pub(super) const MEMORY: u8 = 2;

/// The CRC-32C polynomial, with its bits reversed.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// `TABLES[n][byte]` is the CRC register after the byte and `n` zero bytes.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut at = 0;
    while at < 8 * 256 {
        let (n, byte) = (at / 256, at % 256);
        tables[n][byte] = if n == 0 {
            let mut register = byte as u32;
            let mut bit = 0;
            while bit < 8 {
                register = (register >> 1) ^ if register & 1 == 1 { POLYNOMIAL } else { 0 };
                bit += 1;
            }
            register
        } else {
            let before = tables[n - 1][byte];
            (before >> 8) ^ tables[0][(before & 0xFF) as usize]
        };
        at += 1;
    }
    tables
}

/// Returns the CRC-32C of bytes. `crc` is the CRC-32C of the preceding bytes, or 0.
pub(super) fn append(crc: u32, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    let register = words.iter().fold(!crc, |register, word| {
        let mixed = (u64::from_le_bytes(*word) ^ u64::from(register)).to_le_bytes();
        mixed.iter().rev().zip(&TABLES).fold(0, |sum, (byte, table)| sum ^ table[usize::from(*byte)])
    });
    !rest
        .iter()
        .fold(register, |register, byte| (register >> 8) ^ TABLES[0][usize::from(register as u8 ^ byte)])
}

/// Copies the bytes to a buffer on the stack and computes the CRC there. Then copies them to the destination,
/// unless `TO` is [`NOWHERE`].
///
/// # Safety
///
/// See [`super::copy_crc32c`], or [`super::crc32c()`] if `TO` is [`NOWHERE`].
// If it were inlined, its buffer would be in the stack frame of every short operation, which would then
// touch 4 KiB of stack.
#[inline(never)]
pub(super) unsafe fn buffered<const TO: u8>(mut crc: u32, dst: *mut u8, src: *const u8, len: usize) -> u32 {
    /// The buffer fits into the level-1 cache.
    const CHUNK: usize = 4096;
    let mut bytes = [0; CHUNK];
    for at in (0..len).step_by(CHUNK) {
        let n = CHUNK.min(len - at);
        // SAFETY: the `n` bytes lie within the source, and the buffer is at least that long.
        unsafe { racy_copy::copy(bytes.as_mut_ptr(), src.wrapping_add(at), n) };
        crc = append(crc, &bytes[..n]);
        if TO != NOWHERE {
            // SAFETY: the `n` bytes lie within the destination, and the buffer is at least that long.
            unsafe { racy_copy::copy(dst.wrapping_add(at), bytes.as_ptr(), n) };
        }
    }
    crc
}
