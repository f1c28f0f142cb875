//! Carries a campaign out: every repetition measures the baseline and all engines in turns, so that what drifts hits all of them.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use dma::{DmaEngine, ErrorKind};
use hdrhistogram::Histogram;

use crate::contender::Contender;
use crate::drive::{Extent, Slice, Trouble, Worker, cpu_time, histogram};
use crate::interrupt;
use crate::layout::Layout;
use crate::machine::Machine;
use crate::memcpy::Memcpy;
use crate::memory::Memory;
use crate::plan::{Campaign, Cell, Direction, Group};
use crate::results::{self, Engine, Latency, Measured, Results, Status};
use crate::stats::Figures;
use crate::{derive, published};

/// Who watches a run.
pub trait Observer {
    /// It begins: so many repetitions are to come.
    fn begin(&mut self, repetitions: u64);
    /// A repetition of this cell is over, at so many bytes a second.
    fn repetition(&mut self, cell: &Cell, bytes_per_second: f64);
    /// A cell is done.
    fn cell(&mut self, measured: &Measured);
    /// It is over.
    fn end(&mut self);
}

/// The repetitions of one cell so far.
struct Record {
    cell: Cell,
    model: bool,
    /// Its time is a simulated device's own.
    virtual_clock: bool,
    workers: Vec<Worker>,
    extent: Extent,
    trouble: Option<Trouble>,
    rates: Vec<f64>,
    ratios: Vec<f64>,
    cpu_ns: Vec<f64>,
    latency: Histogram<u64>,
    ops: u64,
    polls: u64,
    doorbells: u64,
    verified: u64,
}

/// The engines, their memory, and what has been found out about the clock.
struct Runner<'a> {
    campaign: &'a Campaign,
    contenders: Vec<Contender>,
    memories: HashMap<(String, Direction), Memory>,
    baseline: Arc<dyn DmaEngine>,
    memcpy: Option<Memcpy>,
    groups: Vec<Group>,
    footprint: usize,
    clock_ns: f64,
}

/// How much cold memory the simulated devices go through: they have no caches.
const MODEL_FOOTPRINT: usize = 16 << 20;
/// How often it is gone through all cells.
const PASSES: u32 = 3;
/// A model hardly differs from one repetition to the next.
const MODEL_REPETITIONS: u32 = 3;
/// The part of the time that may go into reading the clock.
const CLOCK_SHARE: f64 = 0.01;

/// Measures what `campaign` says.
///
/// # Errors
///
/// An engine's name makes no sense, or none can be used, or there is not so much memory.
pub fn run(
    campaign: &Campaign,
    command: Vec<String>,
    observer: &mut dyn Observer,
) -> Result<Results, String> {
    campaign.check()?;
    let begun = Instant::now();
    let created = humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string();
    let machine = Machine::here();
    let mut campaign = campaign.clone();
    expand(&mut campaign);
    let mut engines = vec![baseline_info(&machine)];
    let mut contenders = Vec::new();
    for name in &campaign.engines {
        match Contender::open(name) {
            Ok(contender) => {
                engines.push(info(&contender));
                contenders.push(contender);
            }
            Err(e) if matches!(e.kind(), ErrorKind::InvalidArgument | ErrorKind::OutOfRange) => {
                return Err(e.to_string());
            }
            Err(e) => engines.push(unusable(name, &e)),
        }
    }
    if contenders.is_empty() {
        let why: Vec<_> =
            engines.iter().filter_map(|e| Some(format!("{}: {}", e.name, e.error.as_ref()?))).collect();
        return Err(format!("no engine can be used: {}", why.join("; ")));
    }
    let names: Vec<String> = contenders.iter().map(|c| c.name.clone()).collect();
    let footprint = campaign.footprint.unwrap_or((machine.last_cache() * 2).clamp(64 << 20, 512 << 20));
    campaign.footprint = Some(footprint);
    if campaign.rate.is_some() && contenders.iter().any(|c| c.clock.is_virtual()) {
        return Err(
            "--rate needs the computer's clock; add clock=real to the simulated engine's name".to_owned()
        );
    }
    let mut runner = Runner {
        campaign: &campaign,
        memories: HashMap::new(),
        baseline: dma::open("cpu:threads=0").map_err(|e| e.to_string())?,
        memcpy: None,
        groups: campaign.groups(&names),
        footprint: footprint as usize,
        clock_ns: clock_cost(),
        contenders,
    };
    if runner.groups.iter().all(|g| g.cells.is_empty()) {
        return Err(
            "no combination is left to measure; do the sweeps name engines that take part?".to_owned()
        );
    }
    runner.check_memory(machine.memory)?;
    let (cells, interrupted) = runner.all(observer);
    let published =
        if campaign.published && !interrupted { published::compare(&campaign.engines) } else { Vec::new() };
    observer.end();
    Ok(Results {
        schema: results::SCHEMA.to_owned(),
        version: results::VERSION,
        tool: env!("CARGO_PKG_VERSION").to_owned(),
        created,
        seconds: begun.elapsed().as_secs_f64(),
        command,
        interrupted,
        machine,
        engines,
        crossovers: derive::crossovers(&cells),
        knees: derive::knees(&cells),
        published,
        cells,
        campaign,
    })
}

