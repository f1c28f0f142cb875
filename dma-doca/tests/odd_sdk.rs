//! An SDK with return values that are rare with real SDKs, and that the stand-in never returns.
#![expect(unsafe_code, reason = "stands in for C functions")]

#[path = "support/calls.rs"]
mod calls;

use std::cell::Cell;
use std::ffi::c_void;
use std::time::{Duration, Instant};

use dma_core::{
    Access, BufferMut, Completion, Descriptor, DmaEngine, DmaEngineExt, ErrorKind, MemoryRequest, Outcome,
    Queue, QueueOptions,
};
use dma_doca::{DocaEngine, DocaOptions};
use doca_sys::bindings::*;
use doca_sys::{Common, Dma};
use test_support::patience::until;

thread_local! {
    /// Number of submissions that still succeed, and the code of the next one.
    static REFUSE: Cell<Option<(u32, doca_error_t)>> = const { Cell::new(None) };
    /// If set, destroying maps fails.
    static KEEP_MAPS: Cell<bool> = const { Cell::new(false) };
    /// Number of maps that were destroyed.
    static DESTROYED: Cell<u32> = const { Cell::new(0) };
    /// Number of buffers that are created before a failure.
    static BUFFERS: Cell<Option<u32>> = const { Cell::new(None) };
    /// Number of tasks that are created before a failure.
    static TASKS: Cell<Option<u32>> = const { Cell::new(None) };
    /// If set, a stopped context does not become idle.
    static RESTLESS: Cell<bool> = const { Cell::new(false) };
}

unsafe extern "C" fn submit_ex(task: *mut doca_task, flags: u32) -> doca_error_t {
    match REFUSE.get() {
        Some((0, code)) => {
            REFUSE.set(None);
            if code == DOCA_ERROR_BAD_STATE {
                // Simulate a context that has stopped by itself, before a callback has reported that.
                // SAFETY: the caller passes a valid task.
                let ctx = unsafe { doca_task_get_ctx(task) };
                // SAFETY: this is the context of the caller's task, which exists.
                unsafe { doca_ctx_stop(ctx) };
            }
            return code;
        }
        Some((n, code)) => REFUSE.set(Some((n - 1, code))),
        None => {}
    }
    // SAFETY: the caller meets the requirements of the stand-in's function, whose arguments are passed on
    // unchanged.
    unsafe { doca_task_submit_ex(task, flags) }
}

/// Counts one call down. Returns true for the call that must fail; later calls succeed.
fn fails(countdown: &'static std::thread::LocalKey<Cell<Option<u32>>>) -> bool {
    countdown.replace(countdown.get().and_then(|n| n.checked_sub(1))) == Some(0)
}

unsafe extern "C" fn get_by_args(
    inventory: *mut doca_buf_inventory,
    map: *mut doca_mmap,
    addr: *mut c_void,
    len: usize,
    data: *mut c_void,
    data_len: usize,
    buf: *mut *mut doca_buf,
) -> doca_error_t {
    if fails(&BUFFERS) {
        return DOCA_ERROR_UNEXPECTED;
    }
    // SAFETY: the caller meets the requirements of the stand-in's function, whose arguments are passed on
    // unchanged.
    unsafe { doca_buf_inventory_buf_get_by_args(inventory, map, addr, len, data, data_len, buf) }
}

unsafe extern "C" fn alloc_init(
    dma: *mut doca_dma,
    src: *const doca_buf,
    dst: *mut doca_buf,
    user_data: doca_data,
    task: *mut *mut doca_dma_task_memcpy,
) -> doca_error_t {
    if fails(&TASKS) {
        return DOCA_ERROR_NO_MEMORY;
    }
    // SAFETY: the caller meets the requirements of the stand-in's function, whose arguments are passed on
    // unchanged.
    unsafe { doca_dma_task_memcpy_alloc_init(dma, src, dst, user_data, task) }
}

