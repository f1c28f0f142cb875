//! Reusing a task does not allocate memory.
#![expect(unsafe_code, reason = "calls of C functions, by macros")]

#[macro_use]
mod rig;

use rig::{Rig, c};
use test_support::counting;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

unsafe extern "C" fn nothing(_: *mut c::doca_dma_task_memcpy, _: c::doca_data, _: c::doca_data) {}

#[test]
fn copies_allocate_nothing_once_warm() {
    for config in ["", "profile = \"bluefield3\"\nclock = \"virtual\"", "faults = \"slow@1:for=1ns\""] {
        rig::configure(config);
        let rig = Rig::idle(rig::open("03:00.0"), 64);
        ok!(doca_dma_task_memcpy_set_conf(rig.dma, Some(nothing), Some(nothing), 64));
        ok!(doca_ctx_start(rig.ctx));
        let tasks: Vec<_> = (0..64)
            .map(|i| {
                // Every eighth task copies from a list.
                let (src, dst) = (rig.from(i * 64, 32), rig.to(i * 64, 64));
                if i % 8 == 0 {
                    ok!(doca_buf_chain_list(src, rig.from(i * 64 + 32, 32)));
                }
                (rig.task(src, dst, 0), dst)
            })
            .collect();
        let round = || {
            for (i, (task, dst)) in tasks.iter().enumerate() {
                ok!(doca_buf_reset_data_len(*dst));
                let coalesced = if i < 63 { c::DOCA_TASK_SUBMIT_FLAG_OPTIMIZE_REPORTS } else { 0 };
                let flush = if i % 32 == 31 { c::DOCA_TASK_SUBMIT_FLAG_FLUSH } else { 0 };
                ok!(doca_task_submit_ex(*task, coalesced | flush));
            }
            while get!(doca_ctx_get_num_inflight_tasks(rig.ctx)) > 0_usize {
                code!(doca_pe_progress(rig.pe));
            }
        };
        (0..50).for_each(|_| round());
        let before = counting::of_thread();
        (0..200).for_each(|_| round());
        assert_eq!(counting::of_thread() - before, 0, "{config}");
        tasks.iter().for_each(|(task, _)| rig.free(*task));
        rig.close();
    }
}