/// Puts the engines of this machine where the campaign says `real`.
fn expand(campaign: &mut Campaign) {
    let usable = || {
        dma::discover()
            .into_iter()
            .filter(|d| d.info.as_ref().is_ok_and(|i| i.model.is_none()))
            .map(|d| d.name)
    };
    let expand = |names: &mut Vec<String>| {
        let mut all: Vec<String> = Vec::new();
        for name in names.drain(..) {
            let more: Vec<String> = if name == "real" { usable().collect() } else { vec![name] };
            for name in more {
                if !all.contains(&name) {
                    all.push(name);
                }
            }
        }
        *names = all;
    };
    expand(&mut campaign.engines);
    for sweep in &mut campaign.sweeps {
        let named = !sweep.engines.is_empty();
        expand(&mut sweep.engines);
        // What is named in a sweep alone takes part as well.
        for name in &sweep.engines {
            if !campaign.engines.contains(name) {
                campaign.engines.push(name.clone());
            }
        }
        debug_assert!(!named || !sweep.engines.is_empty(), "the CPU is always there");
    }
}

fn baseline_info(machine: &Machine) -> Engine {
    Engine {
        name: Cell::BASELINE.to_owned(),
        backend: Cell::BASELINE.to_owned(),
        device: format!("one core of {}", machine.cpu),
        version: machine.libc.clone(),
        model: None,
        clock: "real".to_owned(),
        error: None,
    }
}

fn info(contender: &Contender) -> Engine {
    let info = contender.engine.info();
    Engine {
        name: contender.name.clone(),
        backend: info.backend.to_owned(),
        device: info.device.clone(),
        version: info.version.clone(),
        model: info.model.clone(),
        clock: if contender.clock.is_virtual() { "virtual" } else { "real" }.to_owned(),
        error: None,
    }
}

fn unusable(name: &str, error: &dma::Error) -> Engine {
    Engine {
        name: name.to_owned(),
        backend: name.split(':').next().unwrap_or(name).to_owned(),
        device: String::new(),
        version: String::new(),
        model: None,
        clock: "real".to_owned(),
        error: Some(error.to_string()),
    }
}

/// What one reading of the clock costs, in nanoseconds.
fn clock_cost() -> f64 {
    let begun = Instant::now();
    for _ in 0..1000 {
        std::hint::black_box(begun.elapsed().as_nanos() as u64);
    }
    begun.elapsed().as_nanos() as f64 / 1000.0
}

