//! [`Runner`]: goes through all cells several times, and measures each slice of an engine between two of the baseline.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dma::DmaEngine;

use crate::contender::Contender;
use crate::drive::{COMPARE_LITTLE, COMPARE_MUCH, COMPARE_OPS, Extent, Pace, Trouble, Worker};
use crate::layout::Layout;
use crate::memcpy::Memcpy;
use crate::memory::Memory;
use crate::nearness::Nearness;
use crate::pairs::{Pair, Slot};
use crate::plan::{Campaign, Cell, Direction, Footprint, Group, SLICE, Verify};
use crate::record::Record;
use crate::results::{Measured, Status};
use crate::run::Observer;
use crate::sibling::Sibling;
use crate::slices::{self, Sliced};
use crate::{interrupt, waits};

/// The engines, their memory, and what has been found out about the clock.
pub(crate) struct Runner<'a> {
    campaign: &'a Campaign,
    contenders: Vec<Contender>,
    memories: HashMap<(String, Direction), Memory>,
    baseline: Arc<dyn DmaEngine>,
    memcpy: Option<Memcpy>,
    /// Where the baseline has got to in its memory.
    at: usize,
    /// The number of the pass,
    pass: u32,
    /// and of the visit, over all passes.
    visit: u32,
    groups: Vec<Group>,
    footprint: usize,
    /// What the last cache holds, in bytes.
    last_cache: u64,
    clock_ns: f64,
    sibling: Sibling,
    nearness: Nearness,
    /// How often an engine was opened anew.
    reopened: u32,
    begun: Instant,
    /// How long it has waited for the core to be its own.
    waited: Duration,
}

/// So much memory is left over, for hot buffers to lie elsewhere in each pass.
const ROOM: usize = 16 << 20;
/// In one of so many passes, much is compared of the first repetition of each visit: it is not what the time is for.
const COMPARE_EVERY: u32 = 4;
/// How much cold memory the simulated devices go through: they have no caches.
const MODEL_FOOTPRINT: usize = 16 << 20;
/// The part of the time that may go into reading the clock.
const CLOCK_SHARE: f64 = 0.005;
/// Of each slice, this part goes before the clock starts: what the one before left in the caches is gone by then.
const WARM_SHARE: f64 = 0.2;
/// It takes no longer than so many seconds: a long slice needs no more than a short one.
const WARM_LONGEST: f64 = 0.01;
/// Hot buffers up to so many bytes are all gone through before the clock starts: they fit into a core's own caches.
const WARM_BYTES: u64 = 4 << 20;
/// A cell that is known well enough takes part in one pass of so many.
const REST: u32 = 6;
/// For copies of fewer bytes, half as well is well enough: what they take differs more from one visit to the next, and decides less.
const SHORT: u64 = 4096;
/// Half of what was asked for is to be undisturbed. Until it is, repetitions are added while nothing disturbs: a visit has at most so many times
/// its share of them,
const TRIES: usize = 6;
/// and takes at most so many times as long as it would have taken undisturbed.
const PATIENCE: f64 = 3.0;
/// A visit waits so long at most for the core to be its own,
const QUIET: Duration = Duration::from_millis(10);
/// and all visits together for this part of the time.
const QUIET_SHARE: f64 = 0.125;
/// Later passes look for so many seconds how long the baseline takes: but for its caches, there is nothing to warm up in it.
const LOOK: f64 = 0.000_5;
/// Hot buffers of more bytes, sources and destinations, fit into no core's own caches. They lie elsewhere in each pass, and it takes so many
const OWN_CACHE: u64 = 1 << 20;
/// seconds of copying until the shared one has taken them in, and until an engine that learns copies them as before. On a Zen 3, `memcpy` of 4 MiB over and over
/// had 20 to 23 GB/s after half a millisecond, 25 to 26 after two, 24 to 27 after four and 27 to 29 after eight.
const WARM_SHARED: f64 = 0.004;
/// So often the baseline goes through hot buffers before it is measured: a cache may take in what is read once more slowly than what is read again.
const ROUNDS: u64 = 3;
/// Through more bytes than this it goes once.
const ROUNDS_BYTES: u64 = 32 << 20;
/// So many times what the last cache holds leaves nothing in it for what comes then: no round at all.
const TOO_MUCH: u64 = 4;
/// Each pass warms a cell up for so many seconds at least, unless the whole warm-up is shorter.
const WARM_LEAST: f64 = 0.000_5;
/// So many seconds if its queues stayed open, unless its buffers are to be in a shared cache.
const WARM_AGAIN: f64 = 0.001;
/// Queues of the CPU engine stay open if a campaign has no more.
const STAY: u64 = 64;
/// After the first pass, so many operations are enough: what an engine learns, it learns from these.
const WARM_OPS: u64 = 4096;
/// So many slices of the baseline go before a run at a rate, and so many after it.
const BESIDE_RATE: u32 = 5;

impl<'a> Runner<'a> {
    /// To measure `groups` with these engines, and the memory of `baseline` for memcpy.
    pub(crate) fn new(
        campaign: &'a Campaign,
        contenders: Vec<Contender>,
        baseline: Arc<dyn DmaEngine>,
        groups: Vec<Group>,
        footprint: usize,
        last_cache: u64,
    ) -> Self {
        Self {
            campaign,
            contenders,
            memories: HashMap::new(),
            baseline,
            memcpy: None,
            at: 0,
            pass: 0,
            visit: 0,
            groups,
            footprint,
            last_cache,
            clock_ns: clock_cost(),
            sibling: Sibling::default(),
            nearness: Nearness::default(),
            reopened: 0,
            begun: Instant::now(),
            waited: Duration::ZERO,
        }
    }

    fn footprint_of(&self, contender: &Contender) -> usize {
        if contender.clock.is_virtual() { self.footprint.min(MODEL_FOOTPRINT) } else { self.footprint }
    }

    fn contender(&self, cell: &Cell) -> Option<&Contender> {
        self.contenders.iter().find(|c| c.name == cell.engine)
    }

    /// Bytes of each side that an engine needs for a direction.
    fn needs(&self, contender: &Contender, direction: Direction) -> usize {
        let footprint = self.footprint_of(contender);
        let cells = self.groups.iter().flat_map(|g| &g.cells);
        cells
            .filter(|c| c.engine == contender.name && c.direction == direction)
            .map(|c| Layout::bytes(c, footprint).saturating_mul(c.queues as usize))
            .map(|bytes| if contender.clock.is_virtual() { bytes } else { bytes.saturating_add(ROOM) })
            .max()
            .unwrap_or(0)
    }

