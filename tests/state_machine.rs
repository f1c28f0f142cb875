//! Runs random programs on every engine, and compares them with an oracle in plain memory.
//!
//! The oracle keeps each buffer as a `Vec<u8>`. The oracle knows an operation's result at the submission,
//! because the operation owns its operands until it ends. After a failure the destination is undefined, so
//! the test writes the expected bytes itself. Guard bytes surround every buffer.

mod standin_gpu;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dma::EngineName;
use dma::conformance::DeviceBacked;
use dma::layers::record::Trace;
use dma::layers::replay::{ReplayOptions, replay};
use dma::prelude::*;
use dma::{OpError, Queue, Result, Transfer};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};
use test_support::stand_ins;

const CANARY: u8 = 0xa5;
const GUARD: usize = 64;
/// Stall timeout of the queues.
const STALL: Duration = Duration::from_millis(3);

/// Engines without faults, on which no operation fails.
const SOUND: [&str; 28] = [
    "cpu",
    "cpu:threads=0",
    "cpu:threads=1,inline=0",
    "cpu:hint=cold",
    "sim:profile=ideal,max_transfer=100,max_segments=3,depth=7",
    "sim:profile=bluefield3",
    "sim:profile=ioat",
    "sim:profile=dsa",
    "doca:03:00.0",
    "ioat",
    "auto:device=sim:profile=dsa",
    "auto:device=sim:max_transfer=100;depth=5,prefer=device",
    "auto:device=sim:profile=bluefield3;faults=reset@7+fail@every=9,prefer=device",
    "meter+verify+cpu",
    "verify+meter+sim:profile=dsa",
    "meter+auto:device=verify+sim:max_transfer=100;depth=5,prefer=device",
    "record+cpu",
    "record+meter+sim:profile=bluefield3",
    "meter+verify+record+auto:device=sim:profile=dsa;faults=fail@every=9,prefer=device",
    "record+verify+doca:03:00.0",
    "verify+meter+record+ioat",
    "auto:device=meter+verify+sim:profile=ioat;faults=fail@every=5,prefer=device",
    "sim:device_memory=64M",
    "sim:profile=bluefield3,max_transfer=1000,depth=5,device_memory=64M",
    "meter+verify+sim:profile=dsa,device_memory=64M",
    "standin-gpu:0",
    "verify+standin-gpu:1",
    "standin-gpu:0,depth=7",
];
/// Engines with faults, on which operations fail.
const FAULTY: [&str; 12] = [
    "sim:profile=bluefield3,faults=reset@7",
    "sim:profile=ideal,faults=fail:p=0.1+slow@3:for=50us",
    "sim:profile=dsa,faults=reset:p=0.05+refuse@4",
    "sim:profile=ioat,faults=reset@5",
    "sim:profile=ideal,max_transfer=64,faults=lose@9+fail@12",
    "sim:profile=bluefield2,faults=gone@20",
    "meter+verify+sim:profile=dsa,faults=reset:p=0.05+fail@every=11",
    "record+sim:profile=bluefield2,faults=gone@20",
    "verify+record+meter+sim:profile=ideal,max_transfer=64,faults=lose@9+fail@12",
    "sim:profile=dsa,faults=reset:p=0.02+fail@every=11,device_memory=64M",
    "standin-gpu:2",
    "meter+verify+standin-gpu:2",
];

#[derive(Clone, Debug)]
struct Model {
    engine: String,
    sound: bool,
    /// Bytes of the buffers that no operation uses.
    buffers: BTreeMap<u32, Vec<u8>>,
    /// Operations in flight, with their buffers and the bytes of these buffers after the operation.
    flights: BTreeMap<u32, BTreeMap<u32, Vec<u8>>>,
    next: u32,
}

#[derive(Clone, Debug)]
enum Step {
    Allocate {
        len: usize,
        from: From,
    },
    Write {
        buffer: Index,
        seed: u8,
        by: By,
    },
    Split {
        buffer: Index,
        at: Index,
    },
    /// Copies several buffers to several other buffers, by gather and scatter.
    Copy {
        sources: Vec<u32>,
        destinations: Vec<u32>,
    },
    Fill {
        destinations: Vec<u32>,
        pattern: [u8; 8],
    },
    Fence,
    Flush,
    Poll,
    Wait {
        flight: Index,
    },
    Drop {
        flight: Index,
    },
}

