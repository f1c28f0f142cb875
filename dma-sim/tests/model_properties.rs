//! Runs random scripts on the device model, with an oracle in plain memory.

use std::collections::{BTreeMap, BTreeSet};

use dma_core::Completion;
use dma_sim::model::*;
use proptest::prelude::*;

/// Number of bytes for destinations. Tasks get them from the front.
const ARENA: u64 = 48 << 10;
const SOURCE: u64 = 16 << 10;
const CANARY: u8 = 0xee;
const CHANNELS: usize = 2;

#[derive(Clone, Debug)]
enum Op {
    Submit { channel: usize, len: u64, split: u8, kind: Kind, fence: bool, coalesce: bool, gap: u64 },
    Doorbell(usize),
    Advance(u64),
    Step,
    Poll(usize),
    Restart(usize),
    Stop(usize),
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Copy(u64),
    /// Copies the destination of an earlier task of the channel, with a fence. Half of these copies compute
    /// the CRC-32C, if the device supports it.
    Chain(usize),
    Fill(u64),
    Both(u64),
    /// Compares a range of the source with the range at this distance from it.
    Compare(u64, u64),
    Crc(u64, u32),
    CopyCrc(u64, u32),
    BadKey,
    OutOfRange,
    Denied,
    Mismatch,
    TooLong,
}

fn op() -> impl Strategy<Value = Op> {
    let channel = 0..CHANNELS;
    let kind = prop_oneof![
        8 => any::<u64>().prop_map(Kind::Copy),
        3 => any::<usize>().prop_map(Kind::Chain),
        2 => any::<u64>().prop_map(Kind::Fill),
        2 => any::<u64>().prop_map(Kind::Both),
        // With exceptions, the source repeats every 128 bytes.
        2 => (any::<u64>(), prop::sample::select(vec![0, 128, 256, 1])).prop_map(|(n, far)| Kind::Compare(n, far)),
        2 => any::<(u64, u32)>().prop_map(|(n, seed)| Kind::Crc(n, seed)),
        2 => any::<(u64, u32)>().prop_map(|(n, seed)| Kind::CopyCrc(n, seed)),
        1 => prop_oneof![
            Just(Kind::BadKey),
            Just(Kind::OutOfRange),
            Just(Kind::Denied),
            Just(Kind::Mismatch),
            Just(Kind::TooLong)
        ],
    ];
    let len = prop_oneof![1 => Just(0_u64), 4 => 1..200_u64, 2 => 1..4_000_u64];
    prop_oneof![
        8 => (channel.clone(), len, 0..4_u8, kind, prop::bool::weighted(0.15), prop::bool::weighted(0.2), 0..70_u64)
            .prop_map(|(channel, len, split, kind, fence, coalesce, gap)| Op::Submit {
                channel, len, split, kind, fence, coalesce, gap
            }),
        4 => channel.clone().prop_map(Op::Doorbell),
        3 => (0..3_000_000_u64).prop_map(Op::Advance),
        3 => Just(Op::Step),
        4 => channel.clone().prop_map(Op::Poll),
        1 => channel.clone().prop_map(Op::Restart),
        1 => prop::bool::weighted(0.2).prop_flat_map(move |really| {
            let channel = 0..CHANNELS;
            if really { channel.prop_map(Op::Stop).boxed() } else { channel.prop_map(Op::Poll).boxed() }
        }),
    ]
}

fn faults() -> impl Strategy<Value = String> {
    let rule = (
        prop::sample::select(vec![
            "refuse", "fail", "reset", "lose", "stick", "gone", "dead", "slow", "corrupt", "oversize",
        ]),
        prop_oneof![
            (1..40_u64).prop_map(|n| format!("@{n}")),
            (1..20_u64).prop_map(|n| format!("@every={n}")),
            (0..5_000_000_u64).prop_map(|ps| format!("@t={ps}ps")),
            (0..200_u32).prop_map(|p| format!("@1-:p={}", f64::from(p) / 1000.0)),
        ],
    )
        .prop_map(|(fault, when)| {
            let longer = if fault == "slow" { ":for=2us" } else { "" };
            format!("{fault}{when}{longer}")
        });
    prop_oneof![2 => Just(String::new()), 3 => prop::collection::vec(rule, 1..4).prop_map(|r| r.join("+"))]
}

