//! Reads modules: directives, parameters, registers, shared memory and labels. [`decode`](super::decode)
//! reads the instructions.

use std::collections::HashMap;
use std::sync::Arc;

use super::code::{Guard, Instruction, Kernel, Parameter, Register, Step, Type, TypeKind};
use super::tokens::{Token, tokens};
use super::{PtxError, Result};

/// Maximum number of threads of a block.
const THREADS_MAX: u32 = 1024;

/// A module: its kernels.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) kernels: Vec<Arc<Kernel>>,
}

impl Module {
    /// Reads a text.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let tokens = tokens(text)?;
        let mut reader = Reader { tokens: &tokens, at: 0 };
        let (mut kernels, mut shared) = (Vec::new(), Shared::default());
        if !tokens.iter().any(|token| token.text == ".version") {
            return Err(PtxError::wrong(1, "there is no `.version`"));
        }
        while let Some(token) = reader.next() {
            match token.text {
                ".version" => _ = reader.word()?,
                ".target" => {
                    reader.word()?;
                    while reader.skip(",") {
                        reader.word()?;
                    }
                }
                ".address_size" => {
                    let size = reader.number()?;
                    if size != 64 {
                        return Err(PtxError::unsupported(token.line, "addresses of 32 bits"));
                    }
                }
                ".visible" | ".weak" | ".extern" => {}
                ".file" => reader.skip_line(token.line),
                ".section" => reader.skip_block()?,
                ".shared" => shared.read(&mut reader)?,
                ".entry" => kernels.push(Arc::new(KernelReader::read(&mut reader, shared.clone())?)),
                other => return Err(PtxError::unsupported(token.line, format!("`{other}` in a module"))),
            }
        }
        if kernels.is_empty() {
            return Err(PtxError::wrong(1, "the module has no kernel"));
        }
        Ok(Self { kernels })
    }

    /// Returns a kernel and its index.
    pub(crate) fn kernel(&self, name: &str) -> Option<&Arc<Kernel>> {
        self.kernels.iter().find(|kernel| kernel.name == name)
    }
}

/// A position in the tokens.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn peek(&self) -> Option<&'a str> {
        self.tokens.get(self.at).map(|token| token.text)
    }

    /// Returns the text after the next one.
    pub(super) fn peek_second(&self) -> Option<&'a str> {
        self.tokens.get(self.at + 1).map(|token| token.text)
    }

    fn next(&mut self) -> Option<Token<'a>> {
        let token = self.tokens.get(self.at).copied()?;
        self.at += 1;
        Some(token)
    }

    /// Returns the line of the next token, or of the last one at the end.
    pub(super) fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |token| token.line)
    }

    pub(super) fn wrong(&self) -> PtxError {
        match self.peek() {
            Some(text) => PtxError::wrong(self.line(), format!("`{text}` is unexpected")),
            None => PtxError::wrong(self.line(), "the text ends too early"),
        }
    }

    /// Reads a token if it is the given one.
    pub(super) fn skip(&mut self, text: &str) -> bool {
        let is = self.peek() == Some(text);
        self.at += usize::from(is);
        is
    }

    pub(super) fn expect(&mut self, text: &str) -> Result<()> {
        if self.skip(text) { Ok(()) } else { Err(self.wrong()) }
    }

    pub(super) fn word(&mut self) -> Result<&'a str> {
        let is_word = |text: &&str| text.starts_with(|c: char| c.is_alphanumeric() || "_$%.".contains(c));
        let word = self.peek().filter(is_word).ok_or_else(|| self.wrong())?;
        self.at += 1;
        Ok(word)
    }

    /// Reads a whole number without a sign.
    pub(super) fn number(&mut self) -> Result<u64> {
        let number = self.peek().and_then(whole).ok_or_else(|| self.wrong())?;
        self.at += 1;
        Ok(number)
    }

    fn skip_line(&mut self, line: u32) {
        while self.tokens.get(self.at).is_some_and(|token| token.line == line) {
            self.at += 1;
        }
    }

    /// Skips tokens up to the end of a block in braces.
    fn skip_block(&mut self) -> Result<()> {
        let mut depth = 0;
        loop {
            match self.next().ok_or_else(|| self.wrong())?.text {
                "{" => depth += 1,
                "}" if depth == 1 => return Ok(()),
                "}" => depth -= 1,
                _ => {}
            }
        }
    }
}

