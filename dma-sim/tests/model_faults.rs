//! Tests each fault of the device model, and each mistake of a program, separately.

mod model_rig;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use dma_sim::model::*;
use model_rig::*;

#[test]
fn a_refused_task_leaves_nothing_behind() {
    let mut rig = Rig::new(Profile::ideal(), "refuse@2");
    assert_eq!(rig.submit(0), Ok(()));
    assert_eq!(rig.submit(1), Err(Refused::Rejected));
    assert_eq!(rig.submit(2), Ok(()));
    rig.device.doorbell(rig.channel).unwrap();
    assert_eq!(rig.run(), [(0, Status::Done), (2, Status::Done)]);
    assert_eq!(rig.device.stats(rig.channel).unwrap().refused, 1);
}

#[test]
fn a_failed_task_is_alone_or_takes_the_channel_down() {
    let mut rig = Rig::new(Profile::ideal(), "fail@2");
    rig.send(0..4);
    assert_eq!(rig.run(), [(0, Status::Done), (1, ENGINE), (2, Status::Done), (3, Status::Done)]);
    assert_eq!(rig.state(), ChannelState::Running);

    let mut rig = Rig::new(Profile::bluefield3(), "fail@2");
    rig.send(0..4);
    rig.submit(4).unwrap(); // no doorbell releases this task
    let ended = rig.run();
    let aborted = Status::Aborted(HaltCause::TaskFailed);
    assert_eq!(ended[1], (1, ENGINE));
    assert_eq!(ended[4], (4, aborted));
    assert!(ended.iter().all(|(token, s)| *token == 1 || matches!(*s, Status::Done) || *s == aborted));
    assert_eq!(rig.state(), ChannelState::Halted(HaltCause::TaskFailed));
    assert_eq!(rig.submit(5), Err(Refused::Halted(HaltCause::TaskFailed)));
    rig.device.restart(rig.channel).unwrap();
    rig.send(5..8);
    assert_eq!(rig.run(), all(5..8, Status::Done));
}

#[test]
fn a_reset_fails_one_and_aborts_the_rest() {
    let mut rig = Rig::new(Profile::ideal(), "reset@1");
    let other = rig.device.open_channel(4).unwrap();
    rig.device.submit(other, &Descriptor::copy(9, rig.src, rig.dst)).unwrap();
    rig.send(0..4);
    let ended = rig.run();
    assert_eq!(ended[0], (0, ENGINE));
    assert_eq!(ended[1..], all(1..4, RESET));
    assert_eq!(rig.state(), ChannelState::Halted(HaltCause::Reset));
    // The other channel continues.
    assert_eq!(rig.device.state(other), Some(ChannelState::Running));
    // A reset does not restart the count of tasks.
    rig.device.reset(rig.channel).unwrap();
    rig.send(4..6);
    assert_eq!(rig.run(), all(4..6, Status::Done));
}

#[test]
fn a_lost_completion_keeps_its_place_until_the_channel_goes_down() {
    let mut rig = Rig::new(Profile::ideal(), "lose@2");
    rig.send(0..3);
    assert_eq!(rig.run(), [(0, Status::Done), (2, Status::Done)]);
    assert_eq!((rig.device.next_event(), rig.device.in_flight(rig.channel)), (None, 1));
    assert_eq!(rig.device.unregister(rig.src.key), Err(RegionError::InUse { key: rig.src.key, segments: 1 }));
    rig.device.stop(rig.channel).unwrap();
    assert_eq!(rig.poll(), [(1, Status::Aborted(HaltCause::Stopped))]);
    assert_eq!(rig.device.unregister(rig.src.key), Ok(()));
    let stats = rig.device.stats(rig.channel).unwrap();
    assert_eq!((stats.done, stats.lost, stats.aborted), (3, 1, 1));
}

#[test]
fn a_stuck_channel_accepts_and_does_nothing() {
    let mut rig = Rig::new(Profile::bluefield3(), "stick@3");
    rig.send(0..2);
    assert_eq!(rig.run(), all(0..2, Status::Done));
    rig.send(2..5);
    assert_eq!(rig.run(), []);
    assert_eq!((rig.state(), rig.device.in_flight(rig.channel)), (ChannelState::Running, 3));
    rig.send(5..6);
    assert_eq!((rig.run(), rig.device.next_event()), (vec![], None));
    rig.device.reset(rig.channel).unwrap();
    assert_eq!(rig.poll(), all(2..6, Status::Aborted(HaltCause::Stopped)));
    rig.send(6..8);
    assert_eq!(rig.run(), all(6..8, Status::Done));
}

