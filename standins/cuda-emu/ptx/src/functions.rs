//! Functions that kernels call: their parameters and results, the calls, and the link between them.

use std::collections::HashMap;

use super::code::{Address, Call, CallTarget, Code, Instruction, Place, Space, Src, Type, TypeKind, mask};
use super::literal::number_of;
use super::names::{Names, place};
use super::reader::{Reader, read_align, read_elements, read_type};
use super::{PtxError, Result};

/// A declared parameter or result.
#[derive(Clone, Debug)]
pub(super) struct Declared {
    pub(super) name: String,
    pub(super) place: Place,
    /// The type of a register. `None` for a variable in parameter memory.
    pub(super) register: Option<Type>,
}

/// Reads the parameters in parentheses, if they are next. Their places follow `end`, which is increased.
pub(super) fn read_declared(
    reader: &mut Reader<'_>,
    may_be_registers: bool,
    end: &mut u64,
) -> Result<Vec<Declared>> {
    let mut found = Vec::new();
    if !reader.skip("(") {
        return Ok(found);
    }
    while !reader.skip(")") {
        let is_register = may_be_registers && reader.skip(".reg");
        if !is_register {
            reader.expect(".param")?;
        }
        let align = read_align(reader)?;
        let (line, ty) = (reader.line(), read_type(reader)?);
        if ty.kind == TypeKind::Predicate {
            return Err(PtxError::unsupported(line, "predicates as parameters"));
        }
        // `.ptr .global .align 16` describes what a pointer points to.
        while reader.peek().is_some_and(|text| text.starts_with('.')) {
            if read_align(reader)?.is_none() {
                reader.word()?;
            }
        }
        let name = reader.word()?.to_owned();
        let elements = read_elements(reader)?.unwrap_or(1);
        let place = place(reader, (ty, elements), align, end)?;
        found.push(Declared { name, place, register: is_register.then_some(ty) });
        reader.skip(",");
    }
    Ok(found)
}

/// A function's name, results and parameters. The results come first in its parameter memory.
#[derive(Clone, Debug)]
pub(super) struct Signature {
    pub(super) name: String,
    pub(super) results: Vec<Declared>,
    pub(super) parameters: Vec<Declared>,
}

impl Signature {
    /// Reads what follows `.func`, up to the body in braces or the semicolon. Returns true if a body follows.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<(Self, bool)> {
        let mut end = 0;
        let results = read_declared(reader, true, &mut end)?;
        let name = reader.word()?.to_owned();
        let parameters = read_declared(reader, true, &mut end)?;
        reader.skip(".noreturn");
        let signature = Self { name, results, parameters };
        if reader.skip(";") {
            return Ok((signature, false));
        }
        if !reader.skip("{") {
            let what = format!("`{}` of a function", reader.peek().unwrap_or_default());
            return Err(PtxError::unsupported(reader.line(), what));
        }
        Ok((signature, true))
    }

    pub(super) fn declared(&self) -> impl Iterator<Item = &Declared> {
        self.results.iter().chain(&self.parameters)
    }

    /// Returns the instructions that load the parameters which are registers, or store such results.
    pub(super) fn moves(declared: &[Declared], names: &Names, is_store: bool) -> Vec<Instruction> {
        let moved = declared.iter().filter_map(|Declared { name, place, register }| {
            let (ty, register) = ((*register)?, names.register(name)?);
            let base = Src::Value(place.offset.into());
            let address = Address { space: Space::Argument, base, offset: 0 };
            let (from, to) = ([Src::Register(register.index); 4], [register.index; 4]);
            Some(if is_store {
                Instruction::Store { address, ty, number: 1, from }
            } else {
                Instruction::Load { address, ty, number: 1, to, to_mask: mask(register.bits) }
            })
        });
        moved.collect()
    }
}

/// A call whose function is looked up when the module was read.
#[derive(Debug)]
pub(super) struct PendingCall {
    name: String,
    results: Vec<CallTarget>,
    arguments: Vec<CallTarget>,
    line: u32,
}