    fn baseline_needs(&self) -> usize {
        self.groups
            .iter()
            .map(|g| Layout::bytes(&g.baseline, self.footprint).saturating_add(ROOM))
            .max()
            .unwrap_or(0)
    }

    /// Whether the machine has as much memory as this takes.
    ///
    /// # Errors
    ///
    /// It does not.
    pub(crate) fn check_memory(&self, memory: u64) -> Result<(), String> {
        let mut total = self.baseline_needs();
        for contender in &self.contenders {
            for direction in [Direction::Local, Direction::Push, Direction::Pull] {
                total = total.saturating_add(self.needs(contender, direction));
            }
        }
        let total = total as u64 * 2;
        if memory > 0 && total > memory / 10 * 8 {
            return Err(format!(
                "this needs {} MiB of memory, and the machine has {}; make --footprint, sizes, depths or queues smaller",
                total >> 20,
                memory >> 20
            ));
        }
        Ok(())
    }

    /// Measures every group; what came of it, and whether the user stopped it.
    pub(crate) fn all(&mut self, observer: &mut dyn Observer) -> (Vec<Measured>, bool) {
        let reps = u64::from(self.campaign.repetitions);
        let cells = self.groups.iter().map(|g| g.cells.len() as u64).sum::<u64>();
        observer.begin(cells * reps, self.expected(cells));
        let groups = self.groups.clone();
        let mut all: Vec<Vec<Record>> = groups
            .iter()
            .map(|g| std::iter::once(&g.baseline).chain(&g.cells).map(|c| Record::new(c.clone())).collect())
            .collect();
        let passes = passes(self.campaign);
        let mut order: VecDeque<usize> = (0..all.len()).collect();
        for pass in 0..passes {
            let over = |most: f64| self.begun.elapsed().as_secs_f64() >= most;
            if pass > 0 && self.campaign.limit.is_some_and(over) {
                for records in &mut all {
                    records.iter_mut().for_each(|record| record.judge(0, &self.nearness));
                    for record in records.iter_mut().skip(1) {
                        let fewer = record.wanted as usize - upto(record.wanted, pass, passes);
                        let_off(record, fewer, observer);
                    }
                    tell(records, observer);
                }
                break;
            }
            self.pass = pass;
            self.one_pass(&mut all, &mut order, passes, observer);
            if interrupt::stopped() {
                break;
            }
            observer.pass(pass + 1, passes);
        }
        all.iter_mut().flatten().for_each(|record| record.judge(0, &self.nearness));
        let mut cells: Vec<Measured> = Vec::new();
        for record in all.iter().flatten() {
            let measured = record.measured();
            let nothing = measured.status == Status::Interrupted && measured.ops_per_second.is_none();
            if !nothing && !cells.iter().any(|c| c.cell == measured.cell) {
                cells.push(measured);
            }
        }
        (cells, interrupt::stopped())
    }

    /// How many seconds so many cells take, if that is known: at most, or under a rate.
    fn expected(&self, cells: u64) -> Option<f64> {
        let schedule = f64::from(self.campaign.repetitions) * self.campaign.seconds * cells as f64;
        self.campaign.limit.or(self.campaign.rate.map(|_| schedule))
    }

    /// One pass over all groups, in this order. Those that another core takes part in wait while that is elsewhere than usual; if it still is in the end, what
    /// it takes part in is left out, but not in two passes running, and is the first of the next pass.
    fn one_pass(
        &mut self,
        all: &mut [Vec<Record>],
        order: &mut VecDeque<usize>,
        passes: u32,
        observer: &mut dyn Observer,
    ) {
        let mut waiting = VecDeque::new();
        for at in order.clone() {
            if self.waits(&all[at]) {
                waiting.push_back(at);
                continue;
            }
            self.visit(&mut all[at], passes, observer);
            while let Some(at) = waiting.pop_front() {
                if self.waits(&all[at]) {
                    waiting.push_front(at);
                    break;
                }
                self.visit(&mut all[at], passes, observer);
            }
        }
        for at in waiting.into_iter().rev() {
            for record in all[at].iter_mut().filter(|record| self.to_wait(record)) {
                record.skipped = Some(self.pass);
            }
            self.visit(&mut all[at], passes, observer);
            order.retain(|other| *other != at);
            order.push_front(at);
        }
    }

    /// Whether cells that share a baseline are not to be measured now.
    fn waits(&mut self, records: &[Record]) -> bool {
        records.iter().any(|record| self.to_wait(record)) && !interrupt::stopped() && self.elsewhere()
    }

    /// Whether a cell is to wait for another core to be where it usually is.
    fn to_wait(&self, record: &Record) -> bool {
        // Where so many repetitions are asked for, and not as many as it takes, there are so many.
        let may = self.campaign.precision > 0.0 && record.skipped.is_none_or(|pass| pass + 1 < self.pass);
        may && record.trouble.is_none() && record.in_company() && !self.rests(record)
    }

    /// Tells whoever watches what cells came to, if this was their last pass.
    fn tell_last(&self, records: &mut [Record], passes: u32, observer: &mut dyn Observer) {
        records.iter_mut().for_each(|record| record.judge(0, &self.nearness));
        if self.pass + 1 == passes || interrupt::stopped() {
            tell(records, observer);
        }
    }

    /// Measures cells that share a baseline, unless the user stopped it.
    fn visit(&mut self, records: &mut [Record], passes: u32, observer: &mut dyn Observer) {
        if !interrupt::stopped() {
            self.turn_to(records, passes, observer);
        }
        self.tell_last(records, passes, observer);
    }