/// Parses a whole number: decimal, hexadecimal, octal or binary.
pub(super) fn whole(text: &str) -> Option<u64> {
    let text = text.strip_suffix('U').unwrap_or(text);
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', b'b' | b'B', ..] => (&text[2..], 2),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    u64::from_str_radix(digits, radix).ok()
}

/// Parses a type, such as `u32`.
pub(super) fn type_of(name: &str) -> Option<Type> {
    if name == "pred" {
        return Some(Type::new(TypeKind::Predicate, 1));
    }
    let (kind, bits) = name.split_at_checked(1)?;
    let bits = bits.parse().ok()?;
    let kind = match kind {
        "u" => TypeKind::Unsigned,
        "s" => TypeKind::Signed,
        "b" => TypeKind::Bits,
        "f" if bits >= 32 => TypeKind::Float,
        _ => return None,
    };
    matches!(bits, 8 | 16 | 32 | 64).then_some(Type::new(kind, bits))
}

/// Reads a type from the next token, such as `.u32`.
fn read_type(reader: &mut Reader<'_>) -> Result<Type> {
    let found = reader.peek().and_then(|text| type_of(text.strip_prefix('.')?));
    let Some(ty) = found else {
        let what = format!("the type `{}`", reader.peek().unwrap_or_default());
        return Err(PtxError::unsupported(reader.line(), what));
    };
    reader.word()?;
    Ok(ty)
}

/// Reads `.align N`, if it is next.
fn read_align(reader: &mut Reader<'_>) -> Result<Option<u64>> {
    if !reader.skip(".align") {
        return Ok(None);
    }
    let (line, align) = (reader.line(), reader.number()?);
    if align.is_power_of_two() && align <= 4096 {
        return Ok(Some(align));
    }
    Err(PtxError::wrong(line, format!("an alignment of {align}")))
}

/// Reads the length of an array, if one follows. An array of unknown length has 0 elements.
fn read_elements(reader: &mut Reader<'_>) -> Result<Option<u64>> {
    if !reader.skip("[") {
        return Ok(None);
    }
    if reader.skip("]") {
        return Ok(Some(0));
    }
    let elements = reader.number()?;
    reader.expect("]")?;
    Ok(Some(elements))
}

/// Shared memory of a kernel.
#[derive(Clone, Debug, Default)]
struct Shared {
    /// Offsets of the variables.
    variables: HashMap<String, u64>,
    len: u64,
    /// The variable whose length the launch determines. It is behind all others.
    dynamic: Vec<String>,
}

