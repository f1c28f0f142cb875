//! [`Sibling`]: whether something uses the other hardware thread of this core.
//!
//! Two hardware threads share a core's units. Work that keeps all units busy takes longer while the other
//! thread is busy; a chain of dependent steps does not. No counter of a virtual machine shows that.

use std::hint::black_box;
use std::time::Instant;

/// Watches the core that it is asked on.
#[derive(Debug, Default)]
pub(crate) struct Sibling {
    /// The smallest widths that were seen, sorted.
    least: Vec<f64>,
}

/// So many of the smallest widths are remembered; the greatest of them is what a core of one's own has. The
/// others may be chance.
const LEAST: usize = 8;
/// A core that is shared needs so many times as long for what keeps all its units busy. On a Xeon of the
/// fourth generation it is 1.4 to 1.7 times, and on a core of one's own 1.00 to 1.03.
const SHARED: f64 = 1.1;
/// Each look takes the best of so many: an interrupt makes one longer.
const ROUNDS: usize = 3;
/// Steps of each.
const STEPS: u64 = 1000;

impl Sibling {
    /// Looks whether the other hardware thread is busy now, for some microseconds.
    pub(crate) fn is_busy(&mut self) -> bool {
        self.judge(width())
    }

    fn judge(&mut self, width: f64) -> bool {
        let at = self.least.partition_point(|w| *w < width);
        if at < LEAST {
            self.least.insert(at, width);
            self.least.truncate(LEAST);
        }
        self.least.last().is_some_and(|own| width > own * SHARED)
    }
}

/// The duration: how long what keeps all units of a core busy takes, measured by how long what
/// waits for itself takes: the first takes longer if the core is shared, and both take longer if its clock is
/// slower.
fn width() -> f64 {
    let (mut wide, mut narrow) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        work();
        let between = Instant::now();
        let mut one = black_box(1_u64);
        for step in 0..black_box(STEPS) {
            one = (one ^ step).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
        black_box(one);
        wide = wide.min((between - begun).as_secs_f64());
        narrow = narrow.min(between.elapsed().as_secs_f64());
    }
    wide / narrow.max(f64::MIN_POSITIVE)
}

/// Keeps all units of this core busy, for some microseconds.
pub(crate) fn work() {
    // More chains side by side than the core has units, and no two alike: else the compiler makes one of
    // vectors out of them.
    let (mut a, mut b, mut c) = (black_box(1_u64), black_box(2_u64), black_box(3_u64));
    let (mut d, mut e, mut f) = (black_box(4_u64), black_box(5_u64), black_box(6_u64));
    for step in 0..black_box(STEPS) {
        a = a.wrapping_add(step) ^ (a >> 3);
        b = b.wrapping_sub(step) ^ b.rotate_left(5);
        c = (c ^ step).wrapping_add(c << 1);
        d = (d | step).wrapping_sub(d >> 9);
        e = (e & !step) ^ e.rotate_right(11);
        f = (f ^ (step << 2)).wrapping_add(f >> 7);
    }
    black_box((a, b, c, d, e, f));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_shared_when_it_is_slower_than_it_can_be() {
        let mut sibling = Sibling::default();
        let own = [0.90, 0.91, 0.905, 0.92, 0.9, 0.91, 0.93, 0.9, 0.905, 0.91];
        for width in own {
            assert!(!sibling.judge(width), "{width}");
        }
        assert!(sibling.judge(1.1) && sibling.judge(1.4) && !sibling.judge(0.94));
        // One that was measured wrong changes nothing.
        assert!(!sibling.judge(0.5) && !sibling.judge(0.93) && sibling.judge(1.05));
        // The first core may be a shared one.
        let mut late = Sibling::default();
        assert!([1.3; 20].iter().all(|width| !late.judge(*width)));
        own.iter().for_each(|width| assert!(!late.judge(*width)));
        assert!(late.judge(1.3));
    }

    #[test]
    fn a_width_is_a_number() {
        let width = width();
        assert!(width.is_finite() && width > 0.0, "{width}");
    }
}