    /// One pass over cells that share a baseline, which is the first.
    fn turn_to(&mut self, records: &mut [Record], passes: u32, observer: &mut dyn Observer) {
        let Some((base, records)) = records.split_first_mut() else { return };
        let pass = self.pass;
        // How many repetitions of so many there should be after this pass, and how many of these belong to it.
        let share = |wanted: u32| {
            let due = upto(wanted, pass + 1, passes);
            (due, due - upto(wanted, pass, passes))
        };
        let (rest, records): (Vec<_>, Vec<_>) =
            records.iter_mut().partition(|r| self.rests(r) || r.skipped == Some(pass));
        for record in rest {
            let fewer = share(record.wanted).1;
            let_off(record, fewer, observer);
        }
        if records.is_empty() {
            return;
        }
        self.at = 0;
        self.visit = self.visit.wrapping_add(1);
        let free = self.baseline_needs() - Layout::bytes(&base.cell, self.footprint);
        let layout =
            Layout::new(&base.cell, 0, self.footprint).in_pass(&base.cell, self.pass, self.visit, free);
        if base.trouble.is_none()
            && let Err(trouble) = self.baseline_extent(base, &layout)
            && !interrupt::stopped()
        {
            base.trouble = Some(trouble);
        }
        for mut together in apart(records) {
            let mut lost: Vec<String> = Vec::new();
            for record in &mut together {
                self.open(record);
                let fewer = self.campaign.repetitions.saturating_sub(record.wanted);
                if pass == 0 && record.trouble.is_none() && fewer > 0 {
                    observer.fewer(u64::from(fewer));
                }
            }
            if self.campaign.rate.is_some() {
                self.at_rate(base, &layout, &mut together, observer);
            } else {
                self.turns(base, &layout, &mut together, &share, observer);
            }
            for record in together {
                base.wanted = base.wanted.max(record.wanted);
                record.end_visit(self.stays(record));
                if record.trouble.is_some() && !record.given_up {
                    record.given_up = true;
                    let all = if record.wanted == 0 { self.campaign.repetitions } else { record.wanted };
                    // What it was let off was told.
                    observer.fewer((record.due(all as usize) as u64).saturating_sub(record.shown));
                }
                if matches!(record.trouble, Some(Trouble::Failed(_))) && !lost.contains(&record.cell.engine) {
                    lost.push(record.cell.engine.clone());
                }
            }
            lost.iter().for_each(|name| self.reopen(name));
        }
        base.end_visit(false);
    }

    /// Measures cells of different engines, and the baseline between them, until each has its share of repetitions. What was disturbed is made up
    /// for while nothing disturbs.
    fn turns(
        &mut self,
        base: &mut Record,
        layout: &Layout,
        records: &mut [&mut Record],
        share: &impl Fn(u32) -> (usize, usize),
        observer: &mut dyn Observer,
    ) {
        let begun = Instant::now();
        let planned: Duration = records.iter().map(|r| self.plan(r) * share(r.wanted).1 as u32).sum();
        let mut busy = !planned.is_zero();
        let (mut before, mut compare) = (None, self.compare());
        for turn in 0.. {
            if busy {
                (busy, before) = (self.quiet(), None);
            }
            let patient = !busy && begun.elapsed() < planned.mul_f64(PATIENCE);
            let goes_on = |r: &Record| {
                let (visited, (due, share)) = (r.visited(), share(r.wanted));
                let again = !r.virtual_clock && patient && !r.moved() && visited < TRIES * share;
                r.trouble.is_none() && (visited < share || (again && r.clean() < r.due(due) / 2))
            };
            let (modelled, real): (Vec<usize>, Vec<usize>) = (0..records.len())
                .filter(|who| goes_on(&*records[*who]))
                .partition(|who| records[*who].virtual_clock);
            if modelled.is_empty() && real.is_empty() {
                return;
            }
            // One slice of the baseline, one of an engine, one of the baseline. A modelled device takes no time of this machine: it is set
            // against the baseline whenever that is measured. Who begins changes.
            let gaps = real.len().max(1);
            if before.is_none() {
                before = self.baseline_slot(base, layout, compare, &mut busy);
                compare = COMPARE_LITTLE;
            }
            for gap in 0..gaps {
                if interrupt::stopped() {
                    return;
                }
                let who = (!real.is_empty()).then(|| real[(gap + turn) % gaps]);
                let modelled = if gap == 0 { modelled.as_slice() } else { &[] };
                let who = modelled.iter().copied().chain(who);
                let slots: Vec<(usize, Slot)> =
                    who.filter_map(|who| Some((who, self.slot(records[who], &mut busy)?))).collect();
                // The end of the run is not to be waited for by way of memcpy.
                let after = (!interrupt::stopped())
                    .then(|| self.baseline_slot(base, layout, COMPARE_LITTLE, &mut busy))
                    .flatten();
                for (who, slot) in slots {
                    let record = &mut *records[who];
                    record.add(Pair::new(before, slot, after), &self.nearness);
                    if record.visited() <= share(record.wanted).1 {
                        record.shown += 1;
                        observer.repetition(&record.cell, record.model, slot.rate * record.cell.size as f64);
                    }
                }
                before = after;
            }
        }
    }

    /// Measures each cell at the rate, all its repetitions in one go: what is late makes late what follows, and between two pieces of a
    /// schedule that would be lost. The baseline goes before and after it.
    fn at_rate(
        &mut self,
        base: &mut Record,
        layout: &Layout,
        records: &mut [&mut Record],
        observer: &mut dyn Observer,
    ) {
        for record in records {
            let before = self.beside(base, layout, COMPARE_MUCH);
            let slots = if record.trouble.is_none() && !interrupt::stopped() {
                paced(record, self.campaign)
            } else {
                Vec::new()
            };
            let after = self.beside(base, layout, COMPARE_LITTLE);
            for slot in slots {
                // An engine is not as fast as it can be: that has no ratio to memcpy.
                record.add(Pair { ratio: None, ..Pair::new(before, slot, after) }, &self.nearness);
                record.shown += 1;
                observer.repetition(&record.cell, record.model, slot.rate * record.cell.size as f64);
            }
        }
    }

    /// Some slices of the baseline; the last of them.
    fn beside(&mut self, base: &mut Record, layout: &Layout, compare: usize) -> Option<Slot> {
        let mut last = None;
        for _ in 0..BESIDE_RATE {
            if interrupt::stopped() {
                break;
            }
            last = self.baseline_slot(base, layout, compare, &mut false).or(last);
        }
        last
    }

    /// What is compared of the first repetition of a visit, beside the operations before it that are not timed.
    fn compare(&self) -> usize {
        if self.pass.is_multiple_of(COMPARE_EVERY) { COMPARE_MUCH } else { COMPARE_LITTLE }
    }

    /// How long a repetition takes if nothing disturbs it, the baseline beside it included.
    fn plan(&self, record: &Record) -> Duration {
        let slice = self.campaign.slice();
        if record.virtual_clock { Duration::ZERO } else { slice + record.slice.max(slice) }
    }

    /// How long a visit may wait for the core to be its own: not at all where that hardly ever helps.
    fn patience(&self) -> Duration {
        if self.sibling.is_mostly_busy() {
            return Duration::ZERO;
        }
        self.begun.elapsed().mul_f64(QUIET_SHARE).saturating_sub(self.waited).min(QUIET)
    }

