//! Tests each fault and each behaviour of the device model separately.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use dma_sim::model::*;

const LEN: u64 = 4_096;

/// Returns the segment with these numbers.
fn segment(key: RegionKey, addr: u64, len: u64) -> Segment {
    Segment { key, addr: DeviceAddr(addr), len: len as usize }
}

/// A device with one source, one destination and one channel.
struct Rig {
    device: Device,
    src: Segment,
    dst: Segment,
    channel: ChannelId,
}

impl Rig {
    fn new(profile: Profile, faults: &str) -> Self {
        Self::with_peer(profile, faults, None)
    }

    /// Creates a rig in which the destination is the peer's memory.
    fn with_peer(profile: Profile, faults: &str, peer: Option<Arc<dyn PeerAccess>>) -> Self {
        let config = DeviceConfig::new(profile).with_seed(3).with_faults(faults.parse().unwrap());
        let mut device = Device::new(config.with_trace(TraceMode::Record)).unwrap();
        let mut region = |rights, peer| {
            let key = device.allocate(LEN, rights, peer).unwrap();
            segment(key, device.range(key).unwrap().0, LEN)
        };
        let src = region(Rights::LOCAL_READ, None);
        let dst = region(Rights::LOCAL_WRITE | Rights::REMOTE_WRITE, peer);
        device.write(src.key, src.addr.0, &[7; LEN as usize]).unwrap();
        let channel = device.open_channel(16).unwrap();
        Self { device, src, dst, channel }
    }

    fn submit(&mut self, token: u64) -> Result<(), Refused> {
        self.device.submit(self.channel, &Descriptor::copy(token, self.src, self.dst))
    }

    /// Submits this number of tasks and rings the doorbell.
    fn send(&mut self, tokens: std::ops::Range<u64>) {
        for token in tokens {
            self.submit(token).unwrap();
        }
        self.device.doorbell(self.channel).unwrap();
    }

    /// Polls all reports. Returns them sorted by token.
    fn poll(&mut self) -> Vec<(u64, Status)> {
        let mut all: Vec<_> = std::iter::from_fn(|| self.device.poll(self.channel)).collect();
        all.sort_by_key(|completion| completion.token);
        all.iter().map(|completion| (completion.token, completion.status)).collect()
    }

    fn run(&mut self) -> Vec<(u64, Status)> {
        self.device.run();
        self.poll()
    }

    /// Returns the number of destination bytes that equal the source.
    fn moved(&self) -> usize {
        let mut bytes = vec![0; LEN as usize];
        self.device.read(self.dst.key, self.dst.addr.0, &mut bytes).unwrap();
        bytes.iter().filter(|byte| **byte == 7).count()
    }

    fn state(&self) -> ChannelState {
        self.device.state(self.channel).unwrap()
    }
}

fn all(tokens: std::ops::Range<u64>, status: Status) -> Vec<(u64, Status)> {
    tokens.map(|token| (token, status)).collect()
}

const ENGINE: Status = Status::Failed(TaskError::Engine);
const RESET: Status = Status::Aborted(HaltCause::Reset);

#[test]
fn nothing_starts_before_the_doorbell() {
    let mut rig = Rig::new(Profile::ideal(), "");
    rig.submit(0).unwrap();
    assert_eq!(rig.device.next_event(), None);
    rig.device.advance(Time::from_us(1));
    assert_eq!((rig.moved(), rig.poll()), (0, vec![]));
    assert_eq!(rig.device.doorbell(rig.channel), Ok(1));
    assert_eq!(rig.device.doorbell(rig.channel), Ok(0));
    assert_eq!(rig.run(), all(0..1, Status::Done));
}

#[test]
fn a_copy_is_half_done_in_between_and_whole_before_its_completion() {
    let mut half = 0;
    let mut rig = Rig::new(Profile::bluefield3(), "");
    for token in 0..50 {
        rig.device.submit(rig.channel, &Descriptor::copy(token, rig.src, rig.dst)).unwrap();
        rig.device.doorbell(rig.channel).unwrap();
        while !rig.device.has_completion(rig.channel) {
            half += usize::from((1..LEN as usize).contains(&rig.moved()));
            let at = rig.device.next_event().unwrap();
            rig.device.advance(at);
        }
        assert_eq!(rig.moved(), LEN as usize);
        assert_eq!(rig.poll(), [(token, Status::Done)]);
        // The destination is cleared for the next copy.
        rig.device.write(rig.dst.key, rig.dst.addr.0, &[0; LEN as usize]).unwrap();
    }
    assert!(half > 20, "{half}");
}

