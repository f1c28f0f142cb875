//! Sizes with units.

/// Parses a size in bytes: a number, optionally with the unit `K`, `M` or `G` (or `KiB`, `MiB`, `GiB`) in
/// upper or lower case. The units are powers of 1024. Returns `None` for other text and for sizes beyond 64
/// bits.
#[must_use]
pub fn parse_size(text: &str) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let scale = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_numbers_with_known_units() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("65536", Some(65_536)),
            ("64K", Some(65_536)),
            ("64 KiB", Some(65_536)),
            ("2MiB", Some(2 << 20)),
            ("1G", Some(1 << 30)),
            ("17179869183G", Some(u64::MAX - ((1 << 30) - 1))),
            ("17179869184G", None),
            ("", None),
            ("K", None),
            ("-1", None),
            ("1.5G", None),
            ("2MB", None),
            ("2m", Some(2 << 20)),
            ("64k", Some(65_536)),
        ] {
            assert_eq!(parse_size(text), bytes, "{text}");
        }
    }
}
