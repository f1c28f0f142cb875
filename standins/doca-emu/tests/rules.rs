//! Rules of submitting, stopping and freeing.
#![expect(unsafe_code, reason = "calls of C functions, by macros")]

#[macro_use]
mod rig;

use std::ptr;

use rig::{Memory, Rig, c, map};

const NO_DOORBELL: u32 = c::DOCA_TASK_SUBMIT_FLAG_NONE;

#[test]
fn a_list_is_given_by_its_head_and_no_longer_than_the_device_takes_on_either_side() {
    let rig = Rig::new("max_list_len = 2", 4);
    let (head, tail) = (rig.to(0, 10), rig.to(10, 10));
    ok!(doca_buf_chain_list(head, tail));
    let src = rig.from(0, 10);
    let task = rig.task(src, tail, 1);
    fails!(DOCA_ERROR_INVALID_VALUE, doca_task_submit(task));
    code!(doca_dma_task_memcpy_set_dst(task.cast(), head));
    ok!(doca_task_submit(task));
    rig.until(1);
    assert_eq!(rig.seen.take(), [(1, "DOCA_SUCCESS")]);
    ok!(doca_buf_chain_list(head, rig.to(20, 10)));
    fails!(DOCA_ERROR_INVALID_VALUE, doca_task_submit(task));
    fails!(DOCA_ERROR_INVALID_VALUE, doca_task_try_submit(task));
    rig.free(task);
    rig.close();
}

#[test]
fn every_buffer_of_a_list_is_of_memory_that_the_device_has() {
    let rig = Rig::new("", 4);
    let other = rig::open("0000:03:00.1");
    let memory = Memory::new(4096);
    let theirs = map(other, &memory, c::DOCA_ACCESS_FLAG_LOCAL_READ_WRITE);
    let foreign = |data| {
        get!(doca_buf_inventory_buf_get_by_args(rig.inventory, theirs, memory.at(0), 64, memory.at(0), data))
    };
    for side in 0..2 {
        let (src, dst) = (rig.from(0, 64), rig.to(0, 64));
        ok!(doca_buf_chain_list(if side == 0 { src } else { dst }, foreign(if side == 0 { 10 } else { 0 })));
        let task = rig.task(src, dst, 1);
        fails!(DOCA_ERROR_INVALID_VALUE, doca_task_submit(task));
        rig.free(task);
    }
    ok!(doca_mmap_destroy(theirs));
    ok!(doca_dev_close(other));
    rig.close();
}

#[test]
fn a_map_of_several_devices_serves_each_of_them() {
    rig::configure("");
    let rigs = ["0000:03:00.0", "0000:03:00.1"].map(|address| Rig::on(rig::open(address), 4));
    let memory = Memory::new(4096);
    memory.write(0, &[7; 64]);
    let both = get!(doca_mmap_create());
    ok!(doca_mmap_set_memrange(both, memory.at(0), 4096));
    for rig in &rigs {
        ok!(doca_mmap_add_dev(both, rig.dev));
    }
    ok!(doca_mmap_start(both));
    let at = memory.at(0);
    for rig in &rigs {
        let src = get!(doca_buf_inventory_buf_get_by_args(rig.inventory, both, at, 64, at, 64));
        let task = rig.task(src, rig.to(0, 64), 1);
        ok!(doca_task_submit(task));
        rig.until(1);
        assert_eq!(rig.seen.take(), [(1, "DOCA_SUCCESS")]);
        assert_eq!(rig.dst.read(0, 64), [7; 64]);
        rig.free(task);
    }
    ok!(doca_mmap_destroy(both));
    rigs.into_iter().for_each(Rig::close);
}

#[test]
fn a_copy_that_fails_leaves_the_destination_as_long_as_it_was() {
    let rig = Rig::new("faults = \"fail@1\"", 4);
    let (src, dst) = (rig.from(0, 64), rig.to(0, 64));
    let task = rig.task(src, dst, 1);
    ok!(doca_task_submit(task));
    rig.until(1);
    assert_eq!(rig.seen.take(), [(1, "DOCA_ERROR_IO_FAILED")]);
    assert_eq!(get!(doca_buf_get_data_len(dst)), 0);
    rig.free(task);
    rig.close();
}

