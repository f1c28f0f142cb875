//! Random programs on many kinds of cards, some of them faulty, with an oracle in plain memory.

#[path = "support/calls.rs"]
mod calls;

use std::time::Duration;

use dma_core::{BufferMut, DmaEngineExt, ErrorKind, Queue, QueueOptions, Transfer};
use dma_doca::DocaEngine;
use proptest::prelude::*;

const LEN: usize = 3000;
const BUFFERS: usize = 6;

const CARDS: [&str; 9] = [
    "",
    "max_list_len = 1\nmax_buf_size = 64\nmax_tasks = 2\n",
    "max_list_len = 3\nmax_buf_size = 500\nqueue_depth = 3\n",
    "profile = \"bluefield3\"\nclock = \"virtual\"\n",
    "faults = \"reset@7\"\n",
    "faults = \"fail:p=0.1\"\nmax_list_len = 4\n",
    "faults = \"reset:p=0.05+refuse@4-6\"\nprofile = \"bluefield2\"\nclock = \"virtual\"\nmax_buf_size = 1000\n",
    "faults = \"refuse:p=0.3+slow@3:for=50us\"\nmax_tasks = 3\n",
    "faults = \"gone@20\"\nmax_list_len = 2\n",
];

#[derive(Clone, Debug)]
enum Step {
    Write { buffer: usize, seed: u8 },
    Split { buffer: usize, at: usize },
    Copy { from: usize, to: usize },
    Fill { to: usize, seed: u8 },
    Replace { buffer: usize },
    Flush,
    Poll,
    Land { flight: usize },
    Drop { flight: usize },
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let buffer = 0..BUFFERS;
    prop_oneof![
        2 => (buffer.clone(), any::<u8>()).prop_map(|(buffer, seed)| Step::Write { buffer, seed }),
        1 => (buffer.clone(), 1..LEN).prop_map(|(buffer, at)| Step::Split { buffer, at }),
        8 => (buffer.clone(), 0..BUFFERS).prop_map(|(from, to)| Step::Copy { from, to }),
        1 => (buffer.clone(), any::<u8>()).prop_map(|(to, seed)| Step::Fill { to, seed }),
        1 => buffer.prop_map(|buffer| Step::Replace { buffer }),
        2 => Just(Step::Flush),
        2 => Just(Step::Poll),
        5 => (0..BUFFERS).prop_map(|flight| Step::Land { flight }),
        1 => (0..BUFFERS).prop_map(|flight| Step::Drop { flight }),
        1 => Just(Step::Reopen),
    ]
}

/// A buffer, split into pieces, and the buffer's expected content. `None` while the buffer is in flight.
type Slot = Option<(Vec<BufferMut>, Vec<u8>)>;
type Pieces = Vec<BufferMut>;

enum Flight {
    Copy(usize, usize, Vec<u8>, Transfer<(Pieces, Pieces)>),
    Fill(usize, Vec<u8>, Transfer<Pieces>),
}

struct System {
    engine: DocaEngine,
    queue: Queue,
    slots: Vec<Slot>,
    flights: Vec<Flight>,
    sound: bool,
}

fn open(engine: &DocaEngine) -> Queue {
    let short = Duration::from_millis(300);
    let options = QueueOptions::new().with_stall_timeout(short).with_drop_timeout(short);
    engine.open_queue(&options).unwrap()
}

fn put(pieces: &mut [BufferMut], bytes: &[u8]) {
    let mut at = 0;
    for piece in pieces {
        let len = piece.len();
        piece.copy_from_slice(&bytes[at..at + len]);
        at += len;
    }
}

fn sample(seed: u8) -> Vec<u8> {
    (0..LEN).map(|i| (i as u8).wrapping_mul(31) ^ (i >> 8) as u8 ^ seed).collect()
}

impl System {
    fn new(config: &str) -> Self {
        let engine = calls::engine(config);
        let queue = open(&engine);
        let mut system = Self {
            engine,
            queue,
            slots: Vec::new(),
            flights: Vec::new(),
            sound: !config.contains("fail") && !config.contains("reset") && !config.contains("gone"),
        };
        for n in 0..BUFFERS {
            let slot = system.fresh(n as u8);
            system.slots.push(slot);
        }
        system
    }

    fn fresh(&self, seed: u8) -> Slot {
        let mut buffer = self.engine.allocate(LEN).unwrap();
        buffer.copy_from_slice(&sample(seed));
        Some((vec![buffer], sample(seed)))
    }

    /// Puts the buffer of an ended operation back into its slot. Checks the buffer's content after a success,
    /// and writes the expected content after a failure.
    fn land(&mut self, slot: usize, pieces: Option<Pieces>, expected: Vec<u8>, ok: bool) {
        self.slots[slot] = match pieces {
            Some(mut pieces) => {
                if ok {
                    assert!(pieces.iter().flat_map(|p| p.iter()).eq(expected.iter()), "buffer {slot}");
                } else {
                    put(&mut pieces, &expected);
                }
                Some((pieces, expected))
            }
            None => self.fresh(slot as u8),
        };
    }

