//! The names that a kernel uses: registers, parameters and variables.

use std::collections::HashMap;
use std::sync::Arc;

use super::code::{Register, Special};
use super::reader::{Reader, read_type};
use super::variables::Layout;
use super::{PtxError, Result};

/// Addresses and lengths of a module's variables.
pub(super) type ModulePlaces = HashMap<String, (u64, u64)>;

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
    shared: Layout,
    /// The variables of a thread.
    local: Layout,
    /// Addresses and lengths of the module's variables.
    module: Arc<ModulePlaces>,
    register_count: u16,
}

impl Names {
    pub(super) fn new(parameters: HashMap<String, u64>, shared: Layout, module: Arc<ModulePlaces>) -> Self {
        let local = Layout::default();
        Self { scopes: vec![HashMap::new()], parameters, shared, local, module, register_count: 0 }
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
        self.shared.len()
    }

    /// Returns the length of a thread's variables.
    pub(super) const fn local_len(&self) -> u64 {
        self.local.len()
    }

    /// Reads a variable after `.shared`.
    pub(super) fn read_shared(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        self.shared.read(reader)
    }

    /// Reads a variable after `.local`.
    pub(super) fn read_local(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        self.local.read(reader)
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

    /// Returns the offset of a thread's variable.
    pub(super) fn local(&self, name: &str) -> Option<u64> {
        self.local.offset(name)
    }

    /// Returns the address of a variable of the module.
    pub(super) fn module_variable(&self, name: &str) -> Option<u64> {
        self.module.get(name).map(|(addr, _)| *addr)
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