/// Returns the segment with these numbers.
fn segment(key: RegionKey, addr: u64, len: u64) -> Segment {
    Segment { key, addr: DeviceAddr(addr), len: len as usize }
}

/// The oracle's record of an accepted task.
#[derive(Clone, Debug)]
struct Task {
    channel: usize,
    at: u64,
    /// Expected bytes; `None` if they depend on a task that did not succeed.
    bytes: Option<Vec<u8>>,
    /// The expected result, and the reported result.
    result: u64,
    reported: u64,
    coalesce: bool,
    /// True if the task reads the destination of another task.
    chained: bool,
    rung: bool,
    must_fail: bool,
    ended: Option<Status>,
}

struct Model {
    device: Device,
    channels: Vec<ChannelId>,
    src: RegionKey,
    src_bytes: Vec<u8>,
    dst: RegionKey,
    base: (u64, u64),
    next: u64,
    tasks: Vec<Task>,
    disturbed: bool,
    segments: u32,
}

impl Model {
    fn new(profile: Profile, seed: u64, faults: &str) -> Self {
        let faults: FaultPlan = faults.parse().unwrap();
        let disturbed = !faults.rules.is_empty();
        let segments = profile.max_segments;
        let config = DeviceConfig::new(profile).with_seed(seed).with_faults(faults);
        let mut device = Device::new(config.with_trace(TraceMode::Record)).unwrap();
        let src = device.allocate(SOURCE, Rights::LOCAL_READ, None).unwrap();
        let dst = device.allocate(ARENA, Rights::LOCAL_READ | Rights::LOCAL_WRITE, None).unwrap();
        let base = (device.range(src).unwrap().0, device.range(dst).unwrap().0);
        let src_bytes: Vec<u8> = (0..SOURCE).map(|i| (i * 7 + i / 251 + 1) as u8 & 0x7f).collect();
        device.write(src, base.0, &src_bytes).unwrap();
        device.write(dst, base.1, &vec![CANARY; ARENA as usize]).unwrap();
        let channels = (0..CHANNELS).map(|_| device.open_channel(20).unwrap()).collect();
        Self { device, channels, src, src_bytes, dst, base, next: 0, tasks: Vec::new(), disturbed, segments }
    }

    /// Splits a range into 1 to 4 segments, if the device supports several.
    fn segments(&self, key: RegionKey, addr: u64, len: u64, split: u8) -> Vec<Segment> {
        let parts = u64::from(split).min(u64::from(self.segments) - 1) + 1;
        let cut = |i: u64| addr + len * i / parts;
        (0..parts).map(|i| segment(key, cut(i), cut(i + 1) - cut(i))).collect()
    }

