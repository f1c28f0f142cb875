//! [`Engines`]: the engines that take part, opened anew when they fail, and the memory that their cells need.

use std::collections::HashMap;

use crate::contender::Contender;
use crate::drive::Trouble;
use crate::layout::Layout;
use crate::memory::{Memory, Owner};
use crate::plan::{Cell, Direction, Group, Op, Peer};

/// So much memory is left over, for hot buffers to lie elsewhere in each pass.
const ROOM: usize = 16 << 20;
/// The amount of cold memory the simulated devices go through: they have no caches.
const MODEL_FOOTPRINT: usize = 16 << 20;

/// Memory that cells share: its direction, and whether it is for comparisons, which need equal bytes.
pub(super) type Kind = (Direction, bool);

/// The kind of memory that a cell needs.
pub(super) fn kind(cell: &Cell) -> Kind {
    (cell.direction, cell.op == Op::Compare)
}

/// The engines that take part, what they are to do, and their memory.
pub(crate) struct Engines {
    contenders: Vec<Contender>,
    pub(super) groups: Vec<Group>,
    pub(super) footprint: usize,
    /// Whose memory is reached by `push` and `pull`.
    peer: Peer,
    memories: HashMap<(String, Kind), Memory>,
    /// The number of times that one was opened anew.
    pub(super) reopened: u32,
}

impl Engines {
    /// These engines, to measure `groups`, with cold memory of `footprint` bytes of source, and as many of
    /// destination.
    pub(crate) fn new(contenders: Vec<Contender>, groups: Vec<Group>, footprint: usize, peer: Peer) -> Self {
        Self { contenders, groups, footprint, peer, memories: HashMap::new(), reopened: 0 }
    }

    /// The amount of cold memory an engine goes through.
    pub(super) fn footprint_of(&self, contender: &Contender) -> usize {
        if contender.clock.is_virtual() { self.footprint.min(MODEL_FOOTPRINT) } else { self.footprint }
    }

    /// All that take part.
    pub(crate) fn contenders(&self) -> &[Contender] {
        &self.contenders
    }

    pub(super) fn contender(&self, cell: &Cell) -> Option<&Contender> {
        self.contenders.iter().find(|c| c.name == cell.engine)
    }

    /// Bytes of each side that an engine needs of a kind of memory.
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

    /// The memory of an engine of a kind, with a peer's if bytes go there or come from there.
    pub(super) fn memory(&mut self, contender: &Contender, of: Kind) -> Result<Memory, Trouble> {
        let (direction, alike) = of;
        let key = (contender.name.clone(), of);
        if let Some(memory) = self.memories.get(&key) {
            return Ok(memory.clone());
        }
        let len = self.needs(contender, of);
        let peer = match direction {
            Direction::Local => None,
            _ if self.peer == Peer::Process => Some(Owner::Process(contender.name.clone())),
            _ => Some(Owner::Engine(Contender::open(&contender.name)?.engine)),
        };
        let make = if alike { Memory::alike } else { Memory::new };
        let memory = make(&contender.engine, peer.as_ref(), len, direction)?;
        self.memories.insert(key, memory.clone());
        Ok(memory)
    }

    /// Bytes of each side that the baseline needs for such cells.
    pub(super) fn baseline_needs(&self, like: &Cell) -> usize {
        self.groups
            .iter()
            .filter(|g| kind(&g.baseline).1 == kind(like).1)
            .map(|g| Layout::bytes(&g.baseline, self.footprint).saturating_add(ROOM))
            .max()
            .unwrap_or(0)
    }

    /// Returns whether the machine has as much memory as this takes.
    ///
    /// # Errors
    ///
    /// It does not.
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

    /// An engine that failed is opened anew, so that one bad cell does not cost the others.
    pub(super) fn reopen(&mut self, name: &str) {
        self.memories.retain(|(engine, _), _| engine != name);
        // Queues that are still open are of the one before.
        self.reopened += 1;
        let Some(contender) = self.contenders.iter_mut().find(|c| c.name == name) else { return };
        if let Ok(fresh) = Contender::open(name) {
            *contender = fresh;
        }
    }
}