    /// Waits until the core's other hardware thread is not busy, while there is time for it; whether it is busy.
    fn quiet(&mut self) -> bool {
        let begun = Instant::now();
        let most = self.patience();
        loop {
            let busy = self.sibling.is_busy();
            if !busy || begun.elapsed() >= most || interrupt::stopped() {
                self.waited += begun.elapsed();
                return busy;
            }
            std::thread::yield_now();
        }
    }

    /// Whether the core that took part last is elsewhere than usual now.
    fn elsewhere(&mut self) -> bool {
        let seen = self.nearness.look_again(&mut self.sibling);
        seen.is_some_and(|seen| self.nearness.is_unusual(seen))
    }

    /// Whether a cell is left out of this pass, since it is known well enough.
    fn rests(&self, record: &Record) -> bool {
        let within = self.campaign.precision * if record.cell.size < SHORT { 2.0 } else { 1.0 };
        within > 0.0 && !self.pass.is_multiple_of(REST) && record.trouble.is_none() && record.is_known(within)
    }

    /// An engine that failed is opened anew, so that one bad cell does not cost the others.
    fn reopen(&mut self, name: &str) {
        self.memories.retain(|(engine, _), _| engine != name);
        // Queues that are still open are of the one before.
        self.reopened += 1;
        let Some(contender) = self.contenders.iter_mut().find(|c| c.name == name) else { return };
        if let Ok(fresh) = Contender::open(name) {
            *contender = fresh;
        }
    }

    /// Whether the queues of a cell stay open until the next visit: what the CPU engine learns, it learns once, as where it is used. A device may not have
    /// so many, and learns nothing.
    fn stays(&self, record: &Record) -> bool {
        let learns = |contender: &Contender| contender.engine.info().backend == "cpu";
        let cells = self.groups.iter().flat_map(|g| &g.cells).filter(|c| c.engine == record.cell.engine);
        self.contender(&record.cell).is_some_and(learns)
            && cells.map(|c| u64::from(c.queues)).sum::<u64>() <= STAY
            // The order in which it goes through them would stay too.
            && record.cell.footprint != Footprint::Random
            && self.pass + 1 < passes(self.campaign)
    }

    /// Opens what a cell needs, and warms it up, unless it has failed before.
    fn open(&mut self, record: &mut Record) {
        if record.trouble.is_none()
            && let Err(trouble) = self.try_open(record)
        {
            // What it did before it failed is no part of a repetition.
            record.workers.iter_mut().for_each(Worker::forget);
            if !interrupt::stopped() {
                record.trouble = Some(trouble);
            }
        }
    }

    fn try_open(&mut self, record: &mut Record) -> Result<(), Trouble> {
        if record.again().is_some() {
            return Ok(());
        }
        let cell = record.cell.clone();
        let contender =
            self.contender(&cell).cloned().ok_or_else(|| Trouble::Failed("no such engine".to_owned()))?;
        record.model = contender.is_model();
        record.virtual_clock = contender.clock.is_virtual();
        if contender.timeless {
            return Err(Trouble::Unsupported(TIMELESS.to_owned()));
        }
        let footprint = self.footprint_of(&contender);
        let key = (cell.engine.clone(), cell.direction);
        if !self.memories.contains_key(&key) {
            let len = self.needs(&contender, cell.direction);
            let peer = match cell.direction {
                Direction::Local => None,
                _ => Some(Contender::open(&cell.engine)?.engine),
            };
            let memory = Memory::new(&contender.engine, peer.as_ref(), len, cell.direction)?;
            self.memories.insert(key.clone(), memory);
        }
        let memory = &self.memories[&key];
        let free =
            self.needs(&contender, cell.direction) - Layout::bytes(&cell, footprint) * cell.queues as usize;
        let stall = Duration::from_secs_f64(self.campaign.stall);
        let layouts = (0..cell.queues as usize)
            .map(|queue| Layout::new(&cell, queue, footprint).in_pass(&cell, self.pass, self.visit, free));
        if std::mem::replace(&mut record.reopened, self.reopened) != self.reopened {
            record.workers.clear();
        }
        let stayed = !record.workers.is_empty();
        if stayed {
            record.workers.iter_mut().zip(layouts).for_each(|(worker, layout)| worker.move_to(layout));
        } else {
            for layout in layouts {
                let (memory, verify) = (memory.clone(), self.campaign.verify);
                record.workers.push(Worker::new(&contender, &cell, memory, layout, verify, stall)?);
            }
        }
        self.warm_up(record, stayed)
    }

    /// Runs a cell until it is warm, and finds out how many operations a slice takes and how many slices there are to be.
    fn warm_up(&self, record: &mut Record, stayed: bool) -> Result<(), Trouble> {
        let (depth, batch) = (u64::from(record.cell.depth), u64::from(record.cell.batch));
        let compare = self.compare();
        let fresh = record.wanted == 0;
        if fresh {
            record.wanted = self.campaign.repetitions;
        }
        // A simulated device that will not be run again needs no look either.
        let much = compare == COMPARE_MUCH;
        if much && self.campaign.verify == Verify::Sample && record.again().is_none() {
            check_some(record)?;
        }
        if record.virtual_clock {
            let least = (2 * depth).max(few(record.cell.size)).next_multiple_of(batch);
            let ops = self.campaign.count.unwrap_or(least);
            record.extent = Extent { warm: 2 * depth, ops, sample_every: 1, compare, each: false };
            record.workers.iter_mut().for_each(Worker::forget);
            return Ok(());
        }
        let per_op = match self.campaign.rate {
            Some(rate) => self.warm_at_rate(record, rate)?,
            None => self.warm_at_will(record, stayed)?,
        };
        // What the warm-up took is not the cell's.
        record.workers.iter_mut().for_each(Worker::forget);
        let sample_every = self.sampling(per_op * 1e9 * batch as f64);
        let seconds = self.campaign.seconds;
        let (warm, ops) = match (self.campaign.count, self.campaign.rate) {
            (Some(ops), Some(_)) => (0, ops),
            // As warm as memcpy beside it.
            (Some(ops), None) => (warm(&record.cell, ops, per_op, depth).next_multiple_of(batch), ops),
            (None, Some(rate)) => (0, ((seconds * rate) as u64).max(1)),
            (None, None) => {
                let ops = ((seconds / per_op.max(1e-9)) as u64).max(depth).next_multiple_of(batch);
                (warm(&record.cell, ops, per_op, depth).next_multiple_of(batch), ops)
            }
        };
        record.extent = Extent { warm, ops, sample_every, compare, each: false };
        let slice = record.extent.ops as f64 * per_op;
        record.slice = Duration::try_from_secs_f64(slice).unwrap_or(Duration::ZERO);
        if fresh && self.campaign.count.is_none() && self.campaign.rate.is_none() && slice > 2.0 * seconds {
            let fewer = (f64::from(record.wanted) * seconds / slice) as u32;
            record.wanted = fewer.max(passes(self.campaign));
        }
        Ok(())
    }

