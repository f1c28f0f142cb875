//! CPU time of this process and its threads, and the time that its threads waited for a CPU (run delay).
#![expect(unsafe_code, reason = "the clock of another thread has no safe wrapper among our dependencies")]

use std::fs;
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};

/// Returns the CPU time of this process, in nanoseconds. The kernel adds a running thread's time only at
/// ticks (4 ms at 250 Hz), when it stops, and when its clock is read. So the clocks of `threads` are read
/// first.
pub(crate) fn of_process(threads: &[u32]) -> f64 {
    threads.iter().copied().for_each(bring_up_to_date);
    nanoseconds(ClockId::ProcessCPUTime)
}

/// Returns the CPU time of the calling thread, in nanoseconds.
pub(crate) fn of_thread() -> f64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

/// Returns the nanoseconds that the calling thread has waited for a CPU; 0 if the kernel does not count this
/// time.
pub(crate) fn run_delay() -> u64 {
    run_delay_in(Path::new("/proc/thread-self/schedstat"))
}

/// Returns the IDs of this process's threads, and the sum of the nanoseconds that they have waited for a CPU.
pub(crate) fn threads() -> (Vec<u32>, u64) {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    tasks.fold((Vec::new(), 0), |(mut ids, delay), task| {
        ids.extend(task.file_name().to_str().and_then(|id| id.parse::<u32>().ok()));
        (ids, delay + run_delay_in(&task.path().join("schedstat")))
    })
}

/// Reads the time spent waiting for a CPU: the second field of schedstat (Linux,
/// Documentation/scheduler/sched-stats.rst).
fn run_delay_in(path: &Path) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_ascii_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// Reads the clock of a thread of this process, if the thread exists, so that the kernel adds its time.
fn bring_up_to_date(thread: u32) {
    // The ID of a thread's clock, as pthread_getcpuclockid(3) computes it: the inverted thread ID, and three
    // bits that mean "one thread, scheduler time".
    let clock = (!(thread as libc::clockid_t) << 3) | 6;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes only to `time`, a local structure. If the clock does not exist, the call
    // returns an error.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
}

fn nanoseconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::time::{Duration, Instant};

    use super::*;

    /// Number of rounds.
    const ROUNDS: u32 = 50;
    /// Number of steps of the busy loop in a round.
    const STEPS: u32 = 40;
    /// Minimum total duration of these steps in nanoseconds.
    const LEAST: f64 = 10e3;

    /// Keeps this core busy for some microseconds.
    fn work() {
        black_box((0..black_box(3000_u64)).fold(1_u64, |a, step| (a ^ step).wrapping_mul(0x9E37_79B9)));
    }

    #[test]
    fn time_of_a_running_thread_counts() {
        let (id, steps, end) = (AtomicU32::new(0), AtomicU32::new(0), AtomicBool::new(false));
        let wait_for_step = |step| {
            while steps.load(Ordering::Acquire) < step {
                std::thread::yield_now();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                id.store(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs(), Ordering::Release);
                while !end.load(Ordering::Acquire) {
                    work();
                    steps.fetch_add(1, Ordering::Release);
                }
            });
            // Counts the rounds in which the other thread's time advanced. Most rounds are shorter than a
            // tick.
            let mut counted = 0;
            for _ in 0..ROUNDS {
                wait_for_step(steps.load(Ordering::Relaxed) + 1);
                let id = id.load(Ordering::Acquire);
                let (all, own) = (of_process(&[id]), of_thread());
                wait_for_step(steps.load(Ordering::Relaxed) + STEPS);
                let (spent, own) = (of_process(&[id]) - all, of_thread() - own);
                counted += u32::from(spent - own >= LEAST);
            }
            end.store(true, Ordering::Release);
            assert!(counted > ROUNDS / 2, "{counted} of {ROUNDS}");
        });
    }

    #[test]
    fn a_thread_that_does_not_exist_changes_nothing() {
        let before = of_process(&[]);
        bring_up_to_date(u32::MAX >> 4);
        assert!(of_process(&[0, 1, u32::MAX]) >= before);
        assert!(of_thread() > 0.0);
    }

    #[test]
    fn waiting_is_counted() {
        let thread = run_delay();
        // With more threads than CPUs, some threads wait.
        let many = 4 * std::thread::available_parallelism().map_or(1, usize::from);
        let all: u64 = std::thread::scope(|scope| {
            let spin = || {
                let until = Instant::now() + Duration::from_millis(30);
                while Instant::now() < until {
                    std::hint::spin_loop();
                }
                run_delay()
            };
            let threads: Vec<_> = (0..many).map(|_| scope.spawn(spin)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).sum()
        });
        let counted = fs::read_to_string("/proc/thread-self/schedstat").is_ok();
        assert_eq!(all > 0, counted, "{all} ns");
        // The process's sum can decrease: the time of another test's thread is lost when that thread ends.
        assert!(run_delay() >= thread, "the run delay never decreases");
        assert!(!counted || !threads().0.is_empty());
    }
}
