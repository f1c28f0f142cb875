//! Benchmarks DMA engines side by side.
fn main() {}