unsafe extern "C" fn not_permitted(
    _: *const doca_data,
    _: *const c_void,
    _: usize,
    _: *mut doca_dev,
    _: *mut *mut doca_mmap,
) -> doca_error_t {
    DOCA_ERROR_NOT_PERMITTED
}

unsafe extern "C" fn mmap_destroy(map: *mut doca_mmap) -> doca_error_t {
    if KEEP_MAPS.get() {
        return DOCA_ERROR_IN_USE;
    }
    DESTROYED.set(DESTROYED.get() + 1);
    // SAFETY: the caller meets the requirements of the stand-in's function, whose arguments are passed on
    // unchanged.
    unsafe { doca_mmap_destroy(map) }
}

unsafe extern "C" fn start_in_progress(ctx: *mut doca_ctx) -> doca_error_t {
    // SAFETY: the caller meets the requirements of the stand-in's function, whose arguments are passed on
    // unchanged.
    match unsafe { doca_ctx_start(ctx) } {
        DOCA_SUCCESS => DOCA_ERROR_IN_PROGRESS,
        code => code,
    }
}

unsafe extern "C" fn get_state(ctx: *const doca_ctx, state: *mut doca_ctx_states) -> doca_error_t {
    // SAFETY: the caller meets the requirements of the stand-in's function, whose arguments are passed on
    // unchanged.
    let code = unsafe { doca_ctx_get_state(ctx, state) };
    // SAFETY: the caller passed this pointer, and the stand-in has just written the state to it.
    if RESTLESS.get() && unsafe { *state } == DOCA_CTX_STATE_IDLE {
        // SAFETY: the caller passed this pointer, and the stand-in has just written to it.
        unsafe { *state = DOCA_CTX_STATE_STOPPING };
    }
    code
}

fn open(config: &str, absent: &[&str], change: impl FnOnce(&mut Common, &mut Dma)) -> DocaEngine {
    doca_emu::use_config(Some(config)).unwrap();
    DocaEngine::open(&DocaOptions::new().with_library(calls::library_with(absent, change))).unwrap()
}

fn queue(engine: &DocaEngine) -> Queue {
    let options = QueueOptions::new().with_depth(16).with_drop_timeout(Duration::from_millis(200));
    engine.open_queue(&options).unwrap()
}

fn pair(engine: &DocaEngine, n: u8) -> (BufferMut, BufferMut) {
    let mut src = engine.allocate(256).unwrap();
    src.fill(n);
    (src, engine.allocate(256).unwrap())
}

/// Submits five copies, and returns their outcomes.
fn five(engine: &DocaEngine, queue: &Queue) -> Vec<Result<(), (ErrorKind, i32)>> {
    let transfers: Vec<_> = (1..=5)
        .map(|n| {
            let (src, dst) = pair(engine, n);
            queue.copy(src, dst).unwrap()
        })
        .collect();
    queue.flush();
    let ends = transfers.into_iter().map(|transfer| match transfer.wait() {
        Ok((src, dst)) => {
            assert!(src[..] == dst[..]);
            Ok(())
        }
        Err(e) => Err((e.kind(), dma_core::Error::from(e).native().map_or(0, |native| native.code))),
    });
    ends.collect()
}

#[test]
fn a_task_that_is_not_taken_fails_alone_wherever_it_stands() {
    let engine = open("", &[], |common, _| common.doca_task_submit_ex = Some(submit_ex));
    let queue = queue(&engine);
    // Copy once, so that later completions may be coalesced.
    assert_eq!(five(&engine, &queue), [Ok(()); 5]);
    for nth in 0..5 {
        REFUSE.set(Some((nth, DOCA_ERROR_INVALID_VALUE)));
        let mut expected = [Ok(()); 5];
        expected[nth as usize] = Err((ErrorKind::DeviceFault, DOCA_ERROR_INVALID_VALUE.cast_signed()));
        assert_eq!(five(&engine, &queue), expected);
    }
    assert_eq!(five(&engine, &queue), [Ok(()); 5]);
    assert_eq!((queue.counters().resets, queue.counters().failed), (0, 5));
}

