//! Reads modules: directives, kernels, registers, shared memory and labels. [`functions`](super::functions)
//! reads functions and calls, and [`decode`](super::decode) all other instructions.

use std::collections::HashMap;
use std::sync::Arc;

use super::code::{Code, Guard, Instruction, Kernel, Parameter, Step};
use super::decode;
use super::functions::{Declared, Functions, PendingCall, Signature, read_declared};
use super::memory_map::LOCAL_MAX;
use super::names::{ModulePlaces, Names};
use super::reader::Reader;
use super::tokens::{Token, tokens};
use super::variables::{Layout, ModuleVariables};
use super::{PtxError, Result};

/// Maximum number of threads of a block.
const THREADS_MAX: u32 = 1024;

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
        let mut functions = Functions::default();
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
                    kernels.push(read_kernel(&mut reader, shared.clone(), Arc::clone(&variables))?);
                }
                ".func" => {
                    read_function(&mut reader, &mut functions, shared.clone(), Arc::clone(&variables))?;
                }
                other => return Err(PtxError::unsupported(token.line, format!("`{other}` in a module"))),
            }
        }
        if kernels.is_empty() && variables.is_empty() {
            return Err(PtxError::wrong(1, "the module has neither a kernel nor a variable"));
        }
        let calls = kernels.iter().map(|(_, calls)| functions.link(calls)).collect::<Result<Vec<_>>>()?;
        let functions: Arc<[Code]> = functions.linked()?.into();
        let kernels = kernels.into_iter().zip(calls).map(|((kernel, _), calls)| {
            let code = Code { calls, ..kernel.code };
            Arc::new(Kernel { code, functions: Arc::clone(&functions), ..kernel })
        });
        Ok(Self { kernels: kernels.collect(), variables, memory })
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

/// A kernel that was read, and its calls.
type ReadKernel = (Kernel, Vec<PendingCall>);

/// Reads what follows `.entry`.
fn read_kernel(reader: &mut Reader<'_>, shared: Layout, variables: Arc<ModulePlaces>) -> Result<ReadKernel> {
    let name = reader.word()?.to_owned();
    let declared = read_declared(reader, false, &mut 0)?;
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
    let parameters = declared
        .iter()
        .map(|Declared { place, .. }| Parameter { offset: place.offset as usize, len: place.len as usize })
        .collect();
    let by_name =
        declared.into_iter().map(|declared| (declared.name, declared.place.offset.into())).collect();
    let body = BodyReader::new(Names::new(by_name, shared, variables), None);
    let (code, shared, calls) = body.read(reader)?;
    let functions = Arc::default();
    let local = code.local;
    let kernel = Kernel { name, parameters, shared, local, threads_max, threads_required, code, functions };
    Ok((kernel, calls))
}

/// Reads what follows `.func`.
fn read_function(
    reader: &mut Reader<'_>,
    functions: &mut Functions,
    shared: Layout,
    variables: Arc<ModulePlaces>,
) -> Result<()> {
    let line = reader.line();
    let (signature, has_body) = Signature::read(reader)?;
    if !has_body {
        functions.declare(signature);
        return Ok(());
    }
    let mut names = Names::new(HashMap::new(), shared, variables);
    for Declared { name, place, register } in signature.declared() {
        match register {
            Some(ty) => {
                // The place of a register has no name.
                names.add_register(name.clone(), ty.bits, line)?;
                names.add_argument(String::new(), *place);
            }
            None => names.add_argument(name.clone(), *place),
        }
    }
    let mut body = BodyReader::new(names, Some(&signature));
    for instruction in Signature::moves(&signature.parameters, &body.names, false) {
        body.push(None, instruction, line);
    }
    let (code, _, calls) = body.read(reader)?;
    functions.define(signature, code, calls, line)
}

/// Reads the body of a kernel or a function.
#[derive(Debug)]
struct BodyReader<'s> {
    names: Names,
    /// `None` for a kernel.
    function: Option<&'s Signature>,
    steps: Vec<Step>,
    labels: HashMap<String, u32>,
    /// Branches whose label is looked up at the end: index of the step, and the label with its line.
    branches: Vec<(usize, String, u32)>,
    calls: Vec<PendingCall>,
}

impl<'s> BodyReader<'s> {
    fn new(names: Names, function: Option<&'s Signature>) -> Self {
        let (labels, branches, calls) = (HashMap::new(), Vec::new(), Vec::new());
        Self { names, function, steps: Vec::new(), labels, branches, calls }
    }

    /// Reads the body after its brace. Returns its code, the length of the variables in shared memory, and
    /// the calls.
    fn read(mut self, reader: &mut Reader<'_>) -> Result<(Code, u32, Vec<PendingCall>)> {
        self.read_body(reader)?;
        let Self { names, mut steps, labels, branches, calls, .. } = self;
        for (at, label, line) in branches {
            let target = *labels
                .get(&label)
                .ok_or_else(|| PtxError::wrong(line, format!("there is no label `{label}`")))?;
            steps[at].instruction = Instruction::Branch { target };
        }
        let code = Code {
            steps,
            calls: Vec::new(),
            registers: names.register_count(),
            local: names.local_len() as u32,
            local_align: names.local_align() as u32,
            arguments: names.arguments_len() as u32,
        };
        Ok((code, names.shared_len() as u32, calls))
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
                        // The body may end without `ret`.
                        self.push_return(None, line);
                        return Ok(());
                    }
                }
                ".reg" => {
                    reader.skip(".reg");
                    self.names.read_registers(reader)?;
                }
                ".shared" if self.function.is_some() => {
                    return Err(PtxError::unsupported(line, "shared variables of a function"));
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
                ".param" => {
                    reader.skip(".param");
                    self.names.read_argument(reader)?;
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

    /// Adds the end of a kernel, or the return of a function with its results.
    fn push_return(&mut self, guard: Option<Guard>, line: u32) {
        let Some(function) = self.function else { return self.push(guard, Instruction::Exit, line) };
        for instruction in Signature::moves(&function.results, &self.names, true) {
            self.push(guard, instruction, line);
        }
        self.push(guard, Instruction::Return, line);
    }

    fn read_instruction(&mut self, reader: &mut Reader<'_>, line: u32) -> Result<()> {
        let mut guard = None;
        if reader.skip("@") {
            let is_negated = reader.skip("!");
            let name = reader.word()?;
            let register = self.names.register(name);
            let register =
                register.ok_or_else(|| PtxError::wrong(line, format!("there is no register `{name}`")))?;
            if register.bits != 1 {
                return Err(PtxError::wrong(line, format!("the guard `{name}` is not a predicate")));
            }
            guard = Some(Guard { register: register.index, is_negated });
        }
        let opcode = reader.word()?;
        if opcode == "bra" || opcode == "bra.uni" {
            let label = reader.word()?.to_owned();
            self.branches.push((self.steps.len(), label, line));
            self.push(guard, Instruction::Branch { target: 0 }, line);
            return reader.expect(";");
        }
        if opcode == "ret" || opcode == "ret.uni" {
            self.push_return(guard, line);
            return reader.expect(";");
        }
        if opcode == "call" || opcode == "call.uni" {
            let call = self.calls.len() as u32;
            let pending = PendingCall::read(reader, &self.names, line)?;
            if pending.is_assertion() {
                self.push(guard, Instruction::Assertion, line);
            } else {
                self.calls.push(pending);
                self.push(guard, Instruction::Call { call }, line);
            }
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
