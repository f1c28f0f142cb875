//! Decodes instructions.

use super::arithmetic;
use super::code::{
    AtomicOp, BinaryOp, Instruction, Register, Space, Special, Src, Type, TypeKind, VECTOR_MAX, mask,
};
use super::memory_map::{LOCAL_WINDOW, SHARED_WINDOW};
use super::names::Names;
use super::operands::{Decoder, Modifiers};
use super::reader::Reader;
use super::{PtxError, Result};

/// Modifiers of loads and stores that only affect caches, or that name an order or scope. The stand-in
/// executes one access at a time.
const ACCESS_MODIFIERS: [&str; 24] = [
    "ca",
    "cg",
    "cs",
    "lu",
    "cv",
    "wb",
    "wt",
    "nc",
    "volatile",
    "relaxed",
    "acquire",
    "release",
    "acq_rel",
    "weak",
    "cta",
    "cluster",
    "gpu",
    "sys",
    "mmio",
    "L1::no_allocate",
    "L1::evict_first",
    "L2::128B",
    "L2::256B",
    "L2::64B",
];

/// Reads the operands of an instruction, up to its semicolon.
pub(super) fn instructions(
    opcode: &str,
    reader: &mut Reader<'_>,
    names: &Names,
    line: u32,
) -> Result<Vec<Instruction>> {
    let (name, mut modifiers) = Modifiers::of(opcode, line);
    let mut decoder = Decoder { reader, names, line };
    one(name, &mut modifiers, &mut decoder)
}

fn one(name: &str, modifiers: &mut Modifiers<'_>, decoder: &mut Decoder<'_, '_>) -> Result<Vec<Instruction>> {
    let instruction = match name {
        "exit" => {
            modifiers.end()?;
            Instruction::Exit
        }
        "trap" => Instruction::Trap,
        "membar" | "fence" | "nanosleep" | "prefetch" | "prefetchu" | "discard" | "applypriority" => {
            while decoder.reader.peek().is_some_and(|text| text != ";") {
                if decoder.reader.peek() == Some("[") {
                    decoder.address(Space::Generic)?;
                } else if !decoder.reader.skip(",") {
                    decoder.reader.word()?;
                }
            }
            return Ok(Vec::new());
        }
        "bar" | "barrier" => {
            modifiers.take("cta");
            modifiers.take("aligned");
            if !modifiers.take("sync") {
                return Err(modifiers.unsupported());
            }
            modifiers.end()?;
            let barrier = decoder.reader.number()?;
            if barrier != 0 || decoder.reader.peek() == Some(",") {
                return Err(PtxError::unsupported(decoder.line, "barriers other than `bar.sync 0`"));
            }
            Instruction::Barrier
        }
        "mov" => {
            let ty = modifiers.ty()?;
            modifiers.end()?;
            if ty.bits == 8 {
                return Err(decoder.wrong("`mov` of 8 bits; use `cvt`"));
            }
            if decoder.reader.peek() == Some("{") {
                return unpack(ty, decoder);
            }
            let to = decoder.destination_of(ty.bits)?;
            decoder.comma()?;
            if decoder.reader.peek() == Some("{") {
                return pack(ty, to, decoder);
            }
            match decoder.reader.peek().and_then(Special::named) {
                Some(special) => {
                    let bits = Special::bits(decoder.reader.word()?);
                    // Programs of PTX 1 read 16 bits of registers that had 16 bits then.
                    if ty.bits != bits && (ty.bits, bits) != (16, 32) {
                        return Err(decoder.other_width(ty.bits, bits));
                    }
                    Instruction::ReadSpecial { to, special }
                }
                None => Instruction::Move { to, from: decoder.source_of(ty)? },
            }
        }
        "cvta" => convert_address(modifiers, decoder)?,
        "add" | "sub" | "min" | "max" | "and" | "or" | "xor" | "shl" | "shr" | "div" | "rem" | "mul"
        | "mul24" => arithmetic::binary(name, modifiers, decoder)?,
        "mad" | "fma" | "mad24" => arithmetic::multiply_add(modifiers, decoder)?,
        "neg" | "abs" | "not" | "cnot" | "popc" | "clz" | "brev" | "sqrt" | "rcp" => {
            arithmetic::unary(name, modifiers, decoder)?
        }
        "cvt" => arithmetic::convert(modifiers, decoder)?,
        "setp" => return arithmetic::comparison(modifiers, decoder),
        "selp" => {
            let ty = modifiers.ty()?;
            modifiers.end()?;
            let to = decoder.destination()?.index;
            let [a, b] = decoder.sources([ty, ty])?;
            decoder.comma()?;
            Instruction::Select { to, a, b, by: decoder.predicate()? }
        }
        "shf" => arithmetic::funnel(modifiers, decoder)?,
        "bfe" | "bfi" => arithmetic::bit_field(name == "bfi", modifiers, decoder)?,
        "ld" | "ldu" | "st" => access(name == "st", modifiers, decoder)?,
        "atom" | "red" => atomic(name == "red", modifiers, decoder)?,
        _ => return Err(modifiers.unsupported()),
    };
    Ok(vec![instruction])
}