    fn submit(&mut self, op: &Op) {
        let Op::Submit { channel, len, split, kind, fence, coalesce, gap } = *op else { unreachable!() };
        let at = self.next + gap;
        if at + 2 * len > ARENA {
            return;
        }
        let (src, dst) = (self.src, self.dst);
        let (src_base, dst_base) = self.base;
        let token = self.tasks.len() as u64;
        let mut to = self.segments(dst, dst_base + at, len, split);
        let mut from = Vec::new();
        let pick = |n: u64| n % (SOURCE - len + 1);
        let piece = |from: u64| self.src_bytes[from as usize..(from + len) as usize].to_vec();
        let whole = |from: u64| Some(piece(from));
        let source = |at: u64| segment(src, src_base + at, len);
        let target = segment(dst, dst_base + at, len);
        let both = [target, segment(dst, dst_base + at + len, len)];
        let (mut bytes, mut fence, mut result) = (None, fence, 0);
        let max = self.device.profile().max_task;
        // An operation other than a copy of lists.
        let mut other = None;
        match kind {
            Kind::Copy(n) => {
                from = self.segments(src, src_base + pick(n), len, split / 2);
                bytes = whole(pick(n));
            }
            Kind::Chain(n) => {
                let earlier: Vec<_> =
                    self.tasks.iter().filter(|t| t.channel == channel && !t.must_fail).collect();
                let Some(earlier) = earlier.get(n % earlier.len().max(1)) else { return };
                let len = len.min(earlier.bytes.as_ref().map_or(0, Vec::len) as u64);
                let from_addr = dst_base + earlier.at;
                bytes = earlier.bytes.as_ref().map(|b| b[..len as usize].to_vec());
                from = self.segments(dst, from_addr, len, 0);
                to = self.segments(dst, dst_base + at, len, split);
                fence = true;
                if let (true, Some(bytes)) = (self.device.profile().results && n % 2 == 1, &bytes) {
                    to = self.segments(dst, dst_base + at, len, 0);
                    other = Some(Descriptor::copy_crc32c(token, from[0], to[0], 9));
                    result = crc32c::crc32c_append(9, bytes).into();
                }
            }
            Kind::Both(n) => {
                other = Some(Descriptor::copy_to_both(token, source(pick(n)), &both));
                bytes = Some([piece(pick(n)), piece(pick(n))].concat());
            }
            Kind::Compare(n, far) => {
                let against = (pick(n) + far).min(SOURCE - len);
                other = Some(Descriptor::compare(token, source(pick(n)), source(against)));
                let mut sides = piece(pick(n)).into_iter().zip(piece(against));
                result = sides.position(|(a, b)| a != b).map_or(Completion::EQUAL, |at| at as u64);
                bytes = Some(Vec::new());
            }
            Kind::Crc(n, seed) => {
                other = Some(Descriptor::crc32c(token, source(pick(n)), seed));
                result = crc32c::crc32c_append(seed, &piece(pick(n))).into();
                bytes = Some(Vec::new());
            }
            Kind::CopyCrc(n, seed) => {
                other = Some(Descriptor::copy_crc32c(token, source(pick(n)), target, seed));
                result = crc32c::crc32c_append(seed, &piece(pick(n))).into();
                bytes = whole(pick(n));
            }
            Kind::Fill(pattern) => {
                other = Some(Descriptor::fill(token, pattern.to_le_bytes(), &to));
                bytes = Some((0..len).map(|i| pattern.to_le_bytes()[(i % 8) as usize]).collect());
            }
            Kind::BadKey => from = vec![segment(RegionKey(77), src_base, len)],
            Kind::OutOfRange => from = vec![segment(src, src_base + SOURCE - len + 1, len)],
            Kind::Denied => {
                from = vec![segment(src, src_base, len)];
                to = from.clone();
            }
            Kind::Mismatch => from = vec![segment(src, src_base, len + 1)],
            Kind::TooLong => {
                // The task names memory that does not exist, so it must not run.
                from = vec![segment(src, src_base, max.saturating_add(1))];
                to = vec![segment(dst, dst_base, max.saturating_add(1))];
            }
        }
        let descriptor = other.unwrap_or_else(|| Descriptor::copy_lists(token, &from, &to)).with_fence(fence);
        let empty = descriptor.len() == 0;
        let number = self.device.in_flight(self.channels[channel]);
        let outcome = match coalesce {
            true => self.device.submit_coalesced(self.channels[channel], &descriptor),
            false => self.device.submit(self.channels[channel], &descriptor),
        };
        let profile = self.device.profile();
        let protection = matches!(kind, Kind::BadKey | Kind::OutOfRange | Kind::Denied);
        let bad = protection || matches!(kind, Kind::Mismatch | Kind::TooLong);
        let answers = matches!(kind, Kind::Both(_) | Kind::Compare(..) | Kind::Crc(..) | Kind::CopyCrc(..));
        let written = bytes.as_ref().map_or(0, Vec::len) as u64;
        match outcome {
            Ok(()) => {
                let zero = empty && profile.zero_length != ZeroLength::Completes;
                let in_engine = match kind {
                    Kind::Mismatch => false,
                    Kind::TooLong => profile.protection == Found::InEngine,
                    _ => !protection || profile.protection == Found::InEngine,
                };
                assert!(in_engine, "accepted: {op:?}");
                assert!(number < 20, "a task was accepted beyond the depth");
                let mut bytes = bytes;
                if bad {
                    bytes = None;
                } else {
                    self.next = at + written;
                }
                self.tasks.push(Task {
                    channel,
                    at,
                    bytes,
                    result,
                    reported: 0,
                    coalesce,
                    chained: matches!(kind, Kind::Chain(_)),
                    rung: false,
                    must_fail: bad || zero,
                    ended: None,
                });
            }
            Err(Refused::Full { depth }) => assert_eq!((depth, number), (20, 20)),
            Err(Refused::Rejected | Refused::DeviceGone) => assert!(self.disturbed),
            Err(Refused::Halted(_)) => {
                assert_ne!(self.device.state(self.channels[channel]), Some(ChannelState::Running));
            }
            Err(Refused::Invalid(TaskError::Unsupported)) => {
                let offered = if answers { profile.results } else { profile.fill };
                assert!((answers || matches!(kind, Kind::Fill(_))) && !offered);
            }
            Err(Refused::Invalid(error)) => assert!(bad, "{op:?} refused: {error}"),
            Err(error) => panic!("{error}"),
        }
        assert_eq!(outcome.is_err(), self.tasks.len() as u64 == token);
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Submit { .. } => self.submit(op),
            Op::Doorbell(channel) => {
                self.device.doorbell(self.channels[channel]).unwrap();
                for task in self.tasks.iter_mut().filter(|t| t.channel == channel) {
                    task.rung = true;
                }
            }
            Op::Advance(ps) => {
                let to = self.device.now() + Time::from_ps(ps);
                self.device.advance(to);
                assert!(self.device.now() == to);
            }
            Op::Step => {
                if let Some(at) = self.device.next_event() {
                    self.device.advance(at);
                }
            }
            Op::Poll(channel) => self.poll(channel),
            Op::Restart(channel) => {
                let outcome = self.device.restart(self.channels[channel]);
                assert_eq!(outcome.is_err(), self.device.is_gone());
            }
            Op::Stop(channel) => {
                self.disturbed = true;
                self.device.stop(self.channels[channel]).unwrap();
            }
        }
    }

    fn poll(&mut self, channel: usize) {
        while let Some(completion) = self.device.poll(self.channels[channel]) {
            let task = &mut self.tasks[completion.token as usize];
            assert_eq!(task.channel, channel);
            assert_eq!(task.ended, None, "reported twice: {completion:?}");
            (task.ended, task.reported) = (Some(completion.status), completion.result);
            if completion.status == Status::Done {
                assert!(!task.must_fail, "{task:?}");
                assert!(task.rung, "ran without a doorbell: {task:?}");
                assert!(completion.ended >= completion.rung);
            } else if !completion.touched {
                let range = task.at..task.at + task.bytes.as_ref().map_or(0, Vec::len) as u64;
                let bytes = self.memory();
                assert!(bytes[range.start as usize..range.end as usize].iter().all(|b| *b == CANARY));
            }
        }
    }

    fn memory(&self) -> Vec<u8> {
        let mut bytes = vec![0; ARENA as usize];
        self.device.read(self.dst, self.base.1, &mut bytes).unwrap();
        bytes
    }

    /// Checks the invariants.
    fn check_memory(&self, corrupted: &BTreeSet<u64>) {
        let bytes = self.memory();
        let mut free = bytes.clone();
        for (token, task) in self.tasks.iter().enumerate() {
            let Some(wanted) = &task.bytes else { continue };
            let range = task.at as usize..task.at as usize + wanted.len();
            free[range.clone()].fill(CANARY);
            if !task.rung {
                assert!(bytes[range].iter().all(|b| *b == CANARY), "moved before the doorbell: {task:?}");
                continue;
            }
            if corrupted.contains(&(token as u64)) {
                let corrupted_result = wanted.is_empty() && task.ended == Some(Status::Done);
                assert!(
                    !corrupted_result || task.reported != task.result,
                    "a corrupted task has the right result: task {token}"
                );
                continue;
            }
            if !task.chained {
                // The destination may be half written, but has no other bytes.
                let moved = &bytes[range.clone()];
                let odd = || moved.iter().zip(wanted).find(|(b, w)| b != w && **b != CANARY);
                assert!(moved == wanted || odd().is_none(), "unexpected bytes: task {token}: {:?}", odd());
            }
            if task.ended == Some(Status::Done) && self.sources_are_good(token, corrupted) {
                assert_eq!(&bytes[range], wanted, "wrong bytes: task {token}");
                assert_eq!(task.reported, task.result, "wrong result: task {token}");
            }
        }
        if free != [CANARY; ARENA as usize] {
            let odd = free.iter().enumerate().find(|(_, byte)| **byte != CANARY);
            panic!("a byte was written that belongs to no task: {odd:?}");
        }
        let mut source = vec![0; SOURCE as usize];
        self.device.read(self.src, self.base.0, &mut source).unwrap();
        assert_eq!(source, self.src_bytes, "a source changed");
    }

    /// Returns true if all earlier tasks of the channel are done and not corrupted, because a chained copy
    /// might have read their destinations.
    fn sources_are_good(&self, token: usize, corrupted: &BTreeSet<u64>) -> bool {
        let channel = self.tasks[token].channel;
        let mut earlier = (0..).zip(&self.tasks[..token]).filter(|(_, task)| task.channel == channel);
        earlier.all(|(token, task)| task.ended == Some(Status::Done) && !corrupted.contains(&token))
    }
}