/// The tasks before the refused one were submitted without a doorbell. Without a call to flush, only a stop
/// ends them.
#[test]
fn without_a_call_to_flush_a_refusal_aborts_what_went_before() {
    let engine =
        open("", &["doca_ctx_flush_tasks"], |common, _| common.doca_task_submit_ex = Some(submit_ex));
    let queue = queue(&engine);
    assert_eq!(five(&engine, &queue), [Ok(()); 5]);
    for nth in 0..5 {
        REFUSE.set(Some((nth, DOCA_ERROR_INVALID_VALUE)));
        let ends = five(&engine, &queue);
        let (before, rest) = ends.split_at(nth as usize);
        assert!(before.iter().all(|end| matches!(end, Err((ErrorKind::Aborted, _)))), "{ends:?}");
        assert_eq!(rest[0], Err((ErrorKind::DeviceFault, DOCA_ERROR_INVALID_VALUE.cast_signed())));
        // Later descriptors wait until the context runs again.
        assert!(rest[1..].iter().all(Result::is_ok), "{ends:?}");
        assert_eq!(five(&engine, &queue), [Ok(()); 5]);
    }
    assert_eq!(queue.counters().resets, 4, "nothing went before the first task");
}

/// A refused task's operands explain its failure, and not those of the next task in its slot.
#[test]
fn a_refused_copy_is_not_blamed_on_the_memory_of_a_later_one() {
    let dpu = open("", &[], |common, _| common.doca_task_submit_ex = Some(submit_ex));
    let host = DocaEngine::open(
        &DocaOptions::new().with_address("3b:00.0".parse().unwrap()).with_library(calls::library()),
    )
    .unwrap();
    let window = host.allocate_window(&MemoryRequest::new(256).exportable(Access::READ)).unwrap();
    window.write_at(0, &[7; 256]).unwrap();
    let export = window.export(Access::READ).unwrap();
    let (remote, queue) = (dpu.import(export.descriptor()).unwrap(), queue(&dpu));
    let local = [1, 2].map(|n| pair(&dpu, n));
    REFUSE.set(Some((0, DOCA_ERROR_INVALID_VALUE)));
    let local = local.map(|(src, dst)| queue.copy(src, dst).unwrap());
    let imported = queue.copy(remote, dpu.allocate(256).unwrap()).unwrap();
    queue.flush();
    let [first, second] = local.map(dma_core::Transfer::wait);
    let e = dma_core::Error::from(first.unwrap_err());
    assert_eq!(e.native().unwrap().code, DOCA_ERROR_INVALID_VALUE.cast_signed());
    assert!(!e.native().unwrap().description.contains("imported"), "{e}");
    assert_eq!(second.unwrap().1[..], [2; 256]);
    assert_eq!(imported.wait().unwrap().1[..], [7; 256]);
}

