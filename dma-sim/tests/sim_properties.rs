//! Runs random scripts on a simulated device with faults through the safe API, with an oracle in plain
//! memory.

use std::time::Duration;

use dma_core::{BufferMut, DmaEngineExt, ErrorKind, OpError, Queue, QueueOptions, Transfer};
use dma_sim::model::Profile;
use dma_sim::sim::{SimEngine, SimOptions};
use proptest::prelude::*;

/// A timeout that is reached only by operations that never end, because the virtual clock needs no real time.
const SHORT: Duration = Duration::from_millis(2);
/// A timeout that exceeds the time of a script on any machine.
const LONG: Duration = Duration::from_secs(60);
const CANARY: u8 = 0xee;

#[derive(Clone, Debug)]
enum Op {
    Copy {
        lens: Vec<usize>,
        byte: u8,
    },
    Fill {
        lens: Vec<usize>,
        byte: u8,
    },
    CopyToBoth {
        lens: Vec<usize>,
        byte: u8,
    },
    /// Compares two lists that are equal or differ in one byte.
    Compare {
        lens: Vec<usize>,
        byte: u8,
        differs: Option<prop::sample::Index>,
    },
    Crc {
        lens: Vec<usize>,
        byte: u8,
        seed: u32,
    },
    CopyCrc {
        lens: Vec<usize>,
        byte: u8,
        seed: u32,
    },
    Fence,
    Flush,
    Poll,
    Take(prop::sample::Index),
    Drop(prop::sample::Index),
}

fn op() -> impl Strategy<Value = Op> {
    let lens = || {
        let len = prop_oneof![1 => Just(0_usize), 4 => 1..300_usize, 2 => 1..9_000_usize];
        prop::collection::vec(len, 1..4)
    };
    prop_oneof![
        6 => (lens(), 1..0x80_u8).prop_map(|(lens, byte)| Op::Copy { lens, byte }),
        2 => (lens(), 1..0x80_u8).prop_map(|(lens, byte)| Op::Fill { lens, byte }),
        1 => (lens(), 1..0x80_u8).prop_map(|(lens, byte)| Op::CopyToBoth { lens, byte }),
        2 => (lens(), 1..0x80_u8, any::<Option<prop::sample::Index>>())
            .prop_map(|(lens, byte, differs)| Op::Compare { lens, byte, differs }),
        1 => (lens(), 1..0x80_u8, any::<u32>()).prop_map(|(lens, byte, seed)| Op::Crc { lens, byte, seed }),
        2 => (lens(), 1..0x80_u8, any::<u32>()).prop_map(|(lens, byte, seed)| Op::CopyCrc { lens, byte, seed }),
        1 => Just(Op::Fence),
        2 => Just(Op::Flush),
        3 => Just(Op::Poll),
        3 => any::<prop::sample::Index>().prop_map(Op::Take),
        1 => any::<prop::sample::Index>().prop_map(Op::Drop),
    ]
}

fn faults() -> impl Strategy<Value = String> {
    let rule = (
        prop::sample::select(vec!["refuse", "fail", "reset", "lose", "stick", "gone", "slow"]),
        prop_oneof![
            (1..40_u64).prop_map(|n| format!("@{n}")),
            (2..20_u64).prop_map(|n| format!("@every={n}")),
            (0..30_u64).prop_map(|us| format!("@t={us}us")),
        ],
    )
        .prop_map(|(fault, when)| {
            let longer = if fault == "slow" { ":for=2us" } else { "" };
            format!("{fault}{when}{longer}")
        });
    prop_oneof![1 => Just(String::new()), 2 => prop::collection::vec(rule, 1..4).prop_map(|r| r.join("+"))]
}

/// Buffers with canaries around them.
struct Fenced {
    around: Vec<BufferMut>,
    parts: Vec<BufferMut>,
}

fn fenced(engine: &SimEngine, lens: &[usize], fill: impl Fn(usize) -> u8) -> Fenced {
    let (mut around, mut parts, mut at) = (Vec::new(), Vec::new(), 0);
    for len in lens {
        let mut before = engine.allocate(len + 96).unwrap();
        before.fill(CANARY);
        let mut part = before.split_off(33);
        let after = part.split_off(*len);
        part.iter_mut().for_each(|byte| {
            *byte = fill(at);
            at += 1;
        });
        around.extend([before, after]);
        parts.push(part);
    }
    Fenced { around, parts }
}

/// A list of sources and a list of destinations.
type Lists = (Vec<BufferMut>, Vec<BufferMut>);

