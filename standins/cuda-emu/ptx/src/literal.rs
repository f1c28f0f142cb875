//! Numbers in the text.

use super::code::Type;
use super::reader::whole;

enum Literal {
    Whole(u64),
    /// Bits of a number of 32 bits.
    Single(u32),
    Double(f64),
}

fn literal(text: &str) -> Option<Literal> {
    let lower = text.to_ascii_lowercase();
    if let Some(bits) = lower.strip_prefix("0f").filter(|bits| bits.len() == 8) {
        return u32::from_str_radix(bits, 16).ok().map(Literal::Single);
    }
    if let Some(bits) = lower.strip_prefix("0d").filter(|bits| bits.len() == 16) {
        return u64::from_str_radix(bits, 16).ok().map(|bits| Literal::Double(f64::from_bits(bits)));
    }
    match text {
        "WARP_SZ" => Some(Literal::Whole(32)),
        _ if text.contains('.') => text.parse().ok().map(Literal::Double),
        _ => whole(text).map(Literal::Whole),
    }
}

/// Returns the bits of a number of this type, or `None` if the text is no number.
pub(super) fn number_of(text: &str, is_negative: bool, ty: Type) -> Option<u64> {
    let of_float = |value: f64| {
        let value = if is_negative { -value } else { value };
        if ty.bits == 32 { (value as f32).to_bits().into() } else { value.to_bits() }
    };
    Some(match literal(text)? {
        Literal::Whole(value) if ty.is_float() => of_float(value as f64),
        Literal::Whole(value) => (if is_negative { value.wrapping_neg() } else { value }) & ty.mask(),
        Literal::Single(bits) => (bits ^ if is_negative { 1 << 31 } else { 0 }).into(),
        Literal::Double(value) => of_float(value),
    })
}