#[test]
fn a_device_that_vanishes_aborts_everything_for_good() {
    let mut rig = Rig::new(Profile::bluefield3(), "gone@3:ch=0");
    let other = rig.device.open_channel(4).unwrap();
    rig.device.submit(other, &Descriptor::copy(9, rig.src, rig.dst)).unwrap();
    rig.send(0..6);
    let gone = Status::Aborted(HaltCause::DeviceGone);
    let ended = rig.run();
    assert_eq!(ended.len(), 6);
    assert_eq!(ended[2], (2, gone));
    assert_eq!(rig.device.poll(other).unwrap().status, gone);
    assert!(rig.device.is_gone());
    assert_eq!(rig.submit(7), Err(Refused::DeviceGone));
    assert_eq!(rig.device.restart(rig.channel), Err(ChannelError::DeviceGone));
    assert_eq!(rig.device.open_channel(1), Err(ChannelError::DeviceGone));
    rig.device.close_channel(rig.channel).unwrap();
}

#[test]
fn a_dead_device_reports_nothing_any_more() {
    for faults in ["dead@3:ch=0", "dead@t=1ps"] {
        let mut rig = Rig::new(Profile::bluefield3(), faults);
        let other = rig.device.open_channel(4).unwrap();
        rig.device.submit(other, &Descriptor::copy(9, rig.src, rig.dst)).unwrap();
        rig.send(0..6);
        let ended = rig.run();
        assert!(ended.iter().all(|(token, status)| *token != 2 && *status == Status::Done), "{ended:?}");
        assert!(rig.device.is_dead() && rig.device.is_gone());
        assert_eq!(rig.device.in_flight(rig.channel) as usize, 6 - ended.len());
        assert_eq!((rig.device.poll(other), rig.device.next_event()), (None, None));
        assert_eq!(rig.submit(7), Err(Refused::DeviceGone));
        assert_eq!(rig.device.restart(rig.channel), Err(ChannelError::DeviceGone));
        assert_eq!(rig.device.open_channel(1), Err(ChannelError::DeviceGone));
    }
}

#[test]
fn slow_tasks_take_so_much_longer() {
    let time = |faults| {
        let mut rig = Rig::new(Profile::bluefield3(), faults);
        rig.send(0..1);
        rig.run();
        rig.device.now()
    };
    assert_eq!(time("slow@1:for=200us") - time(""), Time::from_us(200));
}

#[test]
fn a_corrupted_task_is_done_with_one_bit_wrong() {
    let mut rig = Rig::new(Profile::ideal(), "corrupt@1");
    rig.send(0..1);
    assert_eq!(rig.run(), all(0..1, Status::Done));
    let mut bytes = vec![0; LEN as usize];
    rig.device.read(rig.dst.key, rig.dst.addr.0, &mut bytes).unwrap();
    let wrong: Vec<_> = bytes.iter().filter(|byte| **byte != 7).collect();
    assert_eq!(wrong.len(), 1);
    assert_eq!((wrong[0] ^ 7).count_ones(), 1);
}

#[test]
fn timed_faults_strike_at_their_time() {
    let mut rig = Rig::new(Profile::bluefield3(), "reset@t=1us+stick@t=30us+fail@t=10us");
    rig.send(0..3);
    rig.device.advance(Time::from_ps(999_999));
    assert_eq!(rig.state(), ChannelState::Running);
    rig.device.advance(Time::from_us(1));
    assert_eq!(rig.state(), ChannelState::Halted(HaltCause::Reset));
    assert_eq!(rig.poll(), all(0..3, RESET));
    rig.device.restart(rig.channel).unwrap();
    rig.send(3..4);
    rig.device.advance(Time::from_us(10));
    assert_eq!(rig.poll(), all(3..4, Status::Done));
    rig.send(4..5);
    rig.device.advance(Time::from_us(20));
    assert_eq!(rig.poll(), [(4, ENGINE)]);
    rig.device.restart(rig.channel).unwrap();
    rig.send(5..6);
    rig.device.advance(Time::from_us(30));
    rig.send(6..7);
    rig.device.advance(Time::from_us(99));
    assert_eq!(rig.poll(), [(5, Status::Done)]);

    let mut rig = Rig::new(Profile::ideal(), "gone@t=5us");
    rig.device.run();
    assert_eq!((rig.device.now(), rig.device.is_gone()), (Time::from_us(5), true));
}