/// The origin of a buffer.
#[derive(Clone, Copy, Debug)]
enum From {
    Engine,
    /// The pool, if it has a free buffer of this length; otherwise the engine.
    Pool,
    /// The program, if the engine can register its memory; otherwise the engine.
    Registered,
}

/// The method of writing bytes to a buffer that no operation uses.
#[derive(Clone, Copy, Debug)]
enum By {
    Cpu,
    /// A blocking copy of plain bytes.
    PlainBytes,
    /// A copy from registered read-only memory, which is returned.
    ReadOnlyMemory,
}

/// Opens an engine by name. Hardware backends load the stand-in SDK. `record` writes to `trace`. Every second
/// region of an engine with device memory is on the device.
fn open(name: &str, trace: &Path) -> Arc<dyn DmaEngine> {
    static DOCA: OnceLock<PathBuf> = OnceLock::new();
    static IOAT: OnceLock<PathBuf> = OnceLock::new();
    static GPU: OnceLock<()> = OnceLock::new();
    let mut name: EngineName = name.parse().expect("a name");
    let mut wrappers: Vec<_> = name.backend().split('+').map(str::to_owned).collect();
    let lib = match wrappers.pop().as_deref() {
        Some("doca") => Some(DOCA.get_or_init(|| stand_ins::library_dir(&stand_ins::doca_emu_prefix()))),
        Some("ioat") => Some(IOAT.get_or_init(|| stand_ins::spdk_emu_prefix().join("lib"))),
        Some("standin-gpu") => {
            GPU.get_or_init(|| dma::register(&standin_gpu::StandinGpu).expect("no backend has this name"));
            None
        }
        _ => None,
    };
    if let Some(lib) = lib {
        name = name.with_option("lib", &lib.to_string_lossy()).expect("an option");
    }
    if wrappers.iter().any(|wrapper| wrapper == "record") {
        name = name.with_option("file", &trace.to_string_lossy()).expect("an option");
    }
    let engine = dma::open_name(&name).expect("the engine opens");
    match DeviceBacked::new(Arc::clone(&engine), 2) {
        Ok(backed) => Arc::new(backed),
        Err(_) => engine,
    }
}

fn pick<T: Copy>(index: Index, map: &BTreeMap<u32, T>) -> Option<u32> {
    (!map.is_empty()).then(|| *map.keys().nth(index.index(map.len())).expect("in range"))
}

impl Model {
    fn keys(&self) -> BTreeMap<u32, ()> {
        self.buffers.keys().map(|k| (*k, ())).collect()
    }

    fn flying(&self) -> BTreeMap<u32, ()> {
        self.flights.keys().map(|k| (*k, ())).collect()
    }

    fn bytes(&self, ids: &[u32]) -> Vec<u8> {
        ids.iter().flat_map(|id| self.buffers[id].iter().copied()).collect()
    }

    /// Writes `bytes` to the buffers in order.
    fn scatter(&self, ids: &[u32], bytes: &[u8]) -> BTreeMap<u32, Vec<u8>> {
        let mut rest = bytes;
        ids.iter()
            .map(|id| {
                let (head, tail) = rest.split_at(self.buffers[id].len());
                rest = tail;
                (*id, head.to_vec())
            })
            .collect()
    }
}

fn pattern_of(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed) ^ (i >> 8) as u8).collect()
}

struct Machine;

impl ReferenceStateMachine for Machine {
    type State = Model;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Model> {
        let sound = prop::sample::select(SOUND.to_vec()).prop_map(|name| (name, true));
        let faulty = prop::sample::select(FAULTY.to_vec()).prop_map(|name| (name, false));
        (prop_oneof![sound, faulty], any::<u16>())
            .prop_map(|((name, sound), seed)| {
                let engine =
                    if name.starts_with("sim") { format!("{name},seed={seed}") } else { name.to_owned() };
                Model { engine, sound, buffers: BTreeMap::new(), flights: BTreeMap::new(), next: 0 }
            })
            .boxed()
    }

