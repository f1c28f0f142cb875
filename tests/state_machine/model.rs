//! The oracle: random steps, and the bytes that they leave.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::Index;
use proptest_state_machine::ReferenceStateMachine;

use super::{FAULTY, SOUND};

#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) engine: String,
    pub(crate) sound: bool,
    /// Bytes of the buffers that no operation uses.
    pub(crate) buffers: BTreeMap<u32, Vec<u8>>,
    /// Operations in flight, with their buffers and the bytes of these buffers after the operation.
    pub(crate) flights: BTreeMap<u32, BTreeMap<u32, Vec<u8>>>,
    pub(crate) next: u32,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
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
pub(crate) enum From {
    Engine,
    /// The pool, if it has a free buffer of this length; otherwise the engine.
    Pool,
    /// The program, if the engine can register its memory; otherwise the engine.
    Registered,
}

/// The method of writing bytes to a buffer that no operation uses.
#[derive(Clone, Copy, Debug)]
pub(crate) enum By {
    Cpu,
    /// A blocking copy of plain bytes.
    PlainBytes,
    /// A copy from registered read-only memory, which is returned.
    ReadOnlyMemory,
}

pub(crate) fn pick<T: Copy>(index: Index, map: &BTreeMap<u32, T>) -> Option<u32> {
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

pub(crate) fn pattern_of(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed) ^ (i >> 8) as u8).collect()
}

pub(crate) struct Machine;

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
