//! Tests how each fault of a plan reaches the caller through the safe API, and tests the clocks.

mod clocks;

use std::time::Duration;

use dma_core::{
    Access, Batch, BufferMut, BufferPool, Capabilities, DmaEngine, DmaEngineExt, Error, ErrorKind,
    MemoryRequest, OpError, PoolOptions, Queue, QueueOptions, Retry, SharedQueueOptions, Transfer,
};
use dma_sim::model::{Profile, Time, TraceMode};
use dma_sim::sim::{Clock, SimEngine, SimOptions};

const LEN: usize = 4_096;
const SHORT: Duration = Duration::from_millis(50);

fn open(profile: Profile, faults: &str) -> (SimEngine, Queue) {
    let options = SimOptions::new().with_profile(profile).with_seed(3).with_faults(faults.parse().unwrap());
    let engine = SimEngine::open(&options.with_trace(TraceMode::Record)).unwrap();
    let options = QueueOptions::new().with_stall_timeout(SHORT).with_drop_timeout(SHORT);
    let queue = engine.open_queue(&options).unwrap();
    (engine, queue)
}

type Copy = Transfer<(BufferMut, BufferMut)>;

/// Copies a pattern to the slice, through the pool.
type CopyBytes<'a> = &'a dyn Fn(&BufferPool, &mut [u8]) -> Result<(), Error>;

fn copy(engine: &SimEngine, queue: &Queue) -> Result<Copy, OpError<(BufferMut, BufferMut)>> {
    let mut src = engine.allocate(LEN).unwrap();
    src.fill(7);
    queue.copy(src, engine.allocate(LEN).unwrap())
}

/// Submits `n` copies at once and waits for each.
fn run(engine: &SimEngine, queue: &Queue, n: usize) -> Vec<Result<(), Error>> {
    let transfers: Vec<_> = (0..n).map(|_| copy(engine, queue).unwrap()).collect();
    transfers
        .into_iter()
        .map(|transfer| {
            let (src, dst) = transfer.wait().map_err(|e| {
                // A failed operation returns its operands, which can be used again.
                let (error, operands) = e.into_parts();
                let kept = matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::DeviceLost);
                assert!(operands.is_some() || kept, "{error}");
                error
            })?;
            assert!(src[..] == dst[..], "a completed copy is in place");
            Ok(())
        })
        .collect()
}

fn kinds(results: &[Result<(), Error>]) -> Vec<Option<ErrorKind>> {
    results.iter().map(|result| result.as_ref().err().map(Error::kind)).collect()
}

fn native(error: &Error) -> &str {
    &error.native().unwrap().name
}

#[test]
fn fail_is_a_device_fault_of_that_operation() {
    let (engine, queue) = open(Profile::ideal(), "fail@2");
    let results = run(&engine, &queue, 3);
    assert_eq!(kinds(&results), [None, Some(ErrorKind::DeviceFault), None]);
    let error = results[1].as_ref().unwrap_err();
    assert_eq!((native(error), error.retry(), error.backend()), ("SIM_ENGINE", Retry::FewTimes, "sim"));
    let counters = queue.counters();
    assert_eq!((counters.completed, counters.failed, counters.aborted, counters.resets), (2, 1, 0, 0));
}

#[test]
fn fail_resets_the_queue_of_a_device_that_does_so_and_it_recovers() {
    let (engine, queue) = open(Profile::bluefield3(), "fail@1");
    let results = run(&engine, &queue, 4);
    assert_eq!(results[0].as_ref().unwrap_err().kind(), ErrorKind::DeviceFault);
    for aborted in &results[1..] {
        let error = aborted.as_ref().unwrap_err();
        assert_eq!(
            (error.kind(), error.retry(), native(error)),
            (ErrorKind::Aborted, Retry::Now, "SIM_RESET")
        );
        assert!(error.hint().contains("submit the operation again"), "{error}");
    }
    assert_eq!(kinds(&run(&engine, &queue, 3)), [None; 3]);
    let counters = queue.counters();
    assert_eq!((counters.completed, counters.failed, counters.aborted, counters.resets), (3, 1, 3, 1));
}

