//! Reads modules: directives, parameters, registers, shared memory and labels. [`decode`](super::decode)
//! reads the instructions.

use std::collections::HashMap;
use std::sync::Arc;

use super::code::{Guard, Instruction, Kernel, Parameter, Step};
use super::decode;
use super::names::{ModulePlaces, Names};
use super::reader::{Reader, read_align, read_elements, read_type};
use super::tokens::{Token, tokens};
use super::variables::{Layout, ModuleVariables};
use super::{PtxError, Result};

/// Maximum number of threads of a block.
const THREADS_MAX: u32 = 1024;
/// Maximum length of the memory that a kernel declares for each thread, in bytes.
const LOCAL_MAX: u64 = 64 << 10;

/// A text, and the variables of its module.
#[derive(Debug)]
pub struct Source<'a> {
    tokens: Vec<Token<'a>>,
    variables: ModuleVariables,
}

impl<'a> Source<'a> {
    /// Reads the words and the variables of a text.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is not PTX, or its variables use PTX that the stand-in lacks.
    pub fn read(text: &'a str) -> Result<Self> {
        let tokens = tokens(text)?;
        let variables = ModuleVariables::read(&tokens)?;
        Ok(Self { tokens, variables })
    }

    /// Returns the first values of the module's variables.
    #[must_use]
    pub fn initial(&self) -> &[u8] {
        self.variables.initial()
    }
}

/// A module: its kernels and variables.
#[derive(Debug)]
pub struct Module {
    /// Kernels, in the order of the text.
    pub kernels: Vec<Arc<Kernel>>,
    variables: Arc<ModulePlaces>,
    /// Address of the memory of the variables.
    pub memory: Option<u64>,
}

impl Module {
    /// Reads the kernels of a text, whose variables are at `memory`.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is not PTX, has neither a kernel nor a variable, or uses PTX that the
    /// stand-in lacks.
    pub fn read(source: &Source<'_>, memory: Option<u64>) -> Result<Self> {
        let tokens = &source.tokens;
        let mut reader = Reader::new(tokens);
        let variables = Arc::new(source.variables.placed(memory.unwrap_or_default()));
        let (mut kernels, mut shared) = (Vec::new(), Layout::default());
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
                // `Source::read` has read them.
                ".global" | ".const" => while reader.next().is_some_and(|token| token.text != ";") {},
                ".entry" => {
                    let kernel = KernelReader::read(&mut reader, shared.clone(), Arc::clone(&variables))?;
                    kernels.push(Arc::new(kernel));
                }
                other => return Err(PtxError::unsupported(token.line, format!("`{other}` in a module"))),
            }
        }
        if kernels.is_empty() && variables.is_empty() {
            return Err(PtxError::wrong(1, "the module has neither a kernel nor a variable"));
        }
        Ok(Self { kernels, variables, memory })
    }

    /// Returns the kernel with this name.
    pub fn kernel(&self, name: &str) -> Option<&Arc<Kernel>> {
        self.kernels.iter().find(|kernel| kernel.name == name)
    }

    /// Returns the address and the length of a variable.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<(u64, u64)> {
        self.variables.get(name).copied()
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
    fn read(reader: &mut Reader<'_>, shared: Layout, variables: Arc<ModulePlaces>) -> Result<Kernel> {
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
        let names = Names::new(by_name, shared, variables);
        let mut kernel = Self { names, steps: Vec::new(), labels: HashMap::new(), branches: Vec::new() };
        kernel.read_body(reader)?;
        let Self { names, mut steps, labels, branches } = kernel;
        for (at, label, line) in branches {
            let target = *labels
                .get(&label)
                .ok_or_else(|| PtxError::wrong(line, format!("there is no label `{label}`")))?;
            steps[at].instruction = Instruction::Branch { target };
        }
        let registers = names.register_count();
        let (shared, local) = (names.shared_len() as u32, names.local_len() as u32);
        Ok(Kernel { name, parameters, shared, local, threads_max, threads_required, registers, steps })
    }

    fn read_body(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        loop {
            let line = reader.line();
            let Some(text) = reader.peek() else { return Err(reader.wrong()) };
            match text {
                "{" => {
                    reader.skip("{");
                    self.names.open_scope();
                }
                "}" => {
                    reader.skip("}");
                    if self.names.close_scope() {
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
                    self.names.read_shared(reader)?;
                }
                ".local" => {
                    reader.skip(".local");
                    self.names.read_local(reader)?;
                    if self.names.local_len() > LOCAL_MAX {
                        return Err(PtxError::unsupported(
                            line,
                            "more than 64 KiB of memory for each thread",
                        ));
                    }
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
        let decoded = decode::instructions(opcode, reader, names, line)?;
        reader.expect(";")?;
        for instruction in decoded {
            self.push(guard, instruction, line);
        }
        Ok(())
    }
}
