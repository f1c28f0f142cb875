//! [`Trial`]: whether copies within a cache are faster if cores share them.

/// Sharing has to win by this much, since it takes more of everybody's time and leaves part of the destination with other cores,
const WINS: f32 = 1.25;
/// and is kept while it wins by this much: what is in between stays as it is.
const KEEPS: f32 = 1.1;

/// Copies done by one core alone, then others shared among cores, and what they took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trial {
    alone: Tally,
    shared: Tally,
    /// The least that the shared ones can have taken: the work in them, by all cores at once.
    least: f32,
}

/// Costs, in ticks per byte.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    sum: f32,
    max: f32,
    seen: u32,
}

impl Tally {
    fn add(&mut self, cost: f32) {
        self.sum += cost;
        self.max = self.max.max(cost);
        self.seen += 1;
    }

    /// The mean without the worst, which may have been an interrupt, or a core that was away.
    fn mean(&self) -> f32 {
        if self.seen > 1 { (self.sum - self.max) / (self.seen - 1) as f32 } else { self.sum }
    }
}

/// What a trial has shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Verdict {
    /// What one core takes alone, in ticks per byte.
    pub(super) alone: f32,
    /// What all the cores that share it take together.
    pub(super) work: f32,
    /// Whether it is worth it.
    pub(super) share: bool,
    /// How many times as long copies took the way that is not kept: less than once if it is not worth its trouble.
    pub(super) dearer: f32,
}

impl Trial {
    /// A copy done alone.
    pub(super) fn add_alone(&mut self, cost: f32) {
        self.alone.add(cost);
    }

    /// A shared one that kept the queue busy for `busy`, while `cores` did `work` for it.
    pub(super) fn add_shared(&mut self, busy: f32, work: f32, cores: u32) {
        self.shared.add(busy);
        self.least += work / cores as f32;
    }

    /// Whether so many of both kinds were seen.
    pub(super) fn is_complete(&self, each: u32) -> bool {
        self.alone.seen >= each && self.shared.seen >= each
    }

    /// What is better for copies that cores share now or do not, if both kinds were seen.
    pub(super) fn verdict(&self, shared_now: bool, cores: u32) -> Option<Verdict> {
        if !self.is_complete(1) {
            return None;
        }
        // Clocks of different cores that do not agree must not make it look faster than it can be.
        let least = self.least / self.shared.seen as f32;
        let (alone, shared) = (self.alone.mean(), self.shared.mean().max(0.9 * least));
        let wins = if shared_now { KEEPS } else { WINS };
        let share = shared * wins < alone;
        let dearer = if share { alone / shared } else { shared / alone };
        Some(Verdict { alone, work: least * cores as f32, share, dearer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(alone: &[f32], shared: &[f32], work: f32, now: bool) -> bool {
        let mut trial = Trial::default();
        alone.iter().for_each(|cost| trial.add_alone(*cost));
        assert_eq!(trial.verdict(now, 2), None);
        shared.iter().for_each(|cost| trial.add_shared(*cost, work, 2));
        assert!(trial.is_complete(alone.len().min(shared.len()) as u32));
        let verdict = trial.verdict(now, 2).unwrap();
        assert!((verdict.work - work).abs() < 1e-6, "{verdict:?}");
        verdict.share
    }

    #[test]
    fn sharing_has_to_be_worth_it() {
        let alone = [1.0; 8];
        for now in [false, true] {
            assert!(share(&alone, &[0.75; 8], 1.3, now), "faster by a third");
            assert!(!share(&alone, &[0.95; 8], 1.3, now), "hardly faster");
            assert!(!share(&alone, &[1.5; 8], 2.8, now), "others have to fetch it");
            assert_eq!(share(&alone, &[0.85; 8], 1.5, now), now, "in between");
        }
    }

    #[test]
    fn the_other_way_is_dearer() {
        for (shared, dearer) in [(0.5, 2.0), (2.5, 2.5), (0.9, 0.9)] {
            let mut trial = Trial::default();
            for _ in 0..4 {
                trial.add_alone(1.0);
                trial.add_shared(shared, shared, 2);
            }
            let verdict = trial.verdict(false, 2).unwrap();
            assert!((verdict.dearer - dearer).abs() < 1e-6 && verdict.share == (shared < 0.8), "{verdict:?}");
        }
    }

    /// Two cores end at the same time, again and again: half of the copies seem to take nothing.
    #[test]
    fn copies_that_overlap_are_taken_together() {
        let pairs = [0.0, 1.4, 0.0, 1.4, 0.0, 1.4, 0.0, 1.4];
        assert!(share(&[1.0; 8], &pairs, 1.4, false));
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

    /// As if the other core's clock were behind.
    #[test]
    fn nothing_is_faster_than_all_cores_at_once() {
        assert!(!share(&[1.0; 8], &[0.0; 8], 2.0, false));
        assert!(share(&[1.0; 8], &[0.0; 8], 1.4, false));
    }
}
