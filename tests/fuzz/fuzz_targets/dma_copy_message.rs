//! See `dma_fuzz::dma_copy_message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| dma_fuzz::dma_copy_message(input));
