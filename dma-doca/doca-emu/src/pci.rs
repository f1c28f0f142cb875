//! PCI addresses.

/// `DDDD:BB:DD.F` in small letters, of that or `BB:DD.F` in letters of any size; `None` if it is neither.
pub(crate) fn whole(text: &str) -> Option<String> {
    let whole = match text.len() {
        12 => text.to_ascii_lowercase(),
        7 => format!("0000:{}", text.to_ascii_lowercase()),
        _ => return None,
    };
    let good = whole.bytes().zip(0..).all(|(byte, at)| match at {
        4 | 7 => byte == b':',
        10 => byte == b'.',
        11 => (b'0'..=b'7').contains(&byte),
        _ => byte.is_ascii_hexdigit(),
    });
    good.then_some(whole)
}