impl PendingCall {
    /// Reads what follows `call`, up to the semicolon.
    pub(super) fn read(reader: &mut Reader<'_>, names: &Names, line: u32) -> Result<Self> {
        let results = Self::list(reader, names)?;
        if !results.is_empty() {
            reader.expect(",")?;
        }
        let name = reader.word()?.to_owned();
        if names.register(&name).is_some() {
            return Err(PtxError::unsupported(line, format!("calls by address, such as that of `{name}`")));
        }
        let arguments = if reader.skip(",") { Self::list(reader, names)? } else { Vec::new() };
        Ok(Self { name, results, arguments, line })
    }

    /// Returns whether the function is that of the device's runtime which a failed `assert` calls.
    pub(super) fn is_assertion(&self) -> bool {
        self.name == "__assertfail"
    }

    fn list(reader: &mut Reader<'_>, names: &Names) -> Result<Vec<CallTarget>> {
        let mut found = Vec::new();
        if !reader.skip("(") {
            return Ok(found);
        }
        while !reader.skip(")") {
            let is_negative = reader.skip("-");
            let (line, name) = (reader.line(), reader.word()?);
            let number = || number_of(name, is_negative, Type::new(TypeKind::Bits, 64));
            found.push(if let Some(place) = names.argument(name) {
                CallTarget::Argument(place)
            } else if let Some(register) = names.register(name) {
                CallTarget::Register(register.index)
            } else if let Some(value) = number() {
                CallTarget::Value(value)
            } else {
                return Err(PtxError::wrong(line, format!("there is no `{name}`")));
            });
            reader.skip(",");
        }
        Ok(found)
    }

    /// Looks up the function, and compares both sides of the call.
    fn link(&self, functions: &Functions) -> Result<Call> {
        let Self { name, line, .. } = self;
        let Some(index) = functions.by_name.get(name) else {
            return Err(match functions.declared.contains(name) {
                true => PtxError::unsupported(*line, format!("`{name}`, a function of another module")),
                false => PtxError::wrong(*line, format!("there is no function `{name}`")),
            });
        };
        let signature = &functions.signatures[*index];
        let pairs = |what: &str, given: &[CallTarget], declared: &[Declared]| {
            if given.len() != declared.len() {
                let (has, given) = (declared.len(), given.len());
                let message = format!("the function `{name}` has {has} {what}, but the call has {given}");
                return Err(PtxError::wrong(*line, message));
            }
            let both = given.iter().zip(declared);
            both.map(|(target, Declared { place, .. })| {
                let fits = match target {
                    CallTarget::Argument(given) => given.len == place.len,
                    CallTarget::Register(_) => place.len <= 8,
                    CallTarget::Value(_) => place.len <= 8 && what != "results",
                };
                let message = || format!("a call of `{name}` with {what} of another length");
                if fits { Ok((*target, *place)) } else { Err(PtxError::wrong(*line, message())) }
            })
            .collect()
        };
        Ok(Call {
            function: *index as u32,
            results: pairs("results", &self.results, &signature.results)?,
            arguments: pairs("parameters", &self.arguments, &signature.parameters)?,
        })
    }
}

/// The functions of a module, and the names of those that it only declares.
#[derive(Debug, Default)]
pub(super) struct Functions {
    signatures: Vec<Signature>,
    bodies: Vec<(Code, Vec<PendingCall>)>,
    by_name: HashMap<String, usize>,
    declared: Vec<String>,
}

impl Functions {
    pub(super) fn declare(&mut self, signature: Signature) {
        self.declared.push(signature.name);
    }

    pub(super) fn define(
        &mut self,
        signature: Signature,
        code: Code,
        calls: Vec<PendingCall>,
        line: u32,
    ) -> Result<()> {
        let name = signature.name.clone();
        if self.by_name.insert(name, self.bodies.len()).is_some() {
            return Err(PtxError::wrong(line, format!("the function `{}` occurs twice", signature.name)));
        }
        self.signatures.push(signature);
        self.bodies.push((code, calls));
        Ok(())
    }

    /// Links the calls of a kernel.
    pub(super) fn link(&self, calls: &[PendingCall]) -> Result<Vec<Call>> {
        calls.iter().map(|call| call.link(self)).collect()
    }

    /// Links the calls of the functions, and returns the functions.
    pub(super) fn linked(mut self) -> Result<Vec<Code>> {
        let bodies = std::mem::take(&mut self.bodies);
        let link = |(code, calls): (Code, Vec<PendingCall>)| Ok(Code { calls: self.link(&calls)?, ..code });
        bodies.into_iter().map(link).collect()
    }
}