impl Runner<'_> {
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
            .max()
            .unwrap_or(0)
    }

    fn baseline_needs(&self) -> usize {
        self.groups.iter().map(|g| Layout::bytes(&g.baseline, self.footprint)).max().unwrap_or(0)
    }

    fn check_memory(&self, memory: u64) -> Result<(), String> {
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
    fn all(&mut self, observer: &mut dyn Observer) -> (Vec<Measured>, bool) {
        let reps = u64::from(self.campaign.repetitions);
        let total = self.groups.iter().map(|g| (g.cells.len() as u64 + 1) * reps).sum();
        observer.begin(total);
        // Several passes over everything: what the machine does meanwhile hits all cells, not a few.
        let groups = self.groups.clone();
        let mut all: Vec<Vec<Record>> = groups
            .iter()
            .map(|g| std::iter::once(&g.baseline).chain(&g.cells).map(|c| Record::new(c.clone())).collect())
            .collect();
        let passes = PASSES.min(self.campaign.repetitions);
        for pass in 0..passes {
            let part = |pass: u32| self.campaign.repetitions * pass / passes;
            let repetitions = part(pass)..part(pass + 1);
            for records in &mut all {
                if interrupt::stopped() {
                    break;
                }
                self.group(records, repetitions.clone(), observer);
                if pass + 1 == passes {
                    records.iter().for_each(|r| observer.cell(&r.measured(!self.complete(r))));
                }
            }
        }
        let mut cells: Vec<Measured> = Vec::new();
        for record in all.iter().flatten() {
            let measured = record.measured(!self.complete(record));
            let nothing = measured.status == Status::Interrupted && measured.ops_per_second.is_none();
            if !nothing && !cells.iter().any(|c| c.cell == measured.cell) {
                cells.push(measured);
            }
        }
        (cells, interrupt::stopped())
    }

    /// Some repetitions of cells that share a baseline, which is the first.
    fn group(&mut self, records: &mut [Record], repetitions: Range<u32>, observer: &mut dyn Observer) {
        let Some((base, records)) = records.split_first_mut() else { return };
        let layout = Layout::new(&base.cell, 0, self.footprint);
        let mut at = 0;
        match self.baseline_extent(&base.cell, &layout, &mut at) {
            Ok(extent) => base.extent = extent,
            Err(trouble) => base.trouble = Some(trouble),
        }
        records.iter_mut().for_each(|record| self.open(record));
        for rep in repetitions {
            // Who begins changes from repetition to repetition.
            let turns = records.len() + 1;
            let mut baseline_rate = None;
            let mut rates: Vec<Option<f64>> = vec![None; records.len()];
            for turn in 0..turns {
                let who = (rep as usize + turn) % turns;
                if interrupt::stopped() {
                    break;
                }
                if who == records.len() {
                    baseline_rate = self.baseline_repetition(base, &layout, &mut at);
                    observer.repetition(&base.cell, baseline_rate.unwrap_or(0.0) * base.cell.size as f64);
                } else {
                    let record = &mut records[who];
                    let enough = record.virtual_clock && record.rates.len() >= MODEL_REPETITIONS as usize;
                    rates[who] = if enough { record.rates.last().copied() } else { self.repetition(record) };
                    observer.repetition(&record.cell, rates[who].unwrap_or(0.0) * record.cell.size as f64);
                }
            }
            if let Some(baseline) = baseline_rate {
                for (record, rate) in records.iter_mut().zip(rates) {
                    record.ratios.extend(rate.map(|rate| rate / baseline));
                }
                base.ratios.push(1.0);
            }
            if interrupt::stopped() {
                break;
            }
        }
        let mut lost: Vec<String> = Vec::new();
        for record in records {
            record.workers.clear();
            if matches!(record.trouble, Some(Trouble::Failed(_))) && !lost.contains(&record.cell.engine) {
                lost.push(record.cell.engine.clone());
            }
        }
        lost.iter().for_each(|name| self.reopen(name));
    }

    fn complete(&self, record: &Record) -> bool {
        let all = if record.virtual_clock {
            MODEL_REPETITIONS.min(self.campaign.repetitions)
        } else {
            self.campaign.repetitions
        };
        record.rates.len() >= all as usize
    }

    /// An engine that failed is opened anew, so that one bad cell does not cost the others.
    fn reopen(&mut self, name: &str) {
        self.memories.retain(|(engine, _), _| engine != name);
        let Some(contender) = self.contenders.iter_mut().find(|c| c.name == name) else { return };
        if let Ok(fresh) = Contender::open(name) {
            *contender = fresh;
        }
    }

    /// Opens what a cell needs, and warms it up, unless it has failed before.
    fn open(&mut self, record: &mut Record) {
        if record.trouble.is_none()
            && let Err(trouble) = self.try_open(record)
        {
            record.trouble = Some(trouble);
            record.workers.clear();
        }
    }

    fn try_open(&mut self, record: &mut Record) -> Result<(), Trouble> {
        let cell = record.cell.clone();
        let contender =
            self.contender(&cell).cloned().ok_or_else(|| Trouble::Failed("no such engine".to_owned()))?;
        record.model = contender.is_model();
        record.virtual_clock = contender.clock.is_virtual();
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
        let stall = Duration::from_secs_f64(self.campaign.stall);
        for queue in 0..cell.queues as usize {
            let layout = Layout::new(&cell, queue, footprint);
            record.workers.push(Worker::new(
                &contender,
                &cell,
                memory.clone(),
                layout,
                self.campaign.verify,
                stall,
            )?);
        }
        record.extent = self.warm_up(record)?;
        Ok(())
    }

    /// Runs a cell until it is warm, and finds out how many operations a repetition takes.
    fn warm_up(&self, record: &mut Record) -> Result<Extent, Trouble> {
        let depth = u64::from(record.cell.depth);
        let batch = u64::from(record.cell.batch);
        if record.virtual_clock {
            let ops = self.campaign.count.unwrap_or_else(|| (2 * depth).max(128));
            return Ok(Extent { warm: 2 * depth, ops: ops.next_multiple_of(batch), sample_every: 1 });
        }
        let least = Duration::from_secs_f64(self.campaign.warm_up);
        let (mut ops, mut spent) = (depth, Duration::ZERO);
        let per_op = loop {
            let begun = Instant::now();
            let extent = Extent { warm: 0, ops, sample_every: 1 << 10 };
            let (slices, _) = run_workers(&mut record.workers, extent, None)?;
            spent += begun.elapsed();
            let per_op = slices.iter().map(Slice::seconds).fold(0.0, f64::max) / ops as f64;
            if spent >= least || interrupt::stopped() {
                break per_op;
            }
            ops = (ops * 2).min(((least.as_secs_f64() / per_op.max(1e-9)) as u64).max(depth));
        };
        let mut ops = (self.campaign.seconds / per_op.max(1e-9)) as u64;
        if let Some(rate) = self.campaign.rate {
            ops = (self.campaign.seconds * rate) as u64;
        }
        let ops = self.campaign.count.unwrap_or(ops.max(2 * depth)).max(1);
        let ops = if self.campaign.count.is_none() { ops.next_multiple_of(batch) } else { ops };
        Ok(Extent { warm: 0, ops, sample_every: self.sampling(per_op * 1e9 * batch as f64) })
    }

    /// One in how many doorbells is timed, if each takes so long.
    fn sampling(&self, ns: f64) -> u64 {
        ((2.0 * self.clock_ns / (CLOCK_SHARE * ns.max(1.0))).ceil() as u64).max(1)
    }

    fn repetition(&self, record: &mut Record) -> Option<f64> {
        if record.trouble.is_some() {
            return None;
        }
        match run_workers(&mut record.workers, record.extent, self.campaign.rate) {
            Ok((slices, cpu)) => {
                let from = slices.iter().map(|s| s.span.0).min().unwrap_or(0);
                let to = slices.iter().map(|s| s.span.1).max().unwrap_or(0);
                if record.virtual_clock && to <= from {
                    let text = "this model takes no time, so it has no speed; name another profile, or give it a latency";
                    record.trouble = Some(Trouble::Unsupported(text.to_owned()));
                    return None;
                }
                let (ops, all): (u64, u64) =
                    (slices.iter().map(|s| s.ops).sum(), slices.iter().map(|s| s.all_ops).sum());
                let rate = ops as f64 / (to.saturating_sub(from).max(1) as f64 / 1e9);
                record.add(&slices, rate, cpu / all.max(1) as f64);
                Some(rate)
            }
            Err(trouble) => {
                record.trouble = Some(trouble);
                record.workers.clear();
                None
            }
        }
    }

    fn baseline_extent(&mut self, cell: &Cell, layout: &Layout, at: &mut usize) -> Result<Extent, Trouble> {
        if self.memcpy.is_none() {
            self.memcpy = Some(Memcpy::new(&self.baseline, self.baseline_needs())?);
        }
        let Some(memcpy) = &mut self.memcpy else { return Err(Trouble::Failed("no memory".to_owned())) };
        let least = Duration::from_secs_f64(self.campaign.warm_up);
        let (mut ops, mut spent) = (1, Duration::ZERO);
        let per_op = loop {
            let (slice, _) = memcpy.run(cell, layout, ops, u64::MAX, at)?;
            spent += Duration::from_secs_f64(slice.seconds());
            if spent >= least || interrupt::stopped() {
                break slice.seconds() / ops as f64;
            }
            ops *= 2;
        };
        let ops = ((self.campaign.seconds / per_op.max(1e-9)) as u64).max(1);
        Ok(Extent { warm: 0, ops, sample_every: self.sampling(per_op * 1e9) })
    }

    fn baseline_repetition(&mut self, base: &mut Record, layout: &Layout, at: &mut usize) -> Option<f64> {
        let memcpy = self.memcpy.as_mut().filter(|_| base.trouble.is_none())?;
        match memcpy.run(&base.cell, layout, base.extent.ops, base.extent.sample_every, at) {
            Ok((slice, cpu)) => {
                let rate = slice.ops as f64 / slice.seconds();
                let per_op = cpu / slice.ops as f64;
                base.add(std::slice::from_ref(&slice), rate, per_op);
                Some(rate)
            }
            Err(trouble) => {
                base.trouble = Some(trouble);
                None
            }
        }
    }
}