/// An operation in flight, with its expected outcome.
enum InFlight {
    Copy {
        transfer: Transfer<Lists>,
        around: Vec<BufferMut>,
        byte: u8,
    },
    Fill {
        transfer: Transfer<Vec<BufferMut>>,
        around: Vec<BufferMut>,
        byte: u8,
    },
    CopyToBoth {
        transfer: Transfer<(Vec<BufferMut>, Vec<BufferMut>, BufferMut)>,
        around: Vec<BufferMut>,
        byte: u8,
    },
    Compare {
        transfer: Transfer<Lists, Option<usize>>,
        around: Vec<BufferMut>,
        differs: Option<usize>,
    },
    Crc {
        transfer: Transfer<Vec<BufferMut>, u32>,
        around: Vec<BufferMut>,
        crc: u32,
    },
    CopyCrc {
        transfer: Transfer<Lists, u32>,
        around: Vec<BufferMut>,
        byte: u8,
        crc: u32,
    },
}

#[derive(Default)]
struct Tally {
    accepted: u64,
    done: u64,
    failed: u64,
    aborted: u64,
    /// Operations that were dropped or never ended. Only the queue's counters have their outcome.
    unknown: u64,
}

fn sample(byte: u8, at: usize) -> u8 {
    (byte as usize + at * 7) as u8 & 0x7f
}

impl Tally {
    fn ended<T, U>(&mut self, result: Result<T, OpError<U>>, check: impl FnOnce(&T)) {
        match result {
            Ok(operands) => {
                check(&operands);
                self.done += 1;
            }
            Err(e) => match e.kind() {
                ErrorKind::Aborted | ErrorKind::Closed => self.aborted += 1,
                ErrorKind::TimedOut => self.unknown += 1,
                ErrorKind::DeviceFault | ErrorKind::OutOfResources | ErrorKind::DeviceLost => {
                    self.failed += 1
                }
                kind => panic!("{kind}: {e}"),
            },
        }
    }

    fn take(&mut self, in_flight: InFlight) {
        let untouched = |around: &[BufferMut]| {
            assert!(around.iter().all(|part| part.iter().all(|byte| *byte == CANARY)), "a byte outside");
        };
        let bytes =
            |parts: &[BufferMut]| -> Vec<u8> { parts.iter().flat_map(|p| p.iter().copied()).collect() };
        let copied = |(src, dst): &Lists, byte| {
            assert_eq!(bytes(src), bytes(dst));
            assert!(bytes(dst).iter().enumerate().all(|(at, got)| *got == sample(byte, at)));
        };
        match in_flight {
            InFlight::Copy { transfer, around, byte } => {
                self.ended(transfer.wait(), |lists| copied(lists, byte));
                untouched(&around);
            }
            InFlight::CopyToBoth { transfer, around, byte } => {
                self.ended(transfer.wait(), |(src, dst, also)| {
                    assert!(bytes(src) == bytes(dst) && bytes(src) == also[..]);
                    assert!(also.iter().enumerate().all(|(at, got)| *got == sample(byte, at)));
                });
                untouched(&around);
            }
            InFlight::Compare { transfer, around, differs } => {
                self.ended(transfer.wait(), |(_, found)| assert_eq!(*found, differs));
                untouched(&around);
            }
            InFlight::Crc { transfer, around, crc } => {
                self.ended(transfer.wait(), |(_, found)| assert_eq!(*found, crc));
                untouched(&around);
            }
            InFlight::CopyCrc { transfer, around, byte, crc } => {
                self.ended(transfer.wait(), |(lists, found)| {
                    copied(lists, byte);
                    assert_eq!(*found, crc);
                });
                untouched(&around);
            }
            InFlight::Fill { transfer, around, byte } => {
                let pattern = u64::from(byte).wrapping_mul(0x0102_0408_1020_4080).to_le_bytes();
                self.ended(transfer.wait(), |dst| {
                    assert!(bytes(dst).iter().zip(pattern.iter().cycle()).all(|(a, b)| a == b));
                });
                untouched(&around);
            }
        }
    }
}

