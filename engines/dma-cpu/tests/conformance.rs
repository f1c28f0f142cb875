//! Tests that the CPU engine fulfills the contract, with various options and through every kind of pointer.

use std::sync::Arc;

use dma_conformance::conformance_tests;
use dma_core::CacheHint;
use dma_cpu::{CpuEngine, CpuOptions};

fn open(options: CpuOptions) -> CpuEngine {
    CpuEngine::open(&options).expect("options in range")
}

conformance_tests!(by_default, open(CpuOptions::new()));
conformance_tests!(caller_alone, open(CpuOptions::new().with_threads(0)));
conformance_tests!(nothing_inline, open(CpuOptions::new().with_threads(3).with_inline_limit(0)));
conformance_tests!(nothing_inline_caller_alone, open(CpuOptions::new().with_threads(0).with_inline_limit(0)));
conformance_tests!(
    everything_inline,
    open(CpuOptions::new().with_inline_limit(CpuOptions::INLINE_MAX).with_hint(CacheHint::Cold))
);

#[test]
fn through_pointers() {
    dma_conformance::run_all(&Box::new(open(CpuOptions::new())));
    dma_conformance::run_all(&Arc::new(open(CpuOptions::new())));
}
