//! [`AutoReport`]: the work of each member, and the reasons.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::learner::{Class, DEPTHS, LENGTHS, Learned, Member};

/// A count that one thread adds to and any thread reads.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    #[inline]
    pub(super) fn add(&self, n: u64) {
        // One writer: no read-modify-write is needed.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

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
pub(super) struct Ledger {
    counts: Mutex<Vec<Arc<Counts>>>,
    /// Of queues that were dropped, and all that is rare.
    rest: Mutex<AutoReport>,
    /// Both costs of a class as the bits of two floats; 0 if they are unknown.
    costs: Box<[AtomicU64]>,
}

impl Ledger {
    pub(super) fn new(members: [String; 2]) -> Self {
        let costs = (0..DEPTHS * LENGTHS).map(|_| AtomicU64::new(0)).collect();
        let rest = Mutex::new(AutoReport { members, ..AutoReport::default() });
        Self { counts: Mutex::default(), rest, costs }
    }

    /// Makes the counts of a queue.
    pub(super) fn open(&self) -> Arc<Counts> {
        let counts = Arc::new(Counts::default());
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&counts));
        counts
    }

    /// Adds the counts of a queue that is dropped to the rest.
    pub(super) fn close(&self, counts: &Arc<Counts>) {
        let mut open = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|known| !Arc::ptr_eq(known, counts));
        self.rest.lock().unwrap_or_else(PoisonError::into_inner).add(counts);
    }

    pub(super) fn note_reason(&self, reason: String) {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner).reason = Some(reason);
    }

    pub(super) fn note_cost(&self, class: Class, learned: Learned) {
        let [cpu, device] = learned.cost.map(|cost| u64::from(cost.to_bits()));
        self.costs[class.index()].store(cpu << 32 | device, Ordering::Relaxed);
    }

    pub(super) fn report(&self) -> AutoReport {
        // In the order of `close`, so that no queue is missed or counted twice.
        let open = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut report = self.rest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        open.iter().for_each(|counts| report.add(counts));
        drop(open);
        for (index, cost) in self.costs.iter().enumerate() {
            let bits = cost.load(Ordering::Relaxed);
            if bits != 0 {
                report.costs.push(AutoCost {
                    in_flight: [1, 2, 8][index / LENGTHS],
                    len: 1 << (index % LENGTHS),
                    cpu_ns: f32::from_bits((bits >> 32) as u32),
                    device_ns: f32::from_bits(bits as u32),
                });
            }
        }
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
        ledger.note_cost(Class::new(9, 100), Learned { choice: Member::Device, cost: [30.0, 20.0] });
        let report = ledger.report();
        assert_eq!((report.cpu, report.device, report.repeated), (3, 2, 1));
        let text = report.to_string();
        assert!(text.contains("2 by the device, 3 by the CPU") && text.contains("it stalled"), "{text}");
        assert!(text.contains("from 8 in flight, from 64 B: the device"), "{text}");
    }
}