fn submit(engine: &SimEngine, queue: &Queue, op: &Op, tally: &mut Tally) -> Option<InFlight> {
    let accepted = |e: &ErrorKind| assert!(matches!(e, ErrorKind::QueueFull | ErrorKind::TimedOut), "{e:?}");
    let source = |lens: &[usize], byte| fenced(engine, lens, |at| sample(byte, at));
    let destination = |lens: &[usize], fill: &dyn Fn(usize) -> u8| {
        let total: usize = lens.iter().sum();
        fenced(engine, &[total / 3, total - total / 3], fill)
    };
    let expected = |lens: &[usize], byte, seed| {
        let bytes: Vec<_> = (0..lens.iter().sum()).map(|at| sample(byte, at)).collect();
        crc32c::crc32c_append(seed, &bytes)
    };
    let in_flight = match op {
        Op::Copy { lens, byte } => {
            let (src, dst) = (source(lens, *byte), destination(lens, &|_| CANARY));
            let around = [src.around, dst.around].into_iter().flatten().collect();
            let transfer = queue.copy(src.parts, dst.parts).inspect_err(|e| accepted(&e.kind())).ok()?;
            InFlight::Copy { transfer, around, byte: *byte }
        }
        Op::Fill { lens, byte } => {
            let dst = fenced(engine, lens, |_| CANARY);
            let pattern = u64::from(*byte).wrapping_mul(0x0102_0408_1020_4080).to_le_bytes();
            let transfer = queue.fill(dst.parts, pattern).inspect_err(|e| accepted(&e.kind())).ok()?;
            InFlight::Fill { transfer, around: dst.around, byte: *byte }
        }
        Op::CopyToBoth { lens, byte } => {
            let (src, dst) = (source(lens, *byte), destination(lens, &|_| CANARY));
            let mut also = fenced(engine, &[lens.iter().sum()], |_| CANARY);
            let around = [src.around, dst.around, also.around].into_iter().flatten().collect();
            let transfer = queue.copy_to_both(src.parts, dst.parts, also.parts.remove(0));
            let transfer = transfer.inspect_err(|e| accepted(&e.kind())).ok()?;
            InFlight::CopyToBoth { transfer, around, byte: *byte }
        }
        Op::Compare { lens, byte, differs } => {
            let total: usize = lens.iter().sum();
            let differs = differs.filter(|_| total > 0).map(|at| at.index(total));
            let other = |at| sample(*byte, at) ^ u8::from(differs == Some(at));
            let (a, b) = (source(lens, *byte), destination(lens, &other));
            let around = [a.around, b.around].into_iter().flatten().collect();
            let transfer = queue.compare(a.parts, b.parts).inspect_err(|e| accepted(&e.kind())).ok()?;
            InFlight::Compare { transfer, around, differs }
        }
        Op::Crc { lens, byte, seed } => {
            let src = source(lens, *byte);
            let transfer = queue.crc32c(src.parts, *seed).inspect_err(|e| accepted(&e.kind())).ok()?;
            InFlight::Crc { transfer, around: src.around, crc: expected(lens, *byte, *seed) }
        }
        Op::CopyCrc { lens, byte, seed } => {
            let (src, dst) = (source(lens, *byte), destination(lens, &|_| CANARY));
            let around = [src.around, dst.around].into_iter().flatten().collect();
            let transfer = queue.copy_crc32c(src.parts, dst.parts, *seed);
            let transfer = transfer.inspect_err(|e| accepted(&e.kind())).ok()?;
            InFlight::CopyCrc { transfer, around, byte: *byte, crc: expected(lens, *byte, *seed) }
        }
        _ => unreachable!("{op:?} is not an operation"),
    };
    tally.accepted += 1;
    Some(in_flight)
}

fn check(profile: &str, seed: u64, plan: &str, small: bool, script: &[Op]) {
    let mut options = SimOptions::new()
        .with_profile(Profile::by_name(profile).unwrap())
        .with_seed(seed)
        .with_faults(plan.parse().unwrap());
    if small {
        options.max_transfer = Some(100);
    }
    let engine = SimEngine::open(&options).unwrap();
    // For a device without faults, the timeout is long, because the machine may be slow. A device with
    // faults may never end its operations, so its timeout is short.
    let timeout = if plan.is_empty() { LONG } else { SHORT };
    let options = QueueOptions::new().with_depth(12).with_stall_timeout(timeout).with_drop_timeout(timeout);
    let queue = engine.open_queue(&options).unwrap();
    let mut tally = Tally::default();
    let mut in_flight = Vec::new();
    for op in script {
        match op {
            Op::Fence => queue.fence(),
            Op::Flush => queue.flush(),
            Op::Poll => {
                queue.poll();
            }
            Op::Take(at) if !in_flight.is_empty() => tally.take(in_flight.remove(at.index(in_flight.len()))),
            Op::Drop(at) if !in_flight.is_empty() => {
                drop(in_flight.remove(at.index(in_flight.len())));
                tally.unknown += 1;
            }
            Op::Take(_) | Op::Drop(_) => {}
            _ => in_flight.extend(submit(&engine, &queue, op, &mut tally)),
        }
    }
    let counters = queue.close(timeout);
    in_flight.into_iter().for_each(|in_flight| tally.take(in_flight));
    assert_eq!(counters.submitted, tally.accepted);
    assert_eq!((counters.in_flight, counters.abandoned), (0, 0), "every operation is counted");
    assert_eq!(counters.completed + counters.failed + counters.aborted, tally.accepted);
    assert_eq!(tally.done + tally.failed + tally.aborted + tally.unknown, tally.accepted);
    let within = |known, counted| known <= counted && counted <= known + tally.unknown;
    assert!(within(tally.done, counters.completed), "{counters:?}");
    assert!(within(tally.failed, counters.failed), "{counters:?}");
    assert!(within(tally.aborted, counters.aborted), "{counters:?}");
    if plan.is_empty() {
        assert_eq!(counters.completed, tally.accepted, "a device without faults completes every operation");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 2, ..Default::default() })]

    #[test]
    fn any_script_is_kept_to(
        profile in prop::sample::select(Profile::NAMES.to_vec()),
        seed in any::<u64>(),
        plan in faults(),
        small in any::<bool>(),
        script in prop::collection::vec(op(), 1..60),
    ) {
        check(profile, seed, &plan, small, &script);
    }
}
