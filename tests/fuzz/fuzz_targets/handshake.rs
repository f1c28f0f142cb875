//! See `dma_fuzz::handshake`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| dma_fuzz::handshake(input));