/// Checks the order of events in the trace. Returns the tokens of corrupted tasks.
fn check_trace(events: &[TraceEvent], in_order: bool) -> BTreeSet<u64> {
    #[derive(Default)]
    struct Channel {
        /// By the task's number: its token, true if it has a fence, and true if it has ended.
        tasks: BTreeMap<u64, (u64, bool, bool)>,
        last_start: u64,
        reported: BTreeSet<u64>,
        aborted: BTreeSet<u64>,
        last_report: u64,
    }
    let mut corrupted = BTreeSet::new();
    let mut channels: BTreeMap<u32, Channel> = BTreeMap::new();
    let mut last = Time::ZERO;
    for event in events {
        assert!(event.at >= last, "time went back: {event}");
        last = event.at;
        let Some(index) = event.channel else { continue };
        let channel = channels.entry(index).or_default();
        let words: Vec<_> = event.what.split(' ').collect();
        let value = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        let number = |name: &str| value(name).and_then(|text| text.parse::<u64>().ok());
        let Some(task) = number("task") else { continue };
        match words[0] {
            "submit" => {
                let token = number("token").unwrap();
                channel.tasks.insert(task, (token, words.contains(&"fence"), false));
            }
            "start" => {
                assert!(task > channel.last_start, "started out of order: {event}");
                channel.last_start = task;
                if channel.tasks[&task].1 {
                    let open = channel.tasks.range(..task).find(|(_, (_, _, ended))| !ended);
                    assert_eq!(open, None, "{event} before an earlier task ended");
                }
            }
            "end" => {
                if value("status").unwrap().starts_with("aborted:") {
                    channel.aborted.insert(task);
                }
                if let Some(entry) = channel.tasks.get_mut(&task) {
                    entry.2 = true;
                }
            }
            "corrupt" => {
                corrupted.insert(channel.tasks[&task].0);
            }
            "report" => {
                let aborted = channel.aborted.contains(&task);
                let fence = channel.reported.iter().rev().find(|seen| channel.tasks[seen].1);
                assert!(aborted || fence.is_none_or(|fence| *fence < task), "{event} behind a later fence");
                if in_order && !aborted {
                    assert!(task > channel.last_report, "reported out of order: {event}");
                    channel.last_report = task;
                }
                channel.reported.insert(task);
            }
            _ => {}
        }
    }
    corrupted
}

