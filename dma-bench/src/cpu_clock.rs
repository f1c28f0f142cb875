//! CPU time of this process and of its threads.
#![expect(unsafe_code, reason = "the clock of another thread has no safe wrapper among our dependencies")]

use rustix::time::{ClockId, clock_gettime};

/// Returns the CPU time of this process, in nanoseconds. The kernel adds a running thread's time only at
/// ticks (4 ms at 250 Hz), when it stops, and when its clock is read. So the clocks of `threads` are read
/// first.
#[must_use]
pub fn of_process(threads: impl IntoIterator<Item = u32>) -> f64 {
    threads.into_iter().for_each(bring_up_to_date);
    nanoseconds(ClockId::ProcessCPUTime)
}

/// Returns the CPU time of the calling thread, in nanoseconds.
#[must_use]
pub fn of_thread() -> f64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

/// Reads the clock of a thread of this process, if there is such a thread, so that the kernel adds its time.
pub fn bring_up_to_date(thread: u32) {
    // The clock of a thread as pthread_getcpuclockid(3) makes it: the inverted number, and three bits for
    // "one thread, as scheduled".
    let clock = (!(thread as libc::clockid_t) << 3) | 6;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to `time` alone. For a clock that does not exist it returns an error.
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
    use crate::{run_delay, sibling};

    /// Steps of the busy loop.
    const STEPS: u32 = 40;
    /// Their least duration in nanoseconds.
    const LEAST: f64 = 10e3;

    #[test]
    fn time_of_a_running_thread_counts() {
        let (id, steps, end) = (AtomicU32::new(0), AtomicU32::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                id.store(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs(), Ordering::Release);
                while !end.load(Ordering::Acquire) {
                    sibling::work();
                    steps.fetch_add(1, Ordering::Relaxed);
                }
            });
            let (mut counted, mut ran) = (0, 0);
            let until = Instant::now() + Duration::from_secs(60);
            // Counts the steps shorter than a tick in which the other thread ran.
            while ran < 50 && Instant::now() < until {
                let id = id.load(Ordering::Acquire);
                let of_it =
                    |threads: Vec<run_delay::Thread>| threads.into_iter().find(|t| t.id == id).map(|t| t.ran);
                let (before, all, own) = (of_it(run_delay::of_process()), of_process([id]), of_thread());
                let stepped = steps.load(Ordering::Relaxed);
                std::thread::sleep(Duration::from_micros(300));
                let stepped = steps.load(Ordering::Relaxed) - stepped;
                let (spent, own) = (of_process([id]) - all, of_thread() - own);
                let now = of_it(run_delay::of_process());
                let both = before.zip(now).is_some_and(|(before, now)| now >= before + LEAST as u64);
                if stepped >= STEPS {
                    ran += 1;
                    counted += u32::from(both && spent - own >= LEAST);
                }
            }
            end.store(true, Ordering::Release);
            assert!(ran > 0 && counted > ran / 2, "{counted} of {ran}");
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
