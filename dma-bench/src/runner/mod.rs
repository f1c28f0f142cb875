//! [`Runner`]: goes through all cells several times, and measures each slice of an engine between two of the
//! baseline.

mod baseline;
mod calibration;
mod continuous;
mod engines;
#[cfg(test)]
mod made_up;
mod observer;
mod opening;
mod passes;
mod slot;
#[cfg(test)]
mod tests;
mod visit;

use std::sync::Arc;
use std::time::Instant;

use dma::DmaEngine;

use self::calibration::clock_cost;
pub(crate) use self::engines::Engines;
pub use self::observer::Observer;
pub(crate) use self::passes::passes;
use crate::contender::Contender;
use crate::memcpy::Memcpy;
use crate::plan::Campaign;

/// State of a run: its engines, its progress, and facts about the machine.
pub(crate) struct Runner<'a> {
    campaign: &'a Campaign,
    engines: Engines,
    /// The engine that allocates memory for the baseline.
    baseline: Arc<dyn DmaEngine>,
    /// The baseline's memory: for comparisons at index 1, for all other operations at 0.
    memcpy: [Option<Memcpy>; 2],
    at: usize,
    pass: u32,
    visit: u32,
    /// Cost of one reading of the clock, in nanoseconds.
    clock_ns: f64,
    begun: Instant,
}

impl<'a> Runner<'a> {
    pub(crate) fn contenders(&self) -> &[Contender] {
        self.engines.contenders()
    }

    /// Creates a runner for `engines`. `baseline` allocates the memory for memcpy.
    pub(crate) fn new(campaign: &'a Campaign, engines: Engines, baseline: Arc<dyn DmaEngine>) -> Self {
        Self {
            campaign,
            engines,
            baseline,
            memcpy: [None, None],
            at: 0,
            pass: 0,
            visit: 0,
            clock_ns: clock_cost(),
            begun: Instant::now(),
        }
    }
}