#[test]
fn reset_aborts_what_did_not_fail_on_any_device() {
    for profile in Profile::NAMES {
        let (engine, queue) = open(Profile::by_name(profile).unwrap(), "reset@3");
        let results = run(&engine, &queue, 8);
        assert_eq!(results[2].as_ref().unwrap_err().kind(), ErrorKind::DeviceFault, "{profile}");
        let others = kinds(&results).into_iter().enumerate().filter(|(i, _)| *i != 2);
        assert!(others.clone().all(|(_, kind)| matches!(kind, None | Some(ErrorKind::Aborted))));
        assert!(others.clone().any(|(_, kind)| kind == Some(ErrorKind::Aborted)), "{profile}");
        assert_eq!(kinds(&run(&engine, &queue, 8)), [None; 8], "{profile}");
        assert_eq!(queue.counters().resets, 1);
    }
}

#[test]
fn a_batch_names_what_failed_and_what_was_aborted() {
    let (engine, queue) = open(Profile::bluefield3(), "reset@2");
    let batch: Batch<_, _> =
        (0..5).map(|_| (engine.allocate(LEN).unwrap(), engine.allocate(LEN).unwrap())).collect();
    let error = queue.submit(batch).unwrap().wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceFault);
    let failures: Vec<_> = error.failures().iter().map(|f| (f.index, f.error.kind())).collect();
    assert!(failures.contains(&(1, ErrorKind::DeviceFault)), "{failures:?}");
    assert!(failures.iter().all(|(index, kind)| *index == 1 || *kind == ErrorKind::Aborted));
    assert_eq!(error.into_operands().unwrap().len(), 5);
}

#[test]
fn refuse_reaches_exactly_one_operation_and_spares_the_queue() {
    for at in [1, 2, 5] {
        let (engine, queue) = open(Profile::bluefield3(), &format!("refuse@{at}"));
        let results = run(&engine, &queue, 6);
        for (i, kind) in kinds(&results).into_iter().enumerate() {
            assert_eq!(kind, (i + 1 == at).then_some(ErrorKind::OutOfResources), "copy {i} of refuse@{at}");
        }
        let error = results[at - 1].as_ref().unwrap_err();
        assert_eq!((native(error), error.retry()), ("SIM_REJECTED", Retry::Later));
        assert_eq!(kinds(&run(&engine, &queue, 6)), [None; 6]);
    }
}

#[test]
fn lose_times_out_and_closing_accounts_for_it() {
    let (engine, queue) = open(Profile::bluefield3(), "lose@2");
    let results = run(&engine, &queue, 3);
    assert_eq!(kinds(&results), [None, Some(ErrorKind::TimedOut), None]);
    let counters = queue.counters();
    assert_eq!((counters.completed, counters.in_flight), (2, 1));
    // The lost operation keeps its slot. The queue's other slots can still be used.
    assert_eq!(kinds(&run(&engine, &queue, 3)), [None; 3]);
    let counters = queue.close(SHORT);
    assert_eq!((counters.completed, counters.aborted, counters.abandoned, counters.in_flight), (5, 1, 0, 0));
}

#[test]
fn stick_times_out_and_a_new_queue_works() {
    let (engine, queue) = open(Profile::bluefield3(), "stick@2:ch=0");
    let transfers: Vec<_> = (0..4).map(|_| copy(&engine, &queue).unwrap()).collect();
    let mut ended = Vec::new();
    for mut transfer in transfers {
        ended.push(transfer.wait_for(SHORT).map_err(|e| e.kind()));
        std::mem::forget(transfer);
    }
    assert_eq!(ended[1..], [Err(ErrorKind::TimedOut); 3]);
    let counters = queue.close(SHORT);
    assert_eq!((counters.aborted, counters.abandoned), (4 - counters.completed, 0));
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    assert_eq!(kinds(&run(&engine, &queue, 4)), [None; 4]);
}

