//! Kernels of the stand-in `cuda-emu`: reads a documented part of PTX, and interprets it.
//!
//! [`Source::read`] and [`Module::read`] read a text, and [`Launch`] runs one of its kernels on
//! [`GlobalMemory`]. This is a crate of its own, so that tests optimise the interpreter and not the whole
//! stand-in.
//!
//! A kernel is decoded once into `code`. A thread executes until it ends, reaches a barrier, or has used
//! its turn; then the next thread of the block continues. Blocks run one after another.

mod arithmetic;
mod call_stack;
mod code;
mod decode;
mod device;
mod eval;
mod functions;
mod literal;
mod memory_map;
mod names;
mod operands;
mod parse;
mod reader;
mod run;
mod tokens;
mod variables;

pub use code::{Kernel, Parameter};
pub use device::{GlobalMemory, Mapped, Progress, Traffic, Trap, TrapKind};
pub use parse::{Module, Source};
pub use run::Launch;

/// A text that the stand-in cannot run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PtxError {
    /// Line of the text, from 1.
    pub line: u32,
    /// The reason why the stand-in cannot run the text, with the words concerned.
    pub message: String,
    /// True for PTX that the stand-in lacks, false for text that is not PTX.
    pub is_unsupported: bool,
}

impl PtxError {
    fn wrong(line: u32, message: impl Into<String>) -> Self {
        Self { line, message: message.into(), is_unsupported: false }
    }

    fn unsupported(line: u32, what: impl std::fmt::Display) -> Self {
        let message = format!("the stand-in does not support {what}");
        Self { line, message, is_unsupported: true }
    }
}

impl std::fmt::Display for PtxError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ptx line {}: {}", self.line, self.message)
    }
}

type Result<T, E = PtxError> = std::result::Result<T, E>;
