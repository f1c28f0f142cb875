//! Time: the machine's, or the model's where that is virtual.
#![expect(unsafe_code, reason = "the names are C's")]

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dma_sim::model::Time;

static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Time is virtual, as some socket's clock is.
static VIRTUAL: AtomicBool = AtomicBool::new(false);
/// Virtual time, in nanoseconds.
static NOW: AtomicU64 = AtomicU64::new(0);
/// What looking at the virtual clock takes, so that who waits for a time gets there.
const LOOK: u64 = 10;

/// From now on `spdk_get_ticks` tells virtual time, or not.
pub(crate) fn use_virtual(virtual_time: bool) {
    VIRTUAL.store(virtual_time, Ordering::Relaxed);
}

/// The time of the sockets whose clock is virtual.
#[inline]
pub(crate) fn virtual_now() -> Time {
    Time::from_ns(NOW.load(Ordering::Relaxed))
}

/// Lets virtual time be no less than this.
#[inline]
pub(crate) fn reach(time: Time) {
    NOW.fetch_max(time.as_ps().div_ceil(1_000), Ordering::Relaxed);
}

/// Lets virtual time pass.
#[inline]
pub(crate) fn pass(ns: u64) {
    NOW.fetch_add(ns, Ordering::Relaxed);
}

/// The machine's time since the process began to look.
#[inline]
pub(crate) fn real_now() -> Time {
    STARTED.elapsed().into()
}

/// Nanoseconds.
#[unsafe(no_mangle)]
extern "C" fn spdk_get_ticks() -> u64 {
    if VIRTUAL.load(Ordering::Relaxed) {
        return NOW.fetch_add(LOOK, Ordering::Relaxed);
    }
    // From 1 on: some programs take 0 for never.
    STARTED.elapsed().as_nanos() as u64 + 1
}

#[unsafe(no_mangle)]
extern "C" fn spdk_get_ticks_hz() -> u64 {
    1_000_000_000
}

#[unsafe(no_mangle)]
extern "C" fn spdk_delay_us(us: u32) {
    if VIRTUAL.load(Ordering::Relaxed) {
        pass(u64::from(us) * 1_000);
    }
    // Somebody may wait for a device that is a thread: it has to get its turn, so the delay is no busy one.
    std::thread::sleep(Duration::from_micros(us.into()));
}

#[unsafe(no_mangle)]
extern "C" fn spdk_pause() {
    std::hint::spin_loop();
}