    fn transitions(model: &Model) -> BoxedStrategy<Step> {
        let len = prop_oneof![3 => 1..200_usize, 2 => 1..5_000_usize, 1 => 1..150_000_usize];
        let from = prop::sample::select(&[From::Engine, From::Pool, From::Registered]);
        let by = prop::sample::select(&[By::Cpu, By::PlainBytes, By::ReadOnlyMemory]);
        let ids: Vec<u32> = model.buffers.keys().copied().collect();
        let mut choices = vec![
            (3, (len, from).prop_map(|(len, from)| Step::Allocate { len, from }).boxed()),
            (1, Just(Step::Fence).boxed()),
            (2, Just(Step::Flush).boxed()),
            (2, Just(Step::Poll).boxed()),
        ];
        if !ids.is_empty() {
            choices.extend([
                (
                    3,
                    (any::<Index>(), any::<u8>(), by)
                        .prop_map(|(buffer, seed, by)| Step::Write { buffer, seed, by })
                        .boxed(),
                ),
                (
                    2,
                    (any::<Index>(), any::<Index>())
                        .prop_map(|(buffer, at)| Step::Split { buffer, at })
                        .boxed(),
                ),
                (
                    2,
                    (prop::sample::subsequence(ids.clone(), 1..=ids.len().min(3)), any::<[u8; 8]>())
                        .prop_map(|(destinations, pattern)| Step::Fill { destinations, pattern })
                        .boxed(),
                ),
            ]);
            // Copies the buffers before the cut to the buffers after the cut. The system under test makes the
            // lengths equal.
            let shuffled = Just(ids.clone()).prop_shuffle();
            choices.push((
                6,
                (shuffled, 1..4_usize, 1..4_usize)
                    .prop_map(|(ids, m, n)| {
                        let m = m.min(ids.len() / 2);
                        let n = n.min(ids.len() - m);
                        Step::Copy { sources: ids[..m].to_vec(), destinations: ids[m..m + n].to_vec() }
                    })
                    .boxed(),
            ));
        }
        if !model.flights.is_empty() {
            choices.extend([
                (5, any::<Index>().prop_map(|flight| Step::Wait { flight }).boxed()),
                (1, any::<Index>().prop_map(|flight| Step::Drop { flight }).boxed()),
            ]);
        }
        prop::strategy::Union::new_weighted(choices).boxed()
    }

    fn preconditions(model: &Model, step: &Step) -> bool {
        let known = |ids: &[u32]| ids.iter().all(|id| model.buffers.contains_key(id));
        match step {
            Step::Copy { sources, destinations } => known(sources) && known(destinations),
            Step::Fill { destinations, .. } => known(destinations),
            Step::Write { .. } | Step::Split { .. } => !model.buffers.is_empty(),
            Step::Wait { .. } | Step::Drop { .. } => !model.flights.is_empty(),
            _ => true,
        }
    }

    fn apply(mut model: Model, step: &Step) -> Model {
        match step {
            Step::Allocate { len, .. } => {
                model.buffers.insert(model.next, vec![0; *len]);
                model.next += 1;
            }
            Step::Write { buffer, seed, .. } => {
                let id = pick(*buffer, &model.keys()).expect("there is one");
                let bytes = model.buffers.get_mut(&id).expect("known");
                *bytes = pattern_of(*seed, bytes.len());
            }
            Step::Split { buffer, at } => {
                let id = pick(*buffer, &model.keys()).expect("there is one");
                let bytes = model.buffers.get_mut(&id).expect("known");
                let tail = bytes.split_off(at.index(bytes.len() + 1));
                model.buffers.insert(model.next, tail);
                model.next += 1;
            }
            Step::Copy { sources, destinations } => {
                if sources.is_empty() {
                    return model;
                }
                let from = model.bytes(sources);
                let room = model.bytes(destinations);
                // Copies the shorter length. The other bytes are unchanged.
                let n = from.len().min(room.len());
                let written = [&from[..n], &room[n..]].concat();
                let mut after = model.scatter(destinations, &written);
                after.extend(sources.iter().map(|id| (*id, model.buffers[id].clone())));
                model.fly(after);
            }
            Step::Fill { destinations, pattern } => {
                let len = model.bytes(destinations).len();
                let bytes: Vec<u8> = pattern.iter().copied().cycle().take(len).collect();
                let after = model.scatter(destinations, &bytes);
                model.fly(after);
            }
            Step::Fence | Step::Flush | Step::Poll => {}
            Step::Wait { flight } => {
                let id = pick(*flight, &model.flying()).expect("there is one");
                let landed = model.flights.remove(&id).expect("known");
                model.buffers.extend(landed);
            }
            Step::Drop { flight } => {
                let id = pick(*flight, &model.flying()).expect("there is one");
                model.flights.remove(&id);
            }
        }
        model
    }
}