    fn check(&self, kind: ErrorKind) {
        assert!(!self.sound, "no operation fails on a card without faults: {kind:?}");
        let known = [
            ErrorKind::DeviceFault,
            ErrorKind::Aborted,
            ErrorKind::DeviceLost,
            ErrorKind::Closed,
            ErrorKind::TimedOut,
        ];
        assert!(known.contains(&kind), "{kind:?}");
    }

    fn arrive(&mut self, flight: Flight) {
        match flight {
            Flight::Copy(from, to, bytes, transfer) => {
                let (ok, operands) = match transfer.wait() {
                    Ok(operands) => (true, Some(operands)),
                    Err(e) => {
                        self.check(e.kind());
                        (false, e.into_operands())
                    }
                };
                let (src, dst) = operands.map_or((None, None), |(src, dst)| (Some(src), Some(dst)));
                // The source is never written.
                let source_ok = src.is_some();
                self.land(from, src, bytes.clone(), source_ok);
                self.land(to, dst, bytes, ok);
            }
            Flight::Fill(to, bytes, transfer) => {
                let (ok, operands) = match transfer.wait() {
                    Ok(operands) => (true, Some(operands)),
                    Err(e) => {
                        self.check(e.kind());
                        (false, e.into_operands())
                    }
                };
                self.land(to, operands, bytes, ok);
            }
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Write { buffer, seed } => {
                if let Some((pieces, bytes)) = &mut self.slots[buffer] {
                    *bytes = sample(seed);
                    put(pieces, bytes);
                }
            }
            Step::Split { buffer, at } => {
                if let Some((pieces, _)) = &mut self.slots[buffer] {
                    let (mut n, mut at) = (0, at);
                    while at >= pieces[n].len() {
                        at -= pieces[n].len();
                        n += 1;
                    }
                    if at > 0 {
                        let tail = pieces[n].split_off(at);
                        pieces.insert(n + 1, tail);
                    }
                }
            }
            Step::Copy { from, to }
                if from != to && self.slots[from].is_some() && self.slots[to].is_some() =>
            {
                let (src, bytes) = self.slots[from].take().unwrap();
                let (dst, old) = self.slots[to].take().unwrap();
                match self.queue.copy(src, dst) {
                    Ok(transfer) => self.flights.push(Flight::Copy(from, to, bytes, transfer)),
                    Err(e) => {
                        if e.kind() != ErrorKind::QueueFull {
                            self.check(e.kind());
                        }
                        let (src, dst) = e.into_operands().expect("a refusal gives the operands back");
                        self.land(from, Some(src), bytes, true);
                        self.land(to, Some(dst), old, true);
                    }
                }
            }
            Step::Fill { to, seed } if self.slots[to].is_some() => {
                let (dst, old) = self.slots[to].take().unwrap();
                match self.queue.fill(dst, [seed; 8]) {
                    Ok(transfer) => self.flights.push(Flight::Fill(to, vec![seed; LEN], transfer)),
                    Err(e) => {
                        if e.kind() != ErrorKind::QueueFull {
                            self.check(e.kind());
                        }
                        let dst = e.into_operands().expect("a refusal gives the operands back");
                        self.land(to, Some(dst), old, true);
                    }
                }
            }
            Step::Copy { .. } | Step::Fill { .. } => {}
            Step::Replace { buffer } => {
                // Deregisters one region and registers another, which probably gets the same key.
                if self.slots[buffer].is_some() {
                    self.slots[buffer] = None;
                    self.slots[buffer] = self.fresh(buffer as u8);
                }
            }
            Step::Flush => self.queue.flush(),
            Step::Poll => {
                self.queue.poll();
            }
            Step::Land { flight } => {
                if !self.flights.is_empty() {
                    let flight = self.flights.remove(flight % self.flights.len());
                    self.arrive(flight);
                }
            }
            Step::Drop { flight } => {
                if !self.flights.is_empty() {
                    match self.flights.remove(flight % self.flights.len()) {
                        Flight::Copy(from, to, ..) => {
                            self.slots[from] = self.fresh(1);
                            self.slots[to] = self.fresh(2);
                        }
                        Flight::Fill(to, ..) => self.slots[to] = self.fresh(3),
                    }
                }
            }
            Step::Reopen => {
                std::mem::take(&mut self.flights).into_iter().for_each(|flight| self.arrive(flight));
                self.queue = open(&self.engine);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, max_shrink_iters: 300, ..ProptestConfig::default() })]

    #[test]
    fn programs_leave_what_they_should(card in 0..CARDS.len(), steps in prop::collection::vec(step(), 1..80)) {
        let mut system = System::new(CARDS[card]);
        steps.into_iter().for_each(|step| system.step(step));
        std::mem::take(&mut system.flights).into_iter().for_each(|flight| system.arrive(flight));
        for (pieces, bytes) in system.slots.iter().flatten() {
            prop_assert!(pieces.iter().flat_map(|p| p.iter()).eq(bytes.iter()));
        }
    }
}
