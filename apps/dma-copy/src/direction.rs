//! [`Direction`]: from or to the window of the exported memory.

/// The direction of the DMA copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    FromWindow,
    ToWindow,
}
