//! Contexts, tasks and progress engines: their states, counts and callbacks.
#![expect(unsafe_code, reason = "calls of C functions, by macros")]

#[macro_use]
mod rig;

use std::cell::Cell;
use std::ptr;
use std::time::Duration;

use rig::{Rig, as_number, c, number, on_end};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const IDLE: u32 = c::DOCA_CTX_STATE_IDLE;
const RUNNING: u32 = c::DOCA_CTX_STATE_RUNNING;
const STOPPING: u32 = c::DOCA_CTX_STATE_STOPPING;

#[test]
fn a_context_is_connected_configured_started_and_stopped() {
    rig::configure("");
    let dev = rig::open("03:00.0");
    let dma = get!(doca_dma_create(dev));
    let ctx = code!(doca_dma_as_ctx(dma));
    fails!(DOCA_ERROR_NOT_CONNECTED, doca_ctx_start(ctx));
    let pe = get!(doca_pe_create());
    ok!(doca_pe_connect_ctx(pe, ctx));
    fails!(DOCA_ERROR_NOT_PERMITTED, doca_pe_connect_ctx(pe, ctx));
    fails!(DOCA_ERROR_IN_USE, doca_pe_destroy(pe));
    fails!(DOCA_ERROR_BAD_STATE, doca_ctx_start(ctx));
    ok!(doca_ctx_stop(ctx));

    let max = get!(doca_dma_cap_get_max_num_tasks(dma));
    fails!(DOCA_ERROR_INVALID_VALUE, doca_dma_task_memcpy_set_conf(dma, Some(on_end), Some(on_end), 0));
    fails!(DOCA_ERROR_INVALID_VALUE, doca_dma_task_memcpy_set_conf(dma, Some(on_end), Some(on_end), max + 1));
    fails!(DOCA_ERROR_INVALID_VALUE, doca_dma_task_memcpy_set_conf(dma, None, Some(on_end), 1));
    fails!(DOCA_ERROR_INVALID_VALUE, doca_dma_task_memcpy_set_conf(dma, Some(on_end), None, 1));
    ok!(doca_dma_task_memcpy_set_conf(dma, Some(on_end), Some(on_end), 2));
    fails!(DOCA_ERROR_INVALID_VALUE, doca_ctx_set_state_changed_cb(ctx, None));
    let info = code!(doca_dev_as_devinfo(dev));
    assert_eq!(get!(doca_ctx_cap_get_num_completion_vectors(info)), 8);
    fails!(DOCA_ERROR_INVALID_VALUE, doca_ctx_set_completion_vector(ctx, 8));
    ok!(doca_ctx_set_completion_vector(ctx, 7));
    let mut task = ptr::null_mut();
    let none = number(0);
    fails!(
        DOCA_ERROR_BAD_STATE,
        doca_dma_task_memcpy_alloc_init(dma, ptr::null(), ptr::null_mut(), none, &mut task)
    );

    ok!(doca_ctx_start(ctx));
    assert_eq!(get!(doca_ctx_get_state(ctx)), RUNNING);
    fails!(DOCA_ERROR_BAD_STATE, doca_ctx_start(ctx));
    fails!(DOCA_ERROR_BAD_STATE, doca_dma_task_memcpy_set_conf(dma, Some(on_end), Some(on_end), 1));
    fails!(DOCA_ERROR_BAD_STATE, doca_ctx_set_completion_vector(ctx, 0));
    fails!(DOCA_ERROR_IN_USE, doca_dma_destroy(dma));
    fails!(DOCA_ERROR_IN_USE, doca_dev_close(dev));
    let alloc = || get!(doca_dma_task_memcpy_alloc_init(dma, ptr::null(), ptr::null_mut(), none));
    let (first, second) = (alloc(), alloc());
    fails!(
        DOCA_ERROR_NO_MEMORY,
        doca_dma_task_memcpy_alloc_init(dma, ptr::null(), ptr::null_mut(), none, &mut task)
    );
    let task = code!(doca_dma_task_memcpy_as_task(first));
    assert_eq!(code!(doca_task_get_ctx(task)), ctx);
    code!(doca_task_set_user_data(task, number(9)));
    assert_eq!(as_number(code!(doca_task_get_user_data(task))), 9);
    fails!(DOCA_ERROR_INVALID_VALUE, doca_task_submit(task));

    // A context with tasks that are not freed does not become idle.
    fails!(DOCA_ERROR_IN_PROGRESS, doca_ctx_stop(ctx));
    assert_eq!(get!(doca_ctx_get_state(ctx)), STOPPING);
    assert_eq!(code!(doca_pe_progress(pe)), 0);
    fails!(DOCA_ERROR_BAD_STATE, doca_task_submit(task));
    fails!(DOCA_ERROR_IN_PROGRESS, doca_ctx_stop(ctx));
    code!(doca_task_free(task));
    code!(doca_task_free(task));
    let second = code!(doca_dma_task_memcpy_as_task(second));
    code!(doca_task_free(second));
    assert_eq!(get!(doca_ctx_get_state(ctx)), STOPPING);
    assert_eq!(code!(doca_pe_progress(pe)), 1);
    assert_eq!(get!(doca_ctx_get_state(ctx)), IDLE);

    // Configure the idle context again.
    ok!(doca_dma_task_memcpy_set_conf(dma, Some(on_end), Some(on_end), 1));
    ok!(doca_ctx_start(ctx));
    ok!(doca_ctx_stop(ctx));
    assert_eq!(get!(doca_ctx_get_state(ctx)), IDLE);
    ok!(doca_dma_destroy(dma));
    ok!(doca_pe_destroy(pe));
    ok!(doca_dev_close(dev));
    // Closing NULL succeeds.
    ok!(doca_dev_close(ptr::null_mut()));
}

