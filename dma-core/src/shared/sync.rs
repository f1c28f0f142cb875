//! The primitives that threads share, from the standard library or, to check all interleavings, from `loom`.

#[cfg(not(loom))]
pub(super) use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

#[cfg(not(loom))]
pub(super) use atomic_waker::AtomicWaker;
#[cfg(loom)]
pub(super) use loom::{
    cell::UnsafeCell,
    future::AtomicWaker as LoomWaker,
    sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering},
};

/// `UnsafeCell` with loom's interface.
#[cfg(not(loom))]
#[derive(Debug)]
pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(super) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline]
    pub(super) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// Loom's waker takes its waker by value.
#[cfg(loom)]
#[derive(Debug)]
pub(super) struct AtomicWaker(LoomWaker);

#[cfg(loom)]
impl AtomicWaker {
    pub(super) fn new() -> Self {
        Self(LoomWaker::new())
    }

    pub(super) fn register(&self, waker: &std::task::Waker) {
        self.0.register(waker.clone());
    }

    pub(super) fn take(&self) -> Option<std::task::Waker> {
        self.0.take_waker()
    }
}
