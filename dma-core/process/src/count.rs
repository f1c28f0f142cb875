//! [`count`]: numbers with their nouns, for messages.

use std::fmt::Display;

/// Returns a number with its noun: `one` for 1, otherwise `many`.
///
/// ```
/// assert_eq!(dma_process::count(1, "byte", "bytes"), "1 byte");
/// assert_eq!(dma_process::count(0, "byte", "bytes"), "0 bytes");
/// ```
#[must_use]
pub fn count<N: Display + PartialEq + From<u8>>(n: N, one: &str, many: &str) -> String {
    format!("{n} {}", if n == N::from(1) { one } else { many })
}