/// One repetition of all queues of a cell; and the CPU time that it took, in nanoseconds.
fn run_workers(
    workers: &mut [Worker],
    extent: Extent,
    rate: Option<f64>,
) -> Result<(Vec<Slice>, f64), Trouble> {
    for worker in &mut *workers {
        worker.prepare(extent)?;
    }
    let cpu = cpu_time();
    if let [worker] = &mut *workers {
        worker.start();
        worker.go(rate)?;
    } else if workers.first().is_some_and(Worker::virtual_clock) {
        // One thread polls all: polling is what passes their common time.
        workers.iter_mut().for_each(Worker::start);
        let mut going: Vec<&mut Worker> = workers.iter_mut().collect();
        while !going.is_empty() {
            let mut still = Vec::with_capacity(going.len());
            for worker in going {
                if !worker.burst(1)? {
                    still.push(worker);
                }
            }
            going = still;
        }
    } else {
        in_threads(workers, rate)?;
    }
    let cpu = cpu_time() - cpu;
    let slices: Result<Vec<Slice>, Trouble> = workers.iter_mut().map(Worker::finish).collect();
    Ok((slices?, cpu))
}

/// Each queue on a thread of its own, all at once.
fn in_threads(workers: &mut [Worker], rate: Option<f64>) -> Result<(), Trouble> {
    let barrier = Barrier::new(workers.len());
    std::thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter_mut()
            .map(|worker| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    worker.start();
                    worker.go(rate)
                })
            })
            .collect();
        let panicked = || Err(Trouble::Failed("a thread panicked".to_owned()));
        let outcomes: Vec<_> = threads.into_iter().map(|t| t.join().unwrap_or_else(|_| panicked())).collect();
        outcomes.into_iter().collect()
    })
}

