//! Runs a campaign: opens the engines, measures the cells, and builds the results.

mod active_cell;
mod baseline;
mod calibration;
pub mod contender;
mod continuous;
mod costs;
mod cpu_time;
pub mod drive;
mod engines;
pub mod layout;
mod memcpy;
pub mod memory;
pub(crate) mod placement;
mod queues;
mod runner;
mod sample;
#[cfg(test)]
mod tests;

use std::time::{Instant, SystemTime};

use dma::{ErrorKind, NumaNodes};

use self::contender::Contender;
use self::engines::Engines;
pub use self::runner::Observer;
use self::runner::Runner;
use crate::output;
use crate::peer::Process;
use crate::plan::{Campaign, Cell, Group, Peer, Refused};
use crate::results::machine::{self, Machine};
use crate::results::{self, Engine, Results, conclusions, published};

/// Runs a campaign and returns its results, which record `command` as the command line.
pub fn run(
    campaign: &Campaign,
    command: Vec<String>,
    observer: &mut dyn Observer,
) -> Result<Results, Refused> {
    campaign.check()?;
    check_peer(campaign)?;
    let begun = Instant::now();
    let created = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let machine = Machine::here();
    let mut campaign = campaign.clone();
    name_real_engines(&mut campaign);
    let given = campaign.footprint;
    campaign.footprint = given.or(Some((machine.last_cache() * 2).clamp(64 << 20, 512 << 20)));
    let (engines, mut contenders) = open_engines(&campaign, &machine)?;
    let mut groups = groups(&campaign, &contenders, observer)?;
    let memory = machine::available_memory();
    if given.is_none() {
        let fitting;
        (contenders, groups, fitting) = Engines::new(contenders, groups, &campaign).into_fitting(memory);
        if campaign.footprint.replace(fitting as u64) > Some(fitting as u64) {
            observer.note(&format!(
                "little memory is available: cold copies use {} MiB, of which caches may hold a part",
                fitting >> 20
            ));
        }
    }
    let has_baseline = |g: &Group| g.baseline.is_some() && !campaign.is_continuous();
    let planned = groups.iter().map(|g| g.cells.len() as u64 + u64::from(has_baseline(g))).sum();
    if let Some(node) = campaign.node {
        placement::place_memory(&NumaNodes::of_system(), node, campaign.dst_node)?;
    }
    let cpu = dma::open("cpu:threads=0").map_err(|e| e.to_string())?;
    let contenders = Engines::new(contenders, groups, &campaign);
    contenders.check_memory(memory)?;
    let mut runner = Runner::new(&campaign, contenders, cpu);
    let (cells, interrupted) = if campaign.is_continuous() {
        continuous::run(&mut runner, &campaign, observer)
    } else {
        runner.run_passes(observer)
    };
    let costs = if interrupted { Vec::new() } else { costs::costs(runner.contenders()) };
    let compares = campaign.published && !interrupted;
    let published = if compares { published::compare(&campaign.engines) } else { Vec::new() };
    observer.end();
    let mut results = Results {
        summary: Vec::new(),
        schema: results::SCHEMA.to_owned(),
        version: results::VERSION,
        tool: env!("CARGO_PKG_VERSION").to_owned(),
        created,
        seconds: begun.elapsed().as_secs_f64(),
        command,
        interrupted,
        planned,
        machine,
        engines,
        verdicts: conclusions::verdicts(&campaign, &cells, interrupted),
        costs,
        knees: conclusions::knees(&campaign, &cells),
        published,
        cells,
        campaign,
    };
    results.summary = output::summary(&results);
    Ok(results)
}

/// Checks that the `dma-bench serve` of the campaign can be reached, if the campaign has one.
fn check_peer(campaign: &Campaign) -> Result<(), Refused> {
    if campaign.peer == Peer::Host {
        let address = campaign.address.as_ref();
        let address = address.ok_or("peer = \"host\" needs --peer HOST:PORT and --secret-file".to_owned())?;
        Process::connect(address)?;
    }
    Ok(())
}

/// Opens the engines of the campaign. Returns the results' entries for all engines, beginning with the
/// baseline, and the usable engines, of which there is at least one.
fn open_engines(campaign: &Campaign, machine: &Machine) -> Result<(Vec<Engine>, Vec<Contender>), Refused> {
    let (mut engines, mut contenders) = (vec![baseline_info(machine)], Vec::new());
    for name in &campaign.engines {
        match Contender::open(name) {
            Ok(contender) => {
                engines.push(info(&contender));
                contenders.push(contender);
            }
            Err(e) if matches!(e.kind(), ErrorKind::InvalidArgument | ErrorKind::OutOfRange) => {
                return Err(e.into());
            }
            Err(e) => engines.push(Engine { error: Some(e.to_string()), ..Engine::named(name) }),
        }
    }
    if contenders.is_empty() {
        let why: Vec<_> =
            engines.iter().filter_map(|e| Some(format!("{}: {}", e.name, e.error.as_ref()?))).collect();
        return Err(Refused::Unusable(format!("no engine can be used: {}", why.join("; "))));
    }
    if let (Some(_), Some(c)) = (campaign.rate, contenders.iter().find(|c| c.clock.is_virtual())) {
        let more = if c.name.contains(':') { "," } else { ":" };
        return Err(Refused::Invalid(format!(
            "--rate needs the computer's clock, and {0} has its own; write {0}{more}clock=real",
            c.name
        )));
    }
    Ok((engines, contenders))
}

/// Returns the groups of cells to measure. Adds notes on values whose effect differs from what the user may
/// expect.
fn groups(
    campaign: &Campaign,
    contenders: &[Contender],
    observer: &mut dyn Observer,
) -> Result<Vec<Group>, Refused> {
    let names: Vec<String> = contenders.iter().map(|c| c.name.clone()).collect();
    let groups = campaign.groups(&names);
    if groups.iter().all(|g| g.cells.is_empty()) {
        return Err(Refused::Invalid(
            "no combination is left to measure; name engines of the campaign in its sweeps".to_owned(),
        ));
    }
    campaign.notes().iter().for_each(|note| observer.note(note));
    let is_measured = |name: &str| groups.iter().any(|g| g.cells.iter().any(|c| c.engine == name));
    for name in names.iter().filter(|name| !is_measured(name)) {
        observer.note(&format!("no sweep names {name}, so it is not measured"));
    }
    Ok(groups)
}

/// Replaces `real` in the campaign by the names of this machine's usable engines that are not models.
fn name_real_engines(campaign: &mut Campaign) {
    let usable = || {
        dma::discover()
            .into_iter()
            .filter(|d| d.info.as_ref().is_ok_and(|i| i.model.is_none()))
            .map(|d| d.name.to_string())
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
        expand(&mut sweep.engines);
        // Engines that are named only in a sweep are measured as well.
        for name in &sweep.engines {
            if !campaign.engines.contains(name) {
                campaign.engines.push(name.clone());
            }
        }
    }
}

fn baseline_info(machine: &Machine) -> Engine {
    Engine {
        backend: Cell::BASELINE.to_owned(),
        device: format!("one core of {}", machine.cpu),
        version: machine.libc.clone(),
        ..Engine::named(Cell::BASELINE)
    }
}

fn info(contender: &Contender) -> Engine {
    let info = contender.engine.info();
    Engine {
        backend: info.backend.to_owned(),
        device: info.device.clone(),
        version: info.version.clone(),
        model: info.model.clone(),
        clock: if contender.clock.is_virtual() { "virtual" } else { "real" }.to_owned(),
        ..Engine::named(&contender.name)
    }
}
