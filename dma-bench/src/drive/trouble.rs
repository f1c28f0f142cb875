//! [`Trouble`]: the reason why a cell has no figures.

use dma::ErrorKind;

use crate::memory::Difference;

/// The reason why a cell has no figures, or fewer than requested.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Trouble {
    /// The engine lacks the operation, or its limits exclude the cell.
    #[error("not possible: {0}")]
    Unsupported(String),
    /// The engine refused or failed an operation.
    #[error("{0}")]
    Failed(String),
    /// A destination has a wrong byte.
    #[error("WRONG BYTES: operation of {size} B at {at:#x}: first difference at offset {}: {:#04x} instead of {:#04x}", .difference.offset, .difference.found, .difference.expected)]
    Verification {
        /// Offset of the operation in the destination's memory, in bytes.
        at: usize,
        size: usize,
        /// The first difference; its offset counts from the start of the operation.
        difference: Difference,
    },
    /// A completion has a wrong result.
    #[error("WRONG RESULT: operation of {size} B at {at:#x}: {found:#x} instead of {expected:#x}")]
    Answer {
        /// Offset of the operation in the source's memory, in bytes.
        at: usize,
        size: usize,
        expected: u64,
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
