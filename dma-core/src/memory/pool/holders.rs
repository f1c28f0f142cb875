//! [`Holders`]: the names under which buffers were taken, and the times.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dma_process::ProcessLock;

/// The names of a pool's holders. Holders are numbered from 1. In a forked child, the parent's holders have
/// no names.
#[derive(Default)]
pub(super) struct Names(ProcessLock<Vec<String>>);

impl Names {
    /// Returns the number of a holder, or 0 in a forked child.
    pub(super) fn number(&self, name: &str) -> u32 {
        let Some(mut names) = self.0.lock() else { return 0 };
        let at = names.iter().position(|known| known == name).unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
        u32::try_from(at + 1).unwrap_or(0)
    }

    /// Returns the name of a holder; `None` for 0.
    pub(super) fn name(&self, number: u32) -> Option<String> {
        let names = self.0.lock()?;
        names.get((number as usize).checked_sub(1)?).cloned()
    }
}

/// The last holder of each block of a size. This costs no time until the first buffer is taken under a name.
pub(super) struct Holders {
    numbers: usize,
    begin: Instant,
    of_blocks: OnceLock<Box<[Holder]>>,
}

#[derive(Default)]
struct Holder {
    number: AtomicU32,
    /// Nanoseconds since `begin`.
    since: AtomicU64,
}

impl Holders {
    /// Makes holders of blocks whose numbers are below `numbers`.
    pub(super) fn new(numbers: usize) -> Self {
        Self { numbers, begin: Instant::now(), of_blocks: OnceLock::new() }
    }

    /// Returns whether it is recorded that this holder takes a block.
    #[inline]
    pub(super) fn notes(&self, holder: u32) -> bool {
        holder != 0 || self.of_blocks.get().is_some()
    }

    /// Records the holder that takes a block, and the time.
    pub(super) fn set(&self, block: u32, holder: u32) {
        if self.notes(holder) {
            self.note(block, holder);
        }
    }

    #[cold]
    fn note(&self, block: u32, holder: u32) {
        let of_blocks = self.of_blocks.get_or_init(|| (0..self.numbers).map(|_| Holder::default()).collect());
        let of_block = &of_blocks[block as usize];
        of_block.number.store(holder, Ordering::Relaxed);
        let since = u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        of_block.since.store(since, Ordering::Relaxed);
    }

    /// Returns the number of a block's holder, and for how long it has held the block. The time is zero if no
    /// buffer has been taken under a name yet.
    pub(super) fn of(&self, block: u32) -> (u32, Duration) {
        let Some(of_block) = self.of_blocks.get().map(|of_blocks| &of_blocks[block as usize]) else {
            return (0, Duration::ZERO);
        };
        let since = Duration::from_nanos(of_block.since.load(Ordering::Relaxed));
        (of_block.number.load(Ordering::Relaxed), self.begin.elapsed().saturating_sub(since))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "forks")]
    fn a_child_does_not_wait_for_a_thread_that_changes_the_names() {
        let names = Names::default();
        assert_eq!(names.number("reader"), 1);
        // The lock stays held, as by a thread that the child does not have.
        std::mem::forget(names.0.lock());
        assert!(test_support::in_child::in_child(|| names.number("writer") == 0 && names.name(1).is_none()));
    }
}