/// A refused task's lists are released, and not those of the next task in its slot.
#[test]
fn a_refused_list_releases_only_its_own_buffers() {
    let engine = open("max_list_len = 4\n", &[], |common, _| common.doca_task_submit_ex = Some(submit_ex));
    let region = engine.allocate_raw(&MemoryRequest::new(8 * 64)).unwrap();
    let bytes = region.info().addr.as_ptr();
    // SAFETY: the memory is mapped and has `8 * 64` bytes, and only this test uses it.
    unsafe { bytes.write_bytes(7, 2 * 64) };
    let mut queue = engine.open_queue_raw(&QueueOptions::new().with_depth(4)).unwrap();
    let two = |at: usize| [at, at + 1].map(|at| region.info().segment(at * 64, 64));
    let (src, dst) = (two(0), [2, 4, 6].map(two));
    let batch = [0, 1, 2].map(|token| Descriptor::copy_lists(token, &src, &dst[token as usize]));
    REFUSE.set(Some((0, DOCA_ERROR_INVALID_VALUE)));
    let (mut taken, mut ends) = (0, [None; 3]);
    until("all copies are reported", || {
        // SAFETY: the region outlives the copies in flight, and the test does not access its bytes meanwhile.
        taken += unsafe { queue.submit(&batch[taken..]) }.unwrap();
        // This poll comes before the doorbell, so the last list is held back.
        let mut out = [Completion::done(9); 4];
        let n = queue.poll(&mut out);
        out[..n].iter().for_each(|end| ends[end.token as usize] = Some(end.outcome));
        queue.flush();
        ends.iter().all(Option::is_some)
    });
    assert_eq!(ends, [Outcome::Failed(ErrorKind::DeviceFault), Outcome::Done, Outcome::Done].map(Some));
    // SAFETY: the memory has `8 * 64` bytes, and no copy is in flight.
    let bytes = unsafe { std::slice::from_raw_parts(bytes, 8 * 64) };
    assert_eq!(bytes[4 * 64..], [7; 4 * 64]);
}

#[test]
fn a_context_that_has_stopped_by_itself_aborts_what_it_does_not_take() {
    let engine = open("", &[], |common, _| common.doca_task_submit_ex = Some(submit_ex));
    let queue = queue(&engine);
    for nth in [0, 2, 4] {
        REFUSE.set(Some((nth, DOCA_ERROR_BAD_STATE)));
        let ends = five(&engine, &queue);
        let refused = Err((ErrorKind::Aborted, DOCA_ERROR_BAD_STATE.cast_signed()));
        assert_eq!(ends[nth as usize], refused, "{ends:?}");
        // Later descriptors wait until the context runs again.
        assert!(ends[nth as usize + 1..].iter().all(Result::is_ok), "{ends:?}");
        assert!(ends[..nth as usize].iter().all(Result::is_err), "{ends:?}");
        assert_eq!(five(&engine, &queue), [Ok(()); 5]);
    }
    assert_eq!(queue.counters().resets, 3);
}

/// The next poll repeats a failed flush, so `arm` returns false until then.
#[test]
fn nobody_is_told_to_sleep_while_a_flush_is_due() {
    let engine = open("", &[], |common, _| common.doca_task_submit_ex = Some(submit_ex));
    let region = engine.allocate_raw(&MemoryRequest::new(128)).unwrap();
    let mut queue = engine.open_queue_raw(&QueueOptions::new().with_depth(4)).unwrap();
    let copy = Descriptor::copy(5, region.info().segment(0, 64), region.info().segment(64, 64));
    // SAFETY: the region outlives the copies in flight, and the test does not access its bytes meanwhile.
    assert_eq!(unsafe { queue.submit(&[copy]) }.unwrap(), 1);
    REFUSE.set(Some((0, DOCA_ERROR_AGAIN)));
    queue.flush();
    assert_eq!(REFUSE.get(), None, "the submission was refused");
    assert!(!queue.events().unwrap().arm().unwrap());
    let mut out = [Completion::done(0); 4];
    until("the copy is reported", || queue.poll(&mut out) > 0);
    assert_eq!(out[0], Completion::done(5));
}

#[test]
fn a_context_may_start_in_its_own_time() {
    let engine = open("", &[], |common, _| common.doca_ctx_start = start_in_progress);
    let queue = queue(&engine);
    assert_eq!(five(&engine, &queue), [Ok(()); 5]);
}

#[test]
fn a_context_that_does_not_come_to_rest_is_given_up() {
    let engine = open("faults = \"fail@3:ch=0\"\norder = \"submitted\"\n", &[], |common, _| {
        common.doca_ctx_get_state = get_state;
    });
    let queue = queue(&engine);
    RESTLESS.set(true);
    let ends = five(&engine, &queue);
    assert_eq!(ends[..2], [Ok(()); 2]);
    assert!(ends[2..].iter().all(Result::is_err), "{ends:?}");
    let begin = Instant::now();
    let (src, dst) = pair(&engine, 9);
    let e = dma_core::Error::from(queue.copy(src, dst).unwrap().wait().unwrap_err());
    assert_eq!(e.kind(), ErrorKind::DeviceLost, "{e}");
    drop(queue);
    assert!(begin.elapsed() < Duration::from_secs(60));
    // Other queues of the engine still work.
    RESTLESS.set(false);
    assert_eq!(five(&engine, &self::queue(&engine)), [Ok(()); 5]);
}

