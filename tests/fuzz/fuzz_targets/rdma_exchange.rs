//! See `dma_fuzz::rdma_exchange`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| dma_fuzz::rdma_exchange(input));