    /// How many operations it takes until hot buffers are in the caches, as far as they fit: they lie elsewhere in each pass.
    fn cold(&self, cell: &Cell) -> u64 {
        let buffers = u64::from(cell.depth) * u64::from(cell.queues);
        match cell.footprint {
            Footprint::Hot => buffers * rounds(buffers * cell.size, self.last_cache),
            _ => 0,
        }
    }

    /// Runs a cell as fast as it goes until it is warm; the seconds that an operation takes.
    fn warm_at_will(&self, record: &mut Record, stayed: bool) -> Result<f64, Trouble> {
        let (whole, depth) = (warm_up_of_pass(self.campaign), u64::from(record.cell.depth));
        // A queue that was used before has learned what it can.
        let again = if is_shared(&record.cell) { WARM_SHARED } else { WARM_AGAIN };
        let least = if stayed { whole.min(again) } else { whole };
        let (mut ops, mut spent, mut per_op) = (depth, 0.0, f64::INFINITY);
        let all = self.pass == 0 || is_shared(&record.cell);
        let (mut done, enough) = (0, if all { u64::MAX } else { WARM_OPS });
        let least_of_all = WARM_LEAST.min(least);
        let cold = if stayed { self.cold(&record.cell) / u64::from(record.cell.queues) } else { 0 };
        while (done < cold || spent < least.max(1e-9) && (done < enough || spent < least_of_all))
            && !interrupt::stopped()
        {
            let begun = Instant::now();
            let extent = Extent { warm: 0, ops, sample_every: 1 << 10, compare: COMPARE_LITTLE, each: false };
            let sliced = slices::run(&mut record.workers, extent, None)?;
            spent += begun.elapsed().as_secs_f64() * (1.0 - sliced.waited.min(0.9));
            // The fastest: a busy machine makes some slower, and none faster.
            per_op = per_op.min(sliced.ops_and_ns().1 as f64 * 1e-9 / ops as f64);
            done += ops;
            let left = ((least - spent).max(0.0) / per_op.max(1e-9)) as u64;
            ops = (ops * 2).min(left.max(depth).max(cold.saturating_sub(done)));
        }
        Ok(per_op)
    }

    /// Runs a cell at its rate until it is warm. Each operation is timed there, whatever it takes.
    fn warm_at_rate(&self, record: &mut Record, rate: f64) -> Result<f64, Trouble> {
        let least = warm_up_of_pass(self.campaign);
        let ops = (rate * least) as u64;
        if least > 0.0 {
            let extent = Extent {
                warm: 0,
                ops: ops.max(1),
                sample_every: 1 << 10,
                compare: COMPARE_LITTLE,
                each: false,
            };
            // Where none would be due in that time, one at once.
            slices::run(&mut record.workers, extent, (ops > 0).then_some(Pace { rate, each: ops }))?;
        }
        Ok(1.0 / rate)
    }

    /// One in how many doorbells is timed, if each takes so long.
    fn sampling(&self, ns: f64) -> u64 {
        ((2.0 * self.clock_ns / (CLOCK_SHARE * ns.max(1.0))).ceil() as u64).max(1)
    }

    /// One slice of an engine. `busy` is whether the core's other hardware thread was so before it, and becomes whether it is now.
    fn slot(&mut self, record: &mut Record, busy: &mut bool) -> Option<Slot> {
        if record.trouble.is_some() {
            return None;
        }
        if let Some(slot) = record.again() {
            return Some(slot);
        }
        let sliced = match slices::run(&mut record.workers, record.extent, None) {
            Ok(sliced) => sliced,
            Err(trouble) => {
                record.trouble = Some(trouble);
                return None;
            }
        };
        record.extent.compare = COMPARE_LITTLE;
        let (ops, ns) = sliced.ops_and_ns();
        if record.virtual_clock && ns == 0 {
            record.trouble = Some(Trouble::Unsupported(TIMELESS.to_owned()));
            return None;
        }
        record.count(&sliced.slices);
        if sliced.cut() && (ops == 0 || ns == 0) {
            return None;
        }
        let (rate, cpu_ns) =
            (ops as f64 / (ns.max(1) as f64 / 1e9), sliced.cpu_ns / sliced.all_ops().max(1) as f64);
        if record.virtual_clock {
            return Some(Slot { rate, cpu_ns, waited: 0.0, shared: false, beside: None });
        }
        let before = std::mem::replace(busy, self.sibling.is_busy_after());
        let beside = if let Some(cpu) = sliced.beside {
            let seen = self.nearness.look(cpu, &mut self.sibling);
            seen.into_iter().for_each(|seen| self.nearness.learn(seen));
            seen
        } else if record.in_company() {
            self.nearness.missed(&mut self.sibling)
        } else {
            None
        };
        Some(Slot { rate, cpu_ns, waited: sliced.waited, shared: before || *busy, beside })
    }

    /// Warms the baseline up in the first pass, and finds out how many operations a slice takes.
    fn baseline_extent(&mut self, base: &mut Record, layout: &Layout) -> Result<(), Trouble> {
        if self.memcpy.is_none() {
            self.memcpy = Some(Memcpy::new(&self.baseline, self.baseline_needs())?);
        }
        let warm_up = warm_up_of_pass(self.campaign);
        let look = if is_shared(&base.cell) { WARM_SHARED } else { LOOK };
        let least = if self.pass == 0 { warm_up } else { warm_up.min(look) };
        let mut cold = self.cold(&base.cell);
        let Some(memcpy) = &mut self.memcpy else { return Err(Trouble::Failed("no memory".to_owned())) };
        let (mut ops, mut spent, mut per_op) = (1, 0.0, f64::INFINITY);
        while (spent < least.max(1e-9) || cold > 0) && !interrupt::stopped() {
            let extent = Extent { warm: 0, ops, sample_every: u64::MAX, compare: 0, each: false };
            let mut unused = crate::drive::histogram();
            let (slice, _) = memcpy.run(&base.cell, layout, extent, &mut self.at, &mut unused)?;
            spent += slice.seconds();
            per_op = per_op.min(slice.seconds() / ops as f64);
            cold = cold.saturating_sub(ops);
            // No more than what is left to go through, once that is what it goes on for.
            ops = if spent < least { ops * 2 } else { (ops * 2).min(cold).max(1) };
        }
        // Beside a number of operations or a rate, which say how long an engine's repetition takes, it keeps slices of its own.
        let own = self.campaign.count.is_some() || self.campaign.rate.is_some();
        let seconds = if own { self.campaign.seconds.min(SLICE) } else { self.campaign.seconds };
        let ops = ((seconds / per_op.max(1e-9)) as u64).max(1);
        let warm = warm(&base.cell, ops, per_op, u64::from(base.cell.depth));
        base.extent =
            Extent { warm, ops, sample_every: self.sampling(per_op * 1e9), compare: 0, each: false };
        Ok(())
    }