/// Returns true if `address` is mapped.
fn is_mapped(address: usize) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().any(|line| {
        let (range, _) = line.split_once(' ').unwrap();
        let (from, to) = range.split_once('-').unwrap();
        let number = |text| usize::from_str_radix(text, 16).unwrap();
        (number(from)..number(to)).contains(&address)
    })
}

/// Length of the memory in bytes. It is long, so that its address is not reused soon.
const LONG: usize = 1 << 30;

#[test]
fn memory_that_stays_registered_is_never_unmapped() {
    let engine = open("memlock = \"100G\"\n", &[], |common, _| common.doca_mmap_destroy = mmap_destroy);
    let buffer = engine.allocate(LONG).unwrap();
    let address = buffer.as_ptr().addr() + LONG / 2;
    assert!(is_mapped(address));
    KEEP_MAPS.set(true);
    drop(buffer);
    KEEP_MAPS.set(false);
    assert!(is_mapped(address), "the device may still write there");
}

#[test]
fn allocations_use_registrations_again() {
    let engine = open("", &[], |common, _| common.doca_mmap_destroy = mmap_destroy);
    let before = DESTROYED.get();
    let buffer = engine.allocate(5000).unwrap();
    let key = buffer.region().as_raw().info().key;
    drop(buffer);
    let [first, second] = [0, 0].map(|_| engine.allocate(5000).unwrap());
    assert_eq!(first.region().as_raw().info().key, key);
    drop(second);
    assert_eq!(DESTROYED.get(), before, "the memory stays registered");
    assert!(engine.idle_memory().unwrap().release() >= 5000);
    assert_eq!(DESTROYED.get(), before + 1, "released memory is deregistered");
    drop(first);
    drop(engine);
    assert_eq!(DESTROYED.get(), before + 2, "the engine deregisters idle memory");
}

/// Opens the host's side of a card, with calls that can fail to destroy maps.
fn exporter() -> DocaEngine {
    doca_emu::use_config(Some("memlock = \"100G\"\n")).unwrap();
    let library = calls::library_with(&[], |common, _| common.doca_mmap_destroy = mmap_destroy);
    DocaEngine::open(&DocaOptions::new().with_address("3b:00.0".parse().unwrap()).with_library(library))
        .unwrap()
}

#[test]
fn an_export_that_cannot_be_taken_back_says_so_in_time() {
    let host = exporter();
    let window = host.allocate_window(&MemoryRequest::new(64).exportable(Access::READ)).unwrap();
    let export = window.export(Access::READ).unwrap();
    KEEP_MAPS.set(true);
    let begin = Instant::now();
    let (export, e) = export.revoke(Duration::from_millis(20)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::TimedOut, "{e}");
    assert_eq!(e.native().unwrap().name, "DOCA_ERROR_IN_USE");
    assert!(begin.elapsed() < Duration::from_secs(60));
    KEEP_MAPS.set(false);
    export.revoke(Duration::ZERO).unwrap();
}

#[test]
#[inline(never)] // so that ci/lsan.supp finds the memory that it leaves
fn memory_whose_export_cannot_be_taken_back_is_never_unmapped() {
    let host = exporter();
    let window = host.allocate_window(&MemoryRequest::new(LONG).exportable(Access::READ)).unwrap();
    let export = window.export(Access::READ).unwrap();
    let address = window.region().as_raw().info().addr.0 as usize + LONG / 2;
    assert!(is_mapped(address));
    KEEP_MAPS.set(true);
    drop(export);
    KEEP_MAPS.set(false);
    drop(window);
    assert!(is_mapped(address), "a peer may still write there");
}