/// A value of which `mov` takes or sets some bits.
const WORD: Type = Type::new(TypeKind::Unsigned, 64);

/// Returns the number of bits of each of the elements of which `mov` makes a value.
fn element_bits(ty: Type, number: usize, decoder: &Decoder<'_, '_>) -> Result<usize> {
    match ty.bits as usize / number {
        bits @ (16 | 32) if matches!(number, 2 | 4) => Ok(bits),
        _ => {
            let elements = if number == 1 { "1 element".to_owned() } else { format!("{number} elements") };
            Err(PtxError::unsupported(decoder.line, format!("`mov` of {elements} of {} bits", ty.bits)))
        }
    }
}

/// Reads `mov` of a value to the registers of its elements, of which `_` is not used.
fn unpack(ty: Type, decoder: &mut Decoder<'_, '_>) -> Result<Vec<Instruction>> {
    let registers = decoder.elements(|decoder| match decoder.reader.skip("_") {
        true => Ok(None),
        false => decoder.destination().map(Some),
    })?;
    let bits = element_bits(ty, registers.len(), decoder)?;
    registers.iter().flatten().try_for_each(|register| decoder.check_width(bits as u32, *register))?;
    decoder.comma()?;
    let a = decoder.source_of(ty)?;
    let (ty, len) = (WORD, Src::Value(bits as u64));
    let elements = registers.into_iter().zip((0..).step_by(bits).map(Src::Value));
    Ok(elements.filter_map(|(to, at)| Some(Instruction::Extract { ty, to: to?.index, a, at, len })).collect())
}

/// Reads `mov` of elements to the register of a value.
fn pack(ty: Type, to: Register, decoder: &mut Decoder<'_, '_>) -> Result<Vec<Instruction>> {
    let sources = decoder.elements(|decoder| {
        let register = decoder.reader.peek().and_then(|name| decoder.names.register(name));
        Ok((register, decoder.source(WORD)?))
    })?;
    let bits = element_bits(ty, sources.len(), decoder)?;
    let mut registers = sources.iter().filter_map(|(register, _)| *register);
    registers.try_for_each(|register| decoder.check_width(bits as u32, register))?;
    let (ty, b, len) = (WORD, Src::Register(to), Src::Value(bits as u64));
    let elements = sources.into_iter().zip((0..).step_by(bits).map(Src::Value));
    let inserts = elements.map(|((_, a), at)| Instruction::Insert { ty, to, a, b, at, len });
    Ok([Instruction::Move { to, from: Src::Value(0) }].into_iter().chain(inserts).collect())
}

/// Reads `cvta`: the conversion between an address of a space and a generic one.
fn convert_address(modifiers: &mut Modifiers<'_>, decoder: &mut Decoder<'_, '_>) -> Result<Instruction> {
    let back = modifiers.take("to");
    let ty = modifiers.ty()?;
    let space = modifiers.take_any(&["global", "const", "shared", "local", "param"]);
    modifiers.take("cta");
    modifiers.end()?;
    let to = decoder.destination()?.index;
    let [a] = decoder.sources([ty])?;
    let op = if back { BinaryOp::Sub } else { BinaryOp::Add };
    match space {
        Some("global" | "const") => Ok(Instruction::Move { to, from: a }),
        Some("shared") => Ok(Instruction::Binary { op, ty, to, a, b: Src::Value(SHARED_WINDOW) }),
        Some("local") => Ok(Instruction::Binary { op, ty, to, a, b: Src::Value(LOCAL_WINDOW) }),
        _ => Err(modifiers.unsupported()),
    }
}

