//! [`TraceError`]: the error of a trace that was refused.

use super::format::{OLDEST, VERSION};

/// The error of a trace that was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The first bytes are not those of a trace.
    #[error("this is not a trace")]
    NotATrace,
    /// The trace has another version of the format.
    #[error("the trace has version {found}, and this build reads versions {OLDEST} to {VERSION}")]
    Version {
        /// The version of the trace.
        found: u16,
    },
    /// The end of the trace is missing.
    #[error("the trace is cut off after {len} bytes")]
    CutOff {
        /// The length of the file in bytes.
        len: usize,
    },
    /// The content of the trace is invalid.
    #[error("the trace is damaged: {what}")]
    Damaged {
        /// A description of the invalid content.
        what: &'static str,
    },
}

pub(super) const fn damaged(what: &'static str) -> TraceError {
    TraceError::Damaged { what }
}
