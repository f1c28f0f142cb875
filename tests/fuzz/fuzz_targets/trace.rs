//! See `dma_fuzz::trace`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| dma_fuzz::trace(input));
