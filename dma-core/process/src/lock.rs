//! [`lock`]: locks a mutex, whether or not an earlier holder has panicked.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`. Blocks while another thread has the lock. Panics of earlier holders are ignored, so a value
/// that a panic could leave half changed needs another lock.
#[inline]
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
