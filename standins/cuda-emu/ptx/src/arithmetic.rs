//! Decodes arithmetic, comparisons, conversions and bit fields.

use super::Result;
use super::code::{BinaryOp, Compare, Comparison, Instruction, Rounding, Src, Type, TypeKind, UnaryOp, mask};
use super::operands::{Decoder, Modifiers};

const U32: Type = Type::new(TypeKind::Unsigned, 32);

pub(super) fn unary(
    name: &str,
    modifiers: &mut Modifiers<'_>,
    decoder: &mut Decoder<'_, '_>,
) -> Result<Instruction> {
    let ty = modifiers.ty()?;
    let op = match name {
        "neg" => UnaryOp::Neg,
        "abs" => UnaryOp::Abs,
        "not" => UnaryOp::Not,
        "cnot" => UnaryOp::IsZero,
        "popc" => UnaryOp::CountOnes,
        "clz" => UnaryOp::LeadingZeros,
        "brev" => UnaryOp::Reverse,
        "sqrt" => UnaryOp::Sqrt,
        "rcp" => UnaryOp::Reciprocal,
        _ => return Err(modifiers.unsupported()),
    };
    if ty.is_float() {
        modifiers.take_any(&["rn", "approx"]);
        modifiers.take("ftz");
    }
    modifiers.end()?;
    let to = decoder.destination()?.index;
    let [a] = decoder.sources([ty])?;
    Ok(Instruction::Unary { op, ty, to, a })
}

/// Reads the part of the product that the instruction returns.
fn product(modifiers: &mut Modifiers<'_>, ty: Type) -> Result<BinaryOp> {
    let op = if ty.is_float() {
        modifiers.take("rn");
        modifiers.take("ftz");
        BinaryOp::MulLow
    } else {
        match modifiers.take_any(&["lo", "hi", "wide"]) {
            Some("lo") => BinaryOp::MulLow,
            Some("hi") => BinaryOp::MulHigh,
            Some(_) if ty.bits < 64 => BinaryOp::MulWide,
            _ => return Err(modifiers.unsupported()),
        }
    };
    modifiers.end()?;
    Ok(op)
}

pub(super) fn binary(
    name: &str,
    modifiers: &mut Modifiers<'_>,
    decoder: &mut Decoder<'_, '_>,
) -> Result<Instruction> {
    let ty = modifiers.ty()?;
    let op = match name {
        "mul" => product(modifiers, ty)?,
        _ => BinaryOp::named(name).ok_or_else(|| modifiers.unsupported())?,
    };
    if ty.is_float() {
        modifiers.take_any(&["rn", "full", "approx"]);
        modifiers.take("ftz");
    }
    modifiers.end()?;
    let to = decoder.destination()?.index;
    let shifts = matches!(op, BinaryOp::ShiftLeft | BinaryOp::ShiftRight);
    let by = if shifts { U32 } else { ty };
    let [a, b] = decoder.sources([ty, by])?;
    Ok(Instruction::Binary { op, ty, to, a, b })
}

pub(super) fn comparison(
    modifiers: &mut Modifiers<'_>,
    decoder: &mut Decoder<'_, '_>,
) -> Result<Vec<Instruction>> {
    let ty = modifiers.ty()?;
    modifiers.take("ftz");
    let combined = modifiers.take_any(&["and", "or", "xor"]).and_then(BinaryOp::named);
    let word = modifiers.rest.pop().unwrap_or_default();
    modifiers.end()?;
    let (ordered, if_unordered) = match word.strip_suffix('u') {
        Some(ordered) if ty.is_float() => (ordered, true),
        _ => (word, word == "nan"),
    };
    let comparison = match ordered {
        "eq" => Comparison::Equal,
        "ne" => Comparison::NotEqual,
        "lt" | "lo" => Comparison::Less,
        "le" | "ls" => Comparison::LessOrEqual,
        "gt" | "hi" => Comparison::Greater,
        "ge" | "hs" => Comparison::GreaterOrEqual,
        "num" if ty.is_float() => Comparison::Ordered,
        "nan" if ty.is_float() => Comparison::Unordered,
        _ => return Err(modifiers.unsupported()),
    };
    let to = decoder.predicate()?;
    let not_to = if decoder.reader.skip("|") { Some(decoder.predicate()?) } else { None };
    let [a, b] = decoder.sources([ty, ty])?;
    let compare = Compare { comparison, if_unordered };
    let mut made = vec![Instruction::Compare { compare, ty, to, not_to, a, b }];
    if let Some(op) = combined {
        decoder.comma()?;
        if decoder.reader.peek() == Some("!") {
            return Err(modifiers.unsupported());
        }
        let with = Src::Register(decoder.predicate()?);
        made.push(Instruction::Combine { op, to, not_to, with });
    }
    Ok(made)
}

