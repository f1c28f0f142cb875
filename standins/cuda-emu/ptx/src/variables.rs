//! Variables: those of a module, which lie in the device's memory, and those of a kernel's blocks and
//! threads.

use std::collections::HashMap;

use super::code::{Type, TypeKind};
use super::literal::number_of;
use super::reader::{Reader, read_align, read_elements, read_type};
use super::tokens::Token;
use super::{PtxError, Result};

/// Maximum length of a module's variables, in bytes.
const MODULE_MAX: usize = 64 << 20;

/// Variables in shared memory, or in the memory of a thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    /// Offsets of the variables.
    variables: HashMap<String, u64>,
    len: u64,
    /// The greatest alignment of a variable.
    align: u64,
    /// The variables whose length the launch determines. They are behind all others.
    dynamic: Vec<String>,
}

impl Layout {
    /// Reads a variable after `.shared` or `.local`.
    pub(super) fn read(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        let align = read_align(reader)?;
        let ty = read_type(reader)?;
        let (line, name) = (reader.line(), reader.word()?.to_owned());
        let bytes = u64::from(ty.bytes());
        match read_elements(reader)? {
            Some(0) => self.dynamic.push(name),
            elements => {
                let align = align.unwrap_or(bytes).max(1);
                self.align = self.align.max(align);
                let at = self.len.next_multiple_of(align);
                let len = elements.unwrap_or(1).checked_mul(bytes).filter(|len| *len <= 1 << 20);
                let len = len.ok_or_else(|| PtxError::wrong(line, format!("`{name}` is too long")))?;
                self.len = at + len;
                self.variables.insert(name, at);
            }
        }
        reader.expect(";")
    }

    /// Returns the length of the variables, without those whose length the launch determines.
    pub(super) const fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn align(&self) -> u64 {
        self.align.max(1)
    }

    /// Returns the offset of a variable.
    pub(super) fn offset(&self, name: &str) -> Option<u64> {
        if self.dynamic.iter().any(|dynamic| dynamic == name) {
            return Some(self.len.next_multiple_of(16));
        }
        self.variables.get(name).copied()
    }
}

/// The variables of a module, in one piece of memory.
#[derive(Clone, Debug, Default)]
pub(super) struct ModuleVariables {
    /// Offsets and lengths.
    places: HashMap<String, (usize, usize)>,
    initial: Vec<u8>,
}

impl ModuleVariables {
    /// Reads all variables of a text.
    pub(super) fn read(tokens: &[Token<'_>]) -> Result<Self> {
        let mut this = Self::default();
        let mut reader = Reader::new(tokens);
        // Kernels have parameters in parentheses and a body in braces.
        let (mut depth, mut is_extern) = (0_u32, false);
        while let Some(token) = reader.next() {
            match token.text {
                "(" | "{" => depth += 1,
                ")" | "}" => depth = depth.saturating_sub(1),
                ".global" | ".const" if depth == 0 && is_extern => {
                    return Err(PtxError::unsupported(token.line, "variables of other modules"));
                }
                ".global" | ".const" if depth == 0 => this.read_one(&mut reader)?,
                _ => {}
            }
            is_extern = token.text == ".extern";
        }
        Ok(this)
    }

    fn read_one(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        let align = read_align(reader)?;
        let ty = read_type(reader)?;
        if ty.kind == TypeKind::Predicate {
            return Err(PtxError::wrong(reader.line(), "a variable has no type `.pred`"));
        }
        let (line, name) = (reader.line(), reader.word()?.to_owned());
        let mut elements = 1_u64;
        let mut is_open = false;
        while let Some(extent) = read_elements(reader)? {
            is_open |= extent == 0;
            elements = elements.saturating_mul(extent);
        }
        let mut values = Vec::new();
        if reader.skip("=") {
            Self::read_values(reader, ty, &mut values)?;
        }
        reader.expect(";")?;
        if is_open {
            elements = values.len() as u64 / u64::from(ty.bytes());
        }
        let at = self.initial.len().next_multiple_of(align.unwrap_or(u64::from(ty.bytes())).max(1) as usize);
        let len = elements.saturating_mul(ty.bytes().into());
        let len = usize::try_from(len).ok().filter(|len| at + len <= MODULE_MAX && *len > 0);
        let len = len.ok_or_else(|| PtxError::wrong(line, format!("`{name}` is too long, or empty")))?;
        if values.len() > len {
            return Err(PtxError::wrong(line, format!("`{name}` has fewer elements than values")));
        }
        self.initial.resize(at, 0);
        self.initial.extend_from_slice(&values);
        self.initial.resize(at + len, 0);
        if self.places.insert(name.clone(), (at, len)).is_some() {
            return Err(PtxError::wrong(line, format!("the variable `{name}` occurs twice")));
        }
        Ok(())
    }

    /// Reads a value, or a list of values in braces.
    fn read_values(reader: &mut Reader<'_>, ty: Type, values: &mut Vec<u8>) -> Result<()> {
        if reader.skip("{") {
            while !reader.skip("}") {
                Self::read_values(reader, ty, values)?;
                reader.skip(",");
            }
            return Ok(());
        }
        let is_negative = reader.skip("-");
        let (line, text) = (reader.line(), reader.word()?);
        let value = number_of(text, is_negative, ty)
            .ok_or_else(|| PtxError::unsupported(line, format!("`{text}` as the value of a variable")))?;
        values.extend_from_slice(&value.to_le_bytes()[..ty.bytes() as usize]);
        Ok(())
    }

    /// Returns the first values. Variables without a value are 0.
    pub(super) fn initial(&self) -> &[u8] {
        &self.initial
    }

    /// Returns the addresses and the lengths of the variables, whose memory begins at `base`.
    pub(super) fn placed(&self, base: u64) -> HashMap<String, (u64, u64)> {
        let place =
            |(name, (at, len)): (&String, &(usize, usize))| (name.clone(), (base + *at as u64, *len as u64));
        self.places.iter().map(place).collect()
    }
}
