//! See `dma_fuzz::remote_import`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| dma_fuzz::remote_import(input));
