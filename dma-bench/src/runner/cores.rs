//! [`Cores`]: where the core of a helping thread is.

use crate::core_distance::CoreDistance;
use crate::pairs::Seen;
use crate::sibling::Sibling;

/// This core with its other hardware thread, and the core of another thread that takes part.
#[derive(Default)]
pub(super) struct Cores {
    sibling: Sibling,
    pub(super) distance: CoreDistance,
}

impl Cores {
    /// Returns where the other core was in a slice: that of `cpu`, or, if no other thread took part, the one
    /// on which one mostly does in a cell `in_company`.
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
