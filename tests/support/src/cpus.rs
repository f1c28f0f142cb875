//! The CPUs of a test, on a machine that may forbid some.

use std::fs;

/// Returns the number of the first CPU that this process may use, and the number of its NUMA node.
#[must_use]
pub fn first() -> (usize, usize) {
    let status = fs::read_to_string("/proc/self/status").expect("the status of this process");
    let list =
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("a list of CPUs");
    let cpu = list.trim().split([',', '-']).next().and_then(|first| first.parse().ok()).expect("a first CPU");
    let names = fs::read_dir(format!("/sys/devices/system/cpu/cpu{cpu}")).into_iter().flatten();
    let numbers =
        names.flatten().filter_map(|entry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok());
    // A kernel without NUMA has no nodes.
    (cpu, numbers.min().unwrap_or(0))
}