    /// One slice of the baseline. `busy` is whether the core's other hardware thread was so before it, and becomes whether it is now.
    fn baseline_slot(
        &mut self,
        base: &mut Record,
        layout: &Layout,
        compare: usize,
        busy: &mut bool,
    ) -> Option<Slot> {
        let memcpy = self.memcpy.as_mut().filter(|_| base.trouble.is_none())?;
        // Whoever waits for this CPU goes first.
        std::thread::yield_now();
        let (before, begun) = (waits::of_thread(), Instant::now());
        let extent = Extent { compare, ..base.extent };
        match memcpy.run(&base.cell, layout, extent, &mut self.at, &mut base.latency) {
            Ok((slice, _)) if slice.ops == 0 => {
                base.cut |= slice.cut;
                None
            }
            Ok((slice, cpu)) => {
                let waited = slices::part(before, waits::of_thread(), begun);
                let rate = slice.ops as f64 / slice.seconds();
                let before = std::mem::replace(busy, self.sibling.is_busy_after());
                let cpu_ns = cpu / slice.ops as f64;
                let slot = Slot { rate, cpu_ns, waited, shared: before || *busy, beside: None };
                base.count(std::slice::from_ref(&slice));
                base.add(
                    Pair { slot, ratio: Some(1.0), waited, shared: slot.shared, moved: false },
                    &self.nearness,
                );
                Some(slot)
            }
            Err(trouble) => {
                base.trouble = Some(trouble);
                None
            }
        }
    }
}

/// How often it is gone through all cells: at a rate once, since what comes late makes late what follows.
pub(crate) fn passes(campaign: &Campaign) -> u32 {
    if campaign.rate.is_some() { 1 } else { campaign.passes.min(campaign.repetitions) }
}

/// How many repetitions of so many there are to be after so many passes of all.
fn upto(repetitions: u32, passes: u32, of: u32) -> usize {
    (u64::from(repetitions) * u64::from(passes) / u64::from(of)) as usize
}

/// Lets a cell off so many repetitions that are announced.
fn let_off(record: &mut Record, repetitions: usize, observer: &mut dyn Observer) {
    if record.trouble.is_none() {
        record.let_off(repetitions);
        observer.fewer(repetitions as u64);
    }
}

/// How many seconds each pass warms a cell up.
fn warm_up_of_pass(campaign: &Campaign) -> f64 {
    let all = campaign.warm_up;
    (all / f64::from(passes(campaign))).max(WARM_LEAST.min(all))
}

/// Why a device that takes no time is not measured.
const TIMELESS: &str = "the profile `ideal` models no device and takes no time, so it has no speed; name a device, as in \
    sim:profile=dsa, or what it takes, as in sim:latency=1us,bandwidth=10GiB";

/// Has every operation of a short slice compared before its buffer is used again: in what is timed, only the last that reached a buffer can
/// be.
fn check_some(record: &mut Record) -> Result<(), Trouble> {
    let ops = (COMPARE_MUCH as u64 / record.cell.size.max(1)).clamp(1, COMPARE_OPS as u64);
    let extent = Extent { warm: 0, ops, sample_every: 1 << 10, compare: 0, each: true };
    let sliced = slices::run(&mut record.workers, extent, None)?;
    record.count_verified(&sliced.slices);
    Ok(())
}

/// All repetitions of a cell at the campaign's rate; what the user stopped early is one, if it has no whole one.
fn paced(record: &mut Record, campaign: &Campaign) -> Vec<Slot> {
    let Some(rate) = campaign.rate else { return Vec::new() };
    let each = record.extent.ops;
    let extent = Extent { ops: each * u64::from(record.wanted), ..record.extent };
    let sliced = match slices::run(&mut record.workers, extent, Some(Pace { rate, each })) {
        Ok(sliced) => sliced,
        Err(trouble) => {
            record.trouble = Some(trouble);
            return Vec::new();
        }
    };
    record.count(&sliced.slices);
    slots(&sliced)
}

/// The repetitions of a run at a rate.
fn slots(sliced: &Sliced) -> Vec<Slot> {
    let slot = |ops: u64, ns: u64, cpu_ns: f64| Slot {
        rate: ops as f64 / (ns.max(1) as f64 / 1e9),
        cpu_ns: cpu_ns / ops.max(1) as f64,
        waited: sliced.waited,
        shared: false,
        beside: None,
    };
    let (ops, ns) = sliced.ops_and_ns();
    if sliced.parts.is_empty() && ops > 0 && ns > 0 {
        return vec![slot(ops, ns, sliced.cpu_ns)];
    }
    sliced.parts.iter().map(|p| slot(p.ops, p.ns, p.cpu_ns)).collect()
}

/// Tells whoever watches what the cells came to, those that came to something.
fn tell(records: &[Record], observer: &mut dyn Observer) {
    let worth = |m: &Measured| m.status != Status::Interrupted || m.ops_per_second.is_some();
    records.iter().map(Record::measured).filter(worth).for_each(|m| observer.cell(&m));
}

/// Cells by turns of which no two are of one engine: a device may have no more than one queue.
fn apart(records: Vec<&mut Record>) -> Vec<Vec<&mut Record>> {
    let mut turns: Vec<Vec<&mut Record>> = Vec::new();
    for record in records {
        let free = |turn: &Vec<&mut Record>| turn.iter().all(|r| r.cell.engine != record.cell.engine);
        match turns.iter().position(free) {
            Some(turn) => turns[turn].push(record),
            None => turns.push(vec![record]),
        }
    }
    turns
}

/// How many operations a simulated device does in a slice, at least: fewer of those that take this machine long.
fn few(size: u64) -> u64 {
    const OPS: u64 = 128;
    const BYTES: u64 = 64 << 20;
    (BYTES / size.max(1)).clamp(OPS / 4, OPS)
}

/// Whether a cell's buffers are to be in a cache that cores share.
fn is_shared(cell: &Cell) -> bool {
    let bytes = 2 * u64::from(cell.depth) * u64::from(cell.queues) * cell.size;
    cell.footprint == Footprint::Hot && bytes > OWN_CACHE
}

