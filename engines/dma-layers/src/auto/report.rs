//! [`AutoReport`]: the work of each member, and the reasons.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::learner::{Class, DEPTHS, LENGTHS, Member};
use crate::layer::Count;

/// The counts of one queue.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) cpu: Count,
    pub(super) device: Count,
    pub(super) repeated: Count,
    pub(super) left: Count,
    pub(super) returned: Count,
}

/// Descriptors of all queues of an [`AutoEngine`](super::AutoEngine) so far, by member, and the times that
/// they were given by.
///
/// Its [`Display`](fmt::Display) is a table for people.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct AutoReport {
    /// Descriptors that the CPU took, repeated ones included.
    pub cpu: u64,
    /// Descriptors that the device took.
    pub device: u64,
    /// Descriptors that the device took and did not finish, and that the CPU did instead.
    pub repeated: u64,
    /// Times that a queue left its device, because it failed or stalled.
    pub left: u64,
    /// Times that a queue went back to its device.
    pub returned: u64,
    /// Reason for the last time that a queue left its device.
    pub reason: Option<String>,
    /// Measured times, by descriptors in flight and length.
    pub costs: Vec<AutoCost>,
    /// Names of the CPU, or of what stands in its place, and of the device.
    pub members: [String; 2],
}

/// The measured times of a class of copies. The last queue that measured it has the say.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct AutoCost {
    /// The fewest descriptors in flight of this class, including the copy itself: 1, 2 or 8.
    pub in_flight: usize,
    /// The shortest length of this class in bytes. The class ends below twice of it.
    pub len: u64,
    /// Nanoseconds for each descriptor on the CPU.
    pub cpu_ns: f32,
    /// Nanoseconds for each descriptor on the device.
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
        let [first, device] = &self.members;
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

/// All of an engine's counts and costs.
#[derive(Debug)]
pub(super) struct Ledger(Mutex<State>);

#[derive(Debug)]
struct State {
    open: Vec<Arc<Counts>>,
    /// Counts of queues that were dropped, and all that is rare.
    rest: AutoReport,
    /// Nanoseconds of both members, by class; 0 if they are unknown.
    costs: Vec<[f32; 2]>,
}

impl Ledger {
    pub(super) fn new(members: [String; 2]) -> Self {
        let rest = AutoReport { members, ..AutoReport::default() };
        Self(Mutex::new(State { open: Vec::new(), rest, costs: vec![[0.0; 2]; DEPTHS * LENGTHS] }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the counts of a queue.
    pub(super) fn open(&self) -> Arc<Counts> {
        let counts = Arc::<Counts>::default();
        self.state().open.push(Arc::clone(&counts));
        counts
    }

    /// Adds the counts of a queue that is dropped to the rest.
    pub(super) fn close(&self, counts: &Arc<Counts>) {
        let mut state = self.state();
        state.open.retain(|known| !Arc::ptr_eq(known, counts));
        state.rest.add(counts);
    }

    pub(super) fn note_reason(&self, reason: String) {
        self.state().rest.reason = Some(reason);
    }

    pub(super) fn note_cost(&self, class: Class, cost: [f32; 2]) {
        self.state().costs[class.index()] = cost;
    }

    pub(super) fn report(&self) -> AutoReport {
        let state = self.state();
        let mut report = state.rest.clone();
        state.open.iter().for_each(|counts| report.add(counts));
        let known = state.costs.iter().enumerate().filter(|(_, cost)| **cost != [0.0; 2]);
        report.costs.extend(known.map(|(index, &[cpu_ns, device_ns])| AutoCost {
            in_flight: [1, 2, 8][index / LENGTHS],
            len: 1 << (index % LENGTHS),
            cpu_ns,
            device_ns,
        }));
        report
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
    pub(super) fn took(&self, member: Member, descriptors: usize) {
        let count = if member == Member::Cpu { &self.cpu } else { &self.device };
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
        a.took(Member::Cpu, 3);
        b.took(Member::Device, 2);
        b.repeated.add(1);
        ledger.close(&b);
        ledger.note_reason("it stalled".to_owned());
        ledger.note_cost(Class::new(9, 100), [30.0, 20.0]);
        let report = ledger.report();
        assert_eq!((report.cpu, report.device, report.repeated), (3, 2, 1));
        let text = report.to_string();
        assert!(text.contains("2 by the device, 3 by the CPU") && text.contains("it stalled"), "{text}");
        assert!(text.contains("from 8 in flight, from 64 B: the device"), "{text}");
    }
}
