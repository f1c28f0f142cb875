//! See `dma_fuzz::doca_contexts`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| dma_fuzz::doca_contexts(input));
