//! [`DriftAlarm`]: detects that the speed of the current kernel has shifted.

/// Number of consecutive samples away from the reference that count as a shift.
const SHIFT: i8 = 6;
/// Limit of `futile_shifts`. Shifts are frequent on a core that other processes also use, so probes after
/// shifts become rarer, up to this limit.
const FUTILE_SHIFTS_MAX: u8 = 5;
const FASTER: f32 = 0.85;
const SLOWER: f32 = 1.35;

/// Direction of a shift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shift {
    Faster,
    Slower,
}

/// Compares samples with the reference of the [`Estimate`](super::estimate::Estimate).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DriftAlarm {
    /// Number of consecutive samples faster (positive) or slower (negative) than the reference, up to
    /// `SHIFT`.
    drift: i8,
    /// True if the next probe is caused by a shift.
    shift_detected: bool,
    /// Number of consecutive probes after shifts that changed nothing, up to `FUTILE_SHIFTS_MAX`.
    futile_shifts: u8,
}

impl DriftAlarm {
    /// Adds a sample. Returns the shift if enough consecutive samples show it.
    pub(super) fn add(&mut self, cost: f32, reference: f32) -> Option<Shift> {
        self.drift = if cost < reference * FASTER {
            (self.drift.max(0) + 1).min(SHIFT)
        } else if cost > reference * SLOWER {
            (self.drift.min(0) - 1).max(-SHIFT)
        } else {
            0
        };
        match self.drift {
            SHIFT => Some(Shift::Faster),
            drift if drift == -SHIFT => Some(Shift::Slower),
            _ => None,
        }
    }

    /// Forgets the samples so far.
    pub(super) fn restart(&mut self) {
        self.drift = 0;
    }

    /// Records that a shift causes the next probe. Returns the maximum back-off of this probe, which is low
    /// if shifts are rare.
    pub(super) fn cause_probe(&mut self) -> u8 {
        self.shift_detected = true;
        self.futile_shifts
    }

    /// Records the end of a probe: if it changed the choice, or `None` for a probe without a result.
    pub(super) fn end_probe(&mut self, changed: Option<bool>) {
        match changed {
            Some(true) => self.futile_shifts = 0,
            Some(false) => {
                self.futile_shifts =
                    (self.futile_shifts + u8::from(self.shift_detected)).min(FUTILE_SHIFTS_MAX);
            }
            None => {}
        }
        (self.shift_detected, self.drift) = (false, 0);
    }
}
