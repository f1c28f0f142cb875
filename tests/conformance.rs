//! Every engine against the same contract, opened by name as users open it.

use std::sync::Arc;

use dma::DmaEngine;

fn cpu() -> Arc<dyn DmaEngine> {
    dma::open("cpu").expect("the CPU is always there")
}

dma_core::conformance_tests!(cpu_by_name, cpu());
dma_core::conformance_tests!(cpu_inline_only, dma::open("cpu:threads=0").expect("it opens"));
dma_core::conformance_tests!(
    cpu_everything_to_threads,
    dma::open("cpu:threads=2,inline=0").expect("it opens")
);
dma_core::conformance_tests!(cpu_cold, dma::open("cpu:hint=cold").expect("it opens"));
dma_core::conformance_tests!(cpu_boxed, Box::new(cpu()) as Box<dyn DmaEngine>);
dma_core::conformance_tests!(cpu_referenced, &cpu());
