//! The word that exporter and importer share: the number of leases, and flags that refuse new leases.
//!
//! One atomic word contains both, so that taking leases and closing the word have one total order. A
//! lease taken before the closing is in the count for which the exporter waits. An attempt after the
//! closing sees the flag and undoes its increment.

use std::sync::atomic::{AtomicU32, Ordering};

use super::MAX_LEASES;

/// Set by the exporter to revoke the grant.
pub(super) const REVOKED: u32 = 1 << 31;
/// Set after the process on the other side has ended.
pub(super) const GONE: u32 = 1 << 30;

const COUNT: u32 = GONE - 1;

/// The atomic operations of the protocol, so that the model checker can replace them.
pub(super) trait Word {
    fn load(&self, order: Ordering) -> u32;
    fn fetch_add(&self, value: u32, order: Ordering) -> u32;
    fn fetch_sub(&self, value: u32, order: Ordering) -> u32;
    fn fetch_or(&self, value: u32, order: Ordering) -> u32;
}

macro_rules! word {
    ($atomic:ty) => {
        impl Word for $atomic {
            #[inline]
            fn load(&self, order: Ordering) -> u32 {
                self.load(order)
            }
            #[inline]
            fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
                self.fetch_add(value, order)
            }
            #[inline]
            fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
                self.fetch_sub(value, order)
            }
            #[inline]
            fn fetch_or(&self, value: u32, order: Ordering) -> u32 {
                self.fetch_or(value, order)
            }
        }
    };
}

word!(AtomicU32);
#[cfg(all(test, loom))]
word!(loom::sync::atomic::AtomicU32);

/// Reason why a lease is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closed {
    Revoked,
    Gone,
    /// The maximum number of leases is reached.
    Full,
}

/// Takes a lease. Every success must be followed by [`release`].
#[inline]
pub(super) fn acquire(word: &impl Word) -> Result<(), Closed> {
    // Load first, so that attempts on a closed word rarely change the count. The exporter waits until the
    // count is 0, and each change would delay it.
    let seen = word.load(Ordering::Relaxed);
    if seen >= MAX_LEASES {
        return Err(why(seen));
    }
    // Acquire: the copy does not begin before the lease is taken.
    let seen = word.fetch_add(1, Ordering::Acquire);
    if seen >= MAX_LEASES {
        return Err(take_back(word, seen));
    }
    Ok(())
}

/// Undoes the increment of a refused attempt. Returns the reason of the refusal.
#[cold]
fn take_back(word: &impl Word, seen: u32) -> Closed {
    word.fetch_sub(1, Ordering::Relaxed);
    why(seen)
}

/// Returns the reason why a word with the value `seen` refuses leases.
#[cold]
fn why(seen: u32) -> Closed {
    if seen & REVOKED != 0 {
        Closed::Revoked
    } else if seen & GONE != 0 {
        Closed::Gone
    } else {
        Closed::Full
    }
}

/// Releases a lease. Returns true if the word is closed, because then the exporter may be waiting for
/// the release.
#[inline]
#[must_use]
pub(super) fn release(word: &impl Word) -> bool {
    // Release: a thread that sees the lower count also sees the copied bytes.
    word.fetch_sub(1, Ordering::Release) & (REVOKED | GONE) != 0
}

/// Refuses further leases, for `reason` ([`REVOKED`] or [`GONE`]). Existing leases stay valid.
pub(super) fn close(word: &impl Word, reason: u32) {
    word.fetch_or(reason, Ordering::AcqRel);
}

/// Returns the number of leases, and the whole word, for a wait until the word changes.
pub(super) fn leases(word: &impl Word) -> (u32, u32) {
    // Acquire: pairs with `release`.
    let seen = word.load(Ordering::Acquire);
    (seen & COUNT, seen)
}

