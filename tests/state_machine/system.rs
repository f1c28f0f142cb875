//! The system under test: buffers, queues and operations in flight.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dma::layers::record::Trace;
use dma::layers::replay::{ReplayOptions, replay};
use dma::prelude::*;
use dma::{OpError, Queue, Result, Transfer};
use proptest_state_machine::StateMachineTest;

use super::model::{By, From, Machine, Model, Step, pattern_of, pick};
use super::open;

const CANARY: u8 = 0xa5;
const GUARD: usize = 64;
/// Stall timeout of the queues.
const STALL: Duration = Duration::from_millis(3);

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

pub(crate) struct System {
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

pub(crate) struct Test;

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
