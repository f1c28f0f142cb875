//! CRC-32C by tables, for CPUs without CRC instructions.

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
