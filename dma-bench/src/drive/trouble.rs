//! [`Trouble`]: why a cell has no figures.

use dma::ErrorKind;

use crate::memory::Difference;

/// Why a cell has no figures, or not all.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Trouble {
    /// The engine cannot do that.
    #[error("not possible: {0}")]
    Unsupported(String),
    /// The engine refused or failed.
    #[error("{0}")]
    Failed(String),
    /// Bytes did not arrive.
    #[error("WRONG BYTES: operation of {size} B at {at:#x}: first difference at offset {}: {:#04x} instead of {:#04x}", .difference.offset, .difference.found, .difference.expected)]
    Verification {
        /// Offset in the destination.
        at: usize,
        /// Bytes of the operation.
        size: usize,
        /// The first difference, counted from the operation's first byte.
        difference: Difference,
    },
    /// The result is another one.
    #[error("WRONG RESULT: operation of {size} B at {at:#x}: {found:#x} instead of {expected:#x}")]
    Answer {
        /// Offset in the source.
        at: usize,
        /// Bytes of the operation.
        size: usize,
        /// The expected result.
        expected: u64,
        /// The result of the completion.
        found: u64,
    },
}

impl From<dma::Error> for Trouble {
    fn from(error: dma::Error) -> Self {
        if error.kind() == ErrorKind::Unsupported {
            Self::Unsupported(error.to_string())
        } else {
            Self::Failed(error.to_string())
        }
    }
}
