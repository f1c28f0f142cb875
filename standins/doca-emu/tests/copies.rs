//! Tests of copies: the copied bytes, and the states of buffers and tasks afterwards.
#![expect(unsafe_code, reason = "calls of C functions, by macros")]

#[macro_use]
mod rig;

use std::ptr;

use rig::{Memory, Rig, c};

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

#[test]
fn a_copy_moves_the_data_and_grows_the_destination() {
    let rig = Rig::new("", 4);
    rig.src.write(100, &pattern(3000));
    let (src, dst) = (rig.from(100, 3000), rig.to(50, 4000));
    let task = rig.task(src, dst, 7);
    ok!(doca_task_submit(task));
    assert_eq!(rig.in_flight(), 1);
    assert_eq!(get!(doca_pe_get_num_inflight_tasks(rig.pe)), 1);
    rig.until(1);
    assert_eq!(rig.seen.take(), [(7, "DOCA_SUCCESS")]);
    assert_eq!(rig.in_flight(), 0);
    assert_eq!(rig.dst.read(50, 3000), pattern(3000));
    assert_eq!(get!(doca_buf_get_data_len(dst)), 3000);
    assert_eq!(get!(doca_buf_get_data(dst)), rig.dst.at(50));
    assert_eq!(get!(doca_buf_get_data_len(src)), 3000);

    // A second copy appends to the data, and stops at the end of the room.
    ok!(doca_buf_set_data(src, rig.src.at(100), 1000));
    ok!(doca_task_submit(task));
    rig.until(1);
    assert_eq!(rig.seen.take(), [(7, "DOCA_SUCCESS")]);
    assert_eq!(rig.dst.read(50, 4000), [pattern(3000), pattern(1000)].concat());
    assert_eq!(get!(doca_buf_get_data_len(dst)), 4000);
    fails!(DOCA_ERROR_INVALID_VALUE, doca_task_try_submit(task));

    // A destination that was reset can be filled again, any number of times.
    for round in 0..100_u8 {
        ok!(doca_buf_reset_data_len(dst));
        rig.src.write(100, &[round; 1000]);
        ok!(doca_task_try_submit(task));
        rig.until(1);
        assert_eq!(rig.seen.take(), [(7, "DOCA_SUCCESS")]);
        assert_eq!(rig.dst.read(50, 1000), [round; 1000]);
    }
    rig.free(task);
    rig.close();
}

#[test]
fn a_destination_with_data_is_appended_to_or_replaced() {
    for (config, data_len, first) in [
        ("", 2, "DOCA_ERROR_IO_FAILED"),
        ("destination_data = \"append\"", 2, "DOCA_ERROR_IO_FAILED"),
        ("destination_data = \"replace\"", 1, "DOCA_SUCCESS"),
    ] {
        let rig = Rig::new(config, 4);
        // Test a destination that one copy fills completely, and one with room for both copies.
        for (full, len) in [(true, 100), (false, 50)] {
            rig.src.write(0, &pattern(len));
            let dst = rig.to(0, 60);
            ok!(doca_buf_chain_list(dst, rig.to(200, 40)));
            let task = rig.task(rig.from(0, len), dst, 1);
            for round in 0..2 {
                ok!(doca_task_submit(task));
                rig.until(1);
                let expected = if full && round == 1 { first } else { "DOCA_SUCCESS" };
                assert_eq!(rig.seen.take(), [(1, expected)], "{config:?}, round {round}");
            }
            let both = [rig.dst.read(0, 60), rig.dst.read(200, 40)].concat();
            if full {
                assert_eq!(both, pattern(100));
                rig.free(task);
                if data_len == 2 {
                    rig.drain();
                    ok!(doca_ctx_start(rig.ctx));
                }
            } else {
                let last = get!(doca_buf_get_next_in_list(dst));
                let lens: [usize; 2] = [get!(doca_buf_get_data_len(dst)), get!(doca_buf_get_data_len(last))];
                assert_eq!(lens.iter().sum::<usize>(), data_len * len, "{config:?}");
                let appended = [pattern(50), pattern(50)].concat();
                assert_eq!(both[..data_len * len], appended[..data_len * len], "{config:?}");
                rig.free(task);
            }
        }
        rig.close();
    }
}