#[test]
fn without_tearing_all_moves_at_the_end() {
    let config = DeviceConfig { tearing: false, ..DeviceConfig::new(Profile::bluefield3()) };
    let mut device = Device::new(config.with_trace(TraceMode::Record)).unwrap();
    let key = device.allocate(2 * LEN, Rights::all(), None).unwrap();
    let (addr, _) = device.range(key).unwrap();
    let channel = device.open_channel(16).unwrap();
    let (src, dst) = (segment(key, addr, LEN), segment(key, addr + LEN, LEN));
    (0..16).for_each(|i| device.submit(channel, &Descriptor::copy(i, src, dst)).unwrap());
    device.doorbell(channel).unwrap();
    device.run();
    assert!(!device.trace().events().iter().any(|e| e.what.starts_with("move ")));
}

#[test]
fn a_full_queue_says_so_until_polled() {
    let mut rig = Rig::new(Profile::ideal(), "");
    rig.send(0..16);
    assert_eq!(rig.submit(16), Err(Refused::Full { depth: 16 }));
    rig.device.run();
    // A task that is done still occupies its slot until it is polled.
    assert_eq!(rig.submit(16), Err(Refused::Full { depth: 16 }));
    assert!(rig.device.poll(rig.channel).is_some());
    assert_eq!(rig.submit(16), Ok(()));
    assert_eq!(rig.device.in_flight(rig.channel), 16);
}

#[test]
fn completions_come_in_many_orders_but_not_over_a_fence() {
    let mut orders = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let config = DeviceConfig::new(Profile::ideal()).with_seed(seed);
        let mut device = Device::new(config).unwrap();
        let key = device.allocate(LEN, Rights::all(), None).unwrap();
        let (addr, _) = device.range(key).unwrap();
        let channel = device.open_channel(16).unwrap();
        for token in 0..8 {
            let src = segment(key, addr, 8);
            let dst = segment(key, addr + 64, 8);
            let task = Descriptor::copy(token, src, dst);
            device.submit(channel, &task.with_fence(token == 4)).unwrap();
        }
        device.doorbell(channel).unwrap();
        device.run();
        let order: Vec<_> = std::iter::from_fn(|| device.poll(channel)).map(|c| c.token).collect();
        let fence = order.iter().position(|token| *token == 4).unwrap();
        assert!(fence >= 4 && order[..4].iter().all(|token| *token < 4), "{order:?}");
        orders.insert(order);
    }
    assert!(orders.len() > 15, "{orders:?}");
}

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

#[test]
fn zero_bytes_are_what_the_profile_makes_of_them() {
    for (found, status) in [
        (ZeroLength::Completes, Ok(Status::Done)),
        (ZeroLength::Mistake(Found::InEngine), Ok(Status::Failed(TaskError::ZeroLength))),
        (ZeroLength::Mistake(Found::AtSubmit), Err(Refused::Invalid(TaskError::ZeroLength))),
    ] {
        let mut rig = Rig::new(Profile { zero_length: found, ..Profile::ideal() }, "");
        let (src, dst) = (Segment { len: 0, ..rig.src }, Segment { len: 0, ..rig.dst });
        let outcome = rig.device.submit(rig.channel, &Descriptor::copy(0, src, dst));
        rig.device.doorbell(rig.channel).unwrap();
        let ended = rig.run();
        assert_eq!(outcome.map(|()| ended[0].1), status);
    }
}