/// A failure to prepare a descriptor leaks no slot, buffer or task.
#[test]
fn an_operation_that_cannot_be_prepared_fails_alone() {
    let config = "memlock = \"1M\"\nmax_list_len = 4\nmax_tasks = 4\n";
    let engine = open(config, &[], |common, dma| {
        common.doca_buf_inventory_buf_get_by_args = get_by_args;
        dma.doca_dma_task_memcpy_alloc_init = alloc_init;
    });
    let mut queue = engine.open_queue(&QueueOptions::new().with_depth(4)).unwrap();
    const LEN: usize = 200 << 10;
    for nth in 0..12 {
        // New tasks are needed on a new queue only.
        if nth % 4 == 0 {
            queue = engine.open_queue(&QueueOptions::new().with_depth(4)).unwrap();
        }
        // The queue already has buffers for memory that is used again.
        engine.idle_memory().unwrap().release();
        let make = || engine.allocate(LEN).unwrap();
        let (mut a, mut b) = (make(), make());
        let (tail, end) = (a.split_off(100), b.split_off(999));
        a.fill(nth as u8);
        let (c, d) = (make(), make());
        if nth % 4 == 0 {
            TASKS.set(Some(0));
            let e = queue.copy(c, d).unwrap().wait().unwrap_err();
            assert_eq!(e.kind(), ErrorKind::OutOfMemory, "{e}");
            let (c, d) = e.into_operands().unwrap();
            queue.copy(c, d).unwrap().wait().unwrap();
        } else {
            BUFFERS.set(Some(1));
            let e = queue.copy(c, d).unwrap().wait().unwrap_err();
            assert_eq!(e.kind(), ErrorKind::DeviceFault, "{e}");
            let (c, d) = e.into_operands().unwrap();
            queue.copy(c, d).unwrap().wait().unwrap();
        }
        BUFFERS.set(Some(nth % 4));
        let e = queue.copy(vec![a, tail], vec![b, end]).unwrap().wait().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::DeviceFault, "{e}");
        let (src, dst) = e.into_operands().unwrap();
        let (src, dst) = queue.copy(src, dst).unwrap().wait().unwrap();
        assert!(src.iter().flat_map(|part| &part[..]).eq(dst.iter().flat_map(|part| &part[..])));
    }
}

/// The lists of a refused task are released at once.
#[test]
fn a_refused_lists_memory_is_deregistered_when_it_is_dropped() {
    let engine = open("memlock = \"1M\"\nmax_list_len = 4\n", &[], |common, _| {
        common.doca_task_submit_ex = Some(submit_ex);
    });
    let queue = queue(&engine);
    for _ in 0..10 {
        let make = || engine.allocate(300 << 10).unwrap();
        let (mut a, mut b) = (make(), make());
        let (tail, end) = (a.split_off(100), b.split_off(999));
        REFUSE.set(Some((0, DOCA_ERROR_INVALID_VALUE)));
        let e = queue.copy(vec![a, tail], vec![b, end]).unwrap().wait().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::DeviceFault, "{e}");
        drop(e);
    }
}

#[test]
fn an_import_that_is_not_permitted_is_told_from_one_that_was_revoked() {
    let host = DocaEngine::open(
        &DocaOptions::new().with_address("3b:00.0".parse().unwrap()).with_library(calls::library()),
    )
    .unwrap();
    let window = host.allocate_window(&MemoryRequest::new(64).exportable(Access::READ)).unwrap();
    let export = window.export(Access::READ).unwrap();
    let dpu = open("", &[], |common, _| common.doca_mmap_create_from_export = Some(not_permitted));
    let e = dpu.import(export.descriptor()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::PermissionDenied, "{e}");
    assert!(e.hint().contains("same user"), "{e}");
}
