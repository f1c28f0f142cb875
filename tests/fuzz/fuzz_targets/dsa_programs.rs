//! See `dma_fuzz::dsa_programs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| dma_fuzz::dsa_programs(input));
