//! [`Runner`]: goes through all cells several times, and measures each slice of an engine between two of the
//! baseline.

mod baseline;
mod calibration;
mod continuous;
mod cores;
mod engines;
#[cfg(test)]
mod made_up;
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
use self::cores::Cores;
pub(crate) use self::engines::Engines;
pub(crate) use self::passes::passes;
use crate::contender::Contender;
use crate::memcpy::Memcpy;
use crate::plan::Campaign;

/// The engines that take part, how far it has got, and what has been found out about the machine.
pub(crate) struct Runner<'a> {
    campaign: &'a Campaign,
    engines: Engines,
    /// Whose memory the baseline uses.
    baseline: Arc<dyn DmaEngine>,
    /// The baseline with memory of its own for comparisons, and for all else.
    memcpy: [Option<Memcpy>; 2],
    /// Position of the baseline in its memory.
    at: usize,
    /// The number of the pass,
    pass: u32,
    /// and of the visit, over all passes.
    visit: u32,
    /// Size of the last cache, in bytes.
    last_cache: u64,
    /// Cost of one reading of the clock, in nanoseconds.
    clock_ns: f64,
    cores: Cores,
    begun: Instant,
}

impl<'a> Runner<'a> {
    /// The engines that take part.
    pub(crate) fn contenders(&self) -> &[Contender] {
        self.engines.contenders()
    }

    /// To measure what these engines are to do, with memory of `baseline` for memcpy.
    pub(crate) fn new(
        campaign: &'a Campaign,
        engines: Engines,
        baseline: Arc<dyn DmaEngine>,
        last_cache: u64,
    ) -> Self {
        Self {
            campaign,
            engines,
            baseline,
            memcpy: [None, None],
            at: 0,
            pass: 0,
            visit: 0,
            last_cache,
            clock_ns: clock_cost(),
            cores: Cores::default(),
            begun: Instant::now(),
        }
    }
}