impl Shared {
    /// Reads a variable after `.shared`.
    fn read(&mut self, reader: &mut Reader<'_>) -> Result<()> {
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
    fn read_registers(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        let ty = read_type(reader)?;
        loop {
            let (line, name) = (reader.line(), reader.word()?);
            if super::decode::special(name).is_some() {
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

#[derive(Debug)]
struct KernelReader {
    names: Names,
    steps: Vec<Step>,
    labels: HashMap<String, u32>,
    /// Branches whose label is looked up at the end: index of the step, and the label with its line.
    branches: Vec<(usize, String, u32)>,
}

impl KernelReader {
    fn read(reader: &mut Reader<'_>, shared: Shared) -> Result<Kernel> {
        let name = reader.word()?.to_owned();
        let (mut parameters, mut by_name) = (Vec::new(), HashMap::new());
        if reader.skip("(") {
            let mut end = 0;
            while !reader.skip(")") {
                reader.expect(".param")?;
                let align = read_align(reader)?;
                let ty = read_type(reader)?;
                // `.ptr .global .align 16` describes what a pointer points to.
                while reader.peek().is_some_and(|text| text.starts_with('.')) {
                    if read_align(reader)?.is_none() {
                        reader.word()?;
                    }
                }
                let parameter = reader.word()?.to_owned();
                let elements = read_elements(reader)?.unwrap_or(1);
                let len = ty.bytes() as usize * elements as usize;
                let offset =
                    usize::next_multiple_of(end, align.unwrap_or(u64::from(ty.bytes())).max(1) as usize);
                end = offset + len;
                if end > 4096 {
                    return Err(PtxError::wrong(reader.line(), "the parameters have more than 4096 bytes"));
                }
                by_name.insert(parameter, offset as u64);
                parameters.push(Parameter { offset, len });
                reader.skip(",");
            }
        }
        let (mut threads_max, mut threads_required) = (THREADS_MAX, None);
        while !reader.skip("{") {
            let (line, directive) = (reader.line(), reader.word()?);
            match directive {
                ".maxntid" | ".reqntid" => {
                    let mut threads = reader.number()?;
                    while reader.skip(",") {
                        threads = threads.saturating_mul(reader.number()?);
                    }
                    threads_max = threads.clamp(1, THREADS_MAX.into()) as u32;
                    if directive == ".reqntid" {
                        threads_required = Some(threads_max);
                    }
                }
                ".minnctapersm" | ".maxnctapersm" | ".maxnreg" => _ = reader.number()?,
                other => return Err(PtxError::unsupported(line, format!("`{other}` of a kernel"))),
            }
        }
        let names = Names { scopes: vec![HashMap::new()], parameters: by_name, shared, register_count: 0 };
        let mut kernel = Self { names, steps: Vec::new(), labels: HashMap::new(), branches: Vec::new() };
        kernel.read_body(reader)?;
        let Self { names, mut steps, labels, branches } = kernel;
        for (at, label, line) in branches {
            let target = *labels
                .get(&label)
                .ok_or_else(|| PtxError::wrong(line, format!("there is no label `{label}`")))?;
            steps[at].instruction = Instruction::Branch { target };
        }
        let registers = names.register_count;
        let shared = names.shared.len as u32;
        Ok(Kernel { name, parameters, shared, threads_max, threads_required, registers, steps })
    }

    fn read_body(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        loop {
            let line = reader.line();
            let Some(text) = reader.peek() else { return Err(reader.wrong()) };
            match text {
                "{" => {
                    reader.skip("{");
                    self.names.scopes.push(HashMap::new());
                }
                "}" => {
                    reader.skip("}");
                    self.names.scopes.pop();
                    if self.names.scopes.is_empty() {
                        // A kernel may end without `ret`.
                        self.push(None, Instruction::Exit, line);
                        return Ok(());
                    }
                }
                ".reg" => {
                    reader.skip(".reg");
                    self.names.read_registers(reader)?;
                }
                ".shared" => {
                    reader.skip(".shared");
                    self.names.shared.read(reader)?;
                }
                ".loc" => reader.skip_line(line),
                ".pragma" => {
                    while !reader.skip(";") {
                        reader.next().ok_or_else(|| reader.wrong())?;
                    }
                }
                text if text.starts_with('.') => {
                    return Err(PtxError::unsupported(line, format!("`{text}` in a kernel")));
                }
                label if reader.peek_second() == Some(":") => {
                    let step = self.steps.len() as u32;
                    if self.labels.insert(label.to_owned(), step).is_some() {
                        return Err(PtxError::wrong(line, format!("the label `{label}` occurs twice")));
                    }
                    reader.skip(label);
                    reader.skip(":");
                }
                _ => self.read_instruction(reader, line)?,
            }
        }
    }

    fn push(&mut self, guard: Option<Guard>, instruction: Instruction, line: u32) {
        self.steps.push(Step { guard, instruction, line });
    }

    fn read_instruction(&mut self, reader: &mut Reader<'_>, line: u32) -> Result<()> {
        let mut guard = None;
        if reader.skip("@") {
            let is_negated = reader.skip("!");
            let name = reader.word()?;
            let register = self.names.register(name);
            let register =
                register.ok_or_else(|| PtxError::wrong(line, format!("there is no register `{name}`")))?;
            guard = Some(Guard { register: register.index, is_negated });
        }
        let opcode = reader.word()?;
        if opcode == "bra" || opcode == "bra.uni" {
            let label = reader.word()?.to_owned();
            self.branches.push((self.steps.len(), label, line));
            self.push(guard, Instruction::Branch { target: 0 }, line);
            return reader.expect(";");
        }
        let names = &self.names;
        let decoded = super::decode::instructions(opcode, reader, names, line)?;
        reader.expect(";")?;
        for instruction in decoded {
            self.push(guard, instruction, line);
        }
        Ok(())
    }
}
