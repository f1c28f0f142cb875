//! See `dma_fuzz::engine_name`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| dma_fuzz::engine_name(input));