/// Reads the address space. Without one, addresses are generic.
fn space(modifiers: &mut Modifiers<'_>) -> Space {
    let parameters = ["param", "param::entry", "param::func"];
    if modifiers.take_any(&parameters).is_some() {
        return Space::Parameter;
    }
    match modifiers.take_any(&["global", "const", "shared", "local"]) {
        Some("global" | "const") => Space::Global,
        Some("shared") => Space::Shared,
        Some(_) => Space::Local,
        None => Space::Generic,
    }
}

fn access(
    is_store: bool,
    modifiers: &mut Modifiers<'_>,
    decoder: &mut Decoder<'_, '_>,
) -> Result<Instruction> {
    let ty = modifiers.ty()?;
    let number = match modifiers.take_any(&["v2", "v4"]) {
        Some("v2") => 2,
        Some(_) => 4,
        None => 1,
    };
    if is_store && modifiers.rest.contains(&"const") {
        return Err(decoder.wrong("a store to constant memory"));
    }
    let space = space(modifiers);
    modifiers.rest.retain(|modifier| !ACCESS_MODIFIERS.contains(modifier));
    modifiers.end()?;
    if number as u32 * ty.bytes() > 16 || ty.kind == TypeKind::Predicate {
        return Err(modifiers.unsupported());
    }
    if is_store {
        let address = decoder.address(space)?;
        if address.space == Space::Parameter {
            return Err(PtxError::unsupported(decoder.line, "a store to parameters of a kernel"));
        }
        decoder.comma()?;
        let mut from = [Src::Value(0); VECTOR_MAX];
        for (place, source) in from.iter_mut().zip(decoder.vector(number, |decoder| decoder.source(ty))?) {
            *place = source;
        }
        return Ok(Instruction::Store { address, ty, number: number as u8, from });
    }
    let destinations = decoder.vector(number, Decoder::destination)?;
    decoder.comma()?;
    let address = decoder.address(space)?;
    let mut to: [Register; VECTOR_MAX] = [0; VECTOR_MAX];
    let mut bits = 64;
    for (place, register) in to.iter_mut().zip(destinations) {
        *place = register.index;
        bits = register.bits.min(bits);
    }
    if bits < ty.bits {
        return Err(decoder.wrong("the register is shorter than the value"));
    }
    Ok(Instruction::Load { address, ty, number: number as u8, to, to_mask: mask(bits) })
}

fn atomic(
    is_reduction: bool,
    modifiers: &mut Modifiers<'_>,
    decoder: &mut Decoder<'_, '_>,
) -> Result<Instruction> {
    let ty = modifiers.ty()?;
    if modifiers.rest.iter().any(|modifier| ["const", "local", "param"].contains(modifier)) {
        return Err(modifiers.unsupported());
    }
    let space = space(modifiers);
    let op = match modifiers.take_any(&["add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"])
    {
        Some("exch") => AtomicOp::Exchange,
        Some("cas") => AtomicOp::CompareAndSwap,
        Some("inc") => AtomicOp::Increment,
        Some("dec") => AtomicOp::Decrement,
        name => AtomicOp::Binary(name.and_then(BinaryOp::named).ok_or_else(|| modifiers.unsupported())?),
    };
    modifiers.rest.retain(|modifier| !ACCESS_MODIFIERS.contains(modifier));
    modifiers.end()?;
    let is_float_sum = ty.is_float() && op == AtomicOp::Binary(BinaryOp::Add);
    if !matches!(ty.bits, 32 | 64) || ty.is_float() && !is_float_sum {
        return Err(modifiers.unsupported());
    }
    let to = if is_reduction {
        None
    } else {
        let to = decoder.destination()?.index;
        decoder.comma()?;
        Some(to)
    };
    let address = decoder.address(space)?;
    let [a] = decoder.sources([ty])?;
    let b = if op == AtomicOp::CompareAndSwap { decoder.sources([ty])?[0] } else { Src::Value(0) };
    Ok(Instruction::Atomic { address, op, ty, to, a, b })
}
