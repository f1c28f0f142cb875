//! The call stack of a thread: registers of its callers, its variables, and parameters of its calls.

use super::code::{Call, CallTarget, Code, Place, mask};
use super::memory_map::{LOCAL_MAX, STALE};

/// Maximum number of nested calls.
const DEPTH_MAX: usize = 256;

/// The code that continues after a return.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    /// Index of the function; `None` for the kernel.
    pub(super) function: Option<u32>,
    /// Index of the step after the call.
    pub(super) next: u32,
}

/// The parts of a caller that a call replaces.
#[derive(Debug)]
struct Frame {
    caller: Caller,
    /// Start of the caller's variables, in words.
    local: usize,
    /// Length of all variables before the call, in words.
    local_end: usize,
    /// Start of the caller's parameter memory, in words.
    arguments: usize,
}

/// The call stack of a thread.
#[derive(Debug, Default)]
pub(super) struct CallStack {
    frames: Vec<Frame>,
    /// Registers of all callers.
    registers: Vec<u64>,
    /// The variables of all functions in execution. Their addresses stay the same.
    pub(super) local: Vec<u64>,
    local_start: usize,
    /// Parameter memory of all functions in execution.
    arguments: Vec<u64>,
    arguments_start: usize,
}

impl CallStack {
    /// Begins a kernel.
    pub(super) fn begin(&mut self, kernel: &Code) {
        self.frames.clear();
        self.registers.clear();
        self.local.clear();
        self.local.resize(kernel.local.div_ceil(8) as usize, STALE);
        self.arguments.clear();
        self.arguments.resize(kernel.arguments.div_ceil(8) as usize, STALE);
        (self.local_start, self.arguments_start) = (0, 0);
    }

    /// Returns the address of a variable of the function in execution.
    #[inline]
    pub(super) const fn local_address(&self, offset: u32) -> u64 {
        self.local_start as u64 * 8 + offset as u64
    }

    /// Returns the parameter memory of the function in execution.
    pub(super) fn arguments(&mut self) -> &mut [u64] {
        &mut self.arguments[self.arguments_start..]
    }

    /// Returns the code that continues after the return of the function in execution.
    pub(super) fn caller(&self) -> Caller {
        self.frames.last().expect("a function in execution was called").caller
    }

    /// Begins a call of `callee` by `code`. `registers` are those of the function in execution.
    ///
    /// # Errors
    ///
    /// Returns the reason if there are too many nested calls, or too many variables.
    pub(super) fn enter(
        &mut self,
        call: &Call,
        (code, caller): (&Code, Caller),
        callee: &Code,
        registers: &[u64],
    ) -> Result<(), String> {
        if self.frames.len() == DEPTH_MAX {
            return Err(format!("more than {DEPTH_MAX} nested calls"));
        }
        let align = callee.local_align.div_ceil(8).max(1) as usize;
        let local = self.local.len().next_multiple_of(align);
        let local_end = local + callee.local.div_ceil(8) as usize;
        if local_end as u64 * 8 > LOCAL_MAX {
            return Err(format!("more than {LOCAL_MAX} bytes of variables in nested calls"));
        }
        let (before, start) = (self.arguments_start, self.arguments.len());
        self.arguments.resize(start + callee.arguments.div_ceil(8) as usize, STALE);
        for (target, to) in &call.arguments {
            let at = start * 8 + to.offset as usize;
            match *target {
                CallTarget::Argument(from) => self.copy_argument((before, from), at),
                CallTarget::Register(register) => self.put(at, to.len, registers[usize::from(register)]),
                CallTarget::Value(value) => self.put(at, to.len, value),
            }
        }
        self.registers.extend_from_slice(&registers[..usize::from(code.registers)]);
        let frame = Frame { caller, local: self.local_start, local_end: self.local.len(), arguments: before };
        self.frames.push(frame);
        self.local.resize(local_end, STALE);
        (self.local_start, self.arguments_start) = (local, start);
        Ok(())
    }

    /// Ends the function in execution, which `call` of `code` began, and passes its results on.
    pub(super) fn leave(&mut self, call: &Call, code: &Code, registers: &mut [u64]) {
        let Some(Frame { local, local_end, arguments, .. }) = self.frames.pop() else { return };
        let saved = self.registers.len() - usize::from(code.registers);
        registers[..usize::from(code.registers)].copy_from_slice(&self.registers[saved..]);
        self.registers.truncate(saved);
        for (target, from) in &call.results {
            let from = (self.arguments_start, *from);
            match *target {
                CallTarget::Argument(to) => self.copy_argument(from, arguments * 8 + to.offset as usize),
                CallTarget::Register(register) => registers[usize::from(register)] = self.get(from),
                CallTarget::Value(_) => {}
            }
        }
        self.arguments.truncate(self.arguments_start);
        self.local.truncate(local_end);
        (self.local_start, self.arguments_start) = (local, arguments);
    }

    /// Copies a variable in the parameter memory that starts at word `start`, to byte `to` of all of them.
    fn copy_argument(&mut self, (start, from): (usize, Place), to: usize) {
        let from_byte = start * 8 + from.offset as usize;
        for byte in 0..from.len as usize {
            let value = self.byte(from_byte + byte);
            self.put_byte(to + byte, value);
        }
    }

    /// Returns a value of up to 8 bytes.
    fn get(&self, (start, from): (usize, Place)) -> u64 {
        let first = start * 8 + from.offset as usize;
        (0..from.len as usize).fold(0, |value, at| value | u64::from(self.byte(first + at)) << (8 * at))
    }

    /// Stores a value of up to 8 bytes.
    fn put(&mut self, to: usize, len: u32, value: u64) {
        (0..len as usize).for_each(|at| self.put_byte(to + at, (value >> (8 * at)) as u8));
    }

    fn byte(&self, at: usize) -> u8 {
        (self.arguments[at / 8] >> (8 * (at % 8))) as u8
    }

    fn put_byte(&mut self, at: usize, value: u8) {
        let (word, shift) = (&mut self.arguments[at / 8], 8 * (at % 8));
        *word = *word & !(mask(8) << shift) | u64::from(value) << shift;
    }
}
