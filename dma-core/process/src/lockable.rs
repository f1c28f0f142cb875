//! The limit of locked memory.

use std::fs;

use rustix::process::Resource;
use rustix::thread::{CapabilitySet, capabilities};

use crate::resource_limit::resource_limit;

/// The remedy for a process that may lock too little memory.
pub const MEMLOCK_REMEDY: &str = "raise the limit of locked memory: `ulimit -l unlimited`, a line \
     `* - memlock unlimited` in /etc/security/limits.d/dma.conf, or `LimitMEMLOCK=infinity` in the service's \
     unit";

/// Returns the number of bytes that this process may lock in memory or pin for a device (`RLIMIT_MEMLOCK`,
/// `ulimit -l`), including those that it has locked. Returns `None` without a limit, and for a process that
/// may exceed its limit (`CAP_IPC_LOCK`).
#[must_use]
pub fn memlock_limit() -> Option<u64> {
    let limit = resource_limit(Resource::Memlock)?;
    let may_exceed = capabilities(None).is_ok_and(|own| own.effective.contains(CapabilitySet::IPC_LOCK));
    (!may_exceed).then_some(limit)
}

/// Returns the [limit of locked memory](memlock_limit), if locking `len` more bytes would exceed it.
/// Otherwise returns `None`: then another limit, such as the device's, was exceeded.
#[must_use]
pub fn exceeded_memlock(len: u64) -> Option<u64> {
    let limit = memlock_limit()?;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    (locked(&status).saturating_add(len) > limit).then_some(limit)
}

/// Returns the number of bytes that a process has locked or pinned, from the text of `/proc/PID/status`
/// (proc_pid_status(5)).
fn locked(status: &str) -> u64 {
    let kib = status.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        let value = value.trim().strip_suffix("kB")?;
        if matches!(name, "VmLck" | "VmPin") { value.trim().parse::<u64>().ok() } else { None }
    });
    kib.sum::<u64>() << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locked_and_pinned_memory_counts() {
        let status = "Name:\tx\nVmPeak:\t  900 kB\nVmLck:\t      64 kB\nVmPin:\t       8 kB\nThreads:\t1\n";
        assert_eq!(locked(status), 72 << 10);
        assert_eq!(locked(""), 0);
    }
}
