//! Carries a campaign out: opens the engines, has the cells measured, and puts the results together.

use std::time::Instant;

use dma::ErrorKind;

use crate::contender::Contender;
use crate::machine::Machine;
use crate::peer::Process;
use crate::plan::{Campaign, Cell, Peer};
use crate::results::{self, Engine, Results};
pub use crate::runner::Observer;
use crate::runner::{Engines, Runner};
use crate::{costs, derive, output, placement, published};

/// The reason why nothing was measured or served. The text has the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The campaign, an option or a file that it names is invalid, on this machine or at all.
    #[error("{0}")]
    Invalid(String),
    /// No engine can be used, or the peer cannot be reached.
    #[error("{0}")]
    Unusable(String),
}

impl From<String> for Refused {
    fn from(reason: String) -> Self {
        Self::Invalid(reason)
    }
}

impl From<dma::Error> for Refused {
    /// An error that a corrected command line would not have is about the machine.
    fn from(error: dma::Error) -> Self {
        match error.kind() {
            ErrorKind::InvalidArgument | ErrorKind::OutOfRange => Self::Invalid(error.to_string()),
            _ => Self::Unusable(error.to_string()),
        }
    }
}

/// Carries out a campaign and returns its results. `command` is recorded in them as the command line.
pub fn run(
    campaign: &Campaign,
    command: Vec<String>,
    observer: &mut dyn Observer,
) -> Result<Results, Refused> {
    campaign.check()?;
    if campaign.peer == Peer::Host {
        let Some(address) = &campaign.address else {
            return Err(Refused::Invalid(
                "peer = \"host\" needs --peer HOST:PORT and --secret-file".to_owned(),
            ));
        };
        Process::connect(address)?;
    }
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
    let names: Vec<String> = contenders.iter().map(|c| c.name.clone()).collect();
    campaign.footprint = campaign.footprint.or(Some((machine.last_cache() * 2).clamp(64 << 20, 512 << 20)));
    if let (Some(_), Some(c)) = (campaign.rate, contenders.iter().find(|c| c.clock.is_virtual())) {
        let more = if c.name.contains(':') { "," } else { ":" };
        return Err(Refused::Invalid(format!(
            "--rate needs the computer's clock, and {0} has its own; write {0}{more}clock=real",
            c.name
        )));
    }
    let groups = campaign.groups(&names);
    if groups.iter().all(|g| g.cells.is_empty()) {
        return Err(Refused::Invalid(
            "no combination is left to measure; name engines of the campaign in its sweeps".to_owned(),
        ));
    }
    let planned = groups.iter().map(|g| u64::from(!campaign.is_continuous()) + g.cells.len() as u64).sum();
    let measured = |name: &String| groups.iter().any(|g| g.cells.iter().any(|c| c.engine == *name));
    let unmeasured: Vec<String> = names.into_iter().filter(|name| !measured(name)).collect();
    if let Some(node) = campaign.node {
        placement::bind_memory(&dma::NumaNodes::of_system(), node)
            .map_err(|e| Refused::Invalid(format!("--numa {node}: {e}")))?;
    }
    let baseline = dma::open("cpu:threads=0").map_err(|e| Refused::Invalid(e.to_string()))?;
    let contenders = Engines::new(contenders, groups, &campaign);
    contenders.check_memory(machine.memory)?;
    let mut runner = Runner::new(&campaign, contenders, baseline);
    campaign.notes().iter().for_each(|note| observer.note(note));
    for name in unmeasured {
        observer.note(&format!("no sweep names {name}, so it is not measured"));
    }
    let (cells, interrupted) =
        if campaign.is_continuous() { runner.continuous(observer) } else { runner.all(observer) };
    let costs = if interrupted { Vec::new() } else { costs::costs(runner.contenders()) };
    let published =
        if campaign.published && !interrupted { published::compare(&campaign.engines) } else { Vec::new() };
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
        verdicts: derive::verdicts(&campaign, &cells, interrupted),
        costs,
        knees: derive::knees(&campaign, &cells),
        published,
        cells,
        campaign,
    };
    results.summary = output::summary(&results);
    Ok(results)
}

/// Replaces `real` in the campaign by the usable engines of this machine that are no models.
fn expand(campaign: &mut Campaign) {
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
        let named = !sweep.engines.is_empty();
        expand(&mut sweep.engines);
        // Engines that only a sweep names take part as well.
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