#[test]
fn gone_is_device_lost_for_everything() {
    let (engine, queue) = open(Profile::bluefield3(), "gone@3:ch=0");
    let other = engine.open_queue(&QueueOptions::new()).unwrap();
    let pending = copy(&engine, &other).unwrap();
    other.flush();
    let results = run(&engine, &queue, 6);
    assert!(
        results
            .iter()
            .all(|r| r.as_ref().is_ok_and(|()| true)
                || r.as_ref().unwrap_err().kind() == ErrorKind::DeviceLost)
    );
    let error = results[2].as_ref().unwrap_err();
    assert_eq!(
        (error.kind(), native(error), error.retry()),
        (ErrorKind::DeviceLost, "SIM_DEVICE_GONE", Retry::Never)
    );
    let pending = pending.wait();
    assert!(pending.is_ok() || pending.is_err_and(|e| e.kind() == ErrorKind::DeviceLost));
    assert_eq!(kinds(&run(&engine, &queue, 1)), [Some(ErrorKind::DeviceLost)]);
    assert_eq!(engine.open_queue(&QueueOptions::new()).unwrap_err().kind(), ErrorKind::DeviceLost);
    // The memory outlives the device.
    assert_eq!(engine.allocate(64).unwrap().len(), 64);
}

/// The stall timeout is longer than any test.
#[test]
fn dead_ends_every_wait_at_once() {
    let hours = QueueOptions::new().with_depth(8).with_stall_timeout(Duration::from_secs(100 * 3600));
    for clock in [Clock::Virtual, Clock::Real] {
        let options = SimOptions::new().with_profile(Profile::bluefield3()).with_clock(clock);
        let engine = SimEngine::open(&options.with_faults("dead@8:ch=0".parse().unwrap())).unwrap();
        let queue = engine.open_queue(&hours).unwrap();
        let other = engine.open_shared_queue(&SharedQueueOptions::new().with_queue(hours.clone())).unwrap();
        let pair = || (engine.allocate(LEN).unwrap(), engine.allocate(LEN).unwrap());
        let (src, dst) = pair();
        let ends = run(&engine, &queue, 8);
        let error = ends[7].as_ref().unwrap_err();
        assert_eq!(
            (error.kind(), native(error), error.retry()),
            (ErrorKind::DeviceLost, "SIM_DEVICE_GONE", Retry::Never)
        );
        let lost = |kind: &Option<ErrorKind>| kind.is_none_or(|kind| kind == ErrorKind::DeviceLost);
        assert!(kinds(&ends).iter().all(lost), "{ends:?}");
        assert_eq!(
            other.copy(src, dst).and_then(|copy| copy.wait()).unwrap_err().kind(),
            ErrorKind::DeviceLost
        );
        assert_eq!(copy(&engine, &queue).unwrap_err().kind(), ErrorKind::DeviceLost);
        let counters = queue.close(Duration::from_secs(60));
        assert_eq!(counters.in_flight, 0);
        assert!(counters.abandoned > 0);
        // The memory outlives the device.
        assert_eq!(engine.allocate(64).unwrap().len(), 64);
    }
}

#[test]
fn slow_is_as_much_slower_as_the_plan_says() {
    let time = |faults| {
        let (engine, queue) = open(Profile::bluefield3(), faults);
        assert_eq!(kinds(&run(&engine, &queue, 1)), [None]);
        engine.now()
    };
    assert_eq!(time("slow@1:for=200us") - time(""), Time::from_us(200));
}

