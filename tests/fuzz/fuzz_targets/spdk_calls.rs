//! See `dma_fuzz::spdk_calls`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| dma_fuzz::spdk_calls(input));