#[test]
fn nulls_are_invalid_values() {
    let rig = Rig::new("", 1);
    macro_rules! invalid {
        ($($function:ident($($argument:expr),*);)*) => { $(fails!(DOCA_ERROR_INVALID_VALUE, $function($($argument),*));)* };
    }
    let (null, info) = (ptr::null_mut::<u8>(), code!(doca_dev_as_devinfo(rig.dev)));
    let mut number = 0_u32;
    invalid! {
        doca_devinfo_create_list(ptr::null_mut(), &mut number);
        doca_devinfo_destroy_list(null.cast());
        doca_devinfo_rep_destroy_list(null.cast());
        doca_dev_open(null.cast(), null.cast());
        doca_dev_open(info, null.cast());
        doca_dev_rep_open(null.cast(), null.cast());
        doca_dev_rep_close(null.cast());
        doca_devinfo_get_pci_addr_str(info, null.cast());
        doca_devinfo_is_equal_pci_addr(info, null.cast(), null.cast());
        doca_devinfo_get_ipv4_addr(info, null.cast(), 4);
        doca_devinfo_get_iface_name(info, null.cast(), 256);
        doca_mmap_create(null.cast());
        doca_mmap_destroy(null.cast());
        doca_mmap_start(null.cast());
        doca_mmap_stop(null.cast());
        doca_mmap_add_dev(rig.src_map, null.cast());
        doca_mmap_create_from_export(null.cast(), null.cast(), 8, rig.dev, null.cast());
        doca_buf_inventory_create(1, null.cast());
        doca_buf_inventory_destroy(null.cast());
        doca_buf_inventory_start(null.cast());
        doca_buf_inventory_stop(null.cast());
        doca_buf_inc_refcount(null.cast(), null.cast());
        doca_buf_dec_refcount(null.cast(), null.cast());
        doca_buf_get_data(null.cast(), null.cast());
        doca_buf_chain_list(null.cast(), null.cast());
        doca_pe_create(null.cast());
        doca_pe_destroy(null.cast());
        doca_pe_connect_ctx(rig.pe, null.cast());
        doca_pe_connect_ctx(null.cast(), rig.ctx);
        doca_pe_get_notification_handle(rig.pe, null.cast());
        doca_pe_clear_notification(null.cast(), 0);
        doca_pe_request_notification(null.cast());
        doca_pe_get_num_inflight_tasks(rig.pe, null.cast());
        doca_pe_set_event_mode(rig.pe, 2);
        doca_ctx_start(null.cast());
        doca_ctx_stop(null.cast());
        doca_ctx_get_state(rig.ctx, null.cast());
        doca_ctx_get_user_data(rig.ctx, null.cast());
        doca_ctx_set_datapath_on_gpu(rig.ctx, null.cast());
        doca_ctx_set_datapath_on_dpa(rig.ctx, null.cast());
        doca_dma_create(null.cast(), null.cast());
        doca_dma_create(rig.dev, null.cast());
        doca_dma_destroy(null.cast());
        doca_dma_cap_task_memcpy_is_supported(null.cast());
        doca_dma_task_memcpy_alloc_init(null.cast(), null.cast(), null.cast(), rig::number(0), null.cast());
        doca_task_submit(null.cast());
        doca_task_try_submit(null.cast());
        doca_task_submit_ex(null.cast(), 0);
        doca_task_get_status(null.cast());
        doca_task_batch_submit(null.cast());
        doca_task_batch_try_submit(null.cast());
        doca_task_batch_get_status(null.cast());
    }
    assert_eq!(code!(doca_pe_progress(ptr::null_mut())), 0);
    assert!(code!(doca_dma_as_ctx(ptr::null_mut())).is_null());
    assert!(code!(doca_dev_as_devinfo(ptr::null())).is_null());
    assert!(code!(doca_dev_rep_as_devinfo(ptr::null_mut())).is_null());
    assert!(code!(doca_task_get_ctx(ptr::null())).is_null());
    code!(doca_task_free(ptr::null_mut()));
    code!(doca_ctx_flush_tasks(ptr::null_mut()));
    code!(doca_dma_task_memcpy_set_src(ptr::null_mut(), ptr::null()));
    let batch = ptr::without_provenance_mut::<c::doca_task_batch>(8);
    fails!(DOCA_ERROR_NOT_SUPPORTED, doca_task_batch_submit(batch));
    fails!(DOCA_ERROR_NOT_SUPPORTED, doca_pe_set_notification_handle(rig.pe, 0, rig::number(0)));
    rig.close();
}