#[test]
fn lists_are_gathered_and_scattered() {
    let rig = Rig::new("", 4);
    rig.src.write(0, &pattern(10_000));
    let src = rig.from(0, 10);
    for (offset, len) in [(100, 1), (200, 300), (1000, 989)] {
        ok!(doca_buf_chain_list(src, rig.from(offset, len)));
    }
    let dst = rig.to(0, 700);
    ok!(doca_buf_chain_list(dst, rig.to(2000, 5)));
    ok!(doca_buf_chain_list(dst, rig.to(3000, 1000)));
    let task = rig.task(src, dst, 1);
    ok!(doca_task_try_submit(task));
    rig.until(1);
    assert_eq!(rig.seen.take(), [(1, "DOCA_SUCCESS")]);
    let pieces = [(0, 10), (100, 1), (200, 300), (1000, 989)];
    let whole: Vec<u8> =
        pieces.iter().flat_map(|(offset, len)| pattern(10_000)[*offset..offset + len].to_vec()).collect();
    let got = [rig.dst.read(0, 700), rig.dst.read(2000, 5), rig.dst.read(3000, 595)].concat();
    assert_eq!(got, whole);
    let lens: Vec<usize> = {
        let second = get!(doca_buf_get_next_in_list(dst));
        let third = get!(doca_buf_get_next_in_list(second));
        [dst, second, third].into_iter().map(|buf| get!(doca_buf_get_data_len(buf))).collect()
    };
    assert_eq!(lens, [700, 5, 595]);
    assert!(rig.dst.read(3595, 405).iter().all(|byte| *byte == 0));

    // A task that was submitted without the doorbell copies the same bytes.
    for buf in [dst, get!(doca_buf_get_next_in_list(dst)), get!(doca_buf_get_last_in_list(dst))] {
        ok!(doca_buf_reset_data_len(buf));
    }
    rig.dst.write(0, &[0; 4000]);
    ok!(doca_task_submit_ex(task, c::DOCA_TASK_SUBMIT_FLAG_NONE));
    rig.drain();
    assert_eq!(rig.seen.take(), []);
    code!(doca_ctx_flush_tasks(rig.ctx));
    rig.until(1);
    let got = [rig.dst.read(0, 700), rig.dst.read(2000, 5), rig.dst.read(3000, 595)].concat();
    assert_eq!(got, whole);
    rig.free(task);
    assert_eq!(get!(doca_buf_inventory_get_num_free_elements(rig.inventory)), 1024);
    rig.close();
}

#[test]
fn longer_lists_than_the_device_takes_are_refused() {
    let rig = Rig::new("max_list_len = 1", 4);
    let info = code!(doca_dev_as_devinfo(rig.dev));
    assert_eq!(get!(doca_dma_cap_task_memcpy_get_max_buf_list_len(info)), 1);
    let src = rig.from(0, 10);
    ok!(doca_buf_chain_list(src, rig.from(10, 10)));
    let task = rig.task(src, rig.to(0, 100), 1);
    fails!(DOCA_ERROR_INVALID_VALUE, doca_task_submit(task));
    fails!(DOCA_ERROR_INVALID_VALUE, doca_task_try_submit(task));
    assert_eq!(rig.in_flight(), 0);
    rig.free(task);
    rig.close();
}

#[test]
fn without_a_doorbell_nothing_starts() {
    let rig = Rig::new("", 8);
    let tasks: Vec<_> = (0..4).map(|i| rig.copy(i * 64, 64, i as u64)).collect();
    rig.src.write(0, &pattern(256));
    for task in &tasks[..3] {
        ok!(doca_task_submit_ex(*task, c::DOCA_TASK_SUBMIT_FLAG_NONE));
    }
    rig.drain();
    assert_eq!((rig.seen.take().len(), rig.in_flight()), (0, 3));
    assert_eq!(rig.dst.read(0, 256), [0; 256]);
    ok!(doca_task_submit_ex(tasks[3], c::DOCA_TASK_SUBMIT_FLAG_FLUSH));
    rig.until(4);
    assert_eq!(rig.dst.read(0, 256), pattern(256));
    rig.seen.take();
    fails!(DOCA_ERROR_INVALID_VALUE, doca_task_submit_ex(tasks[0], 8));
    tasks.iter().for_each(|task| rig.free(*task));
    rig.close();
}

