//! [`Learner`]: the fastest way for each class of loads, by the times of the driver's events.

use std::fmt::Write as _;

use super::{DIRECTIONS, Load, Way};

/// Trials of slower ways may add the time of a class divided by this: 3 %.
const TRIAL_SHARE: u64 = 33;
/// Number of times of each way that the choice considers. The median ignores one odd time.
const RECENT: usize = 3;
/// Loads of the chosen way between two that are timed.
const SAMPLE_EVERY: u64 = 16;
/// Loads between two trials of a slower way whose time is known.
const RETRY_EVERY: u64 = 128;
/// Classes of lengths: powers of two, up to 16 MiB and more.
const LENGTHS: usize = 25;
/// Classes of numbers: powers of two, up to 65,536 and more.
const NUMBERS: usize = 17;

/// Loads of one direction whose numbers and mean lengths lie between the same powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class {
    direction: usize,
    length: usize,
    number: usize,
}

const fn log2(value: usize) -> usize {
    match value.checked_ilog2() {
        Some(log) => log as usize,
        None => 0,
    }
}

impl Class {
    pub(crate) fn of(load: Load) -> Self {
        let mean = load.bytes / load.number.max(1);
        Self {
            direction: load.places.direction(),
            length: log2(mean).min(LENGTHS - 1),
            number: log2(load.number).min(NUMBERS - 1),
        }
    }

    const fn index(self) -> usize {
        (self.direction * LENGTHS + self.length) * NUMBERS + self.number
    }

    const fn at(index: usize) -> Self {
        Self {
            direction: index / NUMBERS / LENGTHS,
            length: index / NUMBERS % LENGTHS,
            number: index % NUMBERS,
        }
    }
}

/// The way of one load, and the trial to report if the load has to be timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) way: Way,
    pub(crate) trial: Option<Trial>,
}

impl Decision {
    pub(crate) const fn of(way: Way) -> Self {
        Self { way, trial: None }
    }
}

/// A load whose time is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trial {
    class: Class,
    way: Way,
    number: usize,
    /// The additional time that was assumed when the trial was chosen, in picoseconds.
    assumed: u64,
}

/// Times of one way, for each copy, in picoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct WayTimes {
    recent: [u64; RECENT],
    samples: u64,
    /// Trials that have begun and not ended.
    running: u64,
    /// The load of the class that was the last trial.
    last_trial: u64,
}

impl WayTimes {
    fn add(&mut self, time: u64) {
        self.recent[(self.samples % RECENT as u64) as usize] = time;
        self.samples += 1;
    }

    const fn is_known(&self) -> bool {
        self.samples >= RECENT as u64
    }

    /// Returns the median of the recent times.
    fn time(&self) -> Option<u64> {
        let known = self.samples.min(RECENT as u64) as usize;
        let mut recent = self.recent;
        let recent = &mut recent[..known];
        recent.sort_unstable();
        recent.get(known / 2).copied()
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    ways: [WayTimes; Way::ALL.len()],
    loads: u64,
    /// Time of all loads, and the part that trials of slower ways have added, in picoseconds.
    total: u64,
    added: u64,
}

impl Cell {
    fn time(&self, way: Way) -> Option<u64> {
        self.ways[way as usize].time()
    }

    /// Returns the fastest of the available ways that were timed.
    fn best(&self, available: [bool; 3]) -> Option<Way> {
        let timed = Way::ALL.into_iter().filter(|way| available[*way as usize]);
        timed.filter_map(|way| Some((self.time(way)?, way))).min_by_key(|(time, _)| *time).map(|(_, way)| way)
    }
}

/// Learns the fastest way for each class of loads.
///
/// A class begins with the way that a neighbouring class found fastest, or with the first one. Other ways are
/// tried as soon as the additional time, which is unknown and assumed to be that of the known way, is at most
/// 3 % of the time that the class has taken. Known slower ways are tried again at times within the same
/// limit.
#[derive(Debug)]
pub(crate) struct Learner {
    cells: Box<[Cell]>,
}

impl Learner {
    pub(crate) fn new() -> Self {
        Self { cells: vec![Cell::default(); DIRECTIONS.len() * LENGTHS * NUMBERS].into() }
    }

    /// Returns the fastest way of a neighbouring class whose ways were compared.
    fn neighbour(&self, class: Class, available: [bool; 3]) -> Option<Way> {
        let Class { length, number, .. } = class;
        let near = [
            Class { length: length.wrapping_sub(1), ..class },
            Class { length: length + 1, ..class },
            Class { number: number.wrapping_sub(1), ..class },
            Class { number: number + 1, ..class },
        ];
        let inside = near.into_iter().filter(|near| near.length < LENGTHS && near.number < NUMBERS);
        inside.map(|near| &self.cells[near.index()]).find_map(|cell| {
            let compared = cell.ways.iter().filter(|times| times.is_known()).count() > 1;
            cell.best(available).filter(|_| compared)
        })
    }

