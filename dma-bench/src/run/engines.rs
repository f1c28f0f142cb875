//! [`Engines`]: the engines of a run, their memory and their queues. An engine that has failed is opened
//! again.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::ValueEnum;
use dma::{Capabilities, Place};

use super::active_cell::{ActiveCell, TIMELESS};
use super::contender::Contender;
use super::drive::{CellError, Worker};
use super::layout::{Layout, Position};
use super::memory::{Memory, Owner};
use crate::plan::{Campaign, Cell, Direction, Group, Op, Peer};

/// Extra memory on each side, in bytes, in which buffers move from pass to pass.
const MOVING_SPACE: usize = 16 << 20;
/// Maximum cold memory of simulated devices, in bytes. More is not needed, because they have no caches.
const MAX_MODEL_FOOTPRINT: usize = 16 << 20;
/// The footprint that is not reduced further if memory is short.
const MIN_DEFAULT_FOOTPRINT: usize = 4 << 20;
/// Maximum number of queues of the CPU engine that stay open between passes.
const MAX_OPEN_QUEUES: u64 = 64;
/// Kind of memory that cells can share: its direction, and true if it is for comparisons, which need equal
/// bytes on both sides.
type MemoryKind = (Direction, bool);

/// Returns the kinds of memory of a cell, one for each direction that is measured at once.
fn memory_kinds(cell: &Cell) -> impl Iterator<Item = MemoryKind> {
    let alike = is_alike(cell);
    cell.direction.parts().iter().map(move |direction| (*direction, alike))
}

fn is_alike(cell: &Cell) -> bool {
    cell.op == Op::Compare
}

/// The engines of a run, the cells to measure on them, and their memory.
pub(crate) struct Engines<'a> {
    campaign: &'a Campaign,
    /// Number of bytes of cold memory that the baseline copies from.
    footprint: usize,
    contenders: Vec<Contender>,
    pub(super) groups: Vec<Group>,
    memories: BTreeMap<(String, MemoryKind), Memory>,
    /// Number of times that any engine was opened again.
    reopened: u32,
}

impl<'a> Engines<'a> {
    /// Creates the engines of a run over `groups` of the campaign's cells.
    pub(crate) fn new(contenders: Vec<Contender>, groups: Vec<Group>, campaign: &'a Campaign) -> Self {
        let footprint = campaign.footprint.unwrap_or(0) as usize;
        Self { campaign, footprint, contenders, groups, memories: BTreeMap::new(), reopened: 0 }
    }

    pub(crate) fn contenders(&self) -> &[Contender] {
        &self.contenders
    }

    pub(super) fn contender(&self, cell: &Cell) -> Option<&Contender> {
        self.contenders.iter().find(|c| c.name == cell.engine)
    }

    /// Returns the number of bytes of cold memory that an engine copies from.
    fn footprint_of(&self, contender: &Contender) -> usize {
        let model = contender.clock.is_virtual();
        if model { self.footprint.min(MAX_MODEL_FOOTPRINT) } else { self.footprint }
    }

    /// Returns the number of bytes of a kind of memory that an engine needs on each side.
    fn needs(&self, contender: &Contender, of: MemoryKind) -> usize {
        let footprint = self.footprint_of(contender);
        let cells = self.groups.iter().flat_map(|g| &g.cells);
        cells
            .filter(|c| c.engine == contender.name && memory_kinds(c).any(|kind| kind == of))
            .map(|c| Layout::bytes(c, footprint).saturating_mul(c.queues as usize))
            .map(
                |bytes| {
                    if contender.clock.is_virtual() { bytes } else { bytes.saturating_add(MOVING_SPACE) }
                },
            )
            .max()
            .unwrap_or(0)
    }

    /// Returns an engine's memory of a kind, which is allocated if it does not exist. For push and pull, one
    /// side is a peer's memory.
    fn memory(&mut self, contender: &Contender, of: MemoryKind) -> Result<Memory, CellError> {
        let (direction, alike) = of;
        let key = (contender.name.clone(), of);
        if let Some(memory) = self.memories.get(&key) {
            return Ok(memory.clone());
        }
        let len = self.needs(contender, of);
        let has_place = contender.engine.info().capabilities.contains(Capabilities::ALLOCATE_DEVICE);
        if direction.has_device_memory() && !has_place {
            return Err(CellError::Unsupported(format!(
                "{} has no device memory; name an engine that has, such as cuda, or a model as \
                 sim:profile=dsa,device_memory=1G",
                contender.name
            )));
        }
        let peer = match direction {
            Direction::Push | Direction::Pull => Some(match (self.campaign.peer, &self.campaign.address) {
                (Peer::Host, Some(address)) => Owner::Host(address.clone()),
                (Peer::Process, _) => Owner::Process(contender.name.clone()),
                _ => Owner::Engine(Contender::open(&contender.name)?.engine),
            }),
            _ => None,
        };
        let nodes = self.campaign.nodes();
        let memory = Memory::on_nodes(nodes, &contender.engine, peer.as_ref(), len, direction, alike)?;
        self.memories.insert(key, memory.clone());
        Ok(memory)
    }

    /// Returns the number of bytes that the baseline needs on each side for cells like `like`.
    pub(super) fn baseline_needs(&self, like: &Cell) -> usize {
        self.groups
            .iter()
            .filter_map(|g| g.baseline.as_ref())
            .filter(|baseline| is_alike(baseline) == is_alike(like))
            .map(|baseline| Layout::bytes(baseline, self.footprint).saturating_add(MOVING_SPACE))
            .max()
            .unwrap_or(0)
    }