/// DOCA 3.2 introduced `doca_dma_set_ordered_completions`.
#[test]
fn reports_come_in_the_order_of_submission_on_request() {
    for ordered in [None, Some(0), Some(1)] {
        let card = "profile = \"bluefield3\"\nclock = \"virtual\"\nfaults = \"slow@1:for=1ms\"";
        rig::configure(card);
        let rig = Rig::idle(rig::open("0000:03:00.0"), 8);
        if let Some(ordered) = ordered {
            ok!(doca_dma_set_ordered_completions(rig.dma, ordered));
        }
        ok!(doca_ctx_start(rig.ctx));
        fails!(DOCA_ERROR_BAD_STATE, doca_dma_set_ordered_completions(rig.dma, 1));
        let tasks: Vec<_> = (0..8).map(|i| rig.copy(i * 64, 64, i as u64)).collect();
        for task in &tasks {
            ok!(doca_task_submit_ex(*task, c::DOCA_TASK_SUBMIT_FLAG_NONE));
        }
        code!(doca_ctx_flush_tasks(rig.ctx));
        rig.until(8);
        let seen: Vec<u64> = rig.seen.take().iter().map(|(task, _)| *task).collect();
        // The first task takes the longest time, so it ends last.
        assert_eq!(seen.is_sorted(), ordered == Some(1), "{ordered:?}: {seen:?}");
        assert_eq!(seen.len(), 8);
        // A context that fails reports its tasks in order too.
        let src = code!(doca_dma_task_memcpy_get_src(tasks[3].cast())).cast_mut();
        ok!(doca_buf_set_data(src, rig.src.at(0), 0));
        for task in &tasks {
            let dst = code!(doca_dma_task_memcpy_get_dst(task.cast()));
            ok!(doca_buf_reset_data_len(dst));
            ok!(doca_task_submit_ex(*task, c::DOCA_TASK_SUBMIT_FLAG_NONE));
        }
        code!(doca_ctx_flush_tasks(rig.ctx));
        rig.until(8);
        let seen: Vec<u64> = rig.seen.take().iter().map(|(task, _)| *task).collect();
        assert!(ordered != Some(1) || seen.is_sorted(), "{seen:?}");
        tasks.iter().for_each(|task| rig.free(*task));
        rig.close();
    }
}

#[test]
fn a_coalesced_tail_never_reports() {
    for config in ["", "profile = \"bluefield3\"\nclock = \"virtual\""] {
        let rig = Rig::new(config, 64);
        let tasks: Vec<_> = (0..64).map(|i| rig.copy(i * 64, 64, i as u64)).collect();
        let coalesced = c::DOCA_TASK_SUBMIT_FLAG_OPTIMIZE_REPORTS;
        for task in &tasks[..60] {
            ok!(doca_task_submit_ex(*task, coalesced | c::DOCA_TASK_SUBMIT_FLAG_FLUSH));
        }
        rig.drain();
        assert_eq!(rig.seen.take().len(), 0);
        // A task with a report of its own also causes the reports of all earlier tasks.
        ok!(doca_task_submit(tasks[60]));
        rig.until(61);
        rig.seen.take();
        for task in &tasks[61..] {
            ok!(doca_task_submit_ex(*task, coalesced | c::DOCA_TASK_SUBMIT_FLAG_FLUSH));
        }
        rig.drain();
        assert_eq!((rig.seen.take().len(), rig.in_flight()), (0, 3));
        // These tasks are reported when the context stops.
        fails!(DOCA_ERROR_IN_PROGRESS, doca_ctx_stop(rig.ctx));
        rig.until(3);
        tasks.iter().for_each(|task| rig.free(*task));
        rig.close();
    }
}

#[test]
fn the_limit_is_found_where_the_configuration_says() {
    for (config, at_submit) in
        [("max_buf_size = \"4K\"", false), ("max_buf_size = 4096\nover_limit = \"submit\"", true)]
    {
        let rig = Rig::new(config, 4);
        let info = code!(doca_dev_as_devinfo(rig.dev));
        assert_eq!(get!(doca_dma_cap_task_memcpy_get_max_buf_size(info)), 4096);
        let (fits, over) = (rig.copy(0, 4096, 1), rig.copy(0, 4097, 2));
        ok!(doca_task_submit(fits));
        rig.until(1);
        assert_eq!(rig.seen.take(), [(1, "DOCA_SUCCESS")]);
        fails!(DOCA_ERROR_INVALID_VALUE, doca_task_try_submit(over));
        if at_submit {
            fails!(DOCA_ERROR_INVALID_VALUE, doca_task_submit(over));
            assert_eq!(rig.state(), c::DOCA_CTX_STATE_RUNNING);
        } else {
            ok!(doca_task_submit(over));
            rig.until(1);
            assert_eq!(rig.seen.take(), [(2, "DOCA_ERROR_IO_FAILED")]);
            assert_eq!(rig.state(), c::DOCA_CTX_STATE_STOPPING);
        }
        rig.free(fits);
        rig.free(over);
        rig.close();
    }
}

