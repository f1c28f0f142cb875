//! [`AutoReport`]: the work of each engine, and the measured times on which the choice was based.

use std::fmt;
use std::sync::Arc;

use dma_process::ProcessLock;

use super::learner::{Class, DEPTHS, Engine, LENGTHS};
use crate::wrapper::Count;

/// The counts of one queue.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) cpu: Count,
    pub(super) device: Count,
    pub(super) repeated: Count,
    pub(super) left: Count,
    pub(super) returned: Count,
}

/// Descriptors of all queues of an [`AutoEngine`](super::AutoEngine) so far, by engine, and the measured
/// times on which the choice was based.
///
/// Its [`Display`](fmt::Display) prints a readable table.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct AutoReport {
    /// Descriptors that the CPU accepted, including those that it repeated.
    pub cpu: u64,
    /// Descriptors that the device accepted.
    pub device: u64,
    /// Descriptors that the device accepted but did not finish, so that the CPU repeated them.
    pub repeated: u64,
    /// Number of times that a queue stopped using the device, because the device failed or stalled.
    pub left: u64,
    /// Number of times that a queue used the device again.
    pub returned: u64,
    /// The reason why a queue last stopped using the device.
    pub reason: Option<String>,
    /// Measured times, by descriptors in flight and length.
    pub costs: Vec<AutoCost>,
    /// The name of the CPU or of the engine in its role, and the name of the device.
    pub engines: [String; 2],
}

/// The measured times of a class of copies, from the queue that last measured them.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct AutoCost {
    /// The minimum number of descriptors in flight of this class, including the copy itself: 1, 2 or 8.
    pub in_flight: usize,
    /// The minimum length of this class in bytes. All lengths of the class are less than twice this.
    pub len: u64,
    /// Time per descriptor on the CPU, in nanoseconds.
    pub cpu_ns: f32,
    /// Time per descriptor on the device, in nanoseconds.
    pub device_ns: f32,
}

impl AutoCost {
    /// Returns true if copies of this class go to the device.
    #[must_use]
    pub fn prefers_device(&self) -> bool {
        self.device_ns < self.cpu_ns
    }
}

impl fmt::Display for AutoReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, device] = &self.engines;
        writeln!(f, "{device}:")?;
        writeln!(f, "  descriptors: {} by the device, {} by {first}", self.device, self.cpu)?;
        writeln!(f, "  repeated by {first}: {}", self.repeated)?;
        writeln!(f, "  device left: {}, taken again: {}", self.left, self.returned)?;
        if let Some(reason) = &self.reason {
            writeln!(f, "  last reason to leave it: {reason}")?;
        }
        for cost in &self.costs {
            let choice = if cost.prefers_device() { "the device" } else { first };
            let AutoCost { in_flight, len, cpu_ns, device_ns } = cost;
            writeln!(
                f,
                "  from {in_flight} in flight, from {len} B: {choice}, because {first} takes {cpu_ns:.0} ns and \
                 the device {device_ns:.0} ns"
            )?;
        }
        Ok(())
    }
}

/// The counts and the measured times of an engine. A forked child neither changes nor reports those of its
/// parent.
#[derive(Debug)]
pub(super) struct Ledger(ProcessLock<Totals>);

#[derive(Debug)]
struct Totals {
    open: Vec<Arc<Counts>>,
    /// The counts of dropped queues, and the reason for the last change.
    rest: AutoReport,
    /// Nanoseconds per descriptor on each engine, by class. 0 if unknown.
    costs: Vec<[f32; 2]>,
}

impl Ledger {
    pub(super) fn new(engines: [String; 2]) -> Self {
        let rest = AutoReport { engines, ..AutoReport::default() };
        Self(ProcessLock::new(Totals { open: Vec::new(), rest, costs: vec![[0.0; 2]; DEPTHS * LENGTHS] }))
    }

    /// Makes the counts for a new queue.
    pub(super) fn open(&self) -> Arc<Counts> {
        let counts = Arc::<Counts>::default();
        self.change(|totals| totals.open.push(Arc::clone(&counts)));
        counts
    }

    /// Adds the counts of a queue that is being dropped to those of earlier dropped queues.
    pub(super) fn close(&self, counts: &Arc<Counts>) {
        self.change(|totals| {
            totals.open.retain(|known| !Arc::ptr_eq(known, counts));
            totals.rest.add(counts);
        });
    }

    pub(super) fn note_reason(&self, reason: String) {
        self.change(|totals| totals.rest.reason = Some(reason));
    }

    pub(super) fn note_cost(&self, class: Class, cost: [f32; 2]) {
        self.change(|totals| totals.costs[class.index()] = cost);
    }

    /// Returns `None` in a forked child.
    pub(super) fn report(&self) -> Option<AutoReport> {
        let totals = self.0.lock()?;
        let mut report = totals.rest.clone();
        totals.open.iter().for_each(|counts| report.add(counts));
        let known = totals.costs.iter().enumerate().filter(|(_, cost)| **cost != [0.0; 2]);
        report.costs.extend(known.map(|(index, &[cpu_ns, device_ns])| AutoCost {
            in_flight: [1, 2, 8][index / LENGTHS],
            len: 1 << (index % LENGTHS),
            cpu_ns,
            device_ns,
        }));
        Some(report)
    }

    fn change(&self, change: impl FnOnce(&mut Totals)) {
        if let Some(mut totals) = self.0.lock() {
            change(&mut totals);
        }
    }
}

impl AutoReport {
    fn add(&mut self, counts: &Counts) {
        self.cpu += counts.cpu.get();
        self.device += counts.device.get();
        self.repeated += counts.repeated.get();
        self.left += counts.left.get();
        self.returned += counts.returned.get();
    }
}

impl Counts {
    pub(super) fn took(&self, engine: Engine, descriptors: usize) {
        let count = if engine == Engine::Cpu { &self.cpu } else { &self.device };
        count.add(descriptors as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_add_up_open_and_closed_queues() {
        let ledger = Ledger::new(["the CPU", "sim 0"].map(str::to_owned));
        let (a, b) = (ledger.open(), ledger.open());
        a.took(Engine::Cpu, 3);
        b.took(Engine::Device, 2);
        b.repeated.add(1);
        ledger.close(&b);
        ledger.note_reason("it stalled".to_owned());
        ledger.note_cost(Class::new(9, 100), [30.0, 20.0]);
        let report = ledger.report().expect("the process was not forked");
        assert_eq!((report.cpu, report.device, report.repeated), (3, 2, 1));
        let text = report.to_string();
        assert!(text.contains("2 by the device, 3 by the CPU") && text.contains("it stalled"), "{text}");
        assert!(text.contains("from 8 in flight, from 64 B: the device"), "{text}");
    }

    #[test]
    fn a_child_does_not_wait_for_a_thread_that_counts() {
        let ledger = Ledger::new(["the CPU", "sim 0"].map(str::to_owned));
        let counts = ledger.open();
        // The lock stays held, as by a thread that the child does not have.
        std::mem::forget(ledger.0.lock());
        assert!(test_support::in_child::in_child(|| {
            ledger.note_reason("it stalled".to_owned());
            ledger.close(&counts);
            ledger.report().is_none()
        }));
    }
}