    /// Returns the layout of the baseline in a pass.
    pub(super) fn baseline_layout(&self, cell: &Cell, position: Position) -> Layout {
        let footprint = self.footprint;
        let free = self.baseline_needs(cell) - Layout::bytes(cell, footprint);
        Layout::new(cell, 0, footprint).in_pass(cell, position, free)
    }

    /// Halves the footprint, down to 4 MiB, until the run needs at most `memory` bytes. Returns the engines,
    /// the cells and the footprint.
    pub(crate) fn into_fitting(mut self, memory: u64) -> (Vec<Contender>, Vec<Group>, usize) {
        while self.footprint > MIN_DEFAULT_FOOTPRINT && self.check_memory(memory).is_err() {
            self.footprint /= 2;
        }
        (self.contenders, self.groups, self.footprint)
    }

    /// Checks that the run needs at most `memory` bytes.
    pub(crate) fn check_memory(&self, memory: u64) -> Result<(), String> {
        let mut total = 0_usize;
        for alike in [false, true] {
            let mut baselines = self.groups.iter().filter_map(|g| g.baseline.as_ref());
            let like = baselines.find(|cell| is_alike(cell) == alike);
            total = total.saturating_add(like.map_or(0, |like| self.baseline_needs(like).saturating_mul(2)));
            for contender in &self.contenders {
                for &direction in Direction::value_variants() {
                    let (from, to) = direction.places();
                    let sides = [from, to].into_iter().filter(|place| *place == Place::Host).count();
                    let needs = self.needs(contender, (direction, alike));
                    total = total.saturating_add(needs.saturating_mul(sides));
                }
            }
        }
        let total = total as u64;
        if total > memory {
            return Err(format!(
                "this needs {} MiB of memory, and {} MiB are available; make --footprint, sizes, depths or queues smaller",
                total >> 20,
                memory >> 20
            ));
        }
        Ok(())
    }

    /// Opens the queues of a cell, or moves their buffers if they are already open. Returns true if the cell
    /// was warmed up in an earlier pass and its queues need not tune themselves again.
    pub(super) fn open_queues(
        &mut self,
        cell: &mut ActiveCell,
        position: Position,
    ) -> Result<bool, CellError> {
        let of = cell.cell.clone();
        let contender = self.contender(&of).cloned();
        let contender = contender.ok_or_else(|| CellError::Failed("no such engine".to_owned()))?;
        cell.model = contender.is_model();
        cell.virtual_clock = contender.clock.is_virtual();
        if contender.timeless {
            return Err(CellError::Unsupported(TIMELESS.to_owned()));
        }
        let footprint = self.footprint_of(&contender);
        let used = Layout::bytes(&of, footprint) * of.queues as usize;
        let mut parts = Vec::new();
        for kind in memory_kinds(&of) {
            parts.push((self.memory(&contender, kind)?, self.needs(&contender, kind) - used));
        }
        // Directions take turns, so that each gets an equal share of CPUs and channels.
        let layouts = (0..of.all_queues() as usize).map(|queue| {
            let (part, free) = (queue / parts.len(), parts[queue % parts.len()].1);
            Layout::new(&of, part, footprint).in_pass(&of, position, free)
        });
        if std::mem::replace(&mut cell.reopened, self.reopened) != self.reopened {
            // Queues that are still open belong to the failed instance of the engine.
            cell.workers.clear();
        }
        if !cell.workers.is_empty() {
            cell.workers.iter_mut().zip(layouts).for_each(|(worker, layout)| worker.move_to(layout));
            return Ok(true);
        }
        let stall = Duration::from_secs_f64(self.campaign.stall);
        for (queue, layout) in layouts.enumerate() {
            let (memory, verify) = (parts[queue % parts.len()].0.clone(), self.campaign.verify);
            let worker = Worker::new(&contender, &of, memory, layout, verify, stall)?;
            cell.workers.push(worker.on(&self.campaign.cpus, queue));
        }
        Ok(position.pass > 0 && !learns(&contender))
    }

    /// Returns true if the queues of a cell stay open until the next pass. The CPU engine then keeps its
    /// learned timings, as in a long-running program. Devices do not tune themselves, and may not support
    /// that many queues.
    pub(super) fn keeps_queues_open(&self, cell: &Cell, pass: u32) -> bool {
        let cells = self.groups.iter().flat_map(|g| &g.cells).filter(|c| c.engine == cell.engine);
        self.contender(cell).is_some_and(learns)
            && cells.map(|c| u64::from(c.all_queues())).sum::<u64>() <= MAX_OPEN_QUEUES
            && pass + 1 < self.campaign.planned_passes()
    }

    /// Opens an engine again after a failure, so that one failed cell does not affect other cells.
    pub(super) fn reopen(&mut self, name: &str) {
        self.memories.retain(|(engine, _), _| engine != name);
        self.reopened += 1;
        let Some(contender) = self.contenders.iter_mut().find(|c| c.name == name) else { return };
        if let Ok(fresh) = Contender::open(name) {
            *contender = fresh;
        }
    }
}

/// Returns true if an engine's queues tune themselves by the copies that they execute.
fn learns(contender: &Contender) -> bool {
    contender.engine.info().backend == "cpu"
}
