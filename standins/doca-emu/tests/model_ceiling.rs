//! At depth 32, the stand-in reaches the throughput of the device that it models, in model time.
#![expect(unsafe_code, reason = "calls of C functions, by macros")]

#[macro_use]
mod rig;

use std::cell::Cell;

use rig::{Rig, c};

thread_local! {
    static LEFT: Cell<u32> = const { Cell::new(0) };
}

unsafe extern "C" fn again(memcpy: *mut c::doca_dma_task_memcpy, _: c::doca_data, _: c::doca_data) {
    let left = LEFT.get();
    LEFT.set(left.saturating_sub(1));
    if left > 0 {
        let dst = code!(doca_dma_task_memcpy_get_dst(memcpy));
        ok!(doca_buf_reset_data_len(dst));
        let task = code!(doca_dma_task_memcpy_as_task(memcpy));
        ok!(doca_task_submit(task));
    }
}

#[test]
fn depth_32_reaches_the_ceiling_of_a_bluefield_3() {
    const COPIES: u32 = 20_000;
    rig::configure("profile = \"bluefield3\"\nclock = \"virtual\"");
    let rig = Rig::idle(rig::open("03:00.0"), 32);
    ok!(doca_dma_task_memcpy_set_conf(rig.dma, Some(again), Some(again), 32));
    ok!(doca_ctx_start(rig.ctx));
    let tasks: Vec<_> = (0..32).map(|i| rig.copy(i * 4096, 4096, i as u64)).collect();
    LEFT.set(COPIES - 32);
    let begun = doca_emu::model_time("03:00.0").unwrap();
    for task in &tasks {
        ok!(doca_task_submit(*task));
    }
    rig.drain();
    assert_eq!(rig.in_flight(), 0);
    let took = doca_emu::model_time("03:00.0").unwrap() - begun;
    let profile = dma_sim::model::Profile::bluefield3();
    // The minimum interval between two task starts limits the throughput of a channel.
    let ceiling = profile.local.reported.issue.at(4096).as_secs_f64() * f64::from(COPIES);
    let share = ceiling / took.as_secs_f64();
    assert!((0.95..=1.01).contains(&share), "{share}");
    tasks.iter().for_each(|task| rig.free(*task));
    rig.close();
}