#[test]
fn corrupt_is_done_with_one_bit_wrong() {
    let (engine, queue) = open(Profile::ioat(), "corrupt@1");
    let (src, dst) = copy(&engine, &queue).unwrap().wait().unwrap();
    let wrong: Vec<_> = src.iter().zip(&dst[..]).filter(|(a, b)| a != b).collect();
    assert_eq!(wrong.len(), 1);
    assert_eq!((wrong[0].0 ^ wrong[0].1).count_ones(), 1);
}

/// Submits a comparison, a CRC, a copy with CRC and a copy to two destinations of equal bytes, and waits for
/// each. Returns the comparison's result, the results of both CRCs, and whether each copy equals its source.
#[expect(clippy::type_complexity, reason = "one outcome for each operation")]
fn answers(
    engine: &SimEngine,
    queue: &Queue,
) -> (Result<Option<usize>, Error>, Result<u32, Error>, Result<(u32, bool), Error>, Result<[bool; 2], Error>)
{
    let buffer = |byte| {
        let mut buffer = engine.allocate(LEN).unwrap();
        buffer.fill(byte);
        buffer
    };
    let src = buffer(7).freeze();
    let compare = queue.compare(src.clone(), buffer(7)).unwrap();
    let crc = queue.crc32c(src.clone(), 0).unwrap();
    let copy = queue.copy_crc32c(src.clone(), buffer(0), 0).unwrap();
    let both = queue.copy_to_both(src.clone(), buffer(0), buffer(0)).unwrap();
    (
        compare.wait().map(|(_, found)| found).map_err(|e| e.into_parts().0),
        crc.wait().map(|(_, crc)| crc).map_err(|e| e.into_parts().0),
        copy.wait().map(|((_, dst), crc)| (crc, dst[..] == src[..])).map_err(|e| e.into_parts().0),
        both.wait().map(|(_, a, b)| [a, b].map(|dst| dst[..] == src[..])).map_err(|e| e.into_parts().0),
    )
}

#[test]
fn operations_with_results_are_the_devices_where_it_has_them() {
    for profile in Profile::NAMES {
        let (engine, queue) = open(Profile::by_name(profile).unwrap(), "");
        let capabilities = engine.info().capabilities;
        let native = Capabilities::COMPARE
            | Capabilities::CRC32C
            | Capabilities::COPY_CRC32C
            | Capabilities::COPY_TO_BOTH;
        let has = capabilities.contains(native);
        assert_eq!(has, capabilities.intersects(native), "{profile}: all of these capabilities, or none");
        assert_eq!(has, ["ideal", "dsa"].contains(&profile), "{profile}");
        let (compare, crc, copy, both) = answers(&engine, &queue);
        let expected = crc32c::crc32c(&[7; LEN]);
        assert_eq!((compare.unwrap(), crc.unwrap()), (None, expected), "{profile}");
        assert_eq!((copy.unwrap(), both.unwrap()), ((expected, true), [true; 2]), "{profile}");
        let counters = queue.counters();
        assert_eq!((counters.submitted, counters.completed), (4, 4), "{profile}");
        let trace: Vec<_> = engine.take_trace().iter().map(ToString::to_string).collect();
        for operation in ["compare", "crc32c", "copy-crc32c", "copy-to-both"] {
            let submitted = trace.iter().filter(|line| line.contains(&format!(" op={operation} "))).count();
            assert_eq!(submitted, usize::from(has), "{profile}: {operation} in {trace:#?}");
        }
    }
}

