//! Run delay: the time that threads have run, and waited for a CPU. It shows how much of a slice a busy
//! machine has taken, and which threads took part.

use std::fs;
use std::path::Path;

use crate::cpu_clock;

/// A thread of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its thread ID.
    pub id: u32,
    /// Nanoseconds that it has run; 0 if the kernel does not count them.
    pub ran: u64,
    /// Nanoseconds that it has waited for a CPU; 0 if the kernel does not count them.
    pub waited: u64,
}

/// Returns the threads of this process.
#[must_use]
pub fn of_process() -> Vec<Thread> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let of = |id: u32, path: &Path| {
        cpu_clock::bring_up_to_date(id);
        let (ran, waited) = of(path);
        Thread { id, ran, waited }
    };
    threads
        .filter_map(|t| Some(of(t.file_name().to_str()?.parse().ok()?, &t.path().join("schedstat"))))
        .collect()
}

/// Returns the nanoseconds that the calling thread has waited for a CPU.
#[must_use]
pub fn of_thread() -> u64 {
    of(Path::new("/proc/thread-self/schedstat")).1
}

/// Returns the thread that ran most between two observations, the calling one excluded. `None` if no other
/// ran.
#[must_use]
pub fn busiest(before: &[Thread], now: &[Thread]) -> Option<u32> {
    let own = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    let since = |t: &Thread| before.iter().find(|b| b.id == t.id).map_or(0, |b| b.ran);
    let others = now.iter().filter(|t| t.id != own).map(|t| (t.id, t.ran.saturating_sub(since(t))));
    others.filter(|(_, ran)| *ran > 0).max_by_key(|(_, ran)| *ran).map(|(id, _)| id)
}

/// Returns the CPU that a thread of this process runs on, or last ran on.
#[must_use]
pub fn cpu_of(thread: u32) -> Option<usize> {
    field(thread, 39)?.parse().ok()
}

/// Returns a field of a thread's proc_pid_stat(5), by its number from 3 on.
fn field(thread: u32, number: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?;
    // The second field is a name in brackets, which may contain any character.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(number - 3).map(str::to_owned)
}

/// Reads the nanoseconds on a CPU and those of waiting for one: the first two fields of schedstat (Linux,
/// Documentation/scheduler/sched-stats.rst).
fn of(path: &Path) -> (u64, u64) {
    let text = fs::read_to_string(path).unwrap_or_default();
    let mut fields = text.split_ascii_whitespace().map(|n| n.parse().unwrap_or(0));
    (fields.next().unwrap_or(0), fields.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_counted() {
        let thread = of_thread();
        // More threads than CPUs: some wait.
        let many = 4 * std::thread::available_parallelism().map_or(1, usize::from);
        let waited: u64 = std::thread::scope(|scope| {
            let spin = || {
                let until = std::time::Instant::now() + std::time::Duration::from_millis(30);
                while std::time::Instant::now() < until {
                    std::hint::spin_loop();
                }
                of_thread()
            };
            let threads: Vec<_> = (0..many).map(|_| scope.spawn(spin)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).sum()
        });
        let counted = fs::read_to_string("/proc/thread-self/schedstat").is_ok();
        assert_eq!(waited > 0, counted, "{waited} ns");
        // The sum over the process does go down, when a thread of another test ends.
        assert!(of_thread() >= thread, "it never goes down");
    }

    #[test]
    fn the_thread_that_ran_most_beside_this_one_is_found() {
        let own = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        let threads = |ran: [(u32, u64); 3]| ran.map(|(id, ran)| Thread { id, ran, waited: 7 });
        let before = threads([(own, 10), (own + 1, 50), (own + 2, 900)]);
        let now = |a, b, c| threads([(own, a), (own + 1, b), (own + 2, c)]);
        assert_eq!(busiest(&before, &now(1000, 90, 920)), Some(own + 1));
        assert_eq!(busiest(&before, &now(1000, 60, 920)), Some(own + 2));
        assert_eq!(busiest(&before, &now(1000, 50, 900)), None);
        // A new thread has run all its time since the first observation.
        assert_eq!(busiest(&before[..1], &now(1000, 60, 61)), Some(own + 2));
        assert_eq!(busiest(&before, &before[..1]), None);
    }

    #[test]
    fn the_cpu_of_a_thread_is_the_one_it_runs_on() {
        use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
        let Some(allowed) = sched_getaffinity(None).ok().filter(|_| Path::new("/proc/self/stat").exists())
        else {
            return;
        };
        for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).take(4) {
            let found = std::thread::Builder::new().name("a) 7 (b".to_owned()).spawn(move || {
                let mut only = CpuSet::new();
                only.set(cpu);
                sched_setaffinity(None, &only).unwrap();
                cpu_of(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs())
            });
            assert_eq!(found.unwrap().join().unwrap(), Some(cpu));
        }
        assert_eq!(cpu_of(u32::MAX), None);
        let own = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        assert_eq!(field(own, 3).as_deref(), Some("R"));
        assert!(of_process().iter().any(|t| cpu_of(t.id).is_some()));
    }
}