impl Model {
    fn fly(&mut self, after: BTreeMap<u32, Vec<u8>>) {
        for id in after.keys() {
            self.buffers.remove(id);
        }
        self.flights.insert(self.next, after);
        self.next += 1;
    }
}

type Buffers = Vec<BufferMut>;

enum Flight {
    Copy(Transfer<(Buffers, Buffers)>),
    Fill(Transfer<Buffers>),
    /// The test itself executed the operation by CPU, because the queue was full.
    ByHand(Buffers, Buffers),
}

/// The numbers of an operation's buffers in the order of the lists, and the parts that were split off.
struct Names {
    sources: Vec<u32>,
    destinations: Vec<u32>,
    /// The parts that were split off the last source and the last destination.
    rest: [Option<BufferMut>; 2],
    /// Destinations after the copied length.
    unreached: Vec<(u32, BufferMut)>,
    /// Sources after the copied length.
    unread: Vec<(u32, BufferMut)>,
}

struct System {
    engine: Arc<dyn DmaEngine>,
    queue: Option<Queue>,
    sound: bool,
    pool: BufferPool,
    /// The pool for copies of plain bytes.
    copy_pool: BufferPool,
    buffers: BTreeMap<u32, BufferMut>,
    flights: BTreeMap<u32, (Flight, Names)>,
    guards: Vec<BufferMut>,
    submitted: u64,
    /// The trace file of `record`, which is in `folder`.
    trace: PathBuf,
    folder: tempfile::TempDir,
}

impl System {
    /// Drops everything except the folder with the trace.
    fn close(self) -> (PathBuf, tempfile::TempDir) {
        let Self { trace, folder, .. } = self;
        (trace, folder)
    }

    fn allocate(&mut self, len: usize, registered: bool) -> BufferMut {
        let (guarded, limits) = (len + 2 * GUARD, &self.engine.info().limits);
        // A larger alignment needs more memory, which takes long to zero.
        let mut front = if registered && limits.register_alignment <= 4096 {
            let memory = HostMemory::aligned(guarded, limits).expect("memory");
            self.engine.register(memory).expect("it is registered")
        } else {
            self.engine.allocate(guarded).expect("memory")
        };
        front[..GUARD].fill(CANARY);
        front[GUARD + len..].fill(CANARY);
        let mut buffer = front.split_off(GUARD);
        let back = buffer.split_off(len);
        self.guards.extend([front, back]);
        buffer
    }

    fn queue(&self) -> &Queue {
        self.queue.as_ref().expect("the queue is open until the teardown")
    }

    /// Takes buffers with `n` bytes in total, and splits the last one. Returns these buffers, the part that
    /// was split off, the unused buffers, and the number of used buffers.
    fn take(
        &mut self,
        ids: &[u32],
        mut n: usize,
    ) -> (Buffers, Option<BufferMut>, Vec<(u32, BufferMut)>, usize) {
        let (mut taken, mut rest, mut unused) = (Vec::new(), None, Vec::new());
        let mut used = 0;
        for id in ids {
            let mut buffer = self.buffers.remove(id).expect("known");
            if n == 0 {
                unused.push((*id, buffer));
                continue;
            }
            if buffer.len() > n {
                rest = Some(buffer.split_off(n));
            }
            n -= buffer.len();
            used += 1;
            taken.push(buffer);
        }
        (taken, rest, unused, used)
    }

    /// Joins the operands that an operation returned with the parts that were split off.
    fn land(&mut self, names: Names, sources: Buffers, destinations: Buffers) {
        let Names {
            sources: source_ids,
            destinations: destination_ids,
            rest: [source_rest, rest],
            unreached,
            unread,
        } = names;
        for (ids, mut buffers, rest) in
            [(source_ids, sources, source_rest), (destination_ids, destinations, rest)]
        {
            if let (Some(last), Some(rest)) = (buffers.last_mut(), rest) {
                last.unsplit(rest).expect("the part was split off at this position");
            }
            self.buffers.extend(ids.into_iter().zip(buffers));
        }
        self.buffers.extend(unreached);
        self.buffers.extend(unread);
    }

