//! Kernels: reads a documented part of PTX, and interprets it.
//!
//! A kernel is decoded once into [`code`]. A thread executes until it ends, reaches a barrier, or has used
//! its turn; then the next thread of the block continues. Blocks run one after another.

mod code;
mod decode;
mod eval;
mod literal;
mod names;
mod parse;
mod reader;
mod run;
mod tokens;
mod variables;

pub(crate) use code::Kernel;
pub(crate) use parse::{Module, Source};
pub(crate) use run::{GlobalMemory, Launch, Mapped, Progress, Traffic, TrapKind};

/// A text that the stand-in cannot run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PtxError {
    pub(crate) line: u32,
    pub(crate) message: String,
    /// True for PTX that the stand-in lacks, false for text that is not PTX.
    pub(crate) is_unsupported: bool,
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