fn check(profile: Profile, seed: u64, plan: &str, script: &[Op]) {
    let in_order = profile.in_order;
    let halts = profile.on_failure == OnFailure::Halt;
    let mut model = Model::new(profile.clone(), seed, plan);
    for op in script {
        model.apply(op);
        let corrupted = check_trace(model.device.trace().events(), false);
        model.check_memory(&corrupted);
    }
    // All tasks that can end now end.
    for channel in 0..CHANNELS {
        model.apply(&Op::Doorbell(channel));
    }
    model.device.run();
    assert_eq!(model.device.next_event(), None);
    (0..CHANNELS).for_each(|channel| model.poll(channel));
    let failing = model.tasks.iter().any(|task| task.must_fail);
    if !model.disturbed {
        for (token, task) in model.tasks.iter().enumerate() {
            match task.ended {
                Some(Status::Failed(_)) => assert!(task.must_fail, "failed for no reason: {token}"),
                Some(Status::Aborted(_)) => assert!(halts && failing, "aborted for no reason: {token}"),
                Some(_) => {}
                // The task was coalesced, and no later task was reported. Real devices behave in the same
                // way.
                None => assert!(task.coalesce, "never reported: {token} {task:?}"),
            }
        }
    }
    // The remaining tasks were lost, stuck or coalesced. Taking the channels down reports them.
    for channel in 0..CHANNELS {
        model.device.stop(model.channels[channel]).unwrap();
        model.poll(channel);
        assert_eq!(model.device.in_flight(model.channels[channel]), 0);
    }
    for (token, task) in model.tasks.iter().enumerate() {
        assert!(task.ended.is_some(), "task {token} was never reported: {task:?}");
    }
    let corrupted = check_trace(model.device.trace().events(), in_order);
    model.check_memory(&corrupted);
    // No task uses the memory any more.
    let (src, dst) = (model.src, model.dst);
    for channel in model.channels.clone() {
        let stats = model.device.stats(channel).unwrap();
        assert_eq!(stats.submitted, stats.polled);
        assert_eq!(stats.submitted, stats.done + stats.failed + stats.aborted - stats.lost);
        model.device.close_channel(channel).unwrap();
    }
    model.device.unregister(src).unwrap();
    model.device.unregister(dst).unwrap();

    // A second run is identical, byte for byte, and reading the trace has no influence.
    let digest = model.device.trace().digest();
    let mut again = Model::new(profile, seed, plan);
    script.iter().for_each(|op| again.apply(op));
    for channel in 0..CHANNELS {
        again.apply(&Op::Doorbell(channel));
    }
    again.device.run();
    (0..CHANNELS).for_each(|channel| again.poll(channel));
    for channel in 0..CHANNELS {
        again.device.stop(again.channels[channel]).unwrap();
        again.poll(channel);
    }
    again.channels.clone().into_iter().for_each(|c| again.device.close_channel(c).unwrap());
    again.device.unregister(src).unwrap();
    again.device.unregister(dst).unwrap();
    assert_eq!(again.device.trace().digest(), digest);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2 * ProptestConfig::default().cases, ..Default::default() })]

    #[test]
    fn any_script_is_kept_to(
        name in prop::sample::select(Profile::NAMES.to_vec()),
        seed in any::<u64>(),
        plan in faults(),
        script in prop::collection::vec(op(), 1..120),
    ) {
        check(Profile::by_name(name).unwrap(), seed, &plan, &script);
    }
}