#[test]
fn a_fault_found_by_the_engine_stops_the_context() {
    type Make = fn(&Rig) -> *mut c::doca_task;
    let makes: [(Make, &str); 4] = [
        // The source has no data.
        (|rig| rig.task(rig.from(0, 0), rig.to(0, 64), 9), "DOCA_ERROR_IO_FAILED"),
        // The source has more data than the destination has room for.
        (|rig| rig.task(rig.from(0, 65), rig.to(0, 64), 9), "DOCA_ERROR_IO_FAILED"),
        // The destination's memory is read-only.
        (
            |rig| {
                let dst = rig.from(0, 64);
                ok!(doca_buf_reset_data_len(dst));
                rig.task(rig.from(0, 64), dst, 9)
            },
            "DOCA_ERROR_NOT_PERMITTED",
        ),
        // The source's data exceeds the map.
        (
            |rig| {
                let src = rig.from(0, 64);
                ok!(doca_buf_set_data(src, rig.src.at(rig.src.len - 32), 64));
                rig.task(src, rig.to(0, 64), 9)
            },
            "DOCA_ERROR_IO_FAILED",
        ),
    ];
    for (make, status) in makes {
        let rig = Rig::new("", 8);
        let good: Vec<_> = (0..4).map(|i| rig.copy(i * 64, 64, i as u64)).collect();
        let bad = make(&rig);
        assert_ne!(code!(doca_task_try_submit(bad)), c::DOCA_SUCCESS);
        assert_eq!(rig.in_flight(), 0);
        // Tasks that are submitted before the program is notified of the failure are accepted and flushed.
        ok!(doca_task_submit(good[0]));
        ok!(doca_task_submit(bad));
        ok!(doca_task_submit(good[1]));
        rig.until(3);
        assert_eq!(rig.seen.take(), [(0, "DOCA_SUCCESS"), (9, status), (1, "DOCA_ERROR_IO_FAILED")],);
        let (running, stopping) = (c::DOCA_CTX_STATE_RUNNING, c::DOCA_CTX_STATE_STOPPING);
        assert_eq!(rig.seen.state_at.take(), [running, running, stopping]);
        fails!(DOCA_ERROR_BAD_STATE, doca_task_submit(good[2]));
        fails!(DOCA_ERROR_IN_PROGRESS, doca_ctx_stop(rig.ctx));
        rig.drain();
        assert_eq!(rig.state(), stopping);

        // When all tasks are freed, the context is idle, and can be started again.
        good.iter().for_each(|task| rig.free(*task));
        rig.free(bad);
        assert_eq!(rig.state(), stopping);
        rig.drain();
        assert_eq!(rig.seen.states.take(), [stopping, c::DOCA_CTX_STATE_IDLE]);
        ok!(doca_ctx_start(rig.ctx));
        let again = rig.copy(0, 64, 5);
        ok!(doca_task_submit(again));
        rig.until(1);
        assert_eq!(rig.seen.take(), [(5, "DOCA_SUCCESS")]);
        rig.free(again);
        rig.close();
    }
}

#[test]
fn maps_that_the_device_does_not_have_are_refused() {
    let rig = Rig::new("", 4);
    let other = rig::open("0000:03:00.1");
    let memory = Memory::new(4096);
    let mmap = rig::map(other, &memory, c::DOCA_ACCESS_FLAG_LOCAL_READ_WRITE);
    let at = memory.at(0);
    let dst = get!(doca_buf_inventory_buf_get_by_args(rig.inventory, mmap, at, 64, at, 0));
    let task = rig.task(rig.from(0, 64), dst, 1);
    fails!(DOCA_ERROR_INVALID_VALUE, doca_task_submit(task));
    rig.free(task);
    ok!(doca_mmap_destroy(mmap));
    ok!(doca_dev_close(other));
    rig.close();
}

