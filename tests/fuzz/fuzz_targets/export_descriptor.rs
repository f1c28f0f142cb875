//! See `dma_fuzz::export_descriptor`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| dma_fuzz::export_descriptor(input));