#[test]
fn one_call_of_progress_does_one_thing() {
    for (mode, each) in
        [(c::DOCA_PE_EVENT_MODE_PROGRESS_SELECTIVE, 1), (c::DOCA_PE_EVENT_MODE_PROGRESS_ALL, 2)]
    {
        let rig = Rig::new("", 8);
        // A second context on the same progress engine.
        let dma = get!(doca_dma_create(rig.dev));
        let ctx = code!(doca_dma_as_ctx(dma));
        ok!(doca_pe_connect_ctx(rig.pe, ctx));
        ok!(doca_ctx_set_user_data(ctx, rig::pointer(&*rig.seen)));
        ok!(doca_dma_task_memcpy_set_conf(dma, Some(on_end), Some(on_end), 4));
        ok!(doca_ctx_start(ctx));
        ok!(doca_pe_set_event_mode(rig.pe, mode));
        let first: Vec<_> = (0..3).map(|i| rig.copy(i * 64, 64, i as u64)).collect();
        let second: Vec<_> = (3..6)
            .map(|i| {
                let (src, dst) = (rig.from(i * 64, 64), rig.to(i * 64, 64));
                let task = get!(doca_dma_task_memcpy_alloc_init(dma, src, dst, number(i as u64)));
                code!(doca_dma_task_memcpy_as_task(task))
            })
            .collect();
        for task in first.iter().chain(&second) {
            ok!(doca_task_submit(*task));
        }
        assert_eq!(get!(doca_pe_get_num_inflight_tasks(rig.pe)), 6);
        for round in 1..=6 / each {
            assert_eq!(code!(doca_pe_progress(rig.pe)), 1);
            assert_eq!(rig.seen.ended.borrow().len(), round * each);
        }
        assert_eq!(code!(doca_pe_progress(rig.pe)), 0);
        // The contexts make progress in turn.
        let users: Vec<_> = rig.seen.take().into_iter().map(|(user, _)| user).collect();
        let sides: Vec<_> = users.iter().map(|user| *user < 3).collect();
        assert!(sides.windows(2).all(|pair| pair[0] != pair[1]), "{users:?}");
        first.iter().chain(&second).for_each(|task| rig.free(*task));
        ok!(doca_ctx_stop(ctx));
        ok!(doca_dma_destroy(dma));
        rig.close();
    }
}

#[test]
fn a_full_queue_says_again() {
    let rig = Rig::new("queue_depth = 2", 4);
    let tasks: Vec<_> = (0..3).map(|i| rig.copy(i * 64, 64, i as u64)).collect();
    ok!(doca_task_submit(tasks[0]));
    fails!(DOCA_ERROR_BAD_STATE, doca_task_submit(tasks[0]));
    ok!(doca_task_submit(tasks[1]));
    fails!(DOCA_ERROR_AGAIN, doca_task_submit(tasks[2]));
    fails!(DOCA_ERROR_AGAIN, doca_task_submit_ex(tasks[2], 0));
    rig.until(1);
    ok!(doca_task_submit(tasks[2]));
    rig.until(3);
    tasks.iter().for_each(|task| rig.free(*task));
    rig.close();
}

