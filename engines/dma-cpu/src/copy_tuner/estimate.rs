//! [`Estimate`]: the cost of the current kernel of a length class.

/// Number of samples until the smoothed cost is reliable.
const SETTLE: u8 = 8;
/// Number of samples until the cost becomes the reference. The number is high because the first samples after
/// a probe differ from later ones.
const REFERENCE: u8 = 24;

/// Cost of the current kernel, in ticks per byte.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Estimate {
    /// Smoothed cost; 0 means unknown.
    pub(super) cost: f32,
    /// The settled cost, from which shifts are measured.
    reference: f32,
    /// Number of samples since the last decision, up to `REFERENCE`.
    pub(super) age: u8,
}

impl Estimate {
    /// Begins again with a cost that a probe, a trial or a shift has shown.
    pub(super) fn restart(&mut self, cost: f32) {
        (self.cost, self.age) = (cost, 0);
    }

    pub(super) fn is_known(&self) -> bool {
        self.cost > 0.0
    }

    /// Returns true once the cost is reliable.
    pub(super) fn is_settled(&self) -> bool {
        self.age >= SETTLE
    }

    /// Adds a sample. Returns the reference once there is one.
    pub(super) fn add(&mut self, cost: f32) -> Option<f32> {
        // The smoothed cost starts as a mean. One preempted copy must not outweigh the rest.
        let clipped = if self.age == 0 { cost } else { cost.min(2.0 * self.cost) };
        self.cost += (clipped - self.cost) / f32::from(self.age.min(SETTLE - 1) + 1);
        if self.age < REFERENCE {
            self.age += 1;
            self.reference = self.cost;
            return None;
        }
        Some(self.reference)
    }
}
