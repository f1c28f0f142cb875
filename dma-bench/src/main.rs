//! Benchmarks DMA engines side by side.

use std::process::ExitCode;

fn main() -> ExitCode {
    dma_bench::main()
}