#[test]
fn a_buffer_released_in_flight_goes_home_when_the_copy_ends() {
    let rig = Rig::new("", 4);
    let (src, dst) = (rig.from(0, 64), rig.to(0, 64));
    let task = rig.task(src, dst, 1);
    ok!(doca_task_submit(task));
    ok!(doca_buf_dec_refcount(src, ptr::null_mut()));
    ok!(doca_buf_dec_refcount(dst, ptr::null_mut()));
    fails!(DOCA_ERROR_IN_USE, doca_buf_inventory_destroy(rig.inventory));
    assert_eq!(get!(doca_buf_inventory_get_num_free_elements(rig.inventory)), 1022);
    rig.until(1);
    assert_eq!(get!(doca_buf_inventory_get_num_free_elements(rig.inventory)), 1024);
    fails!(DOCA_ERROR_INVALID_VALUE, doca_task_submit(task));
    code!(doca_task_free(task));
    rig.close();
}

#[test]
fn remote_write_access_includes_local_write() {
    for access in [
        c::DOCA_ACCESS_FLAG_PCI_READ_WRITE,
        c::DOCA_ACCESS_FLAG_RDMA_WRITE,
        c::DOCA_ACCESS_FLAG_RDMA_ATOMIC,
        c::DOCA_ACCESS_FLAG_PCI_READ_ONLY,
        c::DOCA_ACCESS_FLAG_RDMA_READ,
    ] {
        let rig = Rig::new("", 4);
        let memory = Memory::new(64);
        let mmap = rig::map(rig.dev, &memory, access);
        let (src, mut dst) = (rig.from(0, 64), ptr::null_mut());
        let at = memory.at(0);
        ok!(doca_buf_inventory_buf_get_by_args(rig.inventory, mmap, at, 64, at, 0, &mut dst));
        let task = rig.task(src, dst, 1);
        ok!(doca_task_submit(task));
        rig.until(1);
        let reads = c::DOCA_ACCESS_FLAG_PCI_READ_ONLY | c::DOCA_ACCESS_FLAG_RDMA_READ;
        let wanted = if access & reads == 0 { "DOCA_SUCCESS" } else { "DOCA_ERROR_NOT_PERMITTED" };
        assert_eq!(rig.seen.take(), [(1, wanted)], "{access:#x}");
        rig.free(task);
        ok!(doca_mmap_destroy(mmap));
        rig.close();
    }
}

#[test]
fn a_task_freed_in_flight_is_back_when_it_ended() {
    let rig = Rig::new("profile = \"bluefield3\"\nclock = \"virtual\"\n", 1);
    let (src, dst) = (rig.from(0, 64), rig.to(0, 64));
    let task = rig.task(src, dst, 1);
    ok!(doca_task_submit(task));
    code!(doca_task_free(task));
    code!(doca_task_free(task));
    let mut none = ptr::null_mut();
    fails!(
        DOCA_ERROR_NO_MEMORY,
        doca_dma_task_memcpy_alloc_init(rig.dma, src, dst, rig::number(2), &mut none)
    );
    rig.until(1);
    assert_eq!(rig.seen.take(), [(1, "DOCA_SUCCESS")]);
    ok!(doca_buf_reset_data_len(dst));
    let task = rig.task(src, dst, 2);
    ok!(doca_task_submit(task));
    rig.until(1);
    assert_eq!(rig.seen.take(), [(2, "DOCA_SUCCESS")]);
    rig.free(task);
    rig.close();
}

/// NVIDIA's DMA samples compare the number of all buffers of a task with the maximum length of a list. By
/// default, a task has one source and one destination.
#[test]
fn every_bluefield_takes_the_lists_that_nvidias_samples_ask_for() {
    for profile in ["ideal", "bluefield2", "bluefield3"] {
        let rig = Rig::new(&format!("profile = \"{profile}\"\nclock = \"virtual\""), 1);
        let info = code!(doca_dev_as_devinfo(rig.dev));
        let longest: u32 = get!(doca_dma_cap_task_memcpy_get_max_buf_list_len(info));
        let (sources, destinations) = (1, 1);
        assert!(sources + destinations <= longest, "{profile}: lists of up to {longest}");
        let task = rig.copy(0, 64, 0);
        ok!(doca_task_submit(task));
        rig.until(1);
        assert_eq!(rig.seen.take(), [(0, "DOCA_SUCCESS")], "{profile}");
        rig.free(task);
        rig.close();
    }
}