#[test]
fn stop_flushes_tasks_without_a_doorbell() {
    let rig = Rig::new("", 4);
    let tasks: Vec<_> = (0..3).map(|i| rig.copy(i * 64, 64, i as u64)).collect();
    for task in &tasks {
        ok!(doca_task_submit_ex(*task, NO_DOORBELL));
    }
    fails!(DOCA_ERROR_IN_PROGRESS, doca_ctx_stop(rig.ctx));
    rig.until(3);
    let ended = rig.seen.take();
    assert_eq!(ended.iter().map(|(task, _)| *task).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(ended.iter().all(|(_, status)| *status != "DOCA_SUCCESS"), "{ended:?}");
    assert_eq!((rig.in_flight(), rig.state()), (0, c::DOCA_CTX_STATE_STOPPING));
    tasks.iter().for_each(|task| rig.free(*task));
    rig.close();
}

#[test]
fn memory_held_by_the_device_cannot_be_freed_chained_or_taken_away() {
    let rig = Rig::new("profile = \"bluefield3\"\nclock = \"virtual\"", 1);
    let (src, dst) = (rig.from(0, 64), rig.to(0, 64));
    let task = rig.task(src, dst, 1);
    ok!(doca_task_submit(task));
    code!(doca_task_free(task));
    fails!(
        DOCA_ERROR_NO_MEMORY,
        doca_dma_task_memcpy_alloc_init(rig.dma, src, dst, rig::number(2), &mut ptr::null_mut())
    );
    let more = rig.to(64, 64);
    fails!(DOCA_ERROR_NOT_PERMITTED, doca_buf_chain_list(dst, more));
    fails!(DOCA_ERROR_NOT_PERMITTED, doca_buf_chain_list(more, dst));
    fails!(DOCA_ERROR_NOT_PERMITTED, doca_mmap_stop(rig.dst_map));
    rig.until(1);
    assert_eq!(rig.seen.take(), [(1, "DOCA_SUCCESS")]);
    ok!(doca_buf_chain_list(dst, more));
    rig.free(task);
    rig.close();
}

/// A map that does not count its buffers cannot be stopped while tasks use the map.
#[test]
fn a_map_for_several_threads_is_not_stopped_under_a_task() {
    let rig = Rig::new("profile = \"bluefield3\"\nclock = \"virtual\"", 4);
    let memory = Memory::new(4096);
    let mut uncounted = ptr::null_mut();
    ok!(doca_mmap_create(&mut uncounted));
    ok!(doca_mmap_set_memrange(uncounted, memory.ptr.cast(), memory.len));
    ok!(doca_mmap_add_dev(uncounted, rig.dev));
    ok!(doca_mmap_enable_thread_safety(uncounted));
    ok!(doca_mmap_start(uncounted));
    let to =
        get!(doca_buf_inventory_buf_get_by_args(rig.inventory, uncounted, memory.at(0), 64, memory.at(0), 0));
    let task = rig.task(rig.from(0, 64), to, 1);
    ok!(doca_task_submit(task));
    fails!(DOCA_ERROR_NOT_PERMITTED, doca_mmap_stop(uncounted));
    fails!(DOCA_ERROR_NOT_PERMITTED, doca_mmap_destroy(uncounted));
    rig.until(1);
    assert_eq!(rig.seen.take(), [(1, "DOCA_SUCCESS")]);
    rig.free(task);
    ok!(doca_mmap_destroy(uncounted));
    rig.close();
}

#[test]
fn a_try_finds_data_before_its_window() {
    let rig = Rig::new("", 4);
    let (src, dst) = (rig.from(100, 64), rig.to(100, 64));
    let task = rig.task(src, dst, 1);
    ok!(doca_buf_set_data(src, rig.src.at(99), 10));
    fails!(DOCA_ERROR_INVALID_VALUE, doca_task_try_submit(task));
    ok!(doca_buf_set_data(src, rig.src.at(154), 11));
    fails!(DOCA_ERROR_INVALID_VALUE, doca_task_try_submit(task));
    ok!(doca_buf_set_data(src, rig.src.at(154), 10));
    ok!(doca_task_try_submit(task));
    rig.until(1);
    assert_eq!(rig.seen.take(), [(1, "DOCA_SUCCESS")]);
    rig.free(task);
    rig.close();
}