#[test]
fn every_fault_reaches_operations_with_results() {
    let is = |error: Result<_, Error>, kind| assert_eq!(error.unwrap_err().kind(), kind);
    for (fault, kind) in [
        ("fail", ErrorKind::DeviceFault),
        ("reset", ErrorKind::DeviceFault),
        ("refuse", ErrorKind::OutOfResources),
        ("lose", ErrorKind::TimedOut),
        ("stick", ErrorKind::TimedOut),
        ("gone", ErrorKind::DeviceLost),
    ] {
        let (engine, queue) = open(Profile::dsa(), fault);
        let (compare, crc, copy, both) = answers(&engine, &queue);
        is(compare.map(|_| ()), kind);
        // A reset may abort the operations after the failed one.
        let others = [crc.map(|_| ()), copy.map(|_| ()), both.map(|_| ())];
        for other in others.map(|other| other.unwrap_err().kind()) {
            assert!(other == kind || (fault == "reset" && other == ErrorKind::Aborted), "{fault}: {other}");
        }
        let counters = queue.close(SHORT);
        assert_eq!((counters.submitted, counters.completed, counters.in_flight), (4, 0, 0), "{fault}");
    }
}

#[test]
fn corrupt_makes_bytes_wrong_or_results() {
    let expected = crc32c::crc32c(&[7; LEN]);
    let mut either = [false; 2];
    for seed in 0..20 {
        let plan = "corrupt".parse().unwrap();
        let options = SimOptions::new().with_profile(Profile::dsa()).with_seed(seed).with_faults(plan);
        let engine = SimEngine::open(&options).unwrap();
        let queue = engine.open_queue(&QueueOptions::new()).unwrap();
        let (compare, crc, copy, both) = answers(&engine, &queue);
        assert!(
            compare.unwrap().is_some_and(|at| at < LEN),
            "the comparison of equal bytes reports a difference"
        );
        assert_ne!(crc.unwrap(), expected);
        assert_eq!(copy.unwrap(), (expected, false), "the CRC is that of the source, and the bytes differ");
        let both = both.unwrap();
        assert!(both[0] != both[1], "exactly one destination is wrong");
        either = [either[0] | !both[0], either[1] | !both[1]];
        let [mut a, mut b] = [(); 2].map(|()| engine.allocate(LEN).unwrap());
        (a[3], b[3]) = (1, 2);
        let (_, found) = queue.compare(a, b).unwrap().wait().unwrap();
        assert_eq!(found, None, "the comparison of different bytes reports no difference");
    }
    assert_eq!(either, [true; 2], "each destination is corrupted in some run");
}

#[test]
fn a_limit_that_is_wrongly_claimed_is_found_out_as_the_device_does() {
    let claiming = |profile, faults: &str| {
        let mut options = SimOptions::new().with_profile(profile).with_faults(faults.parse().unwrap());
        options.max_transfer = Some(1024);
        options.claimed_max_transfer = Some(1 << 20);
        let engine = SimEngine::open(&options).unwrap();
        let queue = engine.open_queue(&QueueOptions::new()).unwrap();
        assert_eq!(engine.info().limits.max_transfer, 1 << 20);
        (engine, queue)
    };
    // The device refuses the operation, with its own error.
    let (engine, queue) = claiming(Profile::ideal(), "");
    let error = run(&engine, &queue, 1).remove(0).unwrap_err();
    assert_eq!((error.kind(), native(&error)), (ErrorKind::OutOfRange, "SIM_TOO_LONG"));
    // The operation is accepted, and resets the queue: on a BlueField-3, and with the fault on every device.
    for (profile, faults) in [(Profile::bluefield3(), ""), (Profile::ideal(), "oversize@1")] {
        let (engine, queue) = claiming(profile, faults);
        let results = run(&engine, &queue, 2);
        let error = results[0].as_ref().unwrap_err();
        assert_eq!((error.kind(), native(error)), (ErrorKind::DeviceFault, "SIM_TOO_LONG"));
        assert_eq!(queue.counters().resets, 1);
    }
}

