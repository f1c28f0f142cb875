//! A cheap clock, for times that are compared with one another.

#![cfg_attr(not(miri), expect(unsafe_code, reason = "reads the time stamp counter"))]

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use once_cell::race::OnceNonZeroUsize;

/// Converts a time to ticks of [`ticks`]. The first call measures the rate, which takes 60 us.
pub(crate) fn ticks_in(time: Duration) -> u64 {
    const MEASURED: Duration = Duration::from_micros(20);
    /// The bits of an `f32`.
    static PER_SECOND: OnceNonZeroUsize = OnceNonZeroUsize::new();
    let measure = || {
        let (since, start) = (Instant::now(), ticks());
        loop {
            let (took, now) = (since.elapsed(), ticks());
            if took >= MEASURED {
                return now.wrapping_sub(start) as f32 / took.as_secs_f32();
            }
        }
    };
    let bits = PER_SECOND.get_or_try_init(|| {
        // The median is used, because the thread may be preempted between the two clock readings.
        let mut measured = [measure(), measure(), measure()];
        measured.sort_unstable_by(f32::total_cmp);
        // A clock that stands still has the rate 0, which is measured at each call.
        NonZeroUsize::new(measured[1].to_bits() as usize).ok_or(())
    });
    let per_second = f32::from_bits(bits.map_or(0, NonZeroUsize::get) as u32);
    (f64::from(per_second) * time.as_secs_f64()) as u64
}

/// Reads a cheap clock. The unit of the clock does not matter, because only ratios are used.
#[inline]
pub(crate) fn ticks() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // SAFETY: every x86-64 CPU has a time stamp counter.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    {
        let ticks: u64;
        // SAFETY: this reads the virtual counter, which Linux makes accessible to user space.
        unsafe { std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
        ticks
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    {
        // On these architectures, and in Miri, there is no streaming kernel, so nothing is timed.
        0
    }
}
