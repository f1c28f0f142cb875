//! The contract that DMA engines implement.
