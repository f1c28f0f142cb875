//! [`Cores`]: the position of a helping thread's core.

use crate::core_distance::CoreDistance;
use crate::pairs::Seen;
use crate::sibling::Sibling;

/// Observers of this core's other hardware thread and of the distance to other cores.
#[derive(Default)]
pub(super) struct Cores {
    sibling: Sibling,
    pub(super) distance: CoreDistance,
}

impl Cores {
    /// Returns the position of the helping core in a slice. `cpu` is the CPU that a helping thread ran on.
    /// Without one, in a cell `in_company` (mostly helped), checks whether the usual core is away.
    pub(super) fn beside(&mut self, cpu: Option<usize>, in_company: bool) -> Option<Seen> {
        if let Some(cpu) = cpu {
            let seen = self.distance.look(cpu, &mut self.sibling);
            seen.into_iter().for_each(|seen| self.distance.learn(seen));
            seen
        } else if in_company {
            self.distance.missed(&mut self.sibling)
        } else {
            None
        }
    }
}