    /// Replaces operands that were leaked, so that the program can continue.
    fn replace(&mut self, names: &Names, expected: &BTreeMap<u32, Vec<u8>>) -> (Buffers, Buffers) {
        let mut fresh = |ids: &[u32], rest: &Option<BufferMut>| -> Buffers {
            let mut buffers: Buffers =
                ids.iter().map(|id| self.allocate(expected[id].len(), false)).collect();
            if let (Some(last), Some(_)) = (buffers.last_mut(), rest) {
                last.fill(0);
            }
            buffers
        };
        (fresh(&names.sources, &names.rest[0]), fresh(&names.destinations, &names.rest[1]))
    }

    fn wait(&mut self, id: u32, expected: &BTreeMap<u32, Vec<u8>>) {
        let (flight, names) = self.flights.remove(&id).expect("known");
        let lost = |error: &dma::Error| {
            assert!(
                matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::DeviceLost),
                "operands are kept only after a timeout or a loss of the device: {error}"
            )
        };
        let (outcome, sources, destinations): (Result<()>, _, _) = match flight {
            Flight::Copy(transfer) => match transfer.wait() {
                Ok((sources, destinations)) => (Ok(()), Some(sources), Some(destinations)),
                Err(e) => {
                    let (error, operands) = e.into_parts();
                    let (sources, destinations) = operands.unzip();
                    (Err(error), sources, destinations)
                }
            },
            Flight::ByHand(sources, destinations) => (Ok(()), Some(sources), Some(destinations)),
            Flight::Fill(transfer) => match transfer.wait() {
                Ok(destinations) => (Ok(()), Some(Vec::new()), Some(destinations)),
                Err(e) => {
                    let (error, destinations) = e.into_parts();
                    (Err(error), Some(Vec::new()), destinations)
                }
            },
        };
        if let Err(error) = &outcome {
            assert!(!self.sound, "no operation fails on an engine without faults: {error}");
        }
        match (sources, destinations) {
            (Some(sources), Some(destinations)) => self.land(names, sources, destinations),
            _ => {
                lost(outcome.as_ref().expect_err("a successful operation returns its operands"));
                let (sources, destinations) = self.replace(&names, expected);
                // The parts that were split off belong to leaked memory, so drop them.
                let names = Names { rest: [None, None], ..names };
                self.land(names, sources, destinations);
            }
        }
        for (id, bytes) in expected {
            let buffer = self.buffers.get_mut(id).expect("it landed");
            match outcome {
                Ok(()) => assert!(buffer[..] == bytes[..], "buffer {id} must contain the expected bytes"),
                Err(_) => buffer.copy_from_slice(bytes),
            }
        }
    }
}

struct Test;

impl StateMachineTest for Test {
    type SystemUnderTest = System;
    type Reference = Machine;

    fn init_test(model: &Model) -> System {
        let folder = tempfile::tempdir().expect("a folder");
        let trace = folder.path().join("a.trace");
        let engine = open(&model.engine, &trace);
        let options = QueueOptions::new().with_stall_timeout(STALL).with_drop_timeout(STALL);
        let queue =
            engine.open_queue(&if model.sound { QueueOptions::new() } else { options }).expect("a queue");
        let sizes = PoolOptions::new().with_class(200, 3).with_class(5000, 3);
        System {
            pool: BufferPool::new(&engine, &sizes).expect("a pool"),
            copy_pool: BufferPool::new(&engine, &PoolOptions::new().with_class(10_000, 64)).expect("a pool"),
            engine,
            queue: Some(queue),
            sound: model.sound,
            buffers: BTreeMap::new(),
            flights: BTreeMap::new(),
            guards: Vec::new(),
            submitted: 0,
            trace,
            folder,
        }
    }

