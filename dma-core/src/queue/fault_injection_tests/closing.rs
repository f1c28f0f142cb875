//! Tests of queues that are closed while operations are in flight.

use super::*;
use crate::planner::wait::GRACE;

/// On a busy machine, a software device may not run for some time, so a device that stops late is not
/// abandoned.
#[test]
fn a_device_that_takes_its_time_to_stop_is_not_dead() {
    let rig = Rig::new();
    lock(&rig.script).stops_late = [vec![Duration::ZERO; 10], vec![Duration::from_millis(30)]].concat();
    let (script, long) = (Arc::clone(&rig.script), rig.copy(1 << 20));
    let counters = rig.queue.close(Duration::ZERO);
    assert_eq!((counters.aborted, counters.abandoned, counters.in_flight), (1, 0, 0));
    assert_eq!(lock(&script).stops_late, [], "the device was polled until it reported the copy");
    let e = long.wait().expect_err("the close stopped the device");
    assert_eq!(
        (e.kind(), e.error().retry(), e.error().hint()),
        (ErrorKind::Closed, Retry::Never, "open another queue")
    );
    assert!(e.into_operands().is_some(), "the operands are returned");
}

#[test]
fn closing_aborts_unsubmitted_operations() {
    let rig = Rig::new();
    lock(&rig.script).full = true;
    let transfers = [11, 100, 13].map(|len| rig.copy(len));
    let Rig { queue, script, .. } = rig;
    let counters = queue.close(Duration::from_millis(20));
    assert_eq!((counters.aborted, counters.failed, counters.abandoned, counters.in_flight), (3, 0, 0, 0));
    for transfer in transfers {
        assert_eq!(transfer.wait().expect_err("the copy was not submitted").kind(), ErrorKind::Closed);
    }
    assert!(lock(&script).dropped);
}

#[test]
fn a_device_that_does_not_answer_is_never_taken_apart() {
    let rig = Rig::new();
    lock(&rig.script).mute = true;
    let transfer = rig.copy(11);
    let Rig { queue, script, .. } = rig;
    let counters = queue.close(Duration::from_millis(20));
    assert_eq!((counters.abandoned, counters.in_flight), (1, 0));
    let e = transfer.wait().expect_err("the device never reports the copy");
    assert_eq!(e.kind(), ErrorKind::DeviceLost);
    assert!(e.into_operands().is_none(), "the device may still access the operands");
    assert!(!lock(&script).dropped);
}

#[test]
fn memory_that_a_silent_device_has_is_never_given_back() {
    for (mute, dropped_early) in [(false, false), (false, true), (true, false), (true, true)] {
        let rig = Rig::new();
        lock(&rig.script).mute = mute;
        let given_back = Arc::<Mutex<u32>>::default();
        let memory = || {
            let owner = Owner(vec![0; 50], Arc::clone(&given_back));
            rig.engine.register(HostMemory::from_owner(owner)).expect("registered")
        };
        let transfer = rig.queue.copy(memory(), memory()).expect("room");
        let Rig { queue, .. } = rig;
        if dropped_early {
            drop(transfer);
            let _ = queue.close(Duration::from_millis(20));
        } else {
            let _ = queue.close(Duration::from_millis(20));
            drop(transfer);
        }
        let expected = if mute { 0 } else { 2 };
        assert_eq!(*given_back.lock().expect("no thread panicked"), expected, "{mute} {dropped_early}");
    }
}

/// Time in which the closing thread does not run is no part of the grace period, because the engine's threads
/// may not have run either.
#[test]
fn a_thread_that_rarely_runs_waits_for_a_device_that_stops() {
    let rig = Rig::new();
    lock(&rig.script).stops_late = vec![GRACE / 2; 5];
    let copy = rig.copy(1 << 20);
    let counters = rig.queue.close(Duration::ZERO);
    assert_eq!((counters.aborted, counters.abandoned), (1, 0));
    assert_eq!(copy.wait().expect_err("the close stopped the device").kind(), ErrorKind::Closed);
}

/// A device that needs most of the grace period to stop is not abandoned, even if the thread that closes the
/// queue does not run during the grace period.
#[test]
fn a_device_that_stops_within_the_grace_period_keeps_its_memory() {
    for late in [GRACE * 7 / 10, GRACE + Duration::from_millis(50)] {
        let rig = Rig::new();
        lock(&rig.script).stops_late = vec![late];
        let copy = rig.copy(1 << 20);
        let counters = rig.queue.close(Duration::ZERO);
        assert_eq!((counters.aborted, counters.abandoned), (1, 0), "{late:?}");
        assert_eq!(copy.wait().expect_err("the close stopped the device").kind(), ErrorKind::Closed);
    }
}