#[test]
fn revoked_memory_fails_the_copy_and_not_the_process() {
    let (engine, queue) = open(Profile::bluefield3(), "");
    if !engine.info().capabilities.contains(Capabilities::EXPORT) {
        return;
    }
    let request = MemoryRequest::new(LEN).exportable(Access::READ);
    let export = engine.allocate_window(&request).unwrap().export(Access::READ).unwrap();
    let remote = engine.import(export.descriptor()).unwrap();
    let transfer = queue.copy(remote.clone(), engine.allocate(LEN).unwrap()).unwrap();
    let other = copy(&engine, &queue).unwrap();
    queue.flush();
    // The copy is in flight, and possibly half done. The exporter can still revoke the memory.
    export.revoke(Duration::ZERO).unwrap();
    let error = transfer.wait().unwrap_err();
    assert_eq!((error.kind(), native(error.error())), (ErrorKind::Revoked, "SIM_REVOKED"));
    let other = other.wait().map_err(|e| e.kind());
    assert!(matches!(other, Ok(_) | Err(ErrorKind::Aborted)));
    assert_eq!(kinds(&run(&engine, &queue, 2)), [None; 2]);
}

#[test]
fn shared_queues_see_faults_too() {
    let options =
        SimOptions::new().with_profile(Profile::bluefield3()).with_faults("fail@every=7".parse().unwrap());
    let engine = SimEngine::open(&options).unwrap();
    let queue = engine.open_shared_queue(&SharedQueueOptions::new()).unwrap();
    let (mut done, mut failed, mut aborted) = (0, 0, 0);
    for _ in 0..60 {
        let transfers: Vec<_> = (0..4)
            .map(|_| queue.copy(engine.allocate(LEN).unwrap(), engine.allocate(LEN).unwrap()).unwrap())
            .collect();
        for transfer in transfers {
            match transfer.wait().map_err(|e| e.kind()) {
                Ok(_) => done += 1,
                Err(ErrorKind::DeviceFault) => failed += 1,
                Err(ErrorKind::Aborted) => aborted += 1,
                Err(kind) => panic!("{kind}"),
            }
        }
    }
    let counters = queue.close(Duration::from_secs(60));
    assert_eq!((counters.completed, counters.failed, counters.aborted), (done, failed, aborted));
    assert!(failed > 10 && counters.resets == failed, "{counters:?}");
}

#[test]
fn dropping_a_queue_in_use_ends_what_is_in_flight() {
    let (engine, queue) = open(Profile::bluefield3(), "stick@1");
    let transfer = copy(&engine, &queue).unwrap();
    drop(queue);
    assert_eq!(transfer.wait().unwrap_err().kind(), ErrorKind::Closed);
    let trace = engine.take_trace();
    let halts = trace.iter().filter(|e| e.what == "halt cause=stopped");
    assert_eq!(halts.count(), 1);
    assert!(trace.iter().any(|e| e.what.starts_with("end ") && e.what.contains("status=aborted:")));
    let last = &trace.last().unwrap().what;
    assert!(last.starts_with("unregister ") || last == "close", "{last}");
}

#[test]
fn queues_run_out_as_on_the_device() {
    let engine = SimEngine::open(&SimOptions::new().with_profile(Profile::ioat())).unwrap();
    let queues: Vec<_> = (0..8).map(|_| engine.open_queue(&QueueOptions::new()).unwrap()).collect();
    let error = engine.open_queue(&QueueOptions::new()).unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::OutOfResources, Retry::Later));
    assert!(error.to_string().contains("all 8 channels"), "{error}");
    drop(queues);
    engine.open_queue(&QueueOptions::new()).unwrap();
}

#[test]
fn engines_say_what_they_model_and_refuse_what_cannot_be() {
    let engine =
        SimEngine::open(&SimOptions::new().with_profile(Profile::bluefield3()).with_seed(7)).unwrap();
    let info = engine.info();
    assert_eq!((info.backend, info.device.as_str()), ("sim", "bluefield3, seed 7, virtual clock"));
    assert!(info.model.as_ref().unwrap().contains("postgres-dbcomm"));
    assert_eq!(info.limits.max_transfer, 2 << 20);
    let mut options = SimOptions::new();
    options.depth = Some(70_000);
    let error = SimEngine::open(&options).unwrap_err();
    assert_eq!(
        (error.kind(), error.requested(), error.limit()),
        (ErrorKind::OutOfRange, Some(70_000), Some(65_536))
    );
}

