//! The names that a kernel declares: registers, parameters, and variables in shared memory.

use std::collections::HashMap;

use super::code::{Register, Special};
use super::reader::{Reader, read_align, read_elements, read_type};
use super::{PtxError, Result};

/// Shared memory of a kernel.
#[derive(Clone, Debug, Default)]
pub(super) struct Shared {
    /// Offsets of the variables.
    variables: HashMap<String, u64>,
    len: u64,
    /// The variable whose length the launch determines. It is behind all others.
    dynamic: Vec<String>,
}

impl Shared {
    /// Reads a variable after `.shared`.
    pub(super) fn read(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        let align = read_align(reader)?;
        let ty = read_type(reader)?;
        let (line, name) = (reader.line(), reader.word()?.to_owned());
        let bytes = u64::from(ty.bytes());
        match read_elements(reader)? {
            Some(0) => self.dynamic.push(name),
            elements => {
                let at = self.len.next_multiple_of(align.unwrap_or(bytes).max(1));
                let len = elements.unwrap_or(1).checked_mul(bytes).filter(|len| *len <= 1 << 20);
                let len = len.ok_or_else(|| PtxError::wrong(line, format!("`{name}` is too long")))?;
                self.len = at + len;
                self.variables.insert(name, at);
            }
        }
        reader.expect(";")
    }

    /// Returns the offset of a variable.
    fn offset(&self, name: &str) -> Option<u64> {
        if self.dynamic.iter().any(|dynamic| dynamic == name) {
            return Some(self.len.next_multiple_of(16));
        }
        self.variables.get(name).copied()
    }
}

/// A register's type, and its index.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegisterInfo {
    pub(super) index: Register,
    pub(super) bits: u32,
}

/// The names that instructions use.
#[derive(Debug)]
pub(super) struct Names {
    /// Registers, by the scopes that are open.
    scopes: Vec<HashMap<String, RegisterInfo>>,
    parameters: HashMap<String, u64>,
    shared: Shared,
    register_count: u16,
}

impl Names {
    pub(super) fn new(parameters: HashMap<String, u64>, shared: Shared) -> Self {
        Self { scopes: vec![HashMap::new()], parameters, shared, register_count: 0 }
    }

    pub(super) fn open_scope(&mut self) {
        self.scopes.push(HashMap::new());
    }

    /// Forgets the registers of the innermost scope. Returns true if no scope is open.
    pub(super) fn close_scope(&mut self) -> bool {
        self.scopes.pop();
        self.scopes.is_empty()
    }

    pub(super) const fn register_count(&self) -> u16 {
        self.register_count
    }

    /// Returns the length of the variables in shared memory, without those whose length the launch sets.
    pub(super) const fn shared_len(&self) -> u64 {
        self.shared.len
    }

    /// Reads a variable after `.shared`.
    pub(super) fn read_shared(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        self.shared.read(reader)
    }

    pub(super) fn register(&self, name: &str) -> Option<RegisterInfo> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name)).copied()
    }

    pub(super) fn parameter(&self, name: &str) -> Option<u64> {
        self.parameters.get(name).copied()
    }

    /// Returns the offset of a variable in shared memory.
    pub(super) fn shared(&self, name: &str) -> Option<u64> {
        self.shared.offset(name)
    }

    /// Reads registers after `.reg`.
    pub(super) fn read_registers(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        let ty = read_type(reader)?;
        loop {
            let (line, name) = (reader.line(), reader.word()?);
            if Special::named(name).is_some() {
                return Err(PtxError::wrong(line, format!("`{name}` is a special register")));
            }
            let numbers = if reader.skip("<") {
                let number = reader.number()?;
                reader.expect(">")?;
                Some(number)
            } else {
                None
            };
            for number in 0..numbers.unwrap_or(1) {
                let index = self.register_count;
                self.register_count =
                    index.checked_add(1).ok_or_else(|| PtxError::wrong(line, "too many registers"))?;
                let name = if numbers.is_some() { format!("{name}{number}") } else { name.to_owned() };
                if let Some(scope) = self.scopes.last_mut() {
                    scope.insert(name, RegisterInfo { index, bits: ty.bits });
                }
            }
            if !reader.skip(",") {
                return reader.expect(";");
            }
        }
    }
}
