//! Tests of every configurable fault, as a program sees it through the C interface.
#![expect(unsafe_code, reason = "calls of C functions, by macros")]

#[macro_use]
mod rig;

use rig::{Rig, c};

const IDLE: u32 = c::DOCA_CTX_STATE_IDLE;
const RUNNING: u32 = c::DOCA_CTX_STATE_RUNNING;
const STOPPING: u32 = c::DOCA_CTX_STATE_STOPPING;

const DONE: &str = "DOCA_SUCCESS";
const FAILED: &str = "DOCA_ERROR_IO_FAILED";

fn config(faults: &str) -> [String; 2] {
    let faults = format!("faults = \"{faults}\"\n");
    [
        faults.clone(),
        format!("{faults}profile = \"bluefield3\"\nclock = \"virtual\"\norder = \"submitted\"\n"),
    ]
}

/// Frees the tasks, checks that the context is idle, and starts it again.
fn recover(rig: &Rig, tasks: Vec<*mut c::doca_task>) {
    assert_eq!(rig.state(), STOPPING);
    tasks.into_iter().for_each(|task| rig.free(task));
    rig.drain();
    assert_eq!(rig.state(), IDLE);
    ok!(doca_ctx_start(rig.ctx));
    assert_eq!(rig.state(), RUNNING);
    rig.seen.take();
    rig.seen.state_at.take();
    rig.seen.states.take();
}

fn submit(rig: &Rig, count: usize) -> Vec<*mut c::doca_task> {
    let tasks: Vec<_> = (0..count).map(|i| rig.copy(i * 64, 64, i as u64)).collect();
    for task in &tasks {
        ok!(doca_task_submit_ex(*task, c::DOCA_TASK_SUBMIT_FLAG_NONE));
    }
    code!(doca_ctx_flush_tasks(rig.ctx));
    tasks
}

fn works(rig: Rig) {
    let tasks = submit(&rig, 3);
    rig.until(3);
    assert!(rig.seen.take().iter().all(|(_, status)| *status == DONE));
    tasks.into_iter().for_each(|task| rig.free(task));
    rig.close();
}

#[test]
fn a_failed_task_takes_the_others_with_it() {
    for fault in ["fail@3", "reset@3"] {
        for config in config(fault) {
            let rig = Rig::new(&config, 8);
            let tasks = submit(&rig, 5);
            rig.until(5);
            assert_eq!(rig.seen.take(), [(0, DONE), (1, DONE), (2, FAILED), (3, FAILED), (4, FAILED)]);
            // The state of the context during each callback identifies the task that failed.
            assert_eq!(rig.seen.state_at.take(), [RUNNING, RUNNING, RUNNING, STOPPING, STOPPING]);
            recover(&rig, tasks);
            works(rig);
        }
    }
}

#[test]
fn a_reset_at_a_time_flushes_all() {
    let rig = Rig::new("faults = \"reset@t=1us\"\nprofile = \"bluefield3\"\nclock = \"virtual\"", 8);
    let tasks = submit(&rig, 3);
    rig.until(3);
    assert!(rig.seen.take().iter().all(|(_, status)| *status == FAILED));
    assert_eq!(rig.seen.state_at.take(), [STOPPING; 3]);
    recover(&rig, tasks);
    works(rig);
}

#[test]
fn a_refused_task_stays_the_programs() {
    for config in config("refuse@2") {
        let rig = Rig::new(&config, 4);
        let (first, second) = (rig.copy(0, 64, 0), rig.copy(64, 64, 1));
        ok!(doca_task_submit(first));
        fails!(DOCA_ERROR_AGAIN, doca_task_submit(second));
        assert_eq!(rig.in_flight(), 1);
        ok!(doca_task_submit(second));
        rig.until(2);
        assert_eq!(rig.seen.take(), [(0, DONE), (1, DONE)]);
        rig.free(first);
        rig.free(second);
        rig.close();
    }
}