/// A closing queue does not wait for the operations of a stuck channel: the refusal is its only report.
#[test]
fn a_shared_queue_on_a_stuck_channel_says_so() {
    let faults = "stick@1:ch=0".parse().unwrap();
    let engine = SimEngine::open(&SimOptions::new().with_faults(faults)).unwrap();
    let options = QueueOptions::new().with_depth(2).with_stall_timeout(SHORT).with_drop_timeout(SHORT);
    let queue = engine.open_shared_queue(&SharedQueueOptions::new().with_queue(options)).unwrap();
    let copy = || queue.copy(engine.allocate(LEN).unwrap(), engine.allocate(LEN).unwrap());
    let refusal = std::iter::repeat_with(copy)
        .inspect(|_| std::thread::yield_now())
        .filter_map(Result::err)
        .find(|e| e.kind() != ErrorKind::QueueFull)
        .unwrap();
    assert_eq!(refusal.kind(), ErrorKind::TimedOut, "{refusal}");
    assert!(refusal.into_operands().is_some());
    assert!(queue.stalled().unwrap() >= SHORT);
    let counters = queue.close(SHORT);
    assert_eq!((counters.in_flight, counters.completed, counters.abandoned), (0, 0, 0), "{counters:?}");
}

#[test]
fn memory_of_a_copy_in_flight_is_not_used_again() {
    let engine = SimEngine::open(&SimOptions::new().with_clock(Clock::Manual)).unwrap();
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let report = || engine.idle_memory().unwrap().report();
    let transfer = copy(&engine, &queue).unwrap();
    queue.flush();
    drop(transfer);
    assert_eq!((report().regions, report().reused), (0, 0), "the device still copies");
    drop((engine.allocate(LEN).unwrap(), engine.allocate(LEN).unwrap()));
    assert_eq!((report().regions, report().reused), (2, 0));
    engine.settle();
    assert_eq!(queue.poll(), 1);
    assert_eq!(report().regions, 4, "all views were dropped, and the copy has ended");
    assert!(engine.allocate(LEN).unwrap().iter().all(|byte| *byte == 0));
    assert_eq!(report().reused, 1);
}

/// Copies on a stuck device leave their buffers with it. A copy that finds no memory for this reason names
/// the device, not the pool.
#[test]
fn copies_of_bytes_say_that_a_stuck_device_holds_their_memory() {
    let faults = SimOptions::new().with_faults("stick@1".parse().unwrap()).with_clock(Clock::Real);
    let engines = [(); 2].map(|()| SimEngine::open(&faults).unwrap());
    let options = QueueOptions::new().with_stall_timeout(SHORT).with_drop_timeout(SHORT);
    let queue = engines[0].open_queue(&options).unwrap();
    let shared = engines[1].open_shared_queue(&SharedQueueOptions::new().with_queue(options)).unwrap();
    let copies: [CopyBytes<'_>; 2] = [&|pool, dst| queue.copy_bytes(pool, &[7; LEN], dst), &|pool, dst| {
        shared.copy_bytes(pool, &[7; LEN], dst)
    }];
    for (engine, copy) in engines.iter().zip(copies) {
        let pool = BufferPool::new(engine, &PoolOptions::new().with_class(2 * LEN, 1)).unwrap();
        let errors: Vec<_> = (0..3).map(|_| copy(&pool, &mut [0; LEN]).unwrap_err()).collect();
        for error in &errors {
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
            assert!(error.to_string().starts_with("copy bytes on sim: "), "{error}");
        }
        // The second copy has the memory that the pool keeps, and the third has none.
        assert!(errors[2].to_string().contains("holds the memory"), "{}", errors[2]);
    }
}
