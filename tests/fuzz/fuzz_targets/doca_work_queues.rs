//! See `dma_fuzz::doca_work_queues`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| dma_fuzz::doca_work_queues(input));