    /// Applies a step. `model` is the oracle's state after the step.
    fn apply(mut system: System, model: &Model, step: Step) -> System {
        let newest = model.next.wrapping_sub(1);
        match step {
            Step::Allocate { len, from } => {
                let from_pool = if matches!(from, From::Pool) { system.pool.try_get(len).ok() } else { None };
                let buffer = match from_pool {
                    Some(mut buffer) => {
                        // A pool's buffer contains the bytes of its last user. The buffer has no guard bytes,
                        // because other buffers surround it.
                        buffer.fill(0);
                        buffer
                    }
                    None => system.allocate(len, matches!(from, From::Registered)),
                };
                system.buffers.insert(newest, buffer);
            }
            Step::Write { buffer, seed, by } => {
                let keys = system.buffers.keys().map(|k| (*k, ())).collect();
                system.write(pick(buffer, &keys).expect("there is one"), seed, by);
            }
            Step::Split { buffer, at } => {
                let keys = system.buffers.keys().map(|k| (*k, ())).collect();
                let id = pick(buffer, &keys).expect("there is one");
                let buffer = system.buffers.get_mut(&id).expect("known");
                let tail = buffer.split_off(at.index(buffer.len() + 1));
                system.buffers.insert(newest, tail);
            }
            Step::Copy { sources, destinations } if !sources.is_empty() => {
                let len = |ids: &[u32]| ids.iter().map(|id| system.buffers[id].len()).sum::<usize>();
                let n = len(&sources).min(len(&destinations));
                let (from, source_rest, unread, m) = system.take(&sources, n);
                let (to, rest, unreached, k) = system.take(&destinations, n);
                let names = Names {
                    sources: sources[..m].to_vec(),
                    destinations: destinations[..k].to_vec(),
                    rest: [source_rest, rest],
                    unreached,
                    unread,
                };
                let submitted = system.queue().copy(from, to);
                system.keep(newest, names, submitted, Flight::Copy, |(sources, mut destinations)| {
                    write(sources.iter().flat_map(|b| b.to_vec()), &mut destinations);
                    (sources, destinations)
                });
            }
            Step::Copy { .. } => {}
            Step::Fill { destinations, pattern } => {
                let n = destinations.iter().map(|id| system.buffers[id].len()).sum();
                let (to, _, unreached, k) = system.take(&destinations, n);
                let names = Names {
                    sources: Vec::new(),
                    destinations: destinations[..k].to_vec(),
                    rest: [None, None],
                    unreached,
                    unread: Vec::new(),
                };
                let submitted = system.queue().fill(to, pattern);
                system.keep(newest, names, submitted, Flight::Fill, |mut destinations| {
                    write(pattern.into_iter().cycle(), &mut destinations);
                    (Vec::new(), destinations)
                });
            }
            Step::Fence => system.queue().fence(),
            Step::Flush => system.queue().flush(),
            Step::Poll => {
                system.queue().poll();
            }
            Step::Wait { flight } => {
                let keys = system.flights.keys().map(|k| (*k, ())).collect();
                if let Some(id) = pick(flight, &keys) {
                    // In the oracle, no operation uses the buffers any longer.
                    let names = &system.flights[&id].1;
                    let ids = names.sources.iter().chain(&names.destinations);
                    let ids = ids.chain(names.unreached.iter().chain(&names.unread).map(|(id, _)| id));
                    let expected = ids.map(|id| (*id, model.buffers[id].clone())).collect();
                    system.wait(id, &expected);
                }
            }
            Step::Drop { flight } => {
                let keys = system.flights.keys().map(|k| (*k, ())).collect();
                if let Some(id) = pick(flight, &keys) {
                    drop(system.flights.remove(&id));
                }
            }
        }
        system
    }

    fn check_invariants(system: &System, model: &Model) {
        assert!(
            system.guards.iter().all(|guard| guard.iter().all(|b| *b == CANARY)),
            "guard bytes of a buffer have changed"
        );
        assert!(
            system.buffers.keys().eq(model.buffers.keys()),
            "the system and the oracle have the same unused buffers"
        );
        assert!(
            system.buffers.iter().all(|(id, buffer)| buffer[..] == model.buffers[id][..]),
            "buffers that no operation uses do not change"
        );
        let counters = system.queue().counters();
        assert_eq!(counters.submitted, system.submitted);
        let ended = counters.completed + counters.failed + counters.aborted + counters.abandoned;
        assert_eq!(
            ended + counters.in_flight,
            counters.submitted,
            "every operation is counted in one counter"
        );
    }

    fn teardown(mut system: System, model: Model) {
        let queue = system.queue.take().expect("the queue is open until the teardown");
        let counters = queue.close(if system.sound { Duration::from_secs(60) } else { STALL });
        assert_eq!(counters.in_flight, 0);
        let ended = counters.completed + counters.failed + counters.aborted + counters.abandoned;
        assert_eq!(ended, counters.submitted, "a close counts every operation");
        if system.sound {
            assert_eq!(
                counters.completed, counters.submitted,
                "an engine without faults completes every operation"
            );
        }
        assert!(
            system.guards.iter().all(|guard| guard.iter().all(|b| *b == CANARY)),
            "guard bytes of a buffer have changed"
        );
        if system.sound {
            system.flights.clear();
            system.buffers.clear();
            assert!(
                system.pool.classes().all(|class| class.in_use == 0),
                "a buffer has not returned to the pool"
            );
        }
        let (trace, folder) = system.close();
        if model.sound && model.engine.contains("record+") {
            replayed(&trace, counters.doorbells);
        }
        drop(folder);
    }
}

