//! [`Sibling`]: detects load on the other hardware thread of this core.
//!
//! Two hardware threads share a core's units. Work that keeps all units busy takes longer while the other
//! thread is busy; a chain of dependent steps does not. Virtual machines have no counter for that.

use std::hint::black_box;
use std::time::Instant;

/// Detects load beside the thread that asks.
#[derive(Debug, Default)]
pub(crate) struct Sibling {
    /// The smallest ratios of [`width`] so far, sorted. At most [`LEAST`].
    least: Vec<f64>,
}

/// Smallest ratios that are kept. The greatest of them stands for a core without other load; smaller ones may
/// be chance.
const LEAST: usize = 8;
/// A ratio this many times that of a free core means that the core is shared. On a Xeon of the fourth
/// generation it is 1.4 to 1.7 times on a shared core, and 1.00 to 1.03 times on a free one.
const SHARED: f64 = 1.1;
/// Rounds of each measurement. The fastest counts, because an interrupt makes one longer.
const ROUNDS: usize = 3;
/// Steps of each round.
const STEPS: u64 = 1000;

impl Sibling {
    /// Returns true if the other hardware thread is busy now. Takes some microseconds.
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

/// Returns the duration of work that keeps all units busy, divided by that of a chain of dependent steps. A
/// shared core makes only the first longer; a slower clock makes both longer.
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

/// Keeps all units of this core busy for some microseconds.
pub(crate) fn work() {
    // There are more independent chains than units. All differ, because the compiler would vectorise equal
    // ones.
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
        // A single wrong measurement changes nothing.
        assert!(!sibling.judge(0.5) && !sibling.judge(0.93) && sibling.judge(1.05));
        // The core may be shared at first.
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