    /// Chooses the way of `number` copies.
    pub(crate) fn choose(&mut self, class: Class, number: usize, available: [bool; 3]) -> Decision {
        let first = || Way::ALL.into_iter().find(|way| available[*way as usize]).unwrap_or(Way::Loop);
        let cell = &self.cells[class.index()];
        let chosen = match cell.best(available) {
            Some(way) => way,
            // Loads in flight may not have reported yet.
            None => self.neighbour(class, available).unwrap_or_else(first),
        };
        let cell = &mut self.cells[class.index()];
        cell.loads += 1;
        let loads = cell.loads;
        let Some(known) = cell.time(chosen) else {
            let begins = cell.ways[chosen as usize].running == 0;
            let trial = begins.then_some(Trial { class, way: chosen, number, assumed: 0 });
            cell.ways[chosen as usize].running += u64::from(begins);
            return Decision { way: chosen, trial };
        };
        let copies = number as u64;
        cell.total += known * copies;
        let limit = cell.total / TRIAL_SHARE;
        let others = Way::ALL.into_iter().filter(|way| *way != chosen && available[*way as usize]);
        for way in others {
            let times = &cell.ways[way as usize];
            let is_due = !times.is_known() || loads - times.last_trial >= RETRY_EVERY;
            let assumed = times.time().map_or(known, |time| time.saturating_sub(known)) * copies;
            if times.running == 0 && is_due && cell.added + assumed <= limit {
                cell.added += assumed;
                let times = &mut cell.ways[way as usize];
                (times.running, times.last_trial) = (1, loads);
                return Decision { way, trial: Some(Trial { class, way, number, assumed }) };
            }
        }
        let times = &mut cell.ways[chosen as usize];
        let samples = !times.is_known() || loads.is_multiple_of(SAMPLE_EVERY);
        if samples && times.running == 0 {
            times.running = 1;
            return Decision { way: chosen, trial: Some(Trial { class, way: chosen, number, assumed: 0 }) };
        }
        Decision::of(chosen)
    }

    /// Adds the time of a trial, or ends it without one if `nanoseconds` is 0.
    pub(crate) fn learn(&mut self, trial: Trial, nanoseconds: u64) {
        let Trial { class, way, number, assumed } = trial;
        let cell = &mut self.cells[class.index()];
        let times = &mut cell.ways[way as usize];
        times.running = 0;
        if nanoseconds == 0 {
            return;
        }
        let time = nanoseconds.saturating_mul(1000);
        times.add(time / number as u64);
        // The assumed additional time is replaced by the real one.
        let others = Way::ALL.into_iter().filter(|other| *other != way).filter_map(|way| cell.time(way));
        let best = others.min().map_or(time, |time| time * number as u64);
        if assumed > 0 || time > best {
            cell.added = (cell.added + time.saturating_sub(best)).saturating_sub(assumed);
        }
    }

