//! The baseline: `memcpy` before, between and after slices of engines, warmed up and timed like them.

use std::time::Instant;

use super::Runner;
use super::calibration::warm;
use crate::drive::{Extent, Trouble};
use crate::layout::Layout;
use crate::memcpy::Memcpy;
use crate::pairs::{Pair, Slot};
use crate::placement::Pinned;
use crate::plan::{Op, SLICE};
use crate::record::Record;
use crate::{cpu_time, interrupt, slices};

/// Slices of the baseline before a run at a rate, and as many after it.
const BESIDE_RATE: u32 = 5;

impl Runner<'_> {
    /// Warms the baseline up, fully in the first pass, and sets how many operations a slice takes.
    pub(super) fn baseline_extent(&mut self, base: &mut Record, layout: &Layout) -> Result<(), Trouble> {
        let compares = base.cell.op == Op::Compare;
        let memcpy = &mut self.memcpy[usize::from(compares)];
        if memcpy.is_none() {
            *memcpy = Some(Memcpy::new(&self.baseline, self.engines.baseline_needs(&base.cell), compares)?);
        }
        let least = self.warm_up_now(&base.cell, self.pass > 0);
        let Some(memcpy) = &mut self.memcpy[usize::from(compares)] else {
            return Err(Trouble::Failed("no memory".to_owned()));
        };
        let (mut ops, mut spent, mut per_op) = (1, 0.0, f64::INFINITY);
        while spent < least.max(1e-9) && !interrupt::stopped() {
            let extent = Extent { warm: 0, ops, sample_every: u64::MAX, compare: 0, each: false };
            let mut unused = crate::drive::histogram();
            let (slice, _) = memcpy.run(&base.cell, layout, extent, &mut self.at, &mut unused)?;
            spent += slice.seconds();
            per_op = per_op.min(slice.seconds() / ops as f64);
            ops *= 2;
        }
        // A count or a rate sets the length of the engine's repetitions. The baseline keeps short slices.
        let own = self.campaign.count.is_some() || self.campaign.rate.is_some();
        let seconds = if own { self.campaign.seconds.min(SLICE) } else { self.campaign.seconds };
        let ops = ((seconds / per_op.max(1e-9)) as u64).max(1);
        let warm = warm(&base.cell, ops, per_op, u64::from(base.cell.depth));
        base.extent =
            Extent { warm, ops, sample_every: self.sampling(per_op * 1e9), compare: 0, each: false };
        Ok(())
    }

    /// Runs one slice of the baseline. Returns `None` if it failed or was stopped before an operation ended.
    pub(super) fn baseline_slot(
        &mut self,
        base: &mut Record,
        layout: &Layout,
        compare: usize,
    ) -> Option<Slot> {
        let memcpy = self.memcpy[usize::from(base.cell.op == Op::Compare)]
            .as_mut()
            .filter(|_| base.trouble.is_none())?;
        let _pinned = Pinned::to(&self.campaign.cpus, 0);
        // Threads that wait for this CPU run now instead of during the slice.
        std::thread::yield_now();
        let (before, begun) = (cpu_time::waited(), Instant::now());
        let extent = Extent { compare, ..base.extent };
        match memcpy.run(&base.cell, layout, extent, &mut self.at, &mut base.latency) {
            Ok((slice, _)) if slice.ops == 0 => {
                base.cut |= slice.cut;
                None
            }
            Ok((slice, cpu)) => {
                let waited = slices::part(before, cpu_time::waited(), begun);
                let rate = slice.ops as f64 / slice.seconds();
                let cpu_ns = cpu / slice.ops as f64;
                let slot = Slot { rate, cpu_ns, waited };
                base.count(std::slice::from_ref(&slice));
                base.add(Pair { slot, ratio: Some(1.0), waited, pass: self.pass });
                Some(slot)
            }
            Err(trouble) => {
                base.trouble = Some(trouble);
                None
            }
        }
    }

    /// Runs [`BESIDE_RATE`] slices of the baseline. Returns the last of them.
    pub(super) fn beside(&mut self, base: &mut Record, layout: &Layout, compare: usize) -> Option<Slot> {
        let mut last = None;
        for _ in 0..BESIDE_RATE {
            if interrupt::stopped() {
                break;
            }
            last = self.baseline_slot(base, layout, compare).or(last);
        }
        last
    }
}