/// Returns the reason why no lease can be taken now, or `None`.
pub(super) fn closed(word: &impl Word) -> Option<Closed> {
    let seen = word.load(Ordering::Acquire);
    (seen & (REVOKED | GONE) != 0).then(|| why(seen))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn counts_and_closes() {
        let word = AtomicU32::new(0);
        assert_eq!(acquire(&word), Ok(()));
        assert_eq!(acquire(&word), Ok(()));
        assert!(!release(&word));
        assert_eq!(leases(&word).0, 1);
        close(&word, REVOKED);
        assert_eq!(acquire(&word), Err(Closed::Revoked));
        assert_eq!(leases(&word).0, 1);
        assert!(release(&word));
        assert_eq!(leases(&word).0, 0);
    }

    #[test]
    fn revoked_wins_over_gone() {
        let word = AtomicU32::new(0);
        close(&word, GONE);
        assert_eq!(acquire(&word), Err(Closed::Gone));
        close(&word, REVOKED);
        assert_eq!(acquire(&word), Err(Closed::Revoked));
        assert_eq!(closed(&word), Some(Closed::Revoked));
    }

    #[test]
    fn forgotten_leases_run_out() {
        let word = AtomicU32::new(MAX_LEASES - 1);
        assert_eq!(acquire(&word), Ok(()));
        assert_eq!(acquire(&word), Err(Closed::Full));
        assert_eq!(leases(&word).0, MAX_LEASES);
    }
}

// RUSTFLAGS="--cfg loom" cargo test -p dma-ipc --release --lib lease
#[cfg(all(test, loom))]
mod loom_tests {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU32;
    use loom::thread;

    use super::*;

    struct Shared {
        word: AtomicU32,
        bytes: UnsafeCell<u32>,
    }

    /// Runs an importer that takes a lease and writes the bytes, `times` times.
    fn importer(shared: &Shared, times: usize) -> u32 {
        let mut copies = 0;
        for _ in 0..times {
            if acquire(&shared.word).is_ok() {
                // Loom fails the test if another thread accesses the bytes at the same time.
                shared.bytes.with_mut(write_once);
                copies += 1;
                let _ = release(&shared.word);
            }
        }
        copies
    }

    /// Revokes, waits for the leases, and then accesses the bytes exclusively.
    fn exporter(shared: &Shared) -> u32 {
        close(&shared.word, REVOKED);
        while leases(&shared.word).0 != 0 {
            thread::yield_now();
        }
        shared.bytes.with_mut(read_and_spoil)
    }

    #[expect(unsafe_code, reason = "loom passes a raw pointer to its checked cell")]
    fn write_once(bytes: *mut u32) {
        // SAFETY: loom keeps the cell alive, and checks that no other thread accesses it.
        unsafe { *bytes += 1 };
    }

    #[expect(unsafe_code, reason = "loom passes a raw pointer to its checked cell")]
    fn read_and_spoil(bytes: *mut u32) -> u32 {
        // SAFETY: loom keeps the cell alive, and checks that no other thread accesses it.
        unsafe { bytes.replace(1000) }
    }

    fn shared() -> Arc<Shared> {
        Arc::new(Shared { word: AtomicU32::new(0), bytes: UnsafeCell::new(0) })
    }

    #[test]
    fn after_revoke_nobody_copies() {
        loom::model(|| {
            let shared = shared();
            let peer = thread::spawn({
                let shared = Arc::clone(&shared);
                move || importer(&shared, 2)
            });
            let seen = exporter(&shared);
            assert_eq!(peer.join().unwrap(), seen, "every copy came before the end of revoke, none after");
            assert_eq!(acquire(&shared.word), Err(Closed::Revoked));
        });
    }

    #[test]
    fn two_revokers_and_a_watcher_agree() {
        loom::model(|| {
            let shared = shared();
            let peer = thread::spawn({
                let shared = Arc::clone(&shared);
                move || importer(&shared, 1)
            });
            let watcher = thread::spawn({
                let shared = Arc::clone(&shared);
                move || close(&shared.word, GONE)
            });
            let seen = exporter(&shared);
            assert_eq!(peer.join().unwrap(), seen);
            watcher.join().unwrap();
            assert_eq!(leases(&shared.word).0, 0);
            assert_eq!(acquire(&shared.word), Err(Closed::Revoked));
        });
    }

    // Two threads copy through one import. They only read the cell, because their copies may overlap in time.
    #[test]
    fn threads_share_an_import() {
        loom::model(|| {
            let shared = shared();
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || {
                        if acquire(&shared.word).is_ok() {
                            shared.bytes.with(|_| ());
                            let _ = release(&shared.word);
                        }
                    })
                })
                .collect();
            exporter(&shared);
            for reader in readers {
                reader.join().unwrap();
            }
            assert_eq!(leases(&shared.word).0, 0);
        });
    }
}