#[test]
#[cfg_attr(miri, ignore = "makes thousands of copies")]
fn probabilities_are_kept_and_repeat_with_the_seed() {
    let run = |seed| {
        let config = DeviceConfig::new(Profile::ideal()).with_seed(seed);
        let mut device = Device::new(config.with_faults("fail:p=0.1".parse().unwrap())).unwrap();
        let key = device.allocate(64, Rights::all(), None).unwrap();
        let (addr, _) = device.range(key).unwrap();
        let channel = device.open_channel(64).unwrap();
        let mut failed = Vec::new();
        for token in 0..2_000 {
            let (src, dst) = (segment(key, addr, 8), segment(key, addr + 8, 8));
            device.submit(channel, &Descriptor::copy(token, src, dst)).unwrap();
            device.doorbell(channel).unwrap();
            device.run();
            if device.poll(channel).unwrap().status != Status::Done {
                failed.push(token);
            }
        }
        failed
    };
    let failed = run(1);
    assert!((140..260).contains(&failed.len()), "{}", failed.len());
    assert_eq!(failed, run(1));
    assert_ne!(failed, run(2));
}

#[test]
fn oversize_is_found_where_the_profile_says() {
    let small = |profile: Profile| Profile { max_task: LEN - 1, ..profile };
    let error = TaskError::TooLong { len: LEN, max: LEN - 1 };

    let mut rig = Rig::new(small(Profile::ideal()), "");
    assert_eq!(rig.submit(0), Err(Refused::Invalid(error)));

    let mut rig = Rig::new(small(Profile::bluefield3()), "");
    rig.send(0..2);
    assert_eq!(rig.run(), [(0, Status::Failed(error)), (1, Status::Aborted(HaltCause::TaskFailed))]);

    // With the fault, the task is accepted and resets the channel, on a device that would otherwise
    // refuse the task.
    let mut rig = Rig::new(small(Profile::ideal()), "oversize@1");
    rig.send(0..1);
    assert_eq!(rig.run(), [(0, Status::Failed(error))]);
    assert_eq!(rig.state(), ChannelState::Halted(HaltCause::Reset));
    rig.device.restart(rig.channel).unwrap();
    assert_eq!(rig.submit(1), Err(Refused::Invalid(error)));
    // The fault does not affect a task within the limit.
    let mut rig = Rig::new(Profile::ideal(), "oversize");
    rig.send(0..1);
    assert_eq!(rig.run(), all(0..1, Status::Done));
}

#[test]
fn memory_outside_is_a_fault_and_never_touched() {
    for profile in Profile::NAMES.map(|name| Profile::by_name(name).unwrap()) {
        let at_submit = profile.protection == Found::AtSubmit;
        let mut rig = Rig::new(profile, "");
        let (base, key) = (rig.dst.addr.0, rig.dst.key);
        let beyond = segment(key, base + 1, LEN);
        let error = TaskError::OutOfRange { key, addr: base + 1, len: LEN, base, size: LEN };
        let outcome = rig.device.submit(rig.channel, &Descriptor::copy(0, rig.src, beyond));
        if at_submit {
            assert_eq!(outcome, Err(Refused::Invalid(error)));
        } else {
            outcome.unwrap();
            rig.device.doorbell(rig.channel).unwrap();
            rig.device.run();
            let completion = rig.device.poll(rig.channel).unwrap();
            assert_eq!((completion.status, completion.touched), (Status::Failed(error), false));
        }
        assert_eq!(rig.moved(), 0);
    }
}

/// A peer that grants access this number of times, and then refuses with the given error. Counts the
/// grants that are held.
#[derive(Debug)]
struct RevokingPeer {
    grants: AtomicU64,
    held: AtomicI64,
    error: PeerError,
}

impl PeerAccess for RevokingPeer {
    fn acquire(&self) -> Result<(), PeerError> {
        let left = self.grants.load(Ordering::Relaxed);
        if left == 0 {
            return Err(self.error);
        }
        self.grants.store(left - 1, Ordering::Relaxed);
        self.held.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn release(&self) {
        self.held.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn a_peer_that_takes_its_memory_back_fails_the_task() {
    for (error, status) in [
        (PeerError::Revoked, Status::Failed(TaskError::Revoked)),
        (PeerError::Gone, Status::Failed(TaskError::PeerGone)),
    ] {
        for grants in 0..8 {
            let revoking = Arc::new(RevokingPeer { grants: grants.into(), held: 0.into(), error });
            let peer = Arc::clone(&revoking) as _;
            let mut rig = Rig::with_peer(Profile::ideal(), "", Some(peer));
            rig.send(0..1);
            rig.device.run();
            let completion = rig.device.poll(rig.channel).unwrap();
            let done = completion.status == Status::Done;
            assert!(done || completion.status == status);
            assert!(done || rig.moved() < LEN as usize);
            assert_eq!(completion.touched, grants > 0);
            assert_eq!(revoking.held.load(Ordering::Relaxed), 0);
            assert!(grants > 0 || !done);
        }
    }
}