/// How often the baseline goes through hot buffers of so many bytes on each side.
fn rounds(bytes: u64, last_cache: u64) -> u64 {
    match bytes {
        _ if bytes > ROUNDS_BYTES && 2 * bytes >= TOO_MUCH * last_cache => 0,
        _ if bytes > ROUNDS_BYTES => 1,
        _ => ROUNDS,
    }
}

/// How many operations of so many seconds go before the clock starts.
fn warm(cell: &Cell, ops: u64, per_op: f64, buffers: u64) -> u64 {
    let part = (ops as f64 * WARM_SHARE).min(WARM_LONGEST / per_op.max(1e-9)) as u64;
    let small = 2 * buffers * cell.size <= WARM_BYTES;
    if cell.footprint == Footprint::Hot && small { part.max(buffers) } else { part.max(1) }
}

/// What one reading of the clock costs, in nanoseconds.
fn clock_cost() -> f64 {
    let once = || {
        let begun = Instant::now();
        for _ in 0..100 {
            std::hint::black_box(begun.elapsed().as_nanos() as u64);
        }
        begun.elapsed().as_nanos() as f64 / 100.0
    };
    // The least: a busy machine makes some longer.
    (0..20).map(|_| once()).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pairs::Seen;
    use crate::plan::Sweep;

    /// Counts repetitions that will not come.
    struct Fewer(u64);

    impl Observer for Fewer {
        fn begin(&mut self, _: u64, _: Option<f64>) {}
        fn fewer(&mut self, repetitions: u64) {
            self.0 += repetitions;
        }
        fn repetition(&mut self, _: &Cell, _: bool, _: f64) {}
        fn cell(&mut self, _: &Measured) {}
        fn end(&mut self) {}
    }

    #[test]
    fn the_warm_up_is_shared_out_among_the_passes() {
        let seconds = |change: &dyn Fn(&mut Campaign)| {
            let mut campaign = Campaign { warm_up: 0.3, ..Campaign::default() };
            change(&mut campaign);
            (passes(&campaign), warm_up_of_pass(&campaign) * f64::from(passes(&campaign)))
        };
        for (expected, (passes, all)) in [
            ((24, 0.3), seconds(&|_| ())),
            ((2, 0.3), seconds(&|c| c.repetitions = 2)),
            ((5, 0.3), seconds(&|c| c.passes = 5)),
            ((1, 0.3), seconds(&|c| c.rate = Some(1000.0))),
            ((24, 0.0), seconds(&|c| c.warm_up = 0.0)),
            ((24, 0.012), seconds(&|c| c.warm_up = 0.001)),
        ] {
            assert!(passes == expected.0 && (all - expected.1).abs() < 1e-9, "{passes} {all} {expected:?}");
        }
        let quick = crate::presets::Preset::Quick.campaign();
        assert!(
            (warm_up_of_pass(&quick) - 0.006).abs() < 1e-9,
            "as long as the CPU engine takes to choose a kernel, with some to spare"
        );
    }

    #[test]
    fn buffers_are_gone_through_as_often_as_it_may_help() {
        const MIB: u64 = 1 << 20;
        let times = [(MIB, 32 * MIB), (32 * MIB, 100 * MIB), (33 * MIB, 100 * MIB), (64 * MIB, 32 * MIB)];
        assert_eq!(times.map(|(bytes, cache)| rounds(bytes, cache)), [3, 3, 1, 0]);
        assert_eq!([64, MIB / 2, MIB, 4 * MIB, 1 << 40].map(few), [128, 128, 64, 32, 32]);
        // An engine and memcpy beside it are warmed up alike.
        let sweep = Sweep {
            sizes: "16K,64K,256K".parse().expect("sizes"),
            depths: "1,4,32".parse().expect("depths"),
            queues: "1,2".parse().expect("queues"),
            footprints: vec![Footprint::Hot, Footprint::Cold],
            ..Sweep::default()
        };
        let groups = Campaign { sweeps: vec![sweep], ..Campaign::default() }.groups(&["cpu".to_owned()]);
        for cell in groups.iter().flat_map(|g| &g.cells) {
            let bytes = cell.size * u64::from(cell.depth * cell.queues);
            assert_eq!(is_shared(cell), cell.footprint == Footprint::Hot && bytes > MIB / 2, "{cell}");
            assert_eq!(is_shared(cell), is_shared(&cell.baseline()), "{cell}");
        }
    }

    #[test]
    fn a_core_that_is_shared_is_waited_for_within_bounds() {
        let campaign = Campaign::default();
        let engine = dma::open("cpu:threads=0").expect("the CPU is always there");
        let mut runner = Runner::new(&campaign, Vec::new(), engine, Vec::new(), 1 << 20, 1 << 20);
        assert!(!runner.quiet(), "the first look has nothing to compare with");
        runner.sibling = Sibling::always_busy();
        runner.waited = Duration::from_secs(3600);
        assert_eq!(runner.patience(), Duration::ZERO, "no time is left for it");
        assert!(runner.quiet());
        let Some(before) = Instant::now().checked_sub(Duration::from_secs(1)) else { return };
        (runner.begun, runner.waited) = (before, Duration::ZERO);
        assert_eq!(runner.patience(), QUIET);
        assert!(runner.quiet());
        assert!(runner.waited >= QUIET);
    }

    #[test]
    fn queues_of_what_learns_stay_open() {
        let sweep = Sweep { depths: "1,4".parse().expect("depths"), ..Sweep::default() };
        let few = Campaign { sweeps: vec![sweep], repetitions: 10, passes: 5, ..Campaign::default() };
        let mut many = few.clone();
        many.sweeps[0].queues = "33".parse().expect("queues");
        let (cpu, bounded) = ("cpu:threads=0", "sim:profile=ioat,clock=real,queues=1");
        for (campaign, name, stay) in [(&few, cpu, true), (&many, cpu, false), (&few, bounded, false)] {
            let groups = campaign.groups(&[name.to_owned()]);
            let (contender, baseline) = (Contender::open(name).unwrap(), dma::open(cpu).unwrap());
            let mut runner =
                Runner::new(campaign, vec![contender], baseline, groups.clone(), 1 << 20, 1 << 20);
            for group in groups {
                let cells = std::iter::once(group.baseline).chain(group.cells);
                let mut records: Vec<Record> = cells.map(Record::new).collect();
                let mut before = vec![(0, None); records.len()];
                for (pass, fails) in [(0, false), (1, false), (2, true), (3, false)] {
                    if fails {
                        runner.reopen(name);
                    }
                    runner.pass = pass;
                    runner.turn_to(&mut records, 5, &mut Fewer(0));
                    for (record, before) in records.iter().zip(&mut before).skip(1) {
                        assert!(record.trouble.is_none(), "{}: {:?}", record.cell, record.trouble);
                        let queues = if stay { record.cell.queues as usize } else { 0 };
                        assert_eq!(record.workers.len(), queues, "{}", record.cell);
                        for worker in &record.workers {
                            let (done, engine) = (worker.done(), worker.engine_id());
                            assert!(engine.is_some());
                            assert_eq!(
                                engine == before.1,
                                pass > 0 && !fails,
                                "{} in pass {pass}",
                                record.cell
                            );
                            assert!(
                                fails || done > before.0,
                                "{} in pass {pass}: the same queue",
                                record.cell
                            );
                            *before = (done, engine);
                        }
                    }
                }
                runner.pass = 4;
                runner.turn_to(&mut records, 5, &mut Fewer(0));
                assert!(records.iter().all(|r| r.workers.is_empty()), "there is no next visit");
            }
        }
    }

    #[test]
    fn what_takes_another_core_waits_for_it_to_be_where_it_usually_is() {
        let slot = |beside| Slot { rate: 1.0, cpu_ns: 1.0, waited: 0.0, shared: false, beside };
        let far = Seen { trip: 430.0, same_core: false };
        for (precision, elsewhere) in [(0.02, true), (0.02, false), (0.0, true)] {
            let sweep = Sweep { sizes: "64,1K,4K".parse().expect("sizes"), ..Sweep::default() };
            let campaign = Campaign { sweeps: vec![sweep], precision, ..Campaign::default() };
            let groups = campaign.groups(&["cpu".to_owned()]);
            let engine = dma::open("cpu:threads=0").expect("the CPU is always there");
            let mut runner = Runner::new(&campaign, Vec::new(), engine, groups.clone(), 1 << 20, 1 << 20);
            runner.pass = 1;
            if elsewhere {
                runner.nearness = Nearness::always_elsewhere();
            }
            let mut all: Vec<Vec<Record>> = groups
                .iter()
                .map(|g| {
                    std::iter::once(&g.baseline).chain(&g.cells).map(|c| Record::new(c.clone())).collect()
                })
                .collect();
            for records in &mut all {
                let company = records[0].cell.size >= 1024;
                let record = &mut records[1];
                record.wanted = 48;
                record.add(Pair::new(None, slot(company.then_some(far)), None), &runner.nearness);
                assert_eq!((record.in_company(), record.moved()), (company, company && elsewhere));
            }
            let (mut order, mut fewer) = ((0..3).collect(), Fewer(0));
            runner.one_pass(&mut all, &mut order, 24, &mut fewer);
            // A visit finds that there is no such engine here.
            let visited = |all: &mut [Vec<Record>]| -> Vec<bool> {
                all.iter_mut().map(|records| records[1].trouble.take().is_some()).collect()
            };
            let due = |all: &[Vec<Record>]| -> Vec<usize> {
                all.iter().map(|records| records[1].due(48)).collect()
            };
            if !elsewhere || precision == 0.0 {
                assert_eq!((visited(&mut all), order), (vec![true; 3], (0..3).collect()));
                continue;
            }
            assert_eq!(visited(&mut all), [true, false, false]);
            assert_eq!(due(&all), [48, 46, 46]);
            assert_eq!(order, [1, 2, 0], "first the next time");
            assert_eq!(fewer.0, 48 + 2 + 2, "whoever watches knows; the first failed");
            // Not in two passes running: what is usual may have changed, and where the other core is.
            let mut visits = [0; 3];
            for pass in 2..10 {
                runner.pass = pass;
                runner.one_pass(&mut all, &mut order, 24, &mut fewer);
                if pass == 2 {
                    assert_eq!(fewer.0, 3 * 48, "all have failed by now, and none is counted twice");
                }
                for (was, visits) in visited(&mut all).into_iter().zip(&mut visits) {
                    *visits += u32::from(was);
                }
            }
            assert_eq!(visits, [8, 4, 4]);
            assert_eq!(due(&all), [48, 38, 38]);
        }
    }

    #[test]
    fn short_copies_are_known_well_enough_at_half_the_precision() {
        let sweep = Sweep { sizes: "2K,4K".parse().expect("sizes"), ..Sweep::default() };
        // The median of these is 1, and known to within 0.06.
        let ratios = (0..300_u32).map(|at| 0.5 + f64::from(at % 100) / 100.0);
        for (precision, pass, expected) in [
            (0.08, 1, [true, true]),
            (0.04, 1, [true, false]),
            (0.02, 1, [false, false]),
            (0.0, 1, [false, false]),
            (0.08, 6, [false, false]),
        ] {
            let campaign = Campaign { sweeps: vec![sweep.clone()], precision, ..Campaign::default() };
            let engine = dma::open("cpu:threads=0").expect("the CPU is always there");
            let mut runner = Runner::new(&campaign, Vec::new(), engine, Vec::new(), 1 << 20, 1 << 20);
            runner.pass = pass;
            let rests = campaign.groups(&["cpu".to_owned()]).into_iter().map(|group| {
                let mut record = Record::new(group.cells[0].clone());
                record.wanted = 300;
                for ratio in ratios.clone() {
                    let slot = |rate| Slot { rate, cpu_ns: 1.0, waited: 0.0, shared: false, beside: None };
                    record.add(Pair::new(Some(slot(1.0)), slot(ratio), None), &runner.nearness);
                }
                runner.rests(&record)
            });
            assert_eq!(rests.collect::<Vec<_>>(), expected, "{precision} in pass {pass}");
        }
    }

    #[test]
    fn no_two_cells_of_one_engine_are_open_at_once() {
        let sweep = Sweep { depths: "1..64".parse().expect("depths"), ..Sweep::default() };
        let names = ["cpu", "sim", "doca"].map(str::to_owned);
        let campaign = Campaign { sweeps: vec![sweep], ..Campaign::default() };
        let groups = campaign.groups(&names);
        let mut records: Vec<Record> = groups[0].cells.iter().cloned().map(Record::new).collect();
        let turns = apart(records.iter_mut().collect());
        assert_eq!(turns.len(), 7);
        assert!(turns.iter().all(|t| t.len() == 3
            && t[0].cell.engine != t[1].cell.engine
            && t[1].cell.engine != t[2].cell.engine));
    }
}
