//! The names that a kernel uses: registers, parameters and variables.

use std::collections::HashMap;
use std::sync::Arc;

use super::code::{Place, Register, Special, Type};
use super::reader::{Reader, read_align, read_elements, read_type};
use super::variables::Layout;
use super::{PtxError, Result};

/// Maximum length of the parameters of a kernel or a function, in bytes.
const PARAMETERS_MAX: u64 = 4096;

/// Addresses and lengths of a module's variables.
pub(super) type ModulePlaces = HashMap<String, (u64, u64)>;

/// A register's type, and its index.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegisterInfo {
    pub(super) index: Register,
    pub(super) bits: u32,
}

/// The names of a scope.
#[derive(Debug, Default)]
struct Scope {
    registers: HashMap<String, RegisterInfo>,
    /// Variables in parameter memory.
    arguments: HashMap<String, Place>,
    /// End of the variables in parameter memory when the scope was opened.
    arguments_start: u64,
}

/// The names that instructions use.
#[derive(Debug)]
pub(super) struct Names {
    /// The scopes that are open.
    scopes: Vec<Scope>,
    /// End of the variables in parameter memory, now and at most.
    arguments_end: u64,
    arguments_max: u64,
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
        Self {
            scopes: vec![Scope::default()],
            arguments_end: 0,
            arguments_max: 0,
            parameters,
            shared,
            local,
            module,
            register_count: 0,
        }
    }

    pub(super) fn open_scope(&mut self) {
        self.scopes.push(Scope { arguments_start: self.arguments_end, ..Scope::default() });
    }

    /// Forgets the names of the innermost scope, unless it is the outermost. Returns true if it is.
    pub(super) fn close_scope(&mut self) -> bool {
        if self.scopes.len() == 1 {
            return true;
        }
        if let Some(scope) = self.scopes.pop() {
            self.arguments_end = scope.arguments_start;
        }
        false
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

    /// Returns the greatest alignment of a thread's variables.
    pub(super) fn local_align(&self) -> u64 {
        self.local.align()
    }

    /// Returns the length of the variables in parameter memory that exist at a time.
    pub(super) const fn arguments_len(&self) -> u64 {
        self.arguments_max
    }

    /// Adds a variable in parameter memory to the innermost scope.
    pub(super) fn add_argument(&mut self, name: String, place: Place) {
        self.arguments_end = self.arguments_end.max(u64::from(place.offset + place.len));
        self.arguments_max = self.arguments_max.max(self.arguments_end);
        if let Some(scope) = self.scopes.last_mut() {
            scope.arguments.insert(name, place);
        }
    }

    /// Reads a variable after `.param`.
    pub(super) fn read_argument(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        let align = read_align(reader)?;
        let ty = read_type(reader)?;
        let name = reader.word()?.to_owned();
        let elements = read_elements(reader)?.unwrap_or(1);
        let place = place(reader, (ty, elements), align, &mut self.arguments_end)?;
        self.add_argument(name, place);
        reader.expect(";")
    }

    /// Returns the place of a variable in the parameter memory of the function.
    pub(super) fn argument(&self, name: &str) -> Option<Place> {
        self.scopes.iter().rev().find_map(|scope| scope.arguments.get(name)).copied()
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
        self.scopes.iter().rev().find_map(|scope| scope.registers.get(name)).copied()
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
                let name = if numbers.is_some() { format!("{name}{number}") } else { name.to_owned() };
                self.add_register(name, ty.bits, line)?;
            }
            if !reader.skip(",") {
                return reader.expect(";");
            }
        }
    }

    /// Adds a register to the innermost scope.
    pub(super) fn add_register(&mut self, name: String, bits: u32, line: u32) -> Result<()> {
        let index = self.register_count;
        self.register_count =
            index.checked_add(1).ok_or_else(|| PtxError::wrong(line, "too many registers"))?;
        if let Some(scope) = self.scopes.last_mut() {
            scope.registers.insert(name, RegisterInfo { index, bits });
        }
        Ok(())
    }
}

/// Returns the place of a variable after `end`, which is increased.
pub(super) fn place(
    reader: &Reader<'_>,
    (ty, elements): (Type, u64),
    align: Option<u64>,
    end: &mut u64,
) -> Result<Place> {
    let offset = end.next_multiple_of(align.unwrap_or(u64::from(ty.bytes())).max(1));
    let len = elements.saturating_mul(ty.bytes().into());
    if len > PARAMETERS_MAX || offset + len > PARAMETERS_MAX {
        let message = format!("the parameters have more than {PARAMETERS_MAX} bytes");
        return Err(PtxError::wrong(reader.line(), message));
    }
    *end = offset + len;
    Ok(Place { offset: offset as u32, len: len as u32 })
}
