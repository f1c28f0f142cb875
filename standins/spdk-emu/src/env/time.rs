//! Time: either real, or virtual and advanced by the model.
#![expect(unsafe_code, reason = "the names are C's")]

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dma_sim::model::Time;

use crate::c_abi::c_calls;

static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Set if the clock of a socket is virtual.
static VIRTUAL: AtomicBool = AtomicBool::new(false);
/// Virtual time, in nanoseconds.
static NOW: AtomicU64 = AtomicU64::new(0);
/// Virtual time that reading the clock takes, in nanoseconds. If reading took no time, loops that wait for a
/// time would not end.
const LOOK: u64 = 10;

/// Sets the kind of time that `spdk_get_ticks` returns.
pub(crate) fn use_virtual(virtual_time: bool) {
    VIRTUAL.store(virtual_time, Ordering::Relaxed);
}

/// Returns the time of the sockets whose clock is virtual.
#[inline]
pub(crate) fn virtual_now() -> Time {
    Time::from_ns(NOW.load(Ordering::Relaxed))
}

/// Advances the virtual time to at least `time`.
#[inline]
pub(crate) fn reach(time: Time) {
    NOW.fetch_max(time.as_ps().div_ceil(1_000), Ordering::Relaxed);
}

/// Advances the virtual time by `ns`.
#[inline]
pub(crate) fn pass(ns: u64) {
    NOW.fetch_add(ns, Ordering::Relaxed);
}

/// Returns the real time since the first call.
#[inline]
pub(crate) fn real_now() -> Time {
    STARTED.elapsed().into()
}

c_calls! {
    /// Returns the time in nanoseconds.
    fn spdk_get_ticks() -> u64 {
        if VIRTUAL.load(Ordering::Relaxed) {
            return NOW.fetch_add(LOOK, Ordering::Relaxed);
        }
        // The time starts at 1, because some programs treat 0 as "never".
        STARTED.elapsed().as_nanos() as u64 + 1
    }

    fn spdk_get_ticks_hz() -> u64 { 1_000_000_000 }

    fn spdk_delay_us(us: u32) {
        if VIRTUAL.load(Ordering::Relaxed) {
            pass(u64::from(us) * 1_000);
        }
        // Sleep even with virtual time, because the program may wait for an engine that is a thread
        // and needs the CPU.
        std::thread::sleep(Duration::from_micros(us.into()));
    }

    fn spdk_pause() { std::hint::spin_loop(); }
}