impl Record {
    fn new(cell: Cell) -> Self {
        Self {
            cell,
            model: false,
            virtual_clock: false,
            workers: Vec::new(),
            extent: Extent { warm: 0, ops: 1, sample_every: 1 },
            trouble: None,
            rates: Vec::new(),
            ratios: Vec::new(),
            cpu_ns: Vec::new(),
            latency: histogram(),
            ops: 0,
            polls: 0,
            doorbells: 0,
            verified: 0,
        }
    }

    fn add(&mut self, slices: &[Slice], rate: f64, cpu_ns: f64) {
        self.rates.push(rate);
        self.cpu_ns.push(cpu_ns);
        for slice in slices {
            // The bounds are the same: it fits.
            let _ = self.latency.add(&slice.latency);
            self.ops += slice.all_ops;
            self.polls += slice.polls;
            self.doorbells += slice.doorbells;
            self.verified += slice.verified;
        }
    }

    fn measured(&self, interrupted: bool) -> Measured {
        let size = self.cell.size as f64;
        let (status, message) = match &self.trouble {
            Some(Trouble::Interrupted) => (Status::Interrupted, None),
            Some(trouble) => {
                let status = match trouble {
                    Trouble::Unsupported(_) => Status::Unsupported,
                    Trouble::Verification { .. } => Status::Wrong,
                    _ => Status::Failed,
                };
                (status, Some(trouble.to_string()))
            }
            None if interrupted => (Status::Interrupted, None),
            None => (Status::Ok, None),
        };
        // Figures of copies that went wrong are not worth having.
        let rates = if status == Status::Wrong { Vec::new() } else { self.rates.clone() };
        let real = !self.virtual_clock && !rates.is_empty();
        let ops = Figures::of(rates);
        let cpu = Figures::of(self.cpu_ns.clone()).filter(|_| real);
        let histogram = &self.latency;
        let latency = (!histogram.is_empty() && ops.is_some()).then(|| Latency {
            samples: histogram.len(),
            mean: histogram.mean(),
            p50: histogram.value_at_quantile(0.5),
            p90: histogram.value_at_quantile(0.9),
            p99: histogram.value_at_quantile(0.99),
            p999: histogram.value_at_quantile(0.999),
            max: histogram.max(),
        });
        let per_op = |n: u64| (self.ops > 0 && !self.cell.is_baseline()).then(|| n as f64 / self.ops as f64);
        Measured {
            cell: self.cell.clone(),
            model: self.model,
            status,
            message,
            bytes_per_second: ops.as_ref().map(|f| f.times(size)),
            ratio: Figures::of(self.ratios.clone()).filter(|_| ops.is_some()),
            latency,
            cpu_s_per_gb: cpu.as_ref().map(|f| f.times(1.0 / size)),
            cpu_ns_per_op: cpu,
            doorbells_per_op: per_op(self.doorbells),
            polls_per_op: per_op(self.polls),
            ops: self.ops,
            verified: self.verified,
            ops_per_second: ops,
        }
    }
}