#[test]
fn stop_flushes_lost_and_stuck_tasks() {
    for (fault, lost) in [("lose@2", vec![1]), ("stick@1", vec![0, 1, 2])] {
        for config in config(fault) {
            let rig = Rig::new(&config, 4);
            let tasks = submit(&rig, 3);
            rig.drain();
            let done: Vec<_> = (0..3).filter(|user| !lost.contains(user)).map(|user| (user, DONE)).collect();
            assert_eq!(rig.seen.take(), done);
            assert_eq!((rig.in_flight(), rig.state()), (lost.len(), RUNNING));
            fails!(DOCA_ERROR_IN_PROGRESS, doca_ctx_stop(rig.ctx));
            rig.until(lost.len());
            let flushed: Vec<_> = lost.iter().map(|user| (*user, FAILED)).collect();
            assert_eq!(rig.seen.take(), flushed);
            recover(&rig, tasks);
            works(rig);
        }
    }
}

#[test]
fn a_device_that_is_gone_starts_no_more() {
    for config in config("gone@2") {
        let rig = Rig::new(&config, 4);
        let tasks = submit(&rig, 3);
        rig.until(3);
        assert_eq!(rig.seen.take(), [(0, DONE), (1, FAILED), (2, FAILED)]);
        tasks.into_iter().for_each(|task| rig.free(task));
        rig.drain();
        assert_eq!(rig.state(), IDLE);
        fails!(DOCA_ERROR_INITIALIZATION, doca_ctx_start(rig.ctx));
        assert_eq!(rig.state(), IDLE);
        rig.close();
    }
}

#[test]
fn slow_tasks_take_longer_and_corrupt_ones_lie() {
    let rig = Rig::new("faults = \"slow@1:for=20ms\"\nprofile = \"bluefield3\"", 4);
    let begun = std::time::Instant::now();
    let tasks = submit(&rig, 1);
    rig.until(1);
    assert!(begun.elapsed() >= std::time::Duration::from_millis(20));
    tasks.into_iter().for_each(|task| rig.free(task));
    rig.close();
    for config in config("corrupt@1") {
        let rig = Rig::new(&config, 4);
        let tasks = submit(&rig, 1);
        rig.until(1);
        assert_eq!(rig.seen.take(), [(0, DONE)]);
        let wrong: u32 = rig.dst.read(0, 64).iter().map(|byte| byte.count_ones()).sum();
        assert_eq!(wrong, 1);
        tasks.into_iter().for_each(|task| rig.free(task));
        rig.close();
    }
}

#[test]
fn an_oversize_task_fails_in_the_engine() {
    for config in config("oversize") {
        let rig = Rig::new(&format!("{config}max_buf_size = 64"), 4);
        let (good, bad) = (rig.copy(0, 64, 0), rig.copy(0, 65, 1));
        ok!(doca_task_submit(good));
        ok!(doca_task_submit(bad));
        rig.until(2);
        assert_eq!(rig.seen.take(), [(0, DONE), (1, FAILED)]);
        recover(&rig, vec![good, bad]);
        works(rig);
    }
}

#[test]
fn contexts_created_at_the_same_moment_fail() {
    rig::configure("create_contention = true");
    let devs = rig::open("03:00.0").addr();
    let failed = std::sync::atomic::AtomicU32::new(0);
    let barrier = std::sync::Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let dev = std::ptr::with_exposed_provenance_mut(devs);
                // Repeat until two calls overlap, because the machine may run the threads one after
                // another.
                for _ in 0..200 {
                    barrier.wait();
                    let mut dma = std::ptr::null_mut();
                    let code = code!(doca_dma_create(dev, &mut dma));
                    if code == c::DOCA_SUCCESS {
                        ok!(doca_dma_destroy(dma));
                    } else {
                        assert_eq!(code, c::DOCA_ERROR_NO_MEMORY);
                        failed.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }
                    barrier.wait();
                    if failed.load(std::sync::atomic::Ordering::Relaxed) > 0 {
                        break;
                    }
                }
            });
        }
    });
    assert!(failed.into_inner() > 0);
    // Contexts that are created one after another do not fail.
    let dev = std::ptr::with_exposed_provenance_mut(devs);
    for _ in 0..3 {
        let dma = get!(doca_dma_create(dev));
        ok!(doca_dma_destroy(dma));
    }
    ok!(doca_dev_close(dev));
}