#[test]
fn coalesced_reports_wait_for_a_later_one_that_is_not() {
    let mut rig = Rig::new(Profile::bluefield3(), "");
    let submit = |rig: &mut Rig, token, coalesce| {
        let task = Descriptor::copy(token, rig.src, rig.dst);
        let submitted = match coalesce {
            true => rig.device.submit_coalesced(rig.channel, &task),
            false => rig.device.submit(rig.channel, &task),
        };
        submitted.unwrap();
        rig.device.doorbell(rig.channel).unwrap();
    };
    submit(&mut rig, 0, false);
    submit(&mut rig, 1, true);
    submit(&mut rig, 2, true);
    // The coalesced tasks are done, and are not reported yet.
    assert_eq!(rig.run(), all(0..1, Status::Done));
    assert_eq!((rig.moved(), rig.device.next_event()), (LEN as usize, None));
    submit(&mut rig, 3, false);
    assert_eq!(rig.run(), all(1..4, Status::Done));
    // Coalesced tasks that are done are reported as done when the channel goes down.
    submit(&mut rig, 4, true);
    rig.device.run();
    rig.device.stop(rig.channel).unwrap();
    assert_eq!(rig.poll(), all(4..5, Status::Done));
}

#[test]
fn ioat_reports_a_doorbell_at_once_and_in_order() {
    let mut rig = Rig::new(Profile::ioat(), "");
    rig.send(0..5);
    rig.send(5..8);
    let (mut seen, mut groups) = (Vec::<u64>::new(), Vec::new());
    while let Some(at) = rig.device.next_event() {
        rig.device.advance(at);
        let group: Vec<_> = std::iter::from_fn(|| rig.device.poll(rig.channel)).map(|c| c.token).collect();
        seen.extend(&group);
        groups.extend((!group.is_empty()).then_some(group.len()));
    }
    assert_eq!(seen, (0..8).collect::<Vec<_>>());
    assert_eq!(groups, [5, 3]);
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

#[test]
fn scattered_and_gathered_bytes_land_in_order() {
    let mut rig = Rig::new(Profile::bluefield3(), "");
    let (src, dst) = (rig.src, rig.dst);
    let bytes: Vec<u8> = (0..LEN).map(|i| i as u8).collect();
    rig.device.write(src.key, src.addr.0, &bytes).unwrap();
    let piece = |s: Segment, from, len| segment(s.key, s.addr.0 + from, len);
    let from = [piece(src, 100, 50), piece(src, 10, 0), piece(src, 0, 31)];
    let to = [piece(dst, 4_000, 3), piece(dst, 0, 78)];
    rig.device.submit(rig.channel, &Descriptor::copy_lists(0, &from, &to)).unwrap();
    rig.device.doorbell(rig.channel).unwrap();
    assert_eq!(rig.run(), all(0..1, Status::Done));
    let mut out = vec![0; LEN as usize];
    rig.device.read(dst.key, dst.addr.0, &mut out).unwrap();
    let wanted: Vec<u8> = (100..150).chain(0..31).collect();
    assert_eq!([&out[4_000..4_003], &out[..78]].concat(), wanted);
    assert!(out[78..4_000].iter().all(|byte| *byte == 0));

    let too_many = vec![piece(src, 0, 1); 65];
    let refused = rig.device.submit(rig.channel, &Descriptor::copy_lists(1, &too_many, &[piece(dst, 0, 65)]));
    assert_eq!(refused, Err(Refused::Invalid(TaskError::Segments { segments: 65, max: 64 })));
}

#[test]
fn fills_repeat_their_pattern() {
    let mut rig = Rig::new(Profile::ideal(), "");
    let dst = rig.dst;
    let to = [segment(dst.key, dst.addr.0, 13), segment(dst.key, dst.addr.0 + 100, 10)];
    rig.device.submit(rig.channel, &Descriptor::fill(0, [1, 2, 3, 4, 5, 6, 7, 8], &to)).unwrap();
    rig.device.doorbell(rig.channel).unwrap();
    assert_eq!(rig.run(), all(0..1, Status::Done));
    let mut out = vec![0; 110];
    rig.device.read(dst.key, dst.addr.0, &mut out).unwrap();
    assert_eq!(out[..14], [1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 0]);
    assert_eq!(out[100..], [6, 7, 8, 1, 2, 3, 4, 5, 6, 7]);

    let mut rig = Rig::new(Profile::bluefield3(), "");
    let refused = rig.device.submit(rig.channel, &Descriptor::fill(0, [0; 8], &[dst]));
    assert_eq!(refused, Err(Refused::Invalid(TaskError::Unsupported)));
}

#[test]
fn channels_are_limited_and_closed_only_when_empty() {
    let mut rig = Rig::new(Profile { channels: 2, ..Profile::ideal() }, "");
    let second = rig.device.open_channel(1).unwrap();
    assert_eq!(rig.device.open_channel(1), Err(ChannelError::NoneFree { max: 2 }));
    rig.send(0..1);
    assert_eq!(rig.device.close_channel(rig.channel), Err(ChannelError::Busy { tasks: 1 }));
    rig.device.run();
    assert_eq!(rig.device.close_channel(rig.channel), Err(ChannelError::Busy { tasks: 1 }));
    rig.poll();
    rig.device.close_channel(rig.channel).unwrap();
    assert_eq!(rig.submit(1), Err(Refused::NoSuchChannel));
    assert_eq!(rig.device.close_channel(rig.channel), Err(ChannelError::NoSuchChannel));
    assert_eq!(rig.device.open_channel(0), Err(ChannelError::Depth { requested: 0, max: 65_536 }));
    assert_ne!(rig.device.open_channel(1).unwrap(), rig.channel);
    rig.device.close_channel(second).unwrap();
}

#[test]
fn channels_share_the_engine_fairly() {
    let mut device = Device::new(DeviceConfig::new(Profile::bluefield3())).unwrap();
    let len = 1 << 20;
    let key = device.allocate(2 * len, Rights::all(), None).unwrap();
    let (addr, _) = device.range(key).unwrap();
    let (src, dst) = (segment(key, addr, len), segment(key, addr + len, len));
    let channels = [device.open_channel(64).unwrap(), device.open_channel(64).unwrap()];
    // The first channel already has a long backlog when the second channel begins.
    for (channel, tasks) in [(channels[0], 32), (channels[1], 8)] {
        (0..tasks).for_each(|i| device.submit(channel, &Descriptor::copy(i, src, dst)).unwrap());
        device.doorbell(channel).unwrap();
    }
    while device.stats(channels[1]).unwrap().done < 8 {
        let at = device.next_event().unwrap();
        device.advance(at);
    }
    let other = device.stats(channels[0]).unwrap().done;
    assert!((6..=13).contains(&other), "{other}");
}

/// A trace with every kind of event. It must not change, because a changed line or digest breaks
/// traces that users have recorded.
#[test]
fn the_trace_is_fixed() {
    let mut rig = Rig::new(Profile::bluefield3(), "refuse@2+corrupt@3+lose@4+fail@6");
    rig.submit(0).unwrap();
    rig.submit(1).unwrap_err();
    rig.send(2..6);
    rig.run();
    rig.device.restart(rig.channel).unwrap();
    let (src, dst) = (Segment { len: 64, ..rig.src }, Segment { len: 64, ..rig.dst });
    rig.device.submit(rig.channel, &Descriptor::copy(6, src, dst).with_fence(true)).unwrap();
    rig.device.doorbell(rig.channel).unwrap();
    rig.run();
    let digest = rig.device.trace().digest();
    let lines: Vec<_> = rig.device.take_trace().iter().map(ToString::to_string).collect();
    let text = lines.join("\n");
    println!("{text}");
    assert_eq!(lines[3], "0.000 ch0 submit task=1 token=0 op=copy len=4096 segments=1x1 src=0.0+0 dst=1.0+0");
    assert_eq!(lines[4], "0.000 ch0 refuse token=1 why=rejected");
    for part in [
        "dev register key=1.0 len=4096 rights=write+remote-write remote=false",
        "ch0 corrupt task=3",
        "ch0 lose task=4",
        "ch0 end task=6 status=failed:engine",
        "ch0 halt cause=task-failed",
        "ch0 end task=4 status=aborted:task-failed",
        "ch0 restart",
        "ch0 submit task=7 token=6 op=copy len=64 segments=1x1 src=0.0+0 dst=1.0+0 fence",
        "ch0 report task=7 token=6",
    ] {
        assert!(text.contains(part), "{part}");
    }
    assert_eq!(digest, 3_441_066_377_756_429_033);
}
