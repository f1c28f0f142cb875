//! Arithmetic. Values are kept in 64 bits; bits beyond those of a value's type are 0.

use super::code::{BinaryOp, Compare, Comparison, Rounding, Type, TypeKind, UnaryOp, mask};

/// Extends a value of `bits` bits by its sign.
#[inline]
pub(super) const fn signed(value: u64, bits: u32) -> i64 {
    let unused = 64 - bits;
    ((value << unused) as i64) >> unused
}

/// Returns a value as a number with a sign, if its type has one.
#[inline]
const fn wide(value: u64, ty: Type) -> i128 {
    if ty.is_signed() { signed(value, ty.bits) as i128 } else { value as i128 }
}

fn float_binary(op: BinaryOp, ty: Type, a: u64, b: u64) -> u64 {
    macro_rules! of {
        ($float:ty, $a:expr, $b:expr) => {{
            let (a, b): ($float, $float) = ($a, $b);
            match op {
                BinaryOp::Add => a + b,
                BinaryOp::Sub => a - b,
                BinaryOp::Div => a / b,
                BinaryOp::Min => a.min(b),
                BinaryOp::Max => a.max(b),
                _ => a * b,
            }
            .to_bits()
        }};
    }
    if ty.bits == 32 {
        of!(f32, f32::from_bits(a as u32), f32::from_bits(b as u32)).into()
    } else {
        of!(f64, f64::from_bits(a), f64::from_bits(b))
    }
}

/// Returns `a op b`. A division by 0 returns all ones, because its result is undefined.
#[inline]
pub(super) fn binary(op: BinaryOp, ty: Type, a: u64, b: u64) -> u64 {
    if ty.is_float() {
        return float_binary(op, ty, a, b);
    }
    let bits = ty.bits;
    let result = match op {
        BinaryOp::Add => a.wrapping_add(b),
        BinaryOp::Sub => a.wrapping_sub(b),
        BinaryOp::MulLow => a.wrapping_mul(b),
        BinaryOp::MulHigh => (wide(a, ty).wrapping_mul(wide(b, ty)) >> bits) as u64,
        BinaryOp::MulWide => return (wide(a, ty).wrapping_mul(wide(b, ty))) as u64 & mask(2 * bits),
        // The divisor is the part of the register that the type reads.
        BinaryOp::Div | BinaryOp::Rem if b & ty.mask() == 0 => u64::MAX,
        BinaryOp::Div => (wide(a, ty) / wide(b, ty)) as u64,
        BinaryOp::Rem => (wide(a, ty) % wide(b, ty)) as u64,
        BinaryOp::Min => wide(a, ty).min(wide(b, ty)) as u64,
        BinaryOp::Max => wide(a, ty).max(wide(b, ty)) as u64,
        BinaryOp::And => a & b,
        BinaryOp::Or => a | b,
        BinaryOp::Xor => a ^ b,
        BinaryOp::ShiftRight if ty.is_signed() => (signed(a, bits) >> b.min(u64::from(bits - 1))) as u64,
        // Longer shifts move all bits out.
        BinaryOp::ShiftLeft | BinaryOp::ShiftRight if b >= u64::from(bits) => 0,
        BinaryOp::ShiftLeft => a << b,
        BinaryOp::ShiftRight => a >> b,
    };
    result & ty.mask()
}

/// Returns `a op b + c`.
#[inline]
pub(super) fn multiply_add(op: BinaryOp, ty: Type, a: u64, b: u64, c: u64) -> u64 {
    if ty.is_float() {
        return if ty.bits == 32 {
            let [a, b, c] = [a, b, c].map(|word| f32::from_bits(word as u32));
            a.mul_add(b, c).to_bits().into()
        } else {
            let [a, b, c] = [a, b, c].map(f64::from_bits);
            a.mul_add(b, c).to_bits()
        };
    }
    let bits = if op == BinaryOp::MulWide { 2 * ty.bits } else { ty.bits };
    binary(op, ty, a, b).wrapping_add(c) & mask(bits)
}

/// Returns `len` bits of `a` from bit `at` on, extended by the last of them if the type has a sign.
pub(super) fn extract(ty: Type, a: u64, at: u64, len: u64) -> u64 {
    let (at, len, bits) = (at & 255, len & 255, u64::from(ty.bits));
    if len == 0 {
        return 0;
    }
    let bit = |index: u64| a >> index & 1;
    let sign = if ty.is_signed() { bit((at + len - 1).min(bits - 1)) } else { 0 };
    (0..bits).fold(0, |result, index| {
        let inside = index < len && at + index < bits;
        result | (if inside { bit(at + index) } else { sign }) << index
    })
}

/// Replaces `len` bits of `b` from bit `at` on by the lowest bits of `a`.
pub(super) fn insert(ty: Type, a: u64, b: u64, at: u64, len: u64) -> u64 {
    let (at, len) = (at & 255, len & 255);
    if at >= u64::from(ty.bits) {
        return b;
    }
    let field = mask(len.min(64) as u32) << at & ty.mask();
    b & !field | a << at & field
}

