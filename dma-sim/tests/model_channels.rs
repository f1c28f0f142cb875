//! Tests each behaviour of the device model without faults separately.

mod model_rig;

use dma_sim::model::*;
use model_rig::*;

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
#[cfg_attr(miri, ignore = "needs copies that are too long for Miri")]
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

#[test]
fn scattered_and_gathered_bytes_land_in_order() {
    const FAR: usize = LEN as usize - 4;
    let mut rig = Rig::new(Profile::bluefield3(), "");
    let (src, dst) = (rig.src, rig.dst);
    let bytes: Vec<u8> = (0..LEN).map(|i| i as u8).collect();
    rig.device.write(src.key, src.addr.0, &bytes).unwrap();
    let piece = |s: Segment, from, len| segment(s.key, s.addr.0 + from, len);
    let from = [piece(src, 100, 50), piece(src, 10, 0), piece(src, 0, 31)];
    let to = [piece(dst, FAR as u64, 3), piece(dst, 0, 78)];
    rig.device.submit(rig.channel, &Descriptor::copy_lists(0, &from, &to)).unwrap();
    rig.device.doorbell(rig.channel).unwrap();
    assert_eq!(rig.run(), all(0..1, Status::Done));
    let mut out = vec![0; LEN as usize];
    rig.device.read(dst.key, dst.addr.0, &mut out).unwrap();
    let wanted: Vec<u8> = (100..150).chain(0..31).collect();
    assert_eq!([&out[FAR..FAR + 3], &out[..78]].concat(), wanted);
    assert!(out[78..FAR].iter().all(|byte| *byte == 0));

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
#[cfg_attr(miri, ignore = "copies 40 MiB")]
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
#[cfg_attr(miri, ignore = "has the lengths of copies that are too long for Miri")]
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
