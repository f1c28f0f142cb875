//! [`Trial`]: measures whether sharing among cores makes copies within a cache faster.

/// Sharing begins only if it wins by this ratio, because it takes more CPU time and leaves parts of the
/// destination in other caches.
const WINS: f32 = 1.25;
/// Sharing continues while it wins by this ratio.
const KEEPS: f32 = 1.15;

/// Costs of copies by one core, and of copies shared among cores.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trial {
    alone: Tally,
    shared: Tally,
    /// CPU time of the shared copies, over all cores.
    work: Tally,
}

/// Costs of the parts of a burst, in ticks per byte.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    parts: [Part; MAX_PARTS],
    seen: u32,
}

/// A part of a burst: consecutive copies.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    sum: f32,
    seen: u32,
}

/// Maximum number of parts of a burst. A burst has several parts because interrupts and other users of a core
/// distort some of them.
const MAX_PARTS: usize = 8;
/// Minimum number of copies in a part. Overlapping copies share their time, so only their sum is meaningful.
const MIN_PART_LEN: usize = 4;

impl Tally {
    /// Adds the cost of a copy. The burst has `of` copies.
    fn add(&mut self, cost: f32, of: u32) {
        let len = (of as usize).div_ceil(MAX_PARTS).max(MIN_PART_LEN);
        let part = &mut self.parts[(self.seen as usize / len).min(MAX_PARTS - 1)];
        (part.sum, part.seen) = (part.sum + cost, part.seen + 1);
        self.seen += 1;
    }

    /// Returns the median of the parts' means.
    fn typical(&self) -> f32 {
        let mut means = [f32::INFINITY; MAX_PARTS];
        let mut count = 0;
        for part in self.parts.iter().filter(|part| part.seen > 0) {
            means[count] = part.sum / part.seen as f32;
            count += 1;
        }
        means.sort_unstable_by(f32::total_cmp);
        if count == 0 { 0.0 } else { f32::midpoint(means[(count - 1) / 2], means[count / 2]) }
    }
}

/// Result of a trial, in ticks per byte.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TrialResult {
    /// Elapsed time on one core.
    pub(super) alone: f32,
    /// Elapsed time when shared.
    pub(super) shared: f32,
    /// CPU time of all cores when shared.
    pub(super) work: f32,
    /// True if sharing is faster.
    pub(super) share: bool,
}

impl Trial {
    /// Adds a copy by one core. The burst has `of` copies.
    pub(super) fn add_alone(&mut self, cost: f32, of: u32) {
        self.alone.add(cost, of);
    }

    /// Adds a shared copy, which kept the queue busy for `busy` and took the CPU time `work`. The burst has
    /// `of` copies.
    pub(super) fn add_shared(&mut self, busy: f32, work: f32, of: u32) {
        self.shared.add(busy, of);
        self.work.add(work, of);
    }

    /// Returns true once `each` copies by one core and `each` shared copies were added.
    pub(super) fn is_complete(&self, each: u32) -> bool {
        self.alone.seen >= each && self.shared.seen >= each
    }

    /// Returns the result for `cores` cores. Must be called only when the trial is complete.
    pub(super) fn verdict(&self, shared_now: bool, cores: u32) -> TrialResult {
        let work = self.work.typical();
        // The elapsed time cannot be less than the CPU time divided by the cores. This bound corrects clocks
        // that disagree.
        let (alone, shared) = (self.alone.typical(), self.shared.typical().max(0.9 * work / cores as f32));
        let wins = if shared_now { KEEPS } else { WINS };
        TrialResult { alone, shared, work, share: shared * wins < alone }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(alone: &[f32], shared: &[f32], work: f32, now: bool) -> bool {
        let mut trial = Trial::default();
        let of = alone.len().min(shared.len()) as u32;
        alone.iter().for_each(|cost| trial.add_alone(*cost, of));
        assert!(!trial.is_complete(1));
        shared.iter().for_each(|cost| trial.add_shared(*cost, work, of));
        assert!(trial.is_complete(of));
        let verdict = trial.verdict(now, 2);
        assert!((verdict.work - work).abs() < 1e-6, "{verdict:?}");
        verdict.share
    }

    #[test]
    fn sharing_has_to_be_worth_it() {
        let alone = [1.0; 8];
        for now in [false, true] {
            assert!(share(&alone, &[0.75; 8], 1.3, now), "faster by a third");
            assert!(!share(&alone, &[0.95; 8], 1.3, now), "hardly faster");
            assert!(
                !share(&alone, &[1.5; 8], 2.8, now),
                "sharing is slower if other cores have to fetch the data"
            );
            assert_eq!(share(&alone, &[0.85; 8], 1.5, now), now, "in between");
        }
    }

    /// If two cores repeatedly end at the same time, half of the copies appear to take no time.
    #[test]
    fn copies_that_overlap_are_taken_together() {
        let pairs = [0.0, 1.4, 0.0, 1.4, 0.0, 1.4, 0.0, 1.4];
        assert!(share(&[1.0; 8], &pairs, 1.4, false));
        let fours = [0.0, 0.0, 0.0, 3.8].repeat(2);
        assert!(!share(&[1.0; 8], &fours, 1.4, false));
    }

    #[test]
    fn one_interrupt_decides_nothing() {
        let mut shared = [0.7; 16];
        shared[3] = 1000.0;
        assert!(share(&[1.0; 16], &shared, 1.4, false));
        let mut alone = [1.0; 16];
        alone[7] = 1000.0;
        assert!(!share(&alone, &[1.0; 16], 1.4, false));
    }

    /// Models other processes that use a core for some time.
    #[test]
    fn a_partly_slower_trial_decides_nothing() {
        let mut shared = [0.7; 64];
        shared[5..21].fill(2.0);
        assert!(share(&[1.0; 64], &shared, 1.4, false));
        let mut alone = [1.0; 64];
        alone[40..60].fill(3.0);
        assert!(!share(&alone, &[1.0; 64], 1.4, false));
    }

    /// Models a clock that is late on another core.
    #[test]
    fn nothing_is_faster_than_all_cores_at_once() {
        assert!(!share(&[1.0; 8], &[0.0; 8], 2.0, false));
        assert!(share(&[1.0; 8], &[0.0; 8], 1.4, false));
    }
}