#[test]
fn stopping_flushes_what_is_in_flight() {
    // With the real clock, no task ends before the stop.
    let rig = Rig::new("profile = \"bluefield3\"\nfaults = \"slow:for=1000s\"", 8);
    let tasks: Vec<_> = (0..4).map(|i| rig.copy(i * 64, 64, i as u64)).collect();
    let bufs: Vec<_> = (tasks.iter())
        .map(|task| task.cast::<c::doca_dma_task_memcpy>())
        .flat_map(|task| {
            let src = code!(doca_dma_task_memcpy_get_src(task)).cast_mut();
            [src, code!(doca_dma_task_memcpy_get_dst(task))]
        })
        .collect();
    for task in &tasks[..3] {
        ok!(doca_task_submit(*task));
    }
    ok!(doca_task_submit_ex(tasks[3], c::DOCA_TASK_SUBMIT_FLAG_NONE));
    assert_eq!(code!(doca_pe_progress(rig.pe)), 0);
    fails!(DOCA_ERROR_IN_PROGRESS, doca_ctx_stop(rig.ctx));
    rig.seen.free.set(true);
    rig.until(4);
    let mut ended = rig.seen.take();
    ended.sort_unstable();
    assert_eq!(ended, [0, 1, 2, 3].map(|user| (user, "DOCA_ERROR_IO_FAILED")));
    assert_eq!(rig.state(), STOPPING);
    assert_eq!(code!(doca_pe_progress(rig.pe)), 1);
    assert_eq!(rig.seen.states.take(), [STOPPING, IDLE]);
    // The program still owns the buffers.
    assert_eq!(get!(doca_mmap_get_num_bufs(rig.src_map)), 4);
    bufs.iter().for_each(|buf| ok!(doca_buf_dec_refcount(*buf, ptr::null_mut())));
    rig.close();
}

thread_local! {
    static ROUNDS: Cell<u32> = const { Cell::new(0) };
}

unsafe extern "C" fn resubmit(task: *mut c::doca_dma_task_memcpy, _: c::doca_data, ctx: c::doca_data) {
    let left = ROUNDS.get();
    let (task, memcpy) = (code!(doca_dma_task_memcpy_as_task(task)), task);
    // SAFETY: the test set the context's user data to a pointer.
    let other = unsafe { ctx.ptr }.cast::<c::doca_task>();
    ROUNDS.set(left.saturating_sub(1));
    if left > 1 {
        let dst = code!(doca_dma_task_memcpy_get_dst(memcpy));
        ok!(doca_buf_reset_data_len(dst));
        ok!(doca_task_submit(task));
    } else if left == 1 {
        // Submit another task from this task's callback.
        ok!(doca_task_submit(other));
    }
}

#[test]
fn callbacks_submit_their_own_task_and_others() {
    for config in ["", "profile = \"bluefield3\"\nclock = \"virtual\""] {
        let rig = Rig::idle(
            {
                rig::configure(config);
                rig::open("03:00.0")
            },
            2,
        );
        ok!(doca_dma_task_memcpy_set_conf(rig.dma, Some(resubmit), Some(resubmit), 2));
        ok!(doca_ctx_start(rig.ctx));
        let (task, other) = (rig.copy(0, 64, 0), rig.copy(64, 64, 1));
        ok!(doca_ctx_set_user_data(rig.ctx, c::doca_data { ptr: other.cast() }));
        ROUNDS.set(1000);
        ok!(doca_task_submit(task));
        rig.drain();
        assert_eq!((ROUNDS.get(), rig.in_flight()), (0, 0));
        rig.free(task);
        rig.free(other);
        // Restore the user data, which the state callback uses.
        rig.seen.states.take();
        ok!(doca_ctx_set_user_data(rig.ctx, rig::pointer(&*rig.seen)));
        rig.close();
    }
}

thread_local! {
    static DESTROYED: Cell<*mut c::doca_dma> = const { Cell::new(ptr::null_mut()) };
}

unsafe extern "C" fn destroy_when_idle(_: c::doca_data, _: *mut c::doca_ctx, _: u32, after: u32) {
    if after == IDLE {
        ok!(doca_dma_destroy(DESTROYED.take()));
    }
}

unsafe extern "C" fn free_and_stop(task: *mut c::doca_dma_task_memcpy, _: c::doca_data, _: c::doca_data) {
    let task = code!(doca_dma_task_memcpy_as_task(task));
    let ctx = code!(doca_task_get_ctx(task));
    code!(doca_task_free(task));
    ok!(doca_ctx_stop(ctx));
}

