//! [`Engines`]: the engines of a run and their memory. An engine that fails is opened again.

use std::collections::BTreeMap;

use crate::contender::Contender;
use crate::drive::Trouble;
use crate::layout::Layout;
use crate::memory::{Memory, Owner};
use crate::peer::Address;
use crate::plan::{Campaign, Cell, Direction, Group, Op, Peer};

/// Extra memory of each side, in bytes, so that hot buffers can move from pass to pass.
const ROOM: usize = 16 << 20;
/// The most cold memory of simulated devices, in bytes. They have no caches to exceed.
const MODEL_FOOTPRINT: usize = 16 << 20;

/// Kind of memory that cells can share: its direction, and true for comparisons, which need equal bytes on
/// both sides.
pub(super) type Kind = (Direction, bool);

pub(super) fn kind(cell: &Cell) -> Kind {
    (cell.direction, cell.op == Op::Compare)
}

/// The engines of a run, the cells to measure on them, and their memory.
pub(crate) struct Engines {
    contenders: Vec<Contender>,
    pub(super) groups: Vec<Group>,
    /// Bytes of cold memory for sources, and as many for destinations.
    pub(super) footprint: usize,
    peer: Peer,
    address: Option<Address>,
    memories: BTreeMap<(String, Kind), Memory>,
    /// The number of times that an engine was opened again.
    pub(super) reopened: u32,
}

impl Engines {
    /// Creates the engines of a run over `groups` of the campaign's cells.
    pub(crate) fn new(contenders: Vec<Contender>, groups: Vec<Group>, campaign: &Campaign) -> Self {
        let footprint = campaign.footprint.unwrap_or(0) as usize;
        let (peer, address) = (campaign.peer, campaign.address.clone());
        Self { contenders, groups, footprint, peer, address, memories: BTreeMap::new(), reopened: 0 }
    }

    /// Returns the bytes of cold memory that an engine copies from.
    pub(super) fn footprint_of(&self, contender: &Contender) -> usize {
        if contender.clock.is_virtual() { self.footprint.min(MODEL_FOOTPRINT) } else { self.footprint }
    }

    pub(crate) fn contenders(&self) -> &[Contender] {
        &self.contenders
    }

    pub(super) fn contender(&self, cell: &Cell) -> Option<&Contender> {
        self.contenders.iter().find(|c| c.name == cell.engine)
    }

    /// Returns the bytes that an engine needs on each side of a kind of memory.
    pub(super) fn needs(&self, contender: &Contender, of: Kind) -> usize {
        let footprint = self.footprint_of(contender);
        let cells = self.groups.iter().flat_map(|g| &g.cells);
        cells
            .filter(|c| c.engine == contender.name && kind(c) == of)
            .map(|c| Layout::bytes(c, footprint).saturating_mul(c.queues as usize))
            .map(|bytes| if contender.clock.is_virtual() { bytes } else { bytes.saturating_add(ROOM) })
            .max()
            .unwrap_or(0)
    }

    /// Returns an engine's memory of a kind, and allocates it first if need be. Push and pull have a peer's
    /// memory on one side.
    pub(super) fn memory(&mut self, contender: &Contender, of: Kind) -> Result<Memory, Trouble> {
        let (direction, alike) = of;
        let key = (contender.name.clone(), of);
        if let Some(memory) = self.memories.get(&key) {
            return Ok(memory.clone());
        }
        let len = self.needs(contender, of);
        let peer = match direction {
            Direction::Local => None,
            _ => Some(match (self.peer, &self.address) {
                (Peer::Host, Some(address)) => Owner::Host(address.clone()),
                (Peer::Process, _) => Owner::Process(contender.name.clone()),
                _ => Owner::Engine(Contender::open(&contender.name)?.engine),
            }),
        };
        let memory = Memory::new(&contender.engine, peer.as_ref(), len, direction, alike)?;
        self.memories.insert(key, memory.clone());
        Ok(memory)
    }

    /// Returns the bytes that the baseline needs on each side for cells like `like`.
    pub(super) fn baseline_needs(&self, like: &Cell) -> usize {
        self.groups
            .iter()
            .filter(|g| kind(&g.baseline).1 == kind(like).1)
            .map(|g| Layout::bytes(&g.baseline, self.footprint).saturating_add(ROOM))
            .max()
            .unwrap_or(0)
    }

    /// Checks that the run fits into 80 % of the machine's `memory` bytes.
    pub(crate) fn check_memory(&self, memory: u64) -> Result<(), String> {
        let mut total = 0_usize;
        for alike in [false, true] {
            let like = self.groups.iter().map(|g| &g.baseline).find(|cell| kind(cell).1 == alike);
            total = total.saturating_add(like.map_or(0, |like| self.baseline_needs(like)));
            for contender in &self.contenders {
                for direction in [Direction::Local, Direction::Push, Direction::Pull] {
                    total = total.saturating_add(self.needs(contender, (direction, alike)));
                }
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

    /// Opens an engine again after a failure, so that one bad cell does not cost the others.
    pub(super) fn reopen(&mut self, name: &str) {
        self.memories.retain(|(engine, _), _| engine != name);
        // Queues that are still open belong to the engine that failed.
        self.reopened += 1;
        let Some(contender) = self.contenders.iter_mut().find(|c| c.name == name) else { return };
        if let Ok(fresh) = Contender::open(name) {
            *contender = fresh;
        }
    }
}
