//! Deadlines, and synchronization primitives. The primitives are from the standard library, or from `loom`,
//! which checks all interleavings.

use std::sync::PoisonError;
use std::task::Waker;
use std::time::{Duration, Instant};

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex,
    atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering},
};

#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::{
        Mutex,
        atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering},
    },
};

/// Returns the time `timeout` from now, or decades from now if the clock cannot represent it.
pub(crate) fn deadline(timeout: Duration) -> Instant {
    const DECADES: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);
    let now = Instant::now();
    now.checked_add(timeout).unwrap_or_else(|| now + DECADES)
}

/// Adds a fence under loom, because loom's model of sequentially consistent accesses is weaker than the real
/// accesses.
#[inline]
pub(crate) fn in_order() {
    #[cfg(loom)]
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// `UnsafeCell` with loom's interface.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// The waker of a waiting task. Callers clone and drop wakers without holding the lock, because wakers may
/// run user code and panic.
#[derive(Debug)]
pub(crate) struct WakerCell(Mutex<Option<Waker>>);

impl WakerCell {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Returns whether the stored waker wakes the same task as `waker`.
    pub(crate) fn will_wake(&self, waker: &Waker) -> bool {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.as_ref().is_some_and(|held| held.will_wake(waker))
    }

    /// Stores `waker` and returns the previous one.
    pub(crate) fn replace(&self, waker: Option<Waker>) -> Option<Waker> {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), waker)
    }
}