#[test]
fn a_callback_stops_the_context_and_the_next_destroys_it() {
    let rig = Rig::idle(
        {
            rig::configure("");
            rig::open("03:00.0")
        },
        1,
    );
    ok!(doca_ctx_set_state_changed_cb(rig.ctx, Some(destroy_when_idle)));
    ok!(doca_dma_task_memcpy_set_conf(rig.dma, Some(free_and_stop), Some(free_and_stop), 1));
    ok!(doca_ctx_start(rig.ctx));
    DESTROYED.set(rig.dma);
    let (src, dst) = (rig.from(0, 8), rig.to(0, 8));
    ok!(doca_task_submit(rig.task(src, dst, 0)));
    assert_eq!(code!(doca_pe_progress(rig.pe)), 1);
    assert!(DESTROYED.get().is_null());
    assert_eq!(code!(doca_pe_progress(rig.pe)), 0);
    [src, dst].into_iter().for_each(|buf| ok!(doca_buf_dec_refcount(buf, ptr::null_mut())));
    ok!(doca_pe_destroy(rig.pe));
    ok!(doca_buf_inventory_destroy(rig.inventory));
    [rig.src_map, rig.dst_map].into_iter().for_each(|map| ok!(doca_mmap_destroy(map)));
    ok!(doca_dev_close(rig.dev));
}

fn readable(fd: i32, within: Duration) -> bool {
    // SAFETY: the descriptor is the progress engine's, which exists until this call returns.
    let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
    let timeout = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: within.subsec_nanos().into() };
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    poll(&mut fds, Some(&timeout)).unwrap() == 1
}

#[test]
fn a_sleeper_is_woken_and_no_completion_is_lost() {
    const LONG: Duration = Duration::from_secs(60);
    for config in ["", "profile = \"bluefield3\"", "profile = \"bluefield3\"\nclock = \"virtual\""] {
        let rig = Rig::new(config, 1);
        let handle = get!(doca_pe_get_notification_handle(rig.pe));
        assert_eq!(get!(doca_pe_get_notification_handle(rig.pe)), handle);
        let task = rig.copy(0, 64, 0);
        for before in [true, false].repeat(10) {
            let dst = code!(doca_dma_task_memcpy_get_dst(task.cast()));
            ok!(doca_buf_reset_data_len(dst));
            // The handle wakes if it was armed before or after the submission.
            if before {
                ok!(doca_task_submit(task));
                ok!(doca_pe_request_notification(rig.pe));
            } else {
                ok!(doca_pe_request_notification(rig.pe));
                assert!(!readable(handle, Duration::ZERO));
                ok!(doca_task_submit(task));
                ok!(doca_pe_request_notification(rig.pe));
            }
            while rig.seen.ended.borrow().is_empty() {
                assert!(readable(handle, LONG));
                // NVIDIA's samples pass 0 as the handle.
                ok!(doca_pe_clear_notification(rig.pe, 0));
                rig.drain();
                ok!(doca_pe_request_notification(rig.pe));
            }
            rig.seen.take();
            ok!(doca_pe_clear_notification(rig.pe, handle));
            assert!(!readable(handle, Duration::ZERO));
        }
        rig.free(task);
        rig.close();
    }
}

#[test]
fn freeing_the_last_task_wakes_who_waits_for_idle() {
    let rig = Rig::new("", 1);
    let handle = get!(doca_pe_get_notification_handle(rig.pe));
    let task = rig.copy(0, 8, 0);
    fails!(DOCA_ERROR_IN_PROGRESS, doca_ctx_stop(rig.ctx));
    ok!(doca_pe_request_notification(rig.pe));
    assert!(!readable(handle, Duration::ZERO));
    rig.free(task);
    assert!(readable(handle, Duration::from_secs(60)));
    ok!(doca_pe_clear_notification(rig.pe, handle));
    assert_eq!(code!(doca_pe_progress(rig.pe)), 1);
    assert_eq!(rig.state(), IDLE);
    rig.close();
}

#[test]
fn the_end_of_the_device_wakes_all() {
    // The second context's task makes the device vanish. The first context's task would take a day.
    let rig = Rig::new("profile = \"bluefield3\"\nfaults = \"slow:ch=0:for=100000s+gone:ch=1\"", 1);
    let other = Rig::on(rig::open("03:00.1"), 1);
    let handle = get!(doca_pe_get_notification_handle(rig.pe));
    let slow = rig.copy(0, 8, 0);
    ok!(doca_task_submit(slow));
    ok!(doca_pe_request_notification(rig.pe));
    assert!(!readable(handle, Duration::ZERO));
    let last = other.copy(0, 8, 0);
    ok!(doca_task_submit(last));
    other.until(1);
    assert!(readable(handle, Duration::from_secs(60)));
    rig.until(1);
    assert_eq!(rig.seen.take(), [(0, "DOCA_ERROR_IO_FAILED")]);
    rig.free(slow);
    other.free(last);
    rig.close();
    other.close();
}
