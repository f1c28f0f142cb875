//! Opens the queues of a cell, places its buffers, and warms it up.

use std::time::Duration;

use super::engines::kind;
use super::{Runner, passes};
use crate::contender::Contender;
use crate::drive::{Trouble, Worker};
use crate::interrupt;
use crate::layout::Layout;
use crate::record::Record;

/// The most queues of the CPU engine that stay open between visits.
const STAY: u64 = 64;

impl Runner<'_> {
    /// Returns true if the queues of a cell stay open until its next visit. The CPU engine then keeps the
    /// timings that it has learned, as in a program. Devices learn nothing, and may not have so many queues.
    pub(super) fn stays(&self, record: &Record) -> bool {
        let cells =
            self.engines.groups.iter().flat_map(|g| &g.cells).filter(|c| c.engine == record.cell.engine);
        self.engines.contender(&record.cell).is_some_and(learns)
            && cells.map(|c| u64::from(c.queues)).sum::<u64>() <= STAY
            && self.pass + 1 < passes(self.campaign)
    }

    /// Opens the queues of a cell and warms it up, unless it has failed before.
    pub(super) fn open(&mut self, record: &mut Record) {
        if record.trouble.is_none()
            && let Err(trouble) = self.try_open(record)
        {
            // Latencies before the failure belong to no repetition.
            record.workers.iter_mut().for_each(Worker::forget);
            if !interrupt::stopped() {
                record.trouble = Some(trouble);
            }
        }
    }

    fn try_open(&mut self, record: &mut Record) -> Result<(), Trouble> {
        if record.again().is_some() {
            return Ok(());
        }
        let cell = record.cell.clone();
        let contender = self
            .engines
            .contender(&cell)
            .cloned()
            .ok_or_else(|| Trouble::Failed("no such engine".to_owned()))?;
        record.model = contender.is_model();
        record.virtual_clock = contender.clock.is_virtual();
        if contender.timeless {
            return Err(Trouble::Unsupported(TIMELESS.to_owned()));
        }
        let footprint = self.engines.footprint_of(&contender);
        let memory = self.engines.memory(&contender, kind(&cell))?;
        let free = self.engines.needs(&contender, kind(&cell))
            - Layout::bytes(&cell, footprint) * cell.queues as usize;
        let stall = Duration::from_secs_f64(self.campaign.stall);
        let layouts = (0..cell.queues as usize)
            .map(|queue| Layout::new(&cell, queue, footprint).in_pass(&cell, self.pass, self.visit, free));
        if std::mem::replace(&mut record.reopened, self.engines.reopened) != self.engines.reopened {
            record.workers.clear();
        }
        let stayed = !record.workers.is_empty();
        if stayed {
            record.workers.iter_mut().zip(layouts).for_each(|(worker, layout)| worker.move_to(layout));
        } else {
            for (queue, layout) in layouts.enumerate() {
                let (memory, verify) = (memory.clone(), self.campaign.verify);
                let worker = Worker::new(&contender, &cell, memory, layout, verify, stall)?;
                record.workers.push(worker.on(&self.campaign.cpus, queue));
            }
        }
        self.warm_up(record, stayed || (self.pass > 0 && !learns(&contender)))
    }
}

/// Returns true if an engine's queues learn from the copies that they make.
fn learns(contender: &Contender) -> bool {
    contender.engine.info().backend == "cpu"
}

/// Reason why a device that takes no time is not measured.
pub(super) const TIMELESS: &str = "the profile `ideal` models no device and takes no time, so it has no speed; name a device, as in \
    sim:profile=dsa, or its times, as in sim:latency=1us,bandwidth=10GiB";