impl System {
    fn write(&mut self, id: u32, seed: u8, by: By) {
        let mut buffer = self.buffers.remove(&id).expect("known");
        let bytes = pattern_of(seed, buffer.len());
        let alignment = self.engine.info().limits.register_alignment;
        let queue = self.queue.as_ref().expect("the queue is open until the teardown");
        let done = match by {
            By::Cpu => false,
            By::PlainBytes => match queue.copy_bytes(&self.copy_pool, &bytes, &mut buffer) {
                Ok(()) => true,
                Err(e) => {
                    let is_full = e.kind() == ErrorKind::QueueFull && queue.available() == 0;
                    assert!(!self.sound || is_full, "an engine without faults copies plain bytes: {e}");
                    false
                }
            },
            By::ReadOnlyMemory if alignment == 1 && !bytes.is_empty() => {
                let bytes = bytes::Bytes::from(bytes.clone());
                let src = self.engine.register_read_only(bytes.clone()).expect("it is registered");
                match queue.copy(src, buffer).and_then(Transfer::wait) {
                    Ok((src, dst)) => {
                        let owner: bytes::Bytes = src.into_owner().expect("the last view");
                        assert!(owner.as_ptr() == bytes.as_ptr() && dst[..] == bytes[..], "it is copied");
                        buffer = dst;
                        true
                    }
                    Err(e) => {
                        let is_full = e.kind() == ErrorKind::QueueFull;
                        assert!(
                            !self.sound || is_full,
                            "an engine without faults copies read-only memory: {e}"
                        );
                        buffer = match e.into_operands() {
                            Some((_, dst)) => dst,
                            None => self.allocate(bytes.len(), false),
                        };
                        false
                    }
                }
            }
            By::ReadOnlyMemory => false,
        };
        if !done {
            buffer.copy_from_slice(&bytes);
        }
        assert!(buffer[..] == bytes[..], "the buffer contains the written bytes");
        self.buffers.insert(id, buffer);
        self.submitted = self.queue().counters().submitted;
    }

    /// Keeps an accepted operation. If the queue was full, executes it by CPU.
    fn keep<T>(
        &mut self,
        id: u32,
        names: Names,
        submitted: Result<Transfer<T>, OpError<T>>,
        flight: impl Fn(Transfer<T>) -> Flight,
        by_hand: impl Fn(T) -> (Buffers, Buffers),
    ) {
        let flight = match submitted {
            Ok(transfer) => {
                self.submitted += 1;
                flight(transfer)
            }
            Err(e) => {
                let (error, operands) = e.into_parts();
                let hangs = !self.sound && error.kind() == ErrorKind::TimedOut;
                assert!(hangs || error.kind() == ErrorKind::QueueFull, "{error}");
                assert_eq!(
                    self.queue().available(),
                    0,
                    "a queue that refuses an operation as full has no free slots"
                );
                let (sources, destinations) = by_hand(operands.expect("a refusal returns the operands"));
                Flight::ByHand(sources, destinations)
            }
        };
        self.flights.insert(id, (flight, names));
    }
}

/// Writes `bytes` to the buffers in order.
fn write(bytes: impl IntoIterator<Item = u8>, buffers: &mut Buffers) {
    let to = buffers.iter_mut().flat_map(|buffer| buffer.iter_mut());
    to.zip(bytes).for_each(|(to, byte)| *to = byte);
}

/// Replays the trace of a queue, and checks the number of doorbells.
fn replayed(trace: &Path, doorbells: u64) {
    let trace = Trace::load(trace).expect("the trace is complete");
    assert_eq!(trace.queues().iter().map(|queue| queue.doorbells).collect::<Vec<_>>(), [doorbells]);
    if trace.queues()[0].operations > 0 {
        let cpu = dma::open("cpu:threads=0").expect("the CPU engine is always available");
        let replayed = replay(&trace, &cpu, &ReplayOptions::new().with_repetitions(1)).expect("it runs");
        assert_eq!((replayed.mismatch, replayed.failed), (None, 0));
        assert_eq!(replayed.verified, replayed.descriptors);
    }
}

prop_state_machine! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn every_engine_does_what_plain_memory_does(sequential 1..60 => Test);
}
