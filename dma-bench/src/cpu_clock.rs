//! CPU time of this process and of its threads.
#![expect(unsafe_code, reason = "the clock of another thread has no safe wrapper among our dependencies")]

use rustix::time::{ClockId, clock_gettime};

/// CPU time of this process, in nanoseconds. The kernel adds what a thread runs when it stops, at a tick, and when its own clock is read: without the
/// last, what a thread that still runs did in less than a tick (4 ms at 250 Hz) is mostly missing. So `threads`, by number, are brought up to date first.
#[must_use]
pub fn of_process(threads: impl IntoIterator<Item = u32>) -> f64 {
    threads.into_iter().for_each(bring_up_to_date);
    nanoseconds(ClockId::ProcessCPUTime)
}

/// CPU time of the calling thread, in nanoseconds.
#[must_use]
pub fn of_thread() -> f64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

/// Has the kernel add what a thread of this process has run until now, if there is such a thread.
pub fn bring_up_to_date(thread: u32) {
    // What pthread_getcpuclockid(3) makes of a thread's number: all bits turned over, then three that say "of one thread, as scheduled".
    let clock = (!(thread as libc::clockid_t) << 3) | 6;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to `time` alone. A clock that does not exist is an error, which changes nothing.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
}

fn nanoseconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::waits;

    #[test]
    fn what_another_thread_runs_counts_before_it_stops() {
        let (id, end) = (AtomicU32::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                id.store(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs(), Ordering::Release);
                while !end.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
            });
            let ran = |id| waits::of_process().into_iter().find(|t| t.id == id).map(|t| t.ran);
            let (mut others, mut looks) = (0, 0);
            let until = Instant::now() + Duration::from_secs(60);
            // Less than a tick each. Where both share one CPU it stops all the time, and is counted then.
            while looks < 50 && Instant::now() < until {
                let id = id.load(Ordering::Acquire);
                let Some(before) = ran(id) else { continue };
                let (all, own) = (of_process([id]), of_thread());
                std::thread::sleep(Duration::from_micros(300));
                let (spent, own) = (of_process([id]) - all, of_thread() - own);
                looks += 1;
                others += u32::from(spent - own > 100e3 && ran(id).is_some_and(|now| now > before + 100_000));
            }
            end.store(true, Ordering::Release);
            assert!(looks > 0 && others > looks / 2, "{others} of {looks}");
        });
    }

    #[test]
    fn a_thread_that_does_not_exist_changes_nothing() {
        let before = of_process([]);
        bring_up_to_date(u32::MAX >> 4);
        assert!(of_process([0, 1, u32::MAX]) >= before);
        assert!(of_thread() > 0.0);
    }
}
