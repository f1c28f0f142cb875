//! How long threads have waited for a CPU: what a busy machine takes away from a measurement.

use std::fs;
use std::path::Path;

/// Nanoseconds that this process's threads have waited for a CPU so far, all together; 0 where the kernel does not count them.
#[must_use]
pub fn of_process() -> u64 {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    threads.map(|thread| of(&thread.path().join("schedstat"))).sum()
}

/// The same of the calling thread alone.
#[must_use]
pub fn of_thread() -> u64 {
    of(Path::new("/proc/thread-self/schedstat"))
}

/// Linux, Documentation/scheduler/sched-stats.rst: time on the CPU, time waiting to run, time slices.
fn of(path: &Path) -> u64 {
    let waited = |text: String| text.split_ascii_whitespace().nth(1)?.parse().ok();
    fs::read_to_string(path).ok().and_then(waited).unwrap_or(0)
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
        // That of the process does go down: other tests run in it, and a thread that ends takes its share along.
        assert!(of_thread() >= thread, "it never goes down");
    }
}