pub(super) fn unary(op: UnaryOp, ty: Type, a: u64) -> u64 {
    if ty.is_float() {
        macro_rules! of {
            ($a:expr) => {{
                let a = $a;
                match op {
                    UnaryOp::Neg => -a,
                    UnaryOp::Abs => a.abs(),
                    UnaryOp::Sqrt => a.sqrt(),
                    _ => a.recip(),
                }
                .to_bits()
            }};
        }
        return if ty.bits == 32 { of!(f32::from_bits(a as u32)).into() } else { of!(f64::from_bits(a)) };
    }
    let bits = ty.bits;
    let result = match op {
        UnaryOp::Neg => a.wrapping_neg(),
        UnaryOp::Abs => signed(a, bits).unsigned_abs(),
        UnaryOp::Not => !a,
        UnaryOp::IsZero => u64::from(a == 0),
        UnaryOp::CountOnes => a.count_ones().into(),
        UnaryOp::LeadingZeros => ((a & ty.mask()).leading_zeros() - (64 - bits)).into(),
        UnaryOp::Reverse => a.reverse_bits() >> (64 - bits),
        UnaryOp::Sqrt | UnaryOp::Reciprocal => 0,
    };
    result & ty.mask()
}

#[inline]
pub(super) fn compare(Compare { comparison, if_unordered }: Compare, ty: Type, a: u64, b: u64) -> bool {
    use std::cmp::Ordering;
    let ordering = match (ty.kind, ty.bits) {
        (TypeKind::Float, 32) => f32::from_bits(a as u32).partial_cmp(&f32::from_bits(b as u32)),
        (TypeKind::Float, _) => f64::from_bits(a).partial_cmp(&f64::from_bits(b)),
        (TypeKind::Signed, bits) => Some(signed(a, bits).cmp(&signed(b, bits))),
        _ => Some(a.cmp(&b)),
    };
    let Some(ordering) = ordering else { return if_unordered };
    match comparison {
        Comparison::Equal => ordering == Ordering::Equal,
        Comparison::NotEqual => ordering != Ordering::Equal,
        Comparison::Less => ordering == Ordering::Less,
        Comparison::LessOrEqual => ordering != Ordering::Greater,
        Comparison::Greater => ordering == Ordering::Greater,
        Comparison::GreaterOrEqual => ordering != Ordering::Less,
        Comparison::Ordered => true,
        Comparison::Unordered => false,
    }
}

/// Converts a value between types. The result has the bits of `mask`.
pub(super) fn convert(from: Type, to: Type, rounding: Rounding, value: u64, to_mask: u64) -> u64 {
    let round = |value: f64| match rounding {
        Rounding::Nearest | Rounding::NearestInteger => value.round_ties_even(),
        Rounding::Zero => value.trunc(),
        Rounding::Down => value.floor(),
        Rounding::Up => value.ceil(),
    };
    let float = || {
        if from.bits == 32 { f64::from(f32::from_bits(value as u32)) } else { f64::from_bits(value) }
    };
    match (from.is_float(), to.is_float()) {
        (false, false) => {
            // The value is cut to the result's type, and then extended to the register by the sign of this
            // type.
            let value = if from.is_signed() { signed(value, from.bits) as u64 } else { value } & to.mask();
            if to.is_signed() { signed(value, to.bits) as u64 & to_mask } else { value }
        }
        (false, true) => {
            let value = wide(value, from);
            if to.bits == 32 { (value as f32).to_bits().into() } else { (value as f64).to_bits() }
        }
        (true, false) => {
            let value = round(float());
            // Values beyond the result's range become its nearest limit; the cast maps NaN to 0.
            let high = 2_f64.powi(to.bits as i32 - i32::from(to.is_signed()));
            let low = if to.is_signed() { -high } else { 0.0 };
            if value >= high {
                to.mask() >> u32::from(to.is_signed())
            } else {
                (if value < low { low } else { value }) as i128 as u64 & to.mask()
            }
        }
        (true, true) => {
            let rounds = from.bits == to.bits && rounding != Rounding::Nearest;
            let value = if rounds { round(float()) } else { float() };
            if to.bits == 32 { (value as f32).to_bits().into() } else { value.to_bits() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::TypeKind;

    /// The type reads the low part of a wider register.
    #[test]
    fn a_divisor_whose_low_part_is_0_divides_as_0() {
        for (kind, b) in [(TypeKind::Signed, 1 << 32), (TypeKind::Unsigned, 1 << 32), (TypeKind::Signed, 0)] {
            for op in [BinaryOp::Div, BinaryOp::Rem] {
                assert_eq!(binary(op, Type::new(kind, 32), 7, b), u64::from(u32::MAX));
            }
        }
        assert_eq!(binary(BinaryOp::Rem, Type::new(TypeKind::Signed, 64), 7, 1 << 32), 7);
    }
}