    /// Describes each class that was timed.
    pub(crate) fn explain(&self, text: &mut String) {
        let timed = self.cells.iter().enumerate().filter_map(|(index, cell)| {
            let best = cell.best([true; 3])?;
            Some((Class::at(index), cell, best))
        });
        for (class, cell, best) in timed {
            let range = |log: usize, most: usize| {
                let low = 1_u64 << log;
                if log == most - 1 { format!("{low} or more") } else { format!("{low} to {}", 2 * low - 1) }
            };
            let nanoseconds = |time: u64| time as f64 / 1000.0;
            let _ = write!(
                text,
                "  {}, {} copies of {} bytes: {}",
                DIRECTIONS[class.direction],
                range(class.number, NUMBERS),
                range(class.length, LENGTHS),
                best.name(),
            );
            let times = Way::ALL.into_iter().filter_map(|way| Some((way, cell.time(way)?)));
            let times: Vec<_> =
                times.map(|(way, time)| format!("{} {:.1} ns", way.name(), nanoseconds(time))).collect();
            let share = 100.0 * cell.added as f64 / cell.total.max(1) as f64;
            let _ = writeln!(
                text,
                ", because a copy takes {}; {} loads, trials added {share:.1} %",
                times.join(", "),
                cell.loads
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{KeyPlace, Places};
    use super::*;
    use dma_core::RegionKey;

    const ALL: [bool; 3] = [true; 3];

    fn load(number: usize, len: usize) -> Load {
        let mut places = Places::default();
        places.add(RegionKey(KeyPlace::Host as usize), RegionKey(KeyPlace::Device as usize));
        Load { number, bytes: number * len, places }
    }

    /// A card: the time of a load in nanoseconds.
    type Card = fn(Way, usize, usize) -> f64;

    /// Runs `loads` loads of one class. Returns the time of all loads, and the number of loads of each way
    /// among the last 100.
    fn run(learner: &mut Learner, card: Card, number: usize, len: usize, loads: usize) -> (f64, [usize; 3]) {
        let (mut total, mut last) = (0.0, [0; 3]);
        for at in 0..loads {
            let decision = learner.choose(Class::of(load(number, len)), number, ALL);
            let time = card(decision.way, number, len);
            if let Some(trial) = decision.trial {
                learner.learn(trial, time as u64);
            }
            total += time;
            if at + 100 >= loads {
                last[decision.way as usize] += 1;
            }
        }
        (total, last)
    }

    /// Two made-up cards, on which different ways are fast.
    const CARDS: [Card; 2] = [
        |way, number, len| {
            let bytes = (number * len) as f64;
            match way {
                Way::Batch => 3000.0 + number as f64 * 600.0 + bytes / 55.0,
                Way::Kernel => 6000.0 + number as f64 * 8.0 + bytes / 45.0,
                Way::Loop => 2500.0 + number as f64 * 2300.0 + bytes / 55.0,
            }
        },
        |way, number, len| {
            let bytes = (number * len) as f64;
            match way {
                Way::Batch => 3000.0 + number as f64 * 20.0 + bytes / 25.0,
                Way::Kernel => 20_000.0 + number as f64 * 30.0 + bytes / 12.0,
                Way::Loop => 1000.0 + number as f64 * 1500.0 + bytes / 25.0,
            }
        },
    ];

    #[test]
    fn the_fastest_way_is_found_on_every_card_within_the_limit_of_trials() {
        for card in CARDS {
            let mut learner = Learner::new();
            let (mut good, mut all) = (0, 0);
            for len in [512, 1 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 1 << 20] {
                for number in [2, 16, 128, 1024, 4096, 16_384] {
                    let loads = 4000;
                    let (total, last) = run(&mut learner, card, number, len, loads);
                    let best =
                        Way::ALL.map(|way| card(way, number, len)).into_iter().fold(f64::MAX, f64::min);
                    let chosen = Way::ALL.into_iter().max_by_key(|way| last[*way as usize]).unwrap();
                    all += 1;
                    good += usize::from(card(chosen, number, len) <= 1.05 * best);
                    // The first trials of a way that is many times slower exceed the limit once.
                    let slowest = Way::ALL.map(|way| card(way, number, len)).into_iter().fold(0.0, f64::max);
                    let most = loads as f64 * best * 1.031 + 3.0 * slowest * Way::ALL.len() as f64;
                    assert!(total <= most, "{number} of {len}: {total} instead of {}", loads as f64 * best);
                }
            }
            assert_eq!(good, all, "the chosen way is within 5 % of the best one");
        }
    }

    #[test]
    fn a_change_of_the_card_is_noticed() {
        let mut learner = Learner::new();
        let (number, len) = (4096, 4096);
        assert!(run(&mut learner, CARDS[0], number, len, 1000).1[Way::Kernel as usize] > 90);
        assert!(run(&mut learner, CARDS[1], number, len, 4000).1[Way::Batch as usize] > 90);
        assert!(run(&mut learner, CARDS[0], number, len, 4000).1[Way::Kernel as usize] > 90);
    }

    #[test]
    fn neighbours_begin_with_the_way_that_was_found() {
        let mut learner = Learner::new();
        run(&mut learner, CARDS[0], 1024, 4096, 1000);
        let decision = learner.choose(Class::of(load(1024, 8192)), 1024, ALL);
        assert_eq!(decision.way, Way::Kernel);
        let decision = learner.choose(Class::of(load(2048, 4096)), 2048, [true, false, true]);
        assert_eq!(decision.way, Way::Batch, "the kernel is not available");
    }

    #[test]
    fn trials_without_a_time_are_repeated() {
        let mut learner = Learner::new();
        let class = Class::of(load(64, 4096));
        let first = learner.choose(class, 64, ALL);
        assert!(first.trial.is_some());
        assert_eq!(learner.choose(class, 64, ALL), Decision::of(first.way), "the trial has not ended");
        learner.learn(first.trial.unwrap(), 0);
        assert!(learner.choose(class, 64, ALL).trial.is_some());
    }

    #[test]
    fn the_choice_is_explained() {
        let mut learner = Learner::new();
        run(&mut learner, CARDS[0], 1024, 4096, 1000);
        let mut text = String::new();
        learner.explain(&mut text);
        assert!(
            text.contains("host to device, 1024 to 2047 copies of 4096 to 8191 bytes: kernel, because"),
            "{text}"
        );
        assert!(text.contains("batch 677.4 ns, kernel 104.9 ns, loop 2376.9 ns"), "{text}");
    }
}
