//! See `dma_fuzz::dma_bench_requests`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| dma_fuzz::dma_bench_requests(input));
