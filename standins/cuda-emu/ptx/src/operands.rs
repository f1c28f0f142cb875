//! Reads the modifiers and operands of instructions.

use super::code::{Address, Register, Space, Special, Src, Type};
use super::literal::number_of;
use super::names::{Names, RegisterInfo};
use super::reader::{Reader, type_of, whole};
use super::{PtxError, Result};

/// Modifiers of an instruction, after its name. Each is removed when it is recognized.
pub(super) struct Modifiers<'a> {
    pub(super) rest: Vec<&'a str>,
    opcode: &'a str,
    line: u32,
}

impl<'a> Modifiers<'a> {
    /// Divides the word of an instruction at `line`. Returns its name, and the modifiers.
    pub(super) fn of(opcode: &'a str, line: u32) -> (&'a str, Self) {
        let mut parts = opcode.split('.');
        let name = parts.next().unwrap_or_default();
        (name, Self { rest: parts.collect(), opcode, line })
    }

    pub(super) fn take(&mut self, name: &str) -> bool {
        let found = self.rest.iter().position(|modifier| *modifier == name);
        found.map(|at| self.rest.remove(at)).is_some()
    }

    pub(super) fn take_any(&mut self, names: &[&'static str]) -> Option<&'static str> {
        names.iter().copied().find(|name| self.take(name))
    }

    /// Removes the last modifier, which is a type.
    pub(super) fn ty(&mut self) -> Result<Type> {
        let last = self.rest.pop().unwrap_or_default();
        type_of(last).ok_or_else(|| self.unsupported())
    }

    pub(super) fn unsupported(&self) -> PtxError {
        PtxError::unsupported(self.line, format!("`{}`", self.opcode))
    }

    /// Fails if a modifier is left.
    pub(super) fn end(&self) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.unsupported()) }
    }
}

/// Reads the operands of the instruction at `line`.
pub(super) struct Decoder<'r, 'a> {
    pub(super) reader: &'r mut Reader<'a>,
    pub(super) names: &'r Names,
    pub(super) line: u32,
}

impl<'a> Decoder<'_, 'a> {
    pub(super) fn wrong(&self, what: impl Into<String>) -> PtxError {
        PtxError::wrong(self.line, what)
    }

    pub(super) fn comma(&mut self) -> Result<()> {
        self.reader.expect(",")
    }

    pub(super) fn destination(&mut self) -> Result<RegisterInfo> {
        let name = self.reader.word()?;
        // A result that is not used.
        if name == "_" {
            return Err(PtxError::unsupported(self.line, "`_` as a destination"));
        }
        self.names.register(name).ok_or_else(|| self.wrong(format!("there is no register `{name}`")))
    }

    /// Reads a predicate, which `setp` writes, or of which an instruction reads the value.
    pub(super) fn predicate(&mut self) -> Result<Register> {
        let name = self.reader.peek().unwrap_or_default();
        let register = self.destination()?;
        if register.bits == 1 {
            Ok(register.index)
        } else {
            Err(self.wrong(format!("`{name}` is not a predicate")))
        }
    }

    /// Reads the register to which `mov` writes `bits`. The register must have this width.
    pub(super) fn destination_of(&mut self, bits: u32) -> Result<Register> {
        let register = self.destination()?;
        self.check_width(bits, register)?;
        Ok(register.index)
    }

    /// Reads a source operand of `mov`. A register must have the width of `ty`.
    pub(super) fn source_of(&mut self, ty: Type) -> Result<Src> {
        let register = self.reader.peek().and_then(|name| self.names.register(name));
        register.map_or(Ok(()), |register| self.check_width(ty.bits, register))?;
        self.source(ty)
    }

    pub(super) fn check_width(&self, bits: u32, register: RegisterInfo) -> Result<()> {
        if register.bits == bits { Ok(()) } else { Err(self.other_width(bits, register.bits)) }
    }

    pub(super) fn other_width(&self, bits: u32, register_bits: u32) -> PtxError {
        let [value, register] = [bits, register_bits].map(|bits| match bits {
            1 => "a predicate".to_owned(),
            bits => format!("{bits} bits"),
        });
        self.wrong(format!("`mov` of {value}, and a register of {register}"))
    }

    /// Reads a source operand.
    pub(super) fn source(&mut self, ty: Type) -> Result<Src> {
        let is_negative = self.reader.skip("-");
        let name = self.reader.word()?;
        if let Some(register) = self.names.register(name) {
            if is_negative {
                return Err(self.wrong("a register with a sign"));
            }
            return Ok(Src::Register(register.index));
        }
        if let Some(value) = number_of(name, is_negative, ty) {
            return Ok(Src::Value(value));
        }
        let names = self.names;
        if let Some(local) = names.local(name) {
            return Ok(Src::Local(local as u32));
        }
        let place = names.shared(name).or_else(|| names.module_variable(name));
        match place.or_else(|| names.parameter(name)) {
            Some(place) => Ok(Src::Value(place)),
            None if Special::named(name).is_some() => {
                let message = format!("`{name}` as an operand of anything but `mov` to one register");
                Err(PtxError::unsupported(self.line, message))
            }
            None if Special::named(&format!("{name}.x")).is_some() => {
                Err(self.wrong(format!("`{name}` is a vector; name an element, such as `{name}.x`")))
            }
            None => Err(self.wrong(format!("there is no `{name}`"))),
        }
    }

    /// Reads sources, each after a comma.
    pub(super) fn sources<const N: usize>(&mut self, types: [Type; N]) -> Result<[Src; N]> {
        let mut found = [Src::Value(0); N];
        for (source, ty) in found.iter_mut().zip(types) {
            self.comma()?;
            *source = self.source(ty)?;
        }
        Ok(found)
    }

    /// Reads an address in brackets.
    pub(super) fn address(&mut self, mut space: Space) -> Result<Address> {
        self.reader.expect("[")?;
        let name = self.reader.word()?;
        let argument = if space == Space::Parameter { self.names.argument(name) } else { None };
        let base = if let Some(place) = argument {
            space = Space::Argument;
            Src::Value(place.offset.into())
        } else if space == Space::Local
            && let Some(offset) = self.names.local(name)
        {
            Src::Local(offset as u32)
        } else if let Some(register) = self.names.register(name) {
            Src::Register(register.index)
        } else if let Some(value) = whole(name) {
            Src::Value(value)
        } else {
            let known = match space {
                Space::Parameter => self.names.parameter(name),
                Space::Shared => self.names.shared(name),
                Space::Local | Space::Argument => None,
                Space::Global | Space::Generic => self.names.module_variable(name),
            };
            Src::Value(known.ok_or_else(|| self.wrong(format!("there is no `{name}`")))?)
        };
        let mut offset = 0;
        let plus = self.reader.skip("+");
        let minus = self.reader.skip("-");
        if plus || minus {
            let number = self.reader.number()?;
            offset = if minus { number.wrapping_neg() } else { number };
        }
        self.reader.expect("]")?;
        Ok(Address { space, base, offset })
    }

    /// Reads elements in braces.
    pub(super) fn elements<T>(&mut self, mut read: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        self.reader.expect("{")?;
        let mut found = vec![read(self)?];
        while self.reader.skip(",") {
            found.push(read(self)?);
        }
        self.reader.expect("}")?;
        Ok(found)
    }

    /// Reads a register, or the elements of a vector in braces.
    pub(super) fn vector<T>(
        &mut self,
        number: usize,
        mut read: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        if number == 1 {
            return Ok(vec![read(self)?]);
        }
        let found = self.elements(read)?;
        if found.len() == number { Ok(found) } else { Err(self.wrong("the vector has another length")) }
    }
}