/// Reads `mad` or `fma`.
pub(super) fn multiply_add(
    modifiers: &mut Modifiers<'_>,
    decoder: &mut Decoder<'_, '_>,
) -> Result<Instruction> {
    let ty = modifiers.ty()?;
    let op = product(modifiers, ty)?;
    let to = decoder.destination()?.index;
    let sum = if op == BinaryOp::MulWide { Type::new(ty.kind, 2 * ty.bits) } else { ty };
    let [a, b, c] = decoder.sources([ty, ty, sum])?;
    Ok(Instruction::MultiplyAdd { op, ty, to, a, b, c })
}

/// Reads `cvt`.
pub(super) fn convert(modifiers: &mut Modifiers<'_>, decoder: &mut Decoder<'_, '_>) -> Result<Instruction> {
    let from = modifiers.ty()?;
    let ty = modifiers.ty()?;
    let rounding = match modifiers.take_any(&["rni", "rzi", "rmi", "rpi", "rn"]) {
        Some("rzi") => Rounding::Zero,
        Some("rmi") => Rounding::Down,
        Some("rpi") => Rounding::Up,
        Some("rni") => Rounding::NearestInteger,
        _ => Rounding::Nearest,
    };
    modifiers.take("ftz");
    modifiers.end()?;
    let to = decoder.destination()?;
    let [a] = decoder.sources([from])?;
    Ok(Instruction::Convert { from, ty, rounding, to: to.index, to_mask: mask(to.bits), a })
}

/// Reads `shf`: the shift of a value of 64 bits in two registers.
pub(super) fn funnel(modifiers: &mut Modifiers<'_>, decoder: &mut Decoder<'_, '_>) -> Result<Instruction> {
    let ty = modifiers.ty()?;
    let is_left = modifiers.take("l");
    let clamps = modifiers.take("clamp");
    if !is_left && !modifiers.take("r") || !clamps && !modifiers.take("wrap") || ty.bits != 32 {
        return Err(modifiers.unsupported());
    }
    modifiers.end()?;
    let to = decoder.destination()?.index;
    let [low, high, by] = decoder.sources([ty, ty, U32])?;
    Ok(Instruction::Funnel { is_left, clamps, to, low, high, by })
}

/// Reads `bfe`, which extracts a bit field, or `bfi`, which inserts one.
pub(super) fn bit_field(
    inserts: bool,
    modifiers: &mut Modifiers<'_>,
    decoder: &mut Decoder<'_, '_>,
) -> Result<Instruction> {
    let ty = modifiers.ty()?;
    if ty.is_float() || ty.bits < 32 {
        return Err(modifiers.unsupported());
    }
    modifiers.end()?;
    let to = decoder.destination()?.index;
    if inserts {
        let [a, b, at, len] = decoder.sources([ty, ty, U32, U32])?;
        return Ok(Instruction::Insert { ty, to, a, b, at, len });
    }
    let [a, at, len] = decoder.sources([ty, U32, U32])?;
    Ok(Instruction::Extract { ty, to, a, at, len })
}
